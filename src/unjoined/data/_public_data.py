"""What the public data sets come as: rows that carry both labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from unjoined._typing import Array, ArrayLike

__all__ = ["PublicData"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PublicData:
    """Rows of a public data set, each with its features, outcome and treatment.

    Arrays are read-only. `unjoin` takes ``X``, ``y``, ``treatment`` and ``propensity``.

    Parameters
    ----------
    name : str
        Name of the data set.
    X : array of shape (n, d)
        Features, numbers in the source's units; categories are columns of 0 and 1, or codes if
        ``categorical`` names them.
    y : array of shape (n,)
        Outcomes, in the units of ``outcome_name``.
    treatment : array of shape (n,)
        1 for treated rows, 0 for the others.
    feature_names : tuple of str
        One name per column of ``X``.
    outcome_name, treatment_name : str
        What ``y`` and ``treatment`` are.
    propensity : array of shape (n,) or None
        Probability of treatment; None if treatment was no coin's decision and its probability
        was not logged.
    sample_weight : array of shape (n,) or None
        How many rows of the original log each row stands for; None if one each.
    categorical : tuple of str
        Names of the features that hold codes whose order means nothing.
    extra : mapping of str to array of shape (n,)
        Further columns, no features.

    Examples
    --------
    >>> data = PublicData(
    ...     name="made up",
    ...     X=np.array([[31.0], [54.0]]),
    ...     y=np.array([1.0, 0.0]),
    ...     treatment=np.array([1.0, 0.0]),
    ...     feature_names=("age",),
    ...     outcome_name="visit",
    ...     treatment_name="mailed",
    ... )
    >>> data
    PublicData 'made up': 2 rows, 1 feature
      outcome   visit: mean 0.5
      treatment mailed: 50.0 % treated, propensity not known
    >>> data.take([1]).X
    array([[54.]])
    """

    name: str
    X: Array
    y: Array
    treatment: Array
    feature_names: tuple[str, ...]
    outcome_name: str
    treatment_name: str
    propensity: Array | None = None
    sample_weight: Array | None = None
    categorical: tuple[str, ...] = ()
    extra: Mapping[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        for column in (self.X, self.y, self.treatment, *self.extra.values()):
            column.setflags(write=False)
        for optional in (self.propensity, self.sample_weight):
            if optional is not None:
                optional.setflags(write=False)
        object.__setattr__(self, "extra", MappingProxyType(dict(self.extra)))

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.y)

    def take(self, rows: ArrayLike) -> PublicData:
        """Return some of the rows, by position or by a mask; copies them."""
        at = np.asarray(rows)
        return PublicData(
            name=self.name,
            X=self.X[at],
            y=self.y[at],
            treatment=self.treatment[at],
            feature_names=self.feature_names,
            outcome_name=self.outcome_name,
            treatment_name=self.treatment_name,
            propensity=None if self.propensity is None else self.propensity[at],
            sample_weight=None if self.sample_weight is None else self.sample_weight[at],
            categorical=self.categorical,
            extra={name: column[at] for name, column in self.extra.items()},
        )

    def __repr__(self) -> str:
        """Return sizes and means, not the numbers."""
        d = len(self.feature_names)
        known = "" if self.propensity is not None else ", propensity not known"
        mean, share = (
            (f"{self.y.mean():.4g}", f"{self.treatment.mean():.1%}".replace("%", " %"))
            if self.n_rows
            else ("none", "none")
        )
        return (
            f"PublicData {self.name!r}: {self.n_rows:,} rows, {d} feature{'s' * (d != 1)}\n"
            f"  outcome   {self.outcome_name}: mean {mean}\n"
            f"  treatment {self.treatment_name}: {share} treated{known}"
        )
