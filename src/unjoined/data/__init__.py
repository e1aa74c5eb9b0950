"""Where rows come from: tables, files, simulated problems, trials taken apart."""

from unjoined.data.encode import TableEncoder
from unjoined.data.labels import SeparateLabels
from unjoined.data.queries import SqlQuery
from unjoined.data.rows import CellKFold
from unjoined.data.simulate import (
    JointLabels,
    SimulatedProblem,
    UnjoinedTrial,
    campaign_problem,
    paper_problem,
    unjoin,
)
from unjoined.data.tables import read_table
from unjoined.data.write import write_table

__all__ = [
    "CellKFold",
    "JointLabels",
    "SeparateLabels",
    "SimulatedProblem",
    "SqlQuery",
    "TableEncoder",
    "UnjoinedTrial",
    "campaign_problem",
    "paper_problem",
    "read_table",
    "unjoin",
    "write_table",
]
