"""Public data sets: downloaded once, verified, kept in a cache."""

from unjoined.datasets.criteo import Impression, criteo_impressions, fetch_criteo
from unjoined.datasets.fetch import PublicData, data_folder
from unjoined.datasets.trials import fetch_criteo_uplift, fetch_email, fetch_jobs

__all__ = [
    "PublicData",
    "criteo_impressions",
    "fetch_criteo",
    "fetch_criteo_uplift",
    "fetch_email",
    "fetch_jobs",
]
