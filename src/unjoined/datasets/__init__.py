"""Public data sets: downloaded once, verified, kept in a cache."""

from unjoined.datasets.fetch import PublicData
from unjoined.datasets.trials import fetch_email, fetch_jobs

__all__ = ["PublicData", "fetch_email", "fetch_jobs"]
