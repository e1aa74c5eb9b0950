"""Choose among estimators by scores that need no joint labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.parallel import Parallel, delayed

from unjoined._support import narrated
from unjoined._typing import Array, ArrayLike, BoolArray, MatrixLike, RandomState
from unjoined._validation import check_count, check_option, check_weight
from unjoined.data import CellKFold, LabelledRows, column_names, is_dask
from unjoined.errors import InputError
from unjoined.estimators.base import (
    Check,
    UpliftEstimator,
    check_flag,
    check_model,
    check_verbose,
    one_of,
    optional,
)
from unjoined.estimators.candidates import (
    LIKELIHOOD,
    Candidate,
    CandidateScore,
    CandidateTable,
    FitWarnings,
    FoldFit,
    FoldJob,
    Scored,
    choose,
    fit_all,
    fit_fold,
    fold_scoring,
    list_candidates,
    score_folds,
    score_rows,
    take_rows,
    weigh,
)
from unjoined.estimators.inputs import GivenRows
from unjoined.estimators.minmax import MinMaxUplift
from unjoined.estimators.mixture import MixtureUplift
from unjoined.estimators.regressions import PlugInUplift
from unjoined.estimators.weighted import WeightedUplift
from unjoined.metrics import (
    SCORES,
    Comparison,
    HeldOutRows,
    average_effect,
    compare_out_of_fold,
    labelled_rows,
    strength_of,
)
from unjoined.nuisance import cross_fit


def default_candidates(n_populations: int = 2) -> list[tuple[str, UpliftEstimator]]:
    """Return the candidates of a search that was given none, the simplest first."""
    if n_populations > 2:
        return [("likeliest form", MixtureUplift(average=False)), ("average", MixtureUplift())]
    return [
        ("linear", WeightedUplift(basis="linear")),
        ("smooth", WeightedUplift()),
        ("min-max", MinMaxUplift()),
        ("ratio", PlugInUplift()),
    ]


def _check_candidates(name: str, value: Any) -> None:
    if not isinstance(value, list | tuple) or not value:
        raise InputError(
            f"{name} must be a list of (name, estimator) or (name, estimator, param_grid), "
            f"got {value!r}."
        )
    for entry in value:
        if (
            not isinstance(entry, list | tuple)
            or len(entry) not in (2, 3)
            or not isinstance(entry[0], str)
            or not all(hasattr(entry[1], method) for method in ("fit", "predict", "get_params"))
        ):
            raise InputError(
                f"each candidate must be (name, estimator) or (name, estimator, param_grid), "
                f"got {entry!r}."
            )


def _check_scoring(name: str, value: Any) -> None:
    if isinstance(value, str):
        check_option(name, value, (*SCORES, LIKELIHOOD))
    elif isinstance(value, list | tuple) and value:
        for entry in value:
            check_option(f"every entry of {name}", entry, SCORES)
    elif not callable(value):
        raise InputError(f"{name} must be a name, a list of names or a callable, got {value!r}.")


def _check_folds(name: str, value: Any) -> None:
    if check_count(name, value) < 2:
        raise InputError(f"{name} must be at least 2 folds, got {value}.")


class UpliftSearchCV(UpliftEstimator):
    """Choose among uplift estimators by cross-validation without joint labels.

    Every candidate is fitted to all folds but one and predicts the rows of that fold. These
    predictions are scored against labels they have not seen, by a score the true uplift
    minimises. Then the chosen candidate is fitted to all rows. Policies and outcome means that
    the scores need are cross-fitted once and shared by all candidates.

    Parameters
    ----------
    candidates : list of (name, estimator) or (name, estimator, param_grid), optional
        In order of preference, say from simple to flexible: ties and the rule "one_se" go by it.
        A grid, as in `GridSearchCV`, makes one candidate of each setting. Estimators whose
        ``random_state`` is None get a seed. Default: `WeightedUplift` on a linear and on a
        smooth basis, `MinMaxUplift`, `PlugInUplift`; for more than two populations
        `MixtureUplift`, with its likeliest form alone and with all forms averaged.
    scoring : str, callable or list of str, default="weighted_risk"
        "weighted_risk", "fixed_critic" or "outcome_risk"; a list of these is averaged, each
        divided by its typical standard error. "likelihood" is the candidates'
        ``score_likelihood``. A callable ``scoring(estimator, X, y, *, kind, population)`` returns
        one number per fold, higher being better.
    cv : int, default=5
        Folds, dealt by `CellKFold`.
    n_repeats : int, default=1
        How often the rows are dealt into folds anew.
    rule : {"best", "one_se", "average"}, default="one_se"
        "best" takes the highest score. "one_se" takes the first candidate whose score is within
        one standard error of the highest. "average" predicts the mean of all that are.
    compare : bool, default=False
        Whether candidates are compared by the AUUC and by the gain of rules as well, as
        `compare_uplift` does, on the predictions of fits that have not seen the rows.
    policy_model, outcome_model : scikit-learn classifier or regressor, optional
        Models behind the scores; see `HeldOutRows.from_data`.
    n_jobs : int or None, default=None
        Processes; -1 uses all cores. Results do not depend on it.
    random_state : int, RandomState or None, default=None
        Seed for folds and candidates; the same seed gives the same choice.
    verbose : bool or int, default=False
        Whether to show on stderr what the logger ``unjoined`` is told: 1 shows the steps of a fit,
        2 how far each of them is.

    Attributes
    ----------
    candidates_ : CandidateTable
        Score of every candidate (higher is better; risks with a minus), its difference to the
        best, the standard error of that difference, and who was chosen.
    best_name_, best_estimator_ : str and estimator
        The chosen candidate, fitted to all rows; for "average", the one with the highest score.
    estimators_ : list of estimators
        All chosen candidates, fitted to all rows; their mean is what ``predict`` returns.
    reason_ : str
        Why, in a sentence, and whether the two best can be told apart if ``compare`` is set.
    comparison_ : Comparison or None
        What each candidate is worth and their differences, with intervals; None unless
        ``compare`` is set.
    identification_, populations_, n_features_in_, feature_names_in_
        As in every estimator.

    See Also
    --------
    unjoined.metrics.uplift_scorer : the same scores for `GridSearchCV`.

    Notes
    -----
    Costs ``cv * n_repeats + 1`` fits of each candidate. Standard errors are of paired
    differences, from the rows' own contributions to the scores; for "likelihood" and callables,
    which return nothing finer, from the folds. How much a candidate would change with other
    training rows is not in them. A warning that candidates raise is repeated once, with a count.

    Examples
    --------
    >>> from unjoined.data import campaign_problem
    >>> data = campaign_problem().draw(300, random_state=0)
    >>> search = UpliftSearchCV(
    ...     [
    ...         ("linear", WeightedUplift(basis="linear")),
    ...         ("rough", WeightedUplift(basis="gaussian", ridge=1e-3)),
    ...     ],
    ...     cv=3,
    ...     random_state=0,
    ... ).fit(**data)
    >>> search.best_name_
    'linear'
    >>> print(search.candidates_)
      candidate  weighted_risk  behind best  std. error
    * linear     ...
      rough      ...
    """

    _parameters: ClassVar[dict[str, Check]] = {
        "candidates": optional(_check_candidates),
        "scoring": _check_scoring,
        "cv": _check_folds,
        "n_repeats": check_count,
        "rule": one_of("best", "one_se", "average"),
        "compare": check_flag,
        "policy_model": check_model,
        "outcome_model": check_model,
        "verbose": check_verbose,
    }

    def __init__(
        self,
        candidates: Sequence[Any] | None = None,
        *,
        scoring: str | Sequence[str] | Callable[..., float] = "weighted_risk",
        cv: int = 5,
        n_repeats: int = 1,
        rule: str = "one_se",
        compare: bool = False,
        policy_model: Any = None,
        outcome_model: Any = None,
        n_jobs: int | None = None,
        random_state: RandomState = None,
        verbose: bool | int = False,
    ) -> None:
        self.candidates = candidates
        self.scoring = scoring
        self.cv = cv
        self.n_repeats = n_repeats
        self.rule = rule
        self.compare = compare
        self.policy_model = policy_model
        self.outcome_model = outcome_model
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: MatrixLike | Mapping[str, Any],
        y: ArrayLike | None = None,
        *,
        kind: ArrayLike | None = None,
        population: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Score the candidates, and fit the chosen one to all rows, given as to any estimator."""
        columns = GivenRows.of_call(X, y, kind, population, sample_weight, method="fit")
        X, y, kind, population, sample_weight = columns
        matrix = self._begin(X)
        rows, used = labelled_rows(matrix, y, kind, population, sample_weight)
        given = self.candidates or default_candidates(len(rows.names))
        if self.scoring == LIKELIHOOD:
            _check_likelihood(given)
        # Candidates get a data frame as it is: they may select columns by name.
        features = matrix if column_names(X) is None else X
        labels = {"y": y, "kind": kind, "population": population}
        data = {"X": features} | {name: np.asarray(column) for name, column in labels.items()}
        if sample_weight is not None:
            data, used = weigh(data, check_weight(sample_weight, len(matrix)), rows, used)
        with narrated(self, f"{len(rows):,} rows, one candidate after the other"):
            self._search(given, data, rows, used)
        self.average_effect_ = average_effect(rows)
        self._conclude(rows, strength_of(rows), stacklevel=3)
        return self

    def _search(
        self, given: Sequence[Any], data: dict[str, Any], rows: LabelledRows, used: BoolArray
    ) -> None:
        rng = check_random_state(self.random_state)
        candidates = list_candidates(given, rng)
        seeds = [int(rng.randint(np.iinfo(np.int32).max)) for _ in range(self.n_repeats)]
        fits = self._fit_folds(candidates, data, seeds)
        raised = FitWarnings()
        for fit in fits:
            raised.add(fit)
        uplift = np.empty((self.n_repeats, len(candidates), len(used)))
        for fit in fits:
            uplift[fit.repeat, fit.candidate, fit.test] = fit.uplift
        if isinstance(self.scoring, str | list | tuple) and self.scoring != LIKELIHOOD:
            models = {"policy_model": self.policy_model, "outcome_model": self.outcome_model}
            nuisances = cross_fit(rows, **models, n_folds=self.cv, rng=check_random_state(0))
            names = [self.scoring] if isinstance(self.scoring, str) else list(self.scoring)
            scored = score_rows(HeldOutRows(rows, nuisances, used), uplift, names)
        else:
            scores = np.empty((self.n_repeats, self.cv, len(candidates)))
            for fit in fits:
                scores[fit.repeat, fit.fold, fit.candidate] = fit.score
            scored = score_folds(scores)
        self._choose(candidates, scored, data, raised)
        self.comparison_: Comparison | None = None
        if self.compare:
            names = [candidate.name for candidate in candidates]
            self._compare(names, fits, uplift[0], take_rows(data, np.flatnonzero(used)), used)
        raised.warn([candidate.name for candidate in candidates], stacklevel=4)

    def _fit_folds(
        self, candidates: list[Candidate], data: dict[str, Any], seeds: list[int]
    ) -> list[FoldFit]:
        """Fit every candidate to every training set, in parallel if asked."""
        scoring = fold_scoring(self.scoring)
        jobs = [
            FoldJob(c, candidate, r, j, split)
            for r, seed in enumerate(seeds)
            for j, split in enumerate(CellKFold(self.cv, random_state=seed).split(**data))
            for c, candidate in enumerate(candidates)
        ]
        fits: list[FoldFit] = Parallel(n_jobs=self.n_jobs)(
            delayed(fit_fold)(job, data, scoring) for job in jobs
        )
        return fits

    def _choose(
        self, candidates: list[Candidate], scored: Scored, data: dict[str, Any], raised: FitWarnings
    ) -> None:
        """Apply the rule, fit what it takes to all rows and say why."""
        best, chosen, behind, error = choose(scored, self.rule)
        columns = [column.tolist() for column in (scored.score, behind, error, chosen)]
        entries = [
            CandidateScore(candidate.name, candidate.params, *numbers)
            for candidate, *numbers in zip(candidates, *columns, strict=True)
        ]
        self.candidates_ = CandidateTable(_scoring_name(self.scoring), tuple(entries))
        taken = np.flatnonzero(chosen).tolist()
        picked = taken[0] if self.rule == "one_se" else best
        fitted = {}
        for c in taken:
            fit = fit_all(c, candidates[c], data)
            raised.add(fit)
            fitted[c] = fit.estimator
        self.estimators_ = list(fitted.values())
        self.best_name_, self.best_estimator_ = candidates[picked].name, fitted[picked]
        self.reason_ = _reason(self.candidates_, self.rule, candidates[best].name, self.best_name_)

    def _compare(
        self,
        names: list[str],
        fits: list[FoldFit],
        uplift: Array,
        data: dict[str, Any],
        used: BoolArray,
    ) -> None:
        """Compare the candidates by the first repeat's predictions, and say what that shows."""
        fold = np.zeros(len(used), dtype=np.int64)
        for fit in fits:
            if fit.repeat == 0 and fit.test is not None:
                fold[fit.test] = fit.fold
        scores = {name: row[used] for name, row in zip(names, uplift, strict=True)}
        if len(scores) < 2:
            return
        rng = check_random_state(0)
        self.comparison_ = compare_out_of_fold(scores, data, fold[used], rng=rng)
        best = sorted(self.candidates_, key=lambda row: -row.score)[:2]
        pair = {row.name for row in best}
        said = (d for d in self.comparison_.differences if {d.first, d.second} == pair)
        self.reason_ += f" By the order of people: {next(said).sentence(0.95)}"

    def predict(self, X: MatrixLike) -> Array:
        """Return the chosen candidate's uplift at each row, or the mean of those chosen."""
        if is_dask(X):
            return super().predict(X)
        matrix = self._check_features(X, reset=False)
        return self._predict_rows(matrix if column_names(X) is None else X)

    def _fitted_in_words(self) -> str:
        return f". {self.reason_}".removesuffix(".")

    def _predict_rows(self, matrix: MatrixLike) -> Array:
        return np.asarray(np.mean([model.predict(matrix) for model in self.estimators_], axis=0))


