"""How messages show what was found."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["LARGEST", "SMALLEST", "printable", "shown"]

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
