"""Estimators fitted to folds: candidates of a search, and the gain by score of any of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from numpy.random import RandomState as Rng
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from unjoined._typing import Array, ArrayLike, BoolArray, IntArray, MatrixLike, RandomState
from unjoined._validation import check_count, unit_mean
from unjoined.data import LabelledRows, column_names
from unjoined.errors import InputError, WeakIdentificationWarning
from unjoined.metrics import GainByScore, HeldOutRows, evaluation_rows, labelled_rows, ranking_noise
from unjoined.nuisance import seeded_clone

COMPARED_ROWS = 20_000  # at most, at which fits without one fold each are held against each other


@dataclass(frozen=True, slots=True)
class Candidate:
    """One estimator with one setting of its parameters, not fitted."""

    name: str
    params: dict[str, Any]
    estimator: Any


@dataclass(frozen=True, slots=True)
class CandidateScore:
    """How one candidate fared on rows it had not seen."""

    name: str
    params: dict[str, Any]  # those taken from the candidate's grid
    score: float  # higher is better
    behind: float  # by how much the best score is higher, same units
    standard_error: float  # of that difference
    chosen: bool


@dataclass(frozen=True, slots=True, repr=False)
class CandidateTable:
    """The scores of all candidates, in the order they were given."""

    scoring: str
    rows: tuple[CandidateScore, ...]

    def __len__(self) -> int:
        """Return the number of candidates."""
        return len(self.rows)

    def __iter__(self) -> Iterator[CandidateScore]:
        """Go through the candidates in the order they were given."""
        return iter(self.rows)

    def __getitem__(self, name: str) -> CandidateScore:
        """Return the candidate of one name."""
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns, ready for a data frame."""
        names = ("name", "params", "score", "behind", "standard_error", "chosen")
        return {name: [getattr(row, name) for row in self.rows] for name in names}

    def __repr__(self) -> str:
        """Return the table as text, chosen candidates marked."""
        width = max(9, *(len(row.name) for row in self.rows))
        lines = [f"  {'candidate':<{width}}  {self.scoring:>13}  {'behind best':>11}  std. error"]
        lines += [
            f"{'*' if row.chosen else ' '} {row.name:<{width}}  {row.score:>13.5g}  "
            f"{row.behind:>11.3g}  {row.standard_error:>10.2g}"
            for row in self.rows
        ]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Scored:
    """Scores of c candidates, and what each of u units adds to their errors."""

    score: Array  # (c,) higher is better
    influence: Array  # (u, c) squares of a difference of columns add up to its variance


def list_candidates(candidates: Sequence[Any], rng: Rng) -> list[Candidate]:
    """Return seeded copies of the candidates, one for each setting of their grids."""
    listed: list[Candidate] = []
    for name, estimator, *grid in candidates:
        settings = list(ParameterGrid(grid[0])) if grid else [{}]
        # One seed for all settings, so that they differ by nothing but the setting.
        seed = int(rng.randint(np.iinfo(np.int32).max))
        for params in settings:
            inside = ", ".join(f"{key}={value!r}" for key, value in params.items())
            copy = seeded_clone(clone(estimator).set_params(**params), check_random_state(seed))
            listed.append(Candidate(f"{name}({inside})" if inside else name, params, copy))
    names = [candidate.name for candidate in listed]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"candidates need different names, but {twice[0]!r} occurs twice.")
    return listed


def score_rows(held: HeldOutRows, uplift: Array, names: Sequence[str]) -> Scored:
    """Score out-of-fold predictions (repeats, c, n) by one score, or by several together."""
    # Values are averaged over the repeats: these share the rows, so that they make predictions
    # less dependent on the split but add no rows to the standard error. Several scores are
    # brought to the same typical standard error and averaged.
    score = np.zeros(uplift.shape[1])
    influence = np.zeros((len(held.rows.label), uplift.shape[1]))
    for name in names:
        values = np.column_stack(
            [
                np.mean([held.values(f, name) for f in uplift[:, c]], axis=0)
                for c in range(uplift.shape[1])
            ]
        )
        spread = np.column_stack([held.influence(column) for column in values.T])
        unit = _typical_error(spread) * len(names) if len(names) > 1 else 1.0
        score -= held.rows.share @ values / unit
        influence -= spread / unit
    return Scored(score, influence)


def _typical_error(influence: Array) -> float:
    """Return the root mean square standard error of candidates' differences from their mean."""
    apart = influence - influence.mean(axis=1, keepdims=True)
    error = float(np.sqrt(np.mean(np.sum(apart**2, axis=0))))
    return error if error > 0.0 else 1.0  # candidates that never differ


def score_folds(scores: Array) -> Scored:
    """Score by one number per fold, shape (repeats, folds, c), and by their spread."""
    n_repeats, n_folds, n_candidates = scores.shape
    apart = scores - scores.mean(axis=1, keepdims=True)
    apart = apart / np.sqrt(n_repeats * n_folds * (n_folds - 1))
    return Scored(scores.mean(axis=(0, 1)), apart.reshape(-1, n_candidates))