def _check_likelihood(candidates: Sequence[Any]) -> None:
    for name, estimator, *_ in candidates:
        if not hasattr(estimator, "score_likelihood"):
            raise InputError(
                f"scoring='likelihood' needs candidates with a method score_likelihood, which "
                f"{name!r} ({type(estimator).__name__}) lacks. Leave it out, or score by "
                "'weighted_risk', which works for all."
            )


def _scoring_name(scoring: Any) -> str:
    if isinstance(scoring, str):
        return scoring
    return getattr(scoring, "__name__", "score") if callable(scoring) else " + ".join(scoring)


def _reason(table: CandidateTable, rule: str, best: str, picked: str) -> str:
    """Say in one sentence why these candidates were taken."""
    n_chosen = sum(row.chosen for row in table)
    if rule == "average":
        return (
            f"The mean of {n_chosen} of {len(table)} candidates whose {table.scoring} is within "
            f"one standard error of the best, {best!r}."
        )
    if picked == best:
        return f"{picked!r} has the best {table.scoring} of {len(table)} candidates."
    row = table[picked]
    return (
        f"{picked!r} is the first of {len(table)} candidates within one standard error of the best "
        f"{table.scoring}: it is {row.behind:.3g} behind {best!r}, with a standard error of "
        f"{row.standard_error:.2g}."
    )
