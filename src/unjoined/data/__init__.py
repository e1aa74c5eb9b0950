"""Where rows come from: tables, files, simulated problems, trials taken apart."""

from unjoined.data.additive import Additive, plus
from unjoined.data.chunks import NotNumbersError, feature_matrix
from unjoined.data.columns import (
    NO_VALUE,
    column_names,
    has_numbers_only,
    needs_encoding,
    take_rows,
)
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
from unjoined.data.queries import (
    STATEMENT,
    SqlQuery,
    as_query,
    available_bytes,
    database_tables,
    is_query,
)
from unjoined.data.raw import REGIONS, raw_customers, write_raw_files, write_shop
from unjoined.data.rows import (
    CellKFold,
    Chunk,
    LabelledRows,
    NumberedRows,
    Rows,
    label_rows,
    number_rows,
    target_rows,
)
from unjoined.data.simulate import (
    JointLabels,
    SimulatedProblem,
    UnjoinedTrial,
    campaign_problem,
    paper_problem,
    unjoin,
)
from unjoined.data.sources import ArraySource, ChunkSource, IterableSource, TableSource, as_source
from unjoined.data.tables import (
    Reading,
    estimate_bytes,
    estimate_rows,
    fits_in_memory,
    needed_bytes,
    read_table,
    scan_table,
)
from unjoined.data.write import replace_file, write_table

__all__ = [
    "ArraySource",
    "CellKFold",
    "CellSummary",
    "Chunk",
    "ChunkSource",
    "DaskSource",
    "IterableSource",
    "JointLabels",
    "LeftOut",
    "SeparateLabels",
    "SimulatedProblem",
    "SqlQuery",
    "TableEncoder",
    "TableSource",
    "UnjoinedTrial",
    "campaign_problem",
    "estimate_bytes",
    "fits_in_memory",
    "in_memory",
    "paper_problem",
    "read_table",
    "unjoin",
    "write_table",
]
