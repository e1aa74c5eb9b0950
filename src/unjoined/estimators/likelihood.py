"""What estimators by the likelihood of the tables share: predictions of both arms, and scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.random import RandomState as Rng

from unjoined._threads import over_pieces
from unjoined._typing import Array, ArrayLike, IntArray, MatrixLike
from unjoined._validation import (
    OUTCOME,
    OutcomeCoding,
    check_kind,
    check_labels,
    check_population,
    check_weight,
)
from unjoined.basis import Scaling
from unjoined.data import LabelledRows
from unjoined.errors import InputError, LabelError
from unjoined.estimators.base import RowEstimator
from unjoined.estimators.em import EMFit
from unjoined.estimators.inputs import GivenRows
from unjoined.estimators.mixture_rows import BERNOULLI, GAUSSIAN, MEAN, Likelihood, outcome_scaling
from unjoined.metrics import Estimate, GainByScore, evaluation_of, ranking_noise
from unjoined.nuisance import AdditiveAverage, ConditionalMean, CrossFit, FoldedPolicy, ModelRows

LIKELIHOOD, EM = "likelihood", "em"
DESCRIBED = (  # of a fit, but for one by EM
    *("candidates_", "heterogeneity_", "average_effect_"),
    *("gain_", "effect_range_", "effect_features_", "crossfit_"),
)
DESCRIBED_ROWS = 20_000  # at most, over which predictions are averaged
T = TypeVar("T")
PREDICT_ROWS = 16_384


class LikelihoodEstimator(RowEstimator):
    """Base of estimators that model the outcome with and without treatment."""

    _as_two_groups = False

    engine: str
    family: str
    policy_model: Any
    categorical_features: Any
    n_jobs: int | None
    family_: str
    policies_: tuple[ConditionalMean, ...]
    fit_: AdditiveAverage | EMFit
    scaling_: Scaling
    outcome_scaling_: Scaling
    gain_: GainByScore
    crossfit_: CrossFit
    sampled_rows_: int | None
    _coding: OutcomeCoding

    @property
    def _likelihood(self) -> Likelihood:
        scaling = None if self.policy_model is None else self.scaling_
        return Likelihood(
            self.family_, self._coding, self.outcome_scaling_, self.policies_, scaling
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return what copies and files hold: all but the cross-fit, which is people's rows."""
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "crossfit_"}

    def _settle(self, rows: LabelledRows) -> None:
        """Set what follows from the labels: the law, the scalings."""
        self.family_ = self._choose_family(is_binary=rows.coding.is_binary)
        self.scaling_ = Scaling.of_rows(rows.X, rows.share)
        self._coding, self.outcome_scaling_ = rows.coding, outcome_scaling(rows, self.family_)
        for name in DESCRIBED:
            self.__dict__.pop(name, None)
        self.sampled_rows_ = None

    def _choose_family(self, *, is_binary: bool) -> str:
        """Return the law of the outcome: the one asked for, or the one that suits the rows."""
        if self.family == "auto":
            if is_binary:
                return BERNOULLI
            return GAUSSIAN if self.engine == EM else MEAN
        if self.family == BERNOULLI and not is_binary:
            raise InputError(
                "family='bernoulli' needs an outcome of two values; use 'mean' or 'gaussian'."
            )
        return self.family

    def _categorical_columns(self) -> tuple[int, ...]:
        """Return the positions of the columns that hold codes of categories."""
        names = list(self._feature_names or ())
        n = self._n_columns
        columns = set(self.encoder_.codes_at) if hasattr(self, "encoder_") else set()
        for one in self.categorical_features:
            column = names.index(one) if one in names else one
            if isinstance(column, bool | str) or column not in range(n):
                known = f"one of {names}" if names else f"below {n}"
                raise InputError(f"categorical_features must be {known}, got {one!r}.")
            columns.add(int(column))
        return tuple(sorted(columns))

    def _cross_fit(
        self,
        rows: LabelledRows,
        policies: tuple[FoldedPolicy, ...],
        without: tuple[AdditiveAverage, ...],
        fold: IntArray,
        rng: Rng,
    ) -> CrossFit:
        """Return what the fits without each fold say of the rows, in the inner coding."""
        offset = (float(self.outcome_scaling_.mean[0]) - self._coding.offset) / self._coding.scale
        scale = float(self.outcome_scaling_.scale[0]) / self._coding.scale
        crossfit = CrossFit.of_fits(
            rows, policies, without, fold, offset, scale, n_jobs=self.n_jobs, rng=rng
        )
        return replace(crossfit, encode=lambda X: self._look(X).matrix)

    def _measure(self, crossfit: CrossFit, rng: Rng) -> None:
        """Set the average effect and the gain by score, from fits that have not seen the rows.

        The mean prediction is surer than what was measured, if base and effect are right. As far
        as both agree, the average is brought to it, and then predictions of real outcomes to that
        average. Intervals are as wide as those of what was measured alone.
        """
        rows = crossfit.rows
        evaluation = evaluation_of(rows, crossfit.fold, crossfit.nuisances)
        few = np.sort(rng.permutation(len(rows))[:DESCRIBED_ROWS])
        X, weight = rows.X[few], rows.weight[few]
        noise = ranking_noise(crossfit.models.scores(X))

        def measured() -> GainByScore:
            return GainByScore.of_rows(
                evaluation, evaluation.effect, self._predict_rows(X), weight, noise
            )

        record = measured()
        average = record.everyone()
        if isinstance(self.fit_, AdditiveAverage) and np.isfinite(average.interval(0.95)).all():
            counted = (evaluation.share * evaluation.aim * evaluation.omega())[few]
            scale = float(self.outcome_scaling_.scale[0])
            mean, error = (scale * each for each in self.fit_.mean_uplift(X, counted))
            shrunk = average.shrunk_towards(Estimate(mean, error))
            if self.family_ != BERNOULLI:  # of which the same shift of log-odds would rank anew
                self.fit_ = self.fit_.raised((shrunk - mean) / scale)
            record = measured().shifted(shrunk - average.value)
        self.gain_ = record
        self.average_effect_ = self.gain_.everyone()
        self.heterogeneity_ = self.gain_.slope()

    def _predict_rows(self, matrix: Array) -> Array:
        if isinstance(self.fit_, EMFit) or self.family_ == BERNOULLI:
            treated, untreated = self._means(matrix)
            return treated - untreated
        # The difference of two means would round, and rank people whose effect is the same.
        effect = np.concatenate(self._by_chunks(self.fit_.mean_effect, matrix))
        return float(self.outcome_scaling_.scale[0]) * effect

    def _row_errors(self, matrix: Array) -> Array:
        if isinstance(self.fit_, EMFit):
            return super()._row_errors(matrix)
        errors = np.concatenate(self._by_chunks(self.fit_.uplift_errors, matrix))
        return float(self.outcome_scaling_.scale[0]) * errors

    def predict_outcomes(self, X: MatrixLike) -> tuple[Array, Array]:
        """Return the estimated mean outcome with and without treatment at each row.

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            Features, with the columns seen in ``fit``.

        Returns
        -------
        treated, untreated : array of shape (n,)
            In the units of the outcome; their difference is ``predict(X)``.
        """
        treated, untreated = self._means(self._check_features(X, reset=False))
        offset = float(self.outcome_scaling_.mean[0])
        return offset + treated, offset + untreated

    def predict_policies(self, X: MatrixLike) -> Array:
        """Return each population's estimated probability of treatment at each row.

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            Features, with the columns seen in ``fit``.

        Returns
        -------
        array of shape (n, number of populations)
            In the order of ``populations_``.
        """
        return self._likelihood.chances(self._check_features(X, reset=False))

    def mean_change(self, X: MatrixLike, changed: MatrixLike) -> Estimate:
        """Return by how much the mean uplift of people differs if their features do.

        With one column of ``changed`` set to a value it is a partial dependence: what that value
        adds to uplift, all other features as they are. Without pairs of features, and for real
        outcomes, it is the same for everyone.

        Parameters
        ----------
        X, changed : array or data frame of shape (n, d)
            People as they are and as they would be, with the columns seen in ``fit``.

        Returns
        -------
        Estimate
            Mean uplift at ``changed`` less that at ``X``, outcome units. The standard error is
            model uncertainty: that of the coefficients, and of the forms that are averaged. It
            takes the policies as given, and is nan for EM. Costs two predictions.
        """
        before, after = (self._check_features(each, reset=False) for each in (X, changed))
        scale = float(self.outcome_scaling_.scale[0])
        if isinstance(self.fit_, EMFit):
            change = self._predict_rows(after).mean() - self._predict_rows(before).mean()
            return Estimate(float(change), float("nan"))
        value, error = self.fit_.mean_change(before, after)
        return Estimate(scale * value, scale * error)

    def _means(self, matrix: Array) -> tuple[Array, Array]:
        """Return both means at checked rows, less the outcome's offset."""
        parts = self._by_chunks(self._chunk_means, matrix)
        scale = float(self.outcome_scaling_.scale[0])
        treated, untreated = (scale * np.concatenate(part) for part in zip(*parts, strict=True))
        return treated, untreated

    def _by_chunks(self, function: Callable[[Array], T], matrix: Array) -> list[T]:
        """Return what a function gives chunk by chunk; all rows at once would fill the memory."""
        chunks = [
            matrix[start : start + PREDICT_ROWS] for start in range(0, len(matrix), PREDICT_ROWS)
        ]
        # Models of the user's have their own ways with threads.
        n_jobs = 1 if isinstance(self.fit_, EMFit) else self.n_jobs
        return list(over_pieces(function, chunks, n_jobs))

    def _chunk_means(self, chunk: Array) -> tuple[Array, Array]:
        if isinstance(self.fit_, EMFit):
            return self.fit_.means(self.scaling_(chunk))
        is_mean = self.family_ == MEAN  # whose base is that of the mean policy
        chance = self._likelihood.chances(chunk).mean(axis=1) if is_mean else np.zeros(len(chunk))
        return self.fit_.means(chunk, chance)

    def score(
        self,
        X: MatrixLike | Mapping[str, Any],
        y: ArrayLike | None = None,
        *,
        kind: ArrayLike | None = None,
        population: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Return the mean log-likelihood of held-out outcome rows; higher is better.

        A proper score that needs no joint labels, so that `GridSearchCV` can choose among
        settings. The "mean" family is scored as if its noise were normal.

        Parameters
        ----------
        X, y, kind, population, sample_weight
            Held-out rows, as in ``fit``, or a `SeparateLabels` as ``X`` alone. Only outcome rows
            are used, of populations that ``fit`` has seen.

        Returns
        -------
        float
            In nats per row of the outcome as scaled in ``fit``.
        """
        return self.score_likelihood(
            X, y, kind=kind, population=population, sample_weight=sample_weight
        )

    def score_likelihood(
        self,
        X: MatrixLike | Mapping[str, Any],
        y: ArrayLike | None = None,
        *,
        kind: ArrayLike | None = None,
        population: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Return the same as `score`, under the name that `UpliftSearchCV` looks for."""
        given = GivenRows.of_call(X, y, kind, population, sample_weight, method="score")
        matrix = self._check_features(given.X, reset=False)
        kinds = check_kind(given.kind, len(matrix))
        labels = check_labels(given.y, kinds)
        names = check_population(given.population, kinds)
        weight = check_weight(given.sample_weight, len(matrix))
        used = (kinds == OUTCOME) & (weight > 0.0)
        index = check_scored(self.populations_, self._coding, names[used], labels[used])
        X = matrix[used]
        outcome, exposure, _ = self._likelihood.rows(X, self._coding.encode(labels[used]), index)
        if isinstance(self.fit_, EMFit):
            likelihood = self.fit_.log_likelihood(self.scaling_(X), outcome, exposure)
        else:
            likelihood = self.fit_.log_likelihood(ModelRows(X, outcome, exposure, weight[used]))
        return float(np.average(likelihood, weights=weight[used]))


def check_scored(known: list[Any], coding: OutcomeCoding, names: Any, label: Array) -> IntArray:
    """Return the population of each outcome row to score as its place among the known ones."""
    if len(label) == 0:
        raise LabelError("there are no outcome rows to score; pass some with their labels.")
    index = np.full(len(names), -1, dtype=np.int64)
    for k, name in enumerate(known):
        index[names == name] = k
    if (index < 0).any():
        raise LabelError(
            "outcome rows of populations that fit has not seen: "
            f"{sorted({*names[index < 0].tolist()})}; known are {known}."
        )
    if coding.is_binary:
        other = np.abs(np.abs(label - coding.offset) - coding.scale) > 1e-9 * coding.scale
        if other.any():
            low, high = coding.offset - coding.scale, coding.offset + coding.scale
            raise LabelError(
                f"fit has seen the outcomes {low:g} and {high:g} only, but y holds "
                f"{float(label[other][0]):g} in an outcome row. Score the outcome that was fitted."
            )
    return index
