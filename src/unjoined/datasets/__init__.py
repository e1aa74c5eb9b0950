"""Public data sets: downloaded once, verified, kept in a cache."""

from unjoined.datasets.fetch import Lines, PublicData, Source, data_folder, locate
from unjoined.datasets.trials import check_header, fetch_email, fetch_jobs

__all__ = ["PublicData", "fetch_email", "fetch_jobs"]
