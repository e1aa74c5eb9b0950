"""Additive sums of rows: one pass, any chunking, any order."""

from unjoined.moments._accumulate import accumulate, n_threads
from unjoined.moments._agree import aggregate_rows, fourier_plan
from unjoined.moments._center import (
    CenteredRows,
    Centring,
    ModelMeans,
    SmoothMeans,
    center_rows,
    check_center,
    deal_folds,
    fit_centring,
)
from unjoined.moments._grouped import CellKey, GroupedSums, stable_groups
from unjoined.moments._plan import PlannedSums, SumsPlan
from unjoined.moments._rows import LabelledRows, label_rows, target_rows
from unjoined.moments._scan import RowScan, Violations
from unjoined.moments._shift import CellShift, ShiftReport, weigh_shift
from unjoined.moments._smooth_coef import smooth_coef
from unjoined.moments._sums import MomentSums
from unjoined.moments._sums_file import merge_sums, read_sums, write_sums
from unjoined.moments._system import MinMaxSystem, assemble

__all__ = [
    "CellKey",
    "CellShift",
    "CenteredRows",
    "Centring",
    "GroupedSums",
    "LabelledRows",
    "MinMaxSystem",
    "ModelMeans",
    "MomentSums",
    "PlannedSums",
    "RowScan",
    "ShiftReport",
    "SmoothMeans",
    "SumsPlan",
    "Violations",
    "accumulate",
    "aggregate_rows",
    "assemble",
    "center_rows",
    "check_center",
    "deal_folds",
    "fit_centring",
    "fourier_plan",
    "label_rows",
    "merge_sums",
    "n_threads",
    "read_sums",
    "smooth_coef",
    "stable_groups",
    "target_rows",
    "weigh_shift",
    "write_sums",
]
