"""Additive sums of rows: one pass, any chunking, any order."""

from unjoined.sums.add_up import RowScan, Violations, accumulate, combine
from unjoined.sums.agree import MIN_COUNT, aggregate_rows, fourier_plan
from unjoined.sums.census import Census, take_census
from unjoined.sums.files import (
    merge_sums,
    read_finished_sums,
    read_sums,
    sum_with_checkpoint,
    write_sums,
)
from unjoined.sums.moments import CellKey, GroupedSums, MomentSums, PolicySums
from unjoined.sums.passes import (
    dask_census,
    dask_sums,
    in_cells,
    inner_outcomes,
    over_partitions,
)
from unjoined.sums.plan import (
    CELLS,
    Centring,
    MinMaxSystem,
    PlannedSums,
    SmoothMeans,
    SumsPlan,
    assemble,
    by_chunks,
    cell_positions,
    center_sums,
    has_constant,
    means_basis,
    sample_cells,
    smooth_coef,
    take_sample,
)

__all__ = [
    "CELLS",
    "MIN_COUNT",
    "CellKey",
    "Census",
    "Centring",
    "GroupedSums",
    "MinMaxSystem",
    "MomentSums",
    "PlannedSums",
    "PolicySums",
    "RowScan",
    "SmoothMeans",
    "SumsPlan",
    "Violations",
    "accumulate",
    "aggregate_rows",
    "assemble",
    "by_chunks",
    "cell_positions",
    "center_sums",
    "combine",
    "dask_census",
    "dask_sums",
    "fourier_plan",
    "has_constant",
    "in_cells",
    "inner_outcomes",
    "means_basis",
    "merge_sums",
    "over_partitions",
    "read_finished_sums",
    "read_sums",
    "sample_cells",
    "smooth_coef",
    "sum_with_checkpoint",
    "take_census",
    "take_sample",
    "write_sums",
]
