"""Single parameters: numbers in a range, words from a list, and how messages show them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np

from unjoined.errors import InputError

# Fits take features and outcomes up to this size: squares of squares still add up, and single
# precision can hold it. What is beyond, as a rule, stands for a missing value.
LARGEST = 1e30


SMALLEST = 1e-30  # differences of outcomes, for the same reasons


def printable(text: str) -> str:
    r"""Return text that a terminal shows as it is: what it would obey is escaped, as repr does.

    >>> printable("age\x1b[2J")
    'age\\x1b[2J'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown(values: Iterable[Any]) -> str:
    """Return at most five values, for a message."""
    some = list(values)
    return ", ".join(_short(repr(v)) for v in some[:5]) + (", ..." if len(some) > 5 else "")


def _short(text: str) -> str:
    """Return a value's form, cut if it would fill the message."""
    return text if len(text) <= 80 else f"{text[:77]}..."


def check_finite(name: str, value: Any) -> float:
    """Return a parameter that must be a finite number."""
    if not _is_number(value) or not np.isfinite(value):
        raise InputError(f"{name} must be a finite number, got {value!r}.")
    return float(value)


def check_positive(name: str, value: Any) -> float:
    """Return a parameter that must be a finite number above 0."""
    if not _is_number(value) or not 0.0 < value < np.inf:
        raise InputError(f"{name} must be a finite number above 0, got {value!r}.")
    return float(value)


def check_not_negative(name: str, value: Any) -> float:
    """Return a parameter that must be a finite number, 0 or above."""
    if not _is_number(value) or not 0.0 <= value < np.inf:
        raise InputError(f"{name} must be a finite number, 0 or above, got {value!r}.")
    return float(value)


def check_count(name: str, value: Any) -> int:
    """Return a parameter that must be a whole number, 1 or above."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name} must be a whole number, 1 or above, got {value!r}.")
    return int(value)


def check_option(name: str, value: str, options: Iterable[str]) -> str:
    """Return a parameter that must be one of a few words."""
    words = list(options)
    if value not in words:
        raise InputError(f"{name} must be one of {shown(words)}, got {value!r}.")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def check_share(name: str, share: float, *, zero_allowed: bool) -> float:
    """Return ``share`` as a float in (0, 1], or in [0, 1] when zero is allowed."""
    clean = float(share)
    if not (0.0 < clean <= 1.0 or (zero_allowed and clean == 0.0)):
        bracket = "[0, 1]" if zero_allowed else "(0, 1]"
        raise InputError(
            f"{name} must lie in {bracket}, got {share}. "
            "It is a share of the rows: write 0.3 for 30 percent."
        )
    return clean


def check_word_or(name: str, value: Any, word: str, check: Callable[[str, Any], Any]) -> None:
    """Check a parameter that is one word, or else something that ``check`` accepts."""
    if isinstance(value, str):
        check_option(name, value, [word])
    else:
        check(name, value)
