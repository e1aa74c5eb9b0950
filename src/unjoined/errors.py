"""Every error and warning of the package, so that callers can catch them by name.

All errors derive from `UnjoinedError`. Those about input also derive from `ValueError`
and those about a missing extra from `ImportError`, as other libraries would raise.
"""

from __future__ import annotations

__all__ = [
    "ClusterError",
    "ColumnWarning",
    "DisclosureWarning",
    "InputError",
    "LabelError",
    "MissingExtraError",
    "OverlapWarning",
    "RatioGuardWarning",
    "TableError",
    "UnjoinedError",
    "UnjoinedWarning",
    "WeakIdentificationWarning",
]


class UnjoinedError(Exception):
    """Root of all errors raised by the package on purpose."""


class InputError(UnjoinedError, ValueError):
    """An argument is not what the function can work with."""


class LabelError(InputError):
    """Labels, kinds, populations or weights are missing or malformed."""


class TableError(InputError):
    """A table or file lacks columns, holds other ones, or cannot be read."""


class ClusterError(UnjoinedError, RuntimeError):
    """A Dask cluster was lost before it had finished its work."""


class MissingExtraError(UnjoinedError, ImportError):
    """A feature needs an optional dependency that is not installed."""


class UnjoinedWarning(UserWarning):
    """Root of all warnings of the package."""


class WeakIdentificationWarning(UnjoinedWarning):
    """The two policies are too alike for the data to determine the uplift."""


class ColumnWarning(UnjoinedWarning):
    """A column was left out, is in other units, or holds values such as no row of the fit had."""


class OverlapWarning(UnjoinedWarning):
    """Few rows of a cell resemble the target, so that much rests on little."""


class DisclosureWarning(UnjoinedWarning):
    """Sums that are to be passed on could tell of a few people."""


class RatioGuardWarning(UnjoinedWarning):
    """A ratio of estimates was kept from exploding at some rows."""
