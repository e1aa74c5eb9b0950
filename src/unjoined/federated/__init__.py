"""Fits from sums that organisations exchange instead of rows."""

from unjoined.federated.agree import aggregate_rows, fourier_plan, merge_sums
from unjoined.model.plan import PlannedSums, SumsPlan
from unjoined.model.sums_file import read_sums, write_sums

__all__ = [
    "PlannedSums",
    "SumsPlan",
    "aggregate_rows",
    "fourier_plan",
    "merge_sums",
    "read_sums",
    "write_sums",
]
