"""Where rows come from: tables, files, simulated problems, trials taken apart."""

from unjoined.data._files import read_table, replace_file, write_table
from unjoined.data._folds import CellKFold
from unjoined.data._separate_labels import CellSummary, SeparateLabels
from unjoined.data._simulate import JointLabels, SimulatedProblem, campaign_problem, paper_problem
from unjoined.data._unjoin import UnjoinedTrial, unjoin

__all__ = [
    "CellKFold",
    "CellSummary",
    "JointLabels",
    "SeparateLabels",
    "SimulatedProblem",
    "UnjoinedTrial",
    "campaign_problem",
    "paper_problem",
    "read_table",
    "replace_file",
    "unjoin",
    "write_table",
]
