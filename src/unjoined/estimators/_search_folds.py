"""Fits of a search's candidates to training folds, and what they warned of."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import narwhals as nw
import numpy as np
from sklearn.base import clone

from unjoined._typing import Array, ArrayLike, BoolArray, IntArray, MatrixLike
from unjoined.data._frames import column_names
from unjoined.errors import InputError, WeakIdentificationWarning
from unjoined.estimators._candidates import Candidate
from unjoined.features import unit_mean
from unjoined.moments import LabelledRows

__all__ = [
    "LIKELIHOOD",
    "FoldFit",
    "Said",
    "fit_all",
    "fit_fold",
    "fold_scoring",
    "warned",
    "weigh",
]

LIKELIHOOD = "likelihood"


@dataclass(frozen=True, slots=True)
class FoldFit:
    """What one fit of one candidate brought."""

    candidate: int
    repeat: int
    fold: int
    test: IntArray | None = None  # positions of the held-out rows
    uplift: Array | None = None  # at these rows
    score: float = np.nan
    estimator: Any = None
    warned: tuple[tuple[type[Warning], str], ...] = ()


def fold_scoring(scoring: Any) -> Callable[..., float] | None:
    """Return how one fold is scored, None if rows are scored instead."""
    if isinstance(scoring, str) and scoring == LIKELIHOOD:
        return _likelihood
    return scoring if callable(scoring) else None


def _likelihood(estimator: Any, X: MatrixLike, y: ArrayLike, **labels: Any) -> float:
    return float(estimator.score_likelihood(X, y, **labels))


def weigh(
    data: dict[str, Any], weight: Array, rows: LabelledRows, used: BoolArray
) -> tuple[dict[str, Any], BoolArray]:
    """Return the data that count, and which of them carry a label, with weights of mean 1.

    Candidates may be anyone's. They should not have to know what units weights are in, and rows
    of weight 0 should not take part in how the folds are dealt.
    """
    clean = weight.copy()
    clean[used] = rows.weight
    target = ~used & (weight > 0.0)
    clean[target] = unit_mean(weight[target])
    counts = np.flatnonzero(weight > 0.0)
    data = {**data, "sample_weight": clean}
    return (data, used) if len(counts) == len(used) else (_take(data, counts), used[counts])


def fit_fold(
    c: int,
    candidate: Candidate,
    repeat: int,
    fold: int,
    split: tuple[IntArray, IntArray],
    data: dict[str, Any],
    scoring: Callable[..., float] | None,
) -> FoldFit:
    """Fit one candidate to one training set, and predict or score the rest."""
    train, test = split
    held = _take(data, test)
    estimator = clone(candidate.estimator)
    uplift, score = None, np.nan
    # Recorded, to be repeated once by the search and not once per fold.
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        try:
            estimator.fit(**_take(data, train))
            if scoring is None:
                uplift = _finite(np.asarray(estimator.predict(held["X"]), dtype=np.float64))
            else:
                score = float(scoring(estimator, held.pop("X"), held.pop("y"), **held))
        except Exception as error:
            raise InputError(
                f"candidate {candidate.name!r} failed in fold {fold + 1} of repeat {repeat + 1}: "
                f"{type(error).__name__}: {error}"
            ) from error
    return FoldFit(c, repeat, fold, test, uplift, score, warned=warned(record))


def _take(data: dict[str, Any], index: IntArray) -> dict[str, Any]:
    """Return some rows; a held-out fold may lack what a whole data set needs."""
    X = data["X"]
    if column_names(X) is not None:
        X = nw.from_native(X, eager_only=True)[index].to_native()
    else:
        X = X[index]
    return {"X": X, **{name: data[name][index] for name in data if name != "X"}}


def _finite(uplift: Array) -> Array:
    if not np.isfinite(uplift).all():
        raise InputError("the predicted uplift holds NaN or infinite values.")
    return uplift


def fit_all(c: int, candidate: Candidate, data: dict[str, Any]) -> FoldFit:
    """Fit one candidate to all rows."""
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        estimator = clone(candidate.estimator).fit(**data)
    return FoldFit(c, 0, 0, estimator=estimator, warned=warned(record))


def warned(record: list[warnings.WarningMessage]) -> tuple[tuple[type[Warning], str], ...]:
    """Return what was recorded: kinds of warnings and their messages."""
    return tuple((entry.category, str(entry.message)) for entry in record)


@dataclass(slots=True)
class Said:
    """What the fits warned of, by kind of warning: names of candidates, a count, one message."""

    n_fits: int = 0
    names: dict[type[Warning], set[int]] = field(default_factory=dict)
    counts: dict[type[Warning], int] = field(default_factory=dict)
    messages: dict[type[Warning], str] = field(default_factory=dict)

    def add(self, fit: FoldFit) -> None:
        """Take down what one fit warned of."""
        self.n_fits += 1
        for category, message in dict(fit.warned).items():
            # The search looks at all rows and says so itself; folds merely have fewer of them.
            if issubclass(category, WeakIdentificationWarning):
                continue
            self.names.setdefault(category, set()).add(fit.candidate)
            self.counts[category] = self.counts.get(category, 0) + 1
            self.messages.setdefault(category, message)

    def warn(self, titles: list[str], *, stacklevel: int) -> None:
        """Repeat each kind of warning once; ``titles`` name the candidates."""
        for category, message in self.messages.items():
            names = ", ".join(repr(titles[c]) for c in sorted(self.names[category]))
            warnings.warn(
                f"in {self.counts[category]} of {self.n_fits} fits, of {names}: {message}",
                category,
                stacklevel=stacklevel,
            )
