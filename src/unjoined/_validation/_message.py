"""How messages show what was found."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["LARGEST", "SMALLEST", "shown"]

# Fits take features and outcomes up to this size: squares of squares still add up, and single
# precision can hold it. What is beyond, as a rule, stands for a missing value.
LARGEST = 1e30
SMALLEST = 1e-30  # differences of outcomes, for the same reasons


def shown(values: Iterable[Any]) -> str:
    """Return at most five values, for a message."""
    some = list(values)
    return ", ".join(repr(v) for v in some[:5]) + (", ..." if len(some) > 5 else "")
