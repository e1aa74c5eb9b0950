"""Where rows come from: tables, files, simulated problems, trials taken apart."""

from unjoined.data.dask import DaskSource, in_memory
from unjoined.data.encode import TableEncoder
from unjoined.data.labels import CellSummary, SeparateLabels
from unjoined.data.looks import LeftOut
from unjoined.data.queries import SqlQuery
from unjoined.data.rows import CellKFold, Chunk
from unjoined.data.simulate import (
    JointLabels,
    SimulatedProblem,
    UnjoinedTrial,
    campaign_problem,
    paper_problem,
    unjoin,
)
from unjoined.data.sources import ArraySource, ChunkSource, IterableSource, TableSource
from unjoined.data.tables import estimate_bytes, fits_in_memory, read_table
from unjoined.data.write import write_table

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
