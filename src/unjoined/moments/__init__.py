"""Additive sums of rows: one pass, any chunking, any order."""

from unjoined.moments._accumulate import accumulate
from unjoined.moments._grouped import CellKey, GroupedSums, stable_groups
from unjoined.moments._rows import LabelledRows, label_rows, target_rows
from unjoined.moments._scan import RowScan, Violations
from unjoined.moments._shift import CellShift, ShiftReport, weigh_shift
from unjoined.moments._sums import MomentSums
from unjoined.moments._system import MinMaxSystem, assemble

__all__ = [
    "CellKey",
    "CellShift",
    "GroupedSums",
    "LabelledRows",
    "MinMaxSystem",
    "MomentSums",
    "RowScan",
    "ShiftReport",
    "Violations",
    "accumulate",
    "assemble",
    "label_rows",
    "stable_groups",
    "target_rows",
    "weigh_shift",
]
