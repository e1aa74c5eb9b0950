"""Additive sums of rows: one pass, any chunking, any order."""

from unjoined.sums.add_up import RowScan, Violations, accumulate, combine
from unjoined.sums.agree import MIN_COUNT, aggregate_rows, fourier_plan, merge_sums
from unjoined.sums.census import Census, take_census
from unjoined.sums.centring import (
    CELLS,
    Centring,
    SmoothMeans,
    by_chunks,
    center_sums,
    has_constant,
    means_basis,
    shared_means,
    smooth_coef,
)
from unjoined.sums.files import (
    read_finished_sums,
    read_sums,
    sum_with_checkpoint,
    write_sums,
)
from unjoined.sums.moments import (
    CellKey,
    GroupedSums,
    MomentSums,
    hash_features,
    hash_with,
)
from unjoined.sums.noise import (
    GaussianNoise,
    multipliers,
    noise_in_scores,
    noise_multiplier,
    product_variance,
    sensitivity,
)
from unjoined.sums.passes import (
    dask_census,
    dask_sums,
    in_cells,
    inner_outcomes,
    over_partitions,
)
from unjoined.sums.plan import (
    MinMaxSystem,
    PlannedSums,
    SumsPlan,
    assemble,
    sample_cells,
    take_sample,
)
from unjoined.sums.policies import (
    PolicySums,
    best_contrasts,
    contrasts_of,
    in_two_groups,
    n_functions,
    sum_policies,
)

__all__ = [
    "CELLS",
    "MIN_COUNT",
    "CellKey",
    "Census",
    "Centring",
    "GaussianNoise",
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
    "best_contrasts",
    "by_chunks",
    "center_sums",
    "combine",
    "contrasts_of",
    "dask_census",
    "dask_sums",
    "fourier_plan",
    "has_constant",
    "hash_features",
    "hash_with",
    "in_cells",
    "in_two_groups",
    "inner_outcomes",
    "means_basis",
    "merge_sums",
    "multipliers",
    "n_functions",
    "noise_in_scores",
    "noise_multiplier",
    "over_partitions",
    "product_variance",
    "read_finished_sums",
    "read_sums",
    "sample_cells",
    "sensitivity",
    "shared_means",
    "smooth_coef",
    "sum_policies",
    "sum_with_checkpoint",
    "take_census",
    "take_sample",
    "write_sums",
]
