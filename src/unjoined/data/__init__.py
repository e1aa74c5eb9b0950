"""Where rows come from: tables, files, simulated problems, trials taken apart."""

from unjoined.data.chunks import NotNumbersError, feature_matrix
from unjoined.data.columns import column_names, column_ranges, has_numbers_only, take_rows
from unjoined.data.dask import (
    DaskSource,
    as_dask_source,
    connected,
    in_memory,
    is_dask,
    predict_lazily,
)
from unjoined.data.encode import ColumnCode, Encoded, TableEncoder, own_columns, warn_of_notes
from unjoined.data.files import ENDINGS, table_ending
from unjoined.data.labels import CellSummary, SeparateLabels
from unjoined.data.looks import LeftOut
from unjoined.data.queries import STATEMENT, SqlQuery, as_query, database_tables, is_query
from unjoined.data.replace import replace_file
from unjoined.data.rows import CellKFold, Chunk, LabelledRows, Rows, label_rows, target_rows
from unjoined.data.simulate import (
    JointLabels,
    SimulatedProblem,
    UnjoinedTrial,
    campaign_problem,
    paper_problem,
    unjoin,
)
from unjoined.data.sources import (
    ArraySource,
    ChunkSource,
    IterableSource,
    TableSource,
    as_source,
)
from unjoined.data.tables import (
    Reading,
    available_bytes,
    estimate_bytes,
    estimate_rows,
    fits_in_memory,
    needed_bytes,
    read_table,
    scan_table,
)
from unjoined.data.write import write_table

__all__ = [
    "ENDINGS",
    "STATEMENT",
    "ArraySource",
    "CellKFold",
    "CellSummary",
    "Chunk",
    "ChunkSource",
    "ColumnCode",
    "DaskSource",
    "Encoded",
    "IterableSource",
    "JointLabels",
    "LabelledRows",
    "LeftOut",
    "NotNumbersError",
    "Reading",
    "Rows",
    "SeparateLabels",
    "SimulatedProblem",
    "SqlQuery",
    "TableEncoder",
    "TableSource",
    "UnjoinedTrial",
    "as_dask_source",
    "as_query",
    "as_source",
    "available_bytes",
    "campaign_problem",
    "column_names",
    "column_ranges",
    "connected",
    "database_tables",
    "estimate_bytes",
    "estimate_rows",
    "feature_matrix",
    "fits_in_memory",
    "has_numbers_only",
    "in_memory",
    "is_dask",
    "is_query",
    "label_rows",
    "needed_bytes",
    "own_columns",
    "paper_problem",
    "predict_lazily",
    "read_table",
    "replace_file",
    "scan_table",
    "table_ending",
    "take_rows",
    "target_rows",
    "unjoin",
    "warn_of_notes",
    "write_table",
]
