"""What is found in parts of the rows, and adds up to what is found in all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Self


class Additive:
    """A data class of sums over rows; those of parts add up, field by field, to those of all."""

    __slots__ = ()

    def __add__(self, other: Self) -> Self:
        """Return the sums over the rows of both; neither argument changes."""
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        return type(self)(*(plus(getattr(self, name), getattr(other, name)) for name in names))


def plus(one: Any, two: Any) -> Any:
    """Add up two things of a kind: numbers, arrays and sums, or lists, tuples and dicts of such."""
    if isinstance(one, Mapping):
        both = {key: plus(one[key], two[key]) for key in one if key in two}
        return {**one, **two, **both}
    if isinstance(one, list | tuple):
        return type(one)(plus(a, b) for a, b in zip(one, two, strict=True))
    return one + two
