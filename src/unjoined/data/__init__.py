"""Where rows come from: tables, files, simulated problems, trials taken apart."""

from unjoined.data._chunks import Chunk, ChunkSource
from unjoined.data._criteo import criteo_impressions, fetch_criteo
from unjoined.data._criteo_formats import Impression
from unjoined.data._criteo_uplift import fetch_criteo_uplift
from unjoined.data._dask import DaskSource, in_memory
from unjoined.data._download import data_folder
from unjoined.data._email import fetch_email
from unjoined.data._files import read_table, replace_file, write_table
from unjoined.data._folds import CellKFold
from unjoined.data._jobs import fetch_jobs
from unjoined.data._public_data import PublicData
from unjoined.data._scan import SqlQuery
from unjoined.data._separate_labels import CellSummary, SeparateLabels
from unjoined.data._simulate import JointLabels, SimulatedProblem, campaign_problem, paper_problem
from unjoined.data._sources import ArraySource, IterableSource, TableSource
from unjoined.data._unjoin import UnjoinedTrial, unjoin

__all__ = [
    "ArraySource",
    "CellKFold",
    "CellSummary",
    "Chunk",
    "ChunkSource",
    "DaskSource",
    "Impression",
    "IterableSource",
    "JointLabels",
    "PublicData",
    "SeparateLabels",
    "SimulatedProblem",
    "SqlQuery",
    "TableSource",
    "UnjoinedTrial",
    "campaign_problem",
    "criteo_impressions",
    "data_folder",
    "fetch_criteo",
    "fetch_criteo_uplift",
    "fetch_email",
    "fetch_jobs",
    "in_memory",
    "paper_problem",
    "read_table",
    "replace_file",
    "unjoin",
    "write_table",
]
