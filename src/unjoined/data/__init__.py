"""Where rows come from: tables, files, simulated problems, trials taken apart."""

from unjoined.data.chunks import column_names, feature_matrix
from unjoined.data.dask import (
    DaskSource,
    as_dask_source,
    connected,
    in_memory,
    is_dask,
    predict_lazily,
)
from unjoined.data.labels import CellKFold, CellSummary, SeparateLabels
from unjoined.data.rows import Chunk, LabelledRows, Rows, label_rows, target_rows
from unjoined.data.simulate import JointLabels, SimulatedProblem, campaign_problem, paper_problem
from unjoined.data.sources import (
    ArraySource,
    ChunkSource,
    IterableSource,
    TableSource,
    as_source,
)
from unjoined.data.tables import ENDINGS, SqlQuery, read_table, table_ending
from unjoined.data.trials import UnjoinedTrial, unjoin
from unjoined.data.write import replace_file, write_table

__all__ = [
    "ENDINGS",
    "ArraySource",
    "CellKFold",
    "CellSummary",
    "Chunk",
    "ChunkSource",
    "DaskSource",
    "IterableSource",
    "JointLabels",
    "LabelledRows",
    "Rows",
    "SeparateLabels",
    "SimulatedProblem",
    "SqlQuery",
    "TableSource",
    "UnjoinedTrial",
    "as_dask_source",
    "as_source",
    "campaign_problem",
    "column_names",
    "connected",
    "feature_matrix",
    "in_memory",
    "is_dask",
    "label_rows",
    "paper_problem",
    "predict_lazily",
    "read_table",
    "replace_file",
    "table_ending",
    "target_rows",
    "unjoin",
    "write_table",
]
