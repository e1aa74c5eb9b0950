"""Public data sets: downloaded once, verified, kept in a cache."""

from unjoined.datasets.criteo import Impression, criteo_impressions, fetch_criteo
from unjoined.datasets.criteo_uplift import fetch_criteo_uplift
from unjoined.datasets.email import fetch_email
from unjoined.datasets.fetch import PublicData, data_folder
from unjoined.datasets.jobs import fetch_jobs

__all__ = [
    "Impression",
    "PublicData",
    "criteo_impressions",
    "data_folder",
    "fetch_criteo",
    "fetch_criteo_uplift",
    "fetch_email",
    "fetch_jobs",
]
