"""Additive sums of rows, in one pass, however they are cut into chunks."""

from unjoined.sums.add_up import RowScan, Violations, accumulate, combine
from unjoined.sums.agree import MIN_COUNT, aggregate_rows, fourier_plan, merge_sums, refuse_twins
from unjoined.sums.census import Census, deal_groups, sample_cells, take_census, take_sample
from unjoined.sums.files import read_finished_sums, read_sums, write_sums
from unjoined.sums.moments import (
    CellKey,
    GroupedSums,
    MomentSums,
    PolicySums,
    hash_features,
    hash_with,
    n_functions,
    sum_policies,
)
from unjoined.sums.passes import (
    dask_sums,
    in_cells,
    inner_rows,
    look_through,
    over_rows,
    sum_source,
)
from unjoined.sums.plan import (
    CELLS,
    Centring,
    MinMaxSystem,
    PlannedSums,
    SmoothMeans,
    SumsPlan,
    assemble,
    best_contrasts,
    by_chunks,
    contrasts_of,
    in_two_groups,
    shared_means,
)

__all__ = [
    "PlannedSums",
    "SumsPlan",
    "aggregate_rows",
    "fourier_plan",
    "merge_sums",
    "read_sums",
    "write_sums",
]