def choose(scored: Scored, rule: str) -> tuple[int, BoolArray, Array, Array]:
    """Return the best candidate, those the rule takes, and how far each is behind, with errors."""
    best = int(np.argmax(scored.score))
    behind = scored.score[best] - scored.score
    apart = scored.influence - scored.influence[:, [best]]
    error = np.sqrt(np.sum(apart**2, axis=0))
    within: BoolArray = behind <= error
    first = int(np.argmax(within))
    index = np.arange(len(behind))
    chosen: BoolArray = {"best": index == best, "one_se": index == first, "average": within}[rule]
    return best, chosen, behind, error


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
    """Return the data that count, and which of them carry a label, with weights of mean 1."""
    # Candidates may be anyone's. They should not have to know what units weights are in, and rows
    # of weight 0 should not take part in how the folds are dealt.
    clean = weight.copy()
    clean[used] = rows.weight
    target = ~used & (weight > 0.0)
    clean[target] = unit_mean(weight[target])
    counts = np.flatnonzero(weight > 0.0)
    data = {**data, "sample_weight": clean}
    return (data, used) if len(counts) == len(used) else (take_rows(data, counts), used[counts])


class FoldJob(NamedTuple):
    """One fit to be done: which candidate, to which rows."""

    c: int  # the candidate's number
    candidate: Candidate
    repeat: int
    fold: int
    split: tuple[IntArray, IntArray]  # positions to train on, and to hold out


def fit_fold(job: FoldJob, data: dict[str, Any], scoring: Callable[..., float] | None) -> FoldFit:
    """Fit one candidate to one training set, and predict or score the rest."""
    c, candidate, repeat, fold, (train, test) = job
    held = take_rows(data, test)
    estimator = clone(candidate.estimator)
    score = np.nan
    # Recorded, to be repeated once by the search and not once per fold.
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        try:
            estimator.fit(**take_rows(data, train))
            uplift = _finite(np.asarray(estimator.predict(held["X"]), dtype=np.float64))
            if scoring is not None:
                score = float(scoring(estimator, held.pop("X"), held.pop("y"), **held))
        except Exception as error:
            raise InputError(
                f"candidate {candidate.name!r} failed in fold {fold + 1} of repeat {repeat + 1}: "
                f"{type(error).__name__}: {error}"
            ) from error
    return FoldFit(c, repeat, fold, test, uplift, score, warned=warned(record))


def take_rows(data: dict[str, Any], index: IntArray) -> dict[str, Any]:
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
class FitWarnings:
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


def record_gain(
    model: Any, data: Mapping[str, Any], *, n_folds: int = 5, random_state: RandomState = None
) -> GainByScore:
    """Measure what lists by a fitted model gain, and keep it with the model as ``gain_``.

    `Uplift` and `MixtureUplift` have it from their fit. Any other estimator is fitted again
    without each fold, so that people are ranked by fits that have not seen their labels.

    Parameters
    ----------
    model : estimator
        Fitted to ``data``. It gets the attribute ``gain_``; a clone of it is fitted.
    data : SeparateLabels or mapping
        The rows it was fitted to.
    n_folds : int, default=5
        Folds, dealt table by table.
    random_state : int, RandomState or None, default=None
        Seed of the folds.

    Returns
    -------
    GainByScore
        Costs ``n_folds`` fits of the estimator, and those of policies and outcome models.

    Raises
    ------
    InputError
        There are fewer rows in a table than folds, or fewer than two folds.

    Examples
    --------
    >>> from unjoined import WeightedUplift, record_gain
    >>> from unjoined.data import campaign_problem
    >>> data = campaign_problem().draw(500, random_state=0)
    >>> model = WeightedUplift(basis="linear").fit(data)
    >>> record_gain(model, data, random_state=0)
    GainByScore(10 bins, speaks for ... of people)
    """
    check_is_fitted(model)
    if check_count("n_folds", n_folds) < 2:
        raise InputError(f"n_folds must be 2 or above, got {n_folds}.")
    given, rng = dict(data), check_random_state(random_state)
    labels = (given["y"], given["kind"], given["population"])
    rows, used = labelled_rows(given["X"], *labels, given.get("sample_weight"))
    evaluation = evaluation_rows(rows, n_folds=n_folds, rng=rng)
    columns = {name: np.asarray(c) for name, c in given.items() if name != "X" and c is not None}
    X = given["X"] if column_names(given["X"]) is not None else np.asarray(given["X"])
    whole = {"X": X, **columns}
    score, fold = np.empty(len(rows.label)), np.full(len(used), -1)
    fold[used] = evaluation.fold
    few = np.sort(rng.permutation(np.flatnonzero(used))[:COMPARED_ROWS])
    compared = np.empty((len(few), n_folds))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit to all rows has said what there is to say
        for j in range(n_folds):
            again = clone(model).fit(**take_rows(whole, np.flatnonzero(fold != j)))
            held = take_rows(whole, np.flatnonzero(fold == j))
            score[evaluation.fold == j] = again.predict(held["X"])
            compared[:, j] = again.predict(take_rows(whole, few)["X"])
        predicted = model.predict(take_rows(whole, np.flatnonzero(used))["X"])
    noise = ranking_noise(compared)
    model.gain_ = record = GainByScore.of_rows(evaluation, score, predicted, rows.weight, noise)
    return record
