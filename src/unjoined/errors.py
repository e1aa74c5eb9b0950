"""Every error and warning of the package, so that callers can catch them by name.

All errors derive from `UnjoinedError`. Those about input also derive from `ValueError`
and those about a missing extra from `ImportError`, as other libraries would raise.
"""

from __future__ import annotations

import re

__all__ = [
    "BeyondWarning",
    "ClusterError",
    "ColumnWarning",
    "DisclosureWarning",
    "InputError",
    "LabelError",
    "LeftOutWarning",
    "MissingExtraError",
    "OverlapWarning",
    "RatioGuardWarning",
    "TableError",
    "UnjoinedError",
    "UnjoinedWarning",
    "WeakIdentificationWarning",
]


# Who asks, in an address (Path makes one slash of two), and values whose name says that they are
# secret.
SECRETS = re.compile(
    r"""(?P<before>\b[a-z][a-z0-9+.-]+:/{1,2})[^\s'"]+(?P<at>@)
    |(?P<name>[\w-]*(?:passw|pwd|secret|token|signature|credential|api_?key)[\w-]*\s*=\s*['"]?)
    [^\s'"&;]+""",
    re.IGNORECASE | re.VERBOSE,
)


# Words of messages that the page guide/errors of the documentation says more about, and where.
PAGE = "guide/errors.html"
ANCHORS = {
    "there is no file": "no-file",
    "has no column": "no-column",
    "once for each population, as NAME=FILE": "two-populations",
    "exists. Add --force to replace it": "file-exists",
    "Install it with: pip install": "extra",
    "treatments must be 0/1, ": "treatment-words",
    "none is dropped in silence": "label-missing",
    "where nothing varies ": "nothing-varies",
    "takes one label a row, and no policy.": "one-label",
    "is used, and that both are known together is thrown away.": "both-labels",
    "taken for missing values.": "missing-values",
    "nobody can tell whether": "ambiguous",
    "goes up and down without order, as with codes": "codes",
    "policies can hardly be told apart": "policies-alike",
    "the model was fitted to no such values": "new-values",
    "rows lie beyond nearly all rows that the model was fitted to": "beyond",
    "there is not enough memory": "memory",
    "needs all rows in memory, and these are streamed.": "streamed",
    "changed since the checkpoint was written": "checkpoint",
    "the policy gap was too small at": "ratio",
    "few rows resemble the": "few-rows",
    "or pass min_gap if you know that it is above 0.": "gap-bound",
}


def more_about(message: str) -> str:
    """Return where the documentation says more about a message, or nothing.

    >>> more_about("there is no file 'a.csv'. Check the path.")
    ' More: guide/errors.html#no-file'
    """
    found = (anchor for words, anchor in ANCHORS.items() if words in message)
    anchor = next(found, None)
    return f" More: {PAGE}#{anchor}" if anchor else ""


def mask_secrets(text: str) -> str:
    """Return a text with the passwords in its addresses and queries left out.

    >>> mask_secrets("'https://me:1234@shop.example/a.csv?token=5' is an address")
    "'https://***@shop.example/a.csv?token=***' is an address"
    """
    return SECRETS.sub(
        lambda found: f"{found['before'] or found['name']}***{found['at'] or ''}", text
    )


def _masked(arguments: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(mask_secrets(a) if isinstance(a, str) else a for a in arguments)


class UnjoinedError(Exception):
    """Root of all errors raised by the package on purpose."""

    def __init__(self, *arguments: object, **details: object) -> None:
        super().__init__(*_masked(arguments), **details)


class InputError(UnjoinedError, ValueError):
    """An argument is not what the function can work with."""


class LabelError(InputError):
    """Labels, populations or weights are missing or malformed."""


class TableError(InputError):
    """A table or file lacks columns, holds other ones, or cannot be read."""


class ClusterError(UnjoinedError, RuntimeError):
    """A Dask cluster was lost before it had finished its work."""


class MissingExtraError(UnjoinedError, ImportError):
    """A feature needs an optional dependency that is not installed."""


class UnjoinedWarning(UserWarning):
    """Root of all warnings of the package."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*_masked(arguments))


class WeakIdentificationWarning(UnjoinedWarning):
    """The two policies are too alike for the data to determine the uplift."""


class ColumnWarning(UnjoinedWarning):
    """A column was left out, is in other units, or holds values such as no row of the fit had."""


class BeyondWarning(ColumnWarning):
    """Most people to be scored lie beyond those of the fit.

    Parameters
    ----------
    message : str
        What is said.
    apart : bool, default=False
        Whether next to none of them has a like in the fit.
    """

    def __init__(self, message: str, *, apart: bool = False) -> None:
        super().__init__(message)
        self.apart = apart


class LeftOutWarning(ColumnWarning):
    """Columns of tables are not taken for features."""


class OverlapWarning(UnjoinedWarning):
    """Few rows of a cell resemble the target, so that much rests on little."""


class DisclosureWarning(UnjoinedWarning):
    """Sums that are to be passed on could tell of a few people."""


class RatioGuardWarning(UnjoinedWarning):
    """A ratio of estimates was kept from exploding at some rows."""
