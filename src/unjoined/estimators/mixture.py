"""The likelihood of the tables: outcomes are a mixture of treated and untreated ones."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from unjoined._threads import over_pieces
from unjoined._typing import Array, ArrayLike, IntArray, MatrixLike, RandomState
from unjoined._validation import (
    OUTCOME,
    OutcomeCoding,
    check_count,
    check_kind,
    check_labels,
    check_population,
    check_positive,
    check_weight,
)
from unjoined.basis import Scaling, weighted_quantile
from unjoined.data import LabelledRows
from unjoined.errors import InputError, LabelError
from unjoined.estimators.base import (
    Check,
    RowEstimator,
    check_flag,
    check_model,
    count_from,
    one_of,
    optional,
)
from unjoined.estimators.em import EMFit, fit_em
from unjoined.metrics import Estimate
from unjoined.nuisance import (
    ALONE,
    EFFECT_FORMS,
    AdditiveAverage,
    ConditionalMean,
    FormTable,
    ModelRows,
    ShiftReport,
    average_forms,
    deal,
    fit_policies,
    weigh_shift,
)
from unjoined.solve import BernoulliLaw, GaussianLaw, Law, MeanLaw

LIKELIHOOD, EM = "likelihood", "em"
BERNOULLI, GAUSSIAN, MEAN = "bernoulli", "gaussian", "mean"
PREDICT_ROWS = 16_384
DESCRIBED = (
    "candidates_",
    "heterogeneity_",
    "average_effect_",
    "effect_range_",
    "effect_features_",
)
DESCRIBED_ROWS = 20_000  # at most, over which the effect is averaged


class MixtureUplift(RowEstimator):
    r"""Uplift from separate labels by the likelihood of the tables.

    Among outcome rows of population :math:`k` at :math:`x`, a share :math:`e_k(x)` was treated,
    and nobody knows which rows. Their outcomes are a mixture,

    .. math::

        p_k(y \mid x) = e_k(x) \, p(y \mid x, 1) + (1 - e_k(x)) \, p(y \mid x, 0),

    whose shares come from the treatment tables and whose two parts are the same in every
    population. The likelihood of the outcomes needs no row with both labels. It is written with a
    base and an effect, which are sums of functions of single features: a line, a square and a
    curve each, and products of pairs if there are at most twelve features. How large the functions
    of a feature are is learnt from the rows, so that idle features drop out and the average effect
    is not shrunk. Simpler and richer forms are weighed by held-out likelihood and averaged.

    Parameters
    ----------
    engine : {"likelihood", "em"}, default="likelihood"
        "likelihood" is the additive model above. "em" fits ``outcome_model`` to the treated and
        to the untreated by expectation-maximisation.
    family : {"auto", "bernoulli", "gaussian", "mean"}, default="auto"
        Law of the outcome. "bernoulli" for two values: base and effect are log-odds. For real
        outcomes "mean" assumes nothing but a mean, :math:`m(x) + (e_k(x) - \bar e(x)) u(x)`, and
        bounds the pull of gross values on both sides (Huber) where that pays; "gaussian" takes
        normal noise of one variance and gains from it if it is true. "auto" is "bernoulli" or
        "mean", for "em" "gaussian".
    outcome_model : scikit-learn classifier or regressor, default=None
        For ``engine="em"``: must take ``sample_weight``; a classifier if the outcome has two
        values.
    policy_model : scikit-learn classifier or None, default=None
        Model of each population's policy; None for the same additive model, without an effect.
    categorical_features : sequence of str or int, default=()
        Names or positions of columns whose numbers are codes of categories. Each is one block of
        indicators with one scale; a code that ``fit`` has not seen counts as average.
    average : bool, default=True
        Whether forms that held-out rows cannot tell apart are averaged; otherwise the likeliest
        is used alone.
    n_folds : int, default=5
        Folds of the held-out likelihood.
    n_starts : int, default=2
        Starts of EM, whose likelihood has more than one peak; the highest is kept.
    shift : None, "classifier", "rulsif" or scikit-learn classifier, default=None
        Weight the tables to the target's features, as in `MinMaxUplift`. Seldom needed here: the
        likelihood is conditional on x, so that tables may describe different people.
    shift_clip : float or None, default=None
        Cap on those weights.
    n_jobs : int or None, default=-1
        Threads; -1 uses all cores. Results do not depend on it.
    random_state : int, RandomState or None, default=None
        Seed for folds, samples and starts; the same seed gives the same bits.

    Attributes
    ----------
    family_ : str
        The law in use.
    policies_ : tuple of ConditionalMean
        One for each population.
    fit_ : AdditiveAverage or EMFit
        The fits that are averaged, scales, path of the objective, convergence.
    candidates_ : FormTable
        Every form tried, its held-out loss, the difference to the likeliest with its standard
        error, and its weight in the average. This and the next four not for EM.
    heterogeneity_ : Estimate
        By how many nats of held-out likelihood the likeliest form beats one in which the effect is
        a constant.
    average_effect_ : Estimate
        Mean uplift of the outcome rows, in units of the outcome, with the model's standard error.
    effect_range_ : array of shape (2,)
        Between which the predicted uplift of nine in ten outcome rows lies, units of the outcome.
    effect_features_ : array of shape (d,)
        Standard deviation of what each feature adds to the effect, in log-odds or in standard
        deviations of the outcome.
    scaling_, outcome_scaling_ : Scaling
        Of the features, and of the outcome.
    shift_ : ShiftReport or None
        Effective sizes, if ``shift`` was on.
    identification_ : IdentificationStrength
        How different the policies are; of several populations, those of the best pair.
    populations_ : list
        Names of the populations; any number from two.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    See Also
    --------
    Uplift : the same, with nothing to choose and a summary in words.
    MinMaxUplift : models neither policies nor base.
    TwoStageUplift : two-stage least squares, with standard errors.

    Notes
    -----
    Time is that of six forms times ``n_folds`` fits, each of at most about 25 passes of O(n p^2)
    over at most 20,000 outcome rows, where p is ten functions a feature and one for each pair,
    twice; then a few passes over all rows if there are more. Of more than 100 features those are used that
    go along with the labels most.

    The treatment tables say which part is which, so the two cannot change places. If policies
    hardly differ, the answer rests on the functions' form alone: a `WeakIdentificationWarning`
    says so. The standard error of the average takes the policies and the forms as given.

    Examples
    --------
    >>> import numpy as np
    >>> from unjoined import MixtureUplift
    >>> from unjoined.data import paper_problem
    >>> problem = paper_problem(b=2.0)
    >>> model = MixtureUplift(random_state=0).fit(**problem.draw(1000, random_state=0))
    >>> X_new = problem.draw_joint(5000, random_state=1).X
    >>> bool(np.corrcoef(model.predict(X_new), problem.uplift(X_new))[0, 1] > 0.95)
    True
    """

    _takes_several = True

    _parameters: ClassVar[dict[str, Check]] = {
        "engine": one_of(LIKELIHOOD, EM),
        "family": one_of("auto", BERNOULLI, GAUSSIAN, MEAN),
        "outcome_model": check_model,
        "policy_model": check_model,
        "average": check_flag,
        "n_folds": count_from(2),
        "n_starts": check_count,
        "shift_clip": optional(check_positive),
    }

    family_: str
    policies_: tuple[ConditionalMean, ...]
    fit_: AdditiveAverage | EMFit
    scaling_: Scaling
    outcome_scaling_: Scaling
    shift_: ShiftReport | None
    candidates_: FormTable
    heterogeneity_: Estimate
    average_effect_: Estimate
    effect_range_: Array
    effect_features_: Array

    def __init__(
        self,
        *,
        engine: str = LIKELIHOOD,
        family: str = "auto",
        outcome_model: Any = None,
        policy_model: Any = None,
        categorical_features: Any = (),
        average: bool = True,
        n_folds: int = 5,
        n_starts: int = 2,
        shift: Any = None,
        shift_clip: float | None = None,
        n_jobs: int | None = -1,
        random_state: RandomState = None,
    ) -> None:
        self.engine = engine
        self.family = family
        self.outcome_model = outcome_model
        self.policy_model = policy_model
        self.categorical_features = categorical_features
        self.average = average
        self.n_folds = n_folds
        self.n_starts = n_starts
        self.shift = shift
        self.shift_clip = shift_clip
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _fit_rows(self, rows: LabelledRows, target: tuple[Array, Array] | None) -> None:
        rng = check_random_state(self.random_state)
        self.shift_ = None
        if self.shift is not None:
            X, weight = (None, None) if target is None else target
            rows, self.shift_ = weigh_shift(
                rows,
                X,
                self.shift,
                clip=self.shift_clip,
                rng=rng,
                target_weight=weight,
                stacklevel=4,
            )
        self.family_ = self._choose_family(is_binary=rows.coding.is_binary)
        self.scaling_ = Scaling.of_rows(rows.X, rows.share)
        self.policies_ = fit_policies(
            self._scaled(rows.X) if self.policy_model is not None else rows.X,
            rows,
            self.policy_model,
            rng=rng,
            n_jobs=self.n_jobs,
        )
        self._coding, self.outcome_scaling_ = rows.coding, outcome_scaling(rows, self.family_)
        at = rows.of_kind(OUTCOME)
        X, population = rows.X[at], rows.population[at]
        outcomes = ModelRows.of_weights(
            X, self._encode(rows.label[at]), self._exposure(X, population), rows.weight[at]
        )
        for name in DESCRIBED:  # EM has none of them
            self.__dict__.pop(name, None)
        if self.engine == EM:
            self.fit_ = self._fit_em(outcomes, rng)
        else:
            self.fit_ = self._fit_forms(outcomes, population, rng)
        if not self.fit_.converged:
            warnings.warn(
                "the mixture likelihood did not settle; see fit_.objective or fit_.path. Look for "
                "features that determine the outcome.",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _fit_em(self, rows: ModelRows, rng: np.random.RandomState) -> EMFit:
        return fit_em(
            self._scaled(rows.X),
            rows.y,
            rows.exposure,
            rows.weight,
            self.outcome_model,
            family=self.family_,
            n_starts=self.n_starts,
            rng=rng,
        )

    def _fit_forms(
        self, rows: ModelRows, population: IntArray, rng: np.random.RandomState
    ) -> AdditiveAverage:
        chance = self._chances(rows.X).mean(axis=1)
        split = float(np.average(chance, weights=rows.weight))
        laws: dict[str, Law] = {
            BERNOULLI: BernoulliLaw(split),
            GAUSSIAN: GaussianLaw(split),
            MEAN: MeanLaw(),
        }
        fit = average_forms(
            rows,
            laws[self.family_],
            EFFECT_FORMS,
            deal(population, self.n_folds, rng),
            categorical=self._categorical_columns(),
            average=self.average,
            n_jobs=self.n_jobs,
            rng=rng,
        )
        few = np.sort(rng.permutation(len(rows.y))[:DESCRIBED_ROWS])
        self._describe(fit, rows.take(few), chance[few])
        return fit

    def _describe(self, fit: AdditiveAverage, rows: ModelRows, chance: Array) -> None:
        """Set what is said of the effect: its average, its range, and what it varies with."""
        values, weight = fit.basis(rows.X), rows.weight / rows.weight.sum()
        treated, untreated = self._averaged(fit, rows.X, chance)
        uplift = treated - untreated
        mean = float(weight @ uplift)
        parts, (by_base, by_effect) = fit.best.parts, fit.best.law.slopes(*fit.best(values))
        of_base = (weight * by_base) @ values[:, parts.base]
        of_effect = (weight * by_effect) @ values[:, parts.effect]
        gradient = np.concatenate([of_base, of_effect])
        variance = gradient @ fit.best.covariance @ gradient
        variance += weight @ (uplift - mean) ** 2 / rows.weight.sum()
        scale = float(self.outcome_scaling_.scale[0])
        self.average_effect_ = Estimate(scale * mean, scale * float(np.sqrt(variance)))
        self.effect_range_ = scale * weighted_quantile(uplift, weight, (0.05, 0.95))
        self.effect_features_ = self._contributions(fit, values, weight)
        self.heterogeneity_ = Estimate(*fit.forms.gain_over(ALONE))
        self.candidates_ = fit.forms

    def _contributions(self, fit: AdditiveAverage, values: Array, weight: Array) -> Array:
        """Return how far the effect varies with each feature, pairs counting for both."""
        coef = fit.weight @ np.array([member.effect for member in fit.members])
        block, _, columns = fit.basis.blocks()
        parts: dict[tuple[int, ...], list[int]] = {}
        for j, b in enumerate(block.tolist()):
            parts.setdefault(columns[b], []).append(j)
        square = np.zeros(self.n_features_in_)
        for features, at in parts.items():
            part = values[:, at] @ coef[at]
            square[list(features)] += weight @ (part - weight @ part) ** 2
        return np.sqrt(square)

    def _scaled(self, X: Array) -> Array:
        return self.scaling_(X)

    def _chances(self, X: Array) -> Array:
        """Return every population's probability of treatment, shape (n, number of them)."""
        features = X if self.policy_model is None else self._scaled(X)
        return np.column_stack([policy(features) for policy in self.policies_])

    def _exposure(self, X: Array, population: IntArray) -> Array:
        """Return what the outcome's law needs of the policies at each row."""
        chances = self._chances(X)
        own: Array = chances[np.arange(len(X)), population]
        return own - chances.mean(axis=1) if self.family_ == MEAN else own

    def _encode(self, label: Array) -> Array:
        """Return inner labels in the fit's coding: 0/1, or scaled."""
        if self.family_ == BERNOULLI:
            return 0.5 + 0.5 * label
        outcome = self._coding.offset + self._coding.scale * label
        return self.outcome_scaling_(outcome[:, None])[:, 0]

    def _predict_rows(self, matrix: Array) -> Array:
        treated, untreated = self._means(matrix)
        return treated - untreated

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
        return self._chances(self._check_features(X, reset=False))

    def _means(self, matrix: Array) -> tuple[Array, Array]:
        """Return both means at checked rows, less the outcome's offset."""
        # Chunk by chunk, so that values of the functions at all rows are never in memory together.
        chunks = [
            matrix[start : start + PREDICT_ROWS] for start in range(0, len(matrix), PREDICT_ROWS)
        ]
        # Models of the user's have their own ways with threads.
        n_jobs = 1 if isinstance(self.fit_, EMFit) else self.n_jobs
        parts = list(over_pieces(self._chunk_means, chunks, n_jobs))
        scale = float(self.outcome_scaling_.scale[0])
        treated, untreated = (scale * np.concatenate(part) for part in zip(*parts, strict=True))
        return treated, untreated

    def _chunk_means(self, chunk: Array) -> tuple[Array, Array]:
        if isinstance(self.fit_, EMFit):
            return self.fit_.means(self._scaled(chunk))
        is_mean = self.family_ == MEAN  # whose base is that of the mean policy
        chance = self._chances(chunk).mean(axis=1) if is_mean else np.zeros(len(chunk))
        return self._averaged(self.fit_, chunk, chance)

    def _averaged(self, fit: AdditiveAverage, X: Array, chance: Array) -> tuple[Array, Array]:
        """Return both means by additive models, in the fit's coding."""
        base, effect = fit(X)
        treated, untreated = fit.best.law.arms(base, effect, chance[:, None])
        return treated @ fit.weight, untreated @ fit.weight

    def score(
        self,
        X: MatrixLike,
        y: ArrayLike,
        *,
        kind: ArrayLike,
        population: ArrayLike,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Return the mean log-likelihood of held-out outcome rows; higher is better.

        A proper score that needs no joint labels, so that `GridSearchCV` can choose among
        settings. The "mean" family is scored as if its noise were normal.

        Parameters
        ----------
        X, y, kind, population, sample_weight
            Held-out rows, as in ``fit``. Only outcome rows are used, of populations that ``fit``
            has seen.

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
        X: MatrixLike,
        y: ArrayLike,
        *,
        kind: ArrayLike,
        population: ArrayLike,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Return the same as `score`, under the name that `UpliftSearchCV` looks for."""
        matrix = self._check_features(X, reset=False)
        kinds = check_kind(kind, len(matrix))
        labels = check_labels(y, kinds)
        names = check_population(population, kinds)
        weight = check_weight(sample_weight, len(matrix))
        used = (kinds == OUTCOME) & (weight > 0.0)
        index = check_scored(self.populations_, self._coding, names[used], labels[used])
        X = matrix[used]
        outcome = self._encode(self._coding.encode(labels[used]))
        exposure = self._exposure(X, index)
        if isinstance(self.fit_, EMFit):
            likelihood = self.fit_.log_likelihood(self._scaled(X), outcome, exposure)
        else:
            likelihood = self.fit_.log_likelihood(ModelRows(X, outcome, exposure, weight[used]))
        return float(np.average(likelihood, weights=weight[used]))

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.engine == EM and self.outcome_model is None:
            raise InputError(
                "engine='em' needs outcome_model, a scikit-learn estimator that takes "
                "sample_weight, such as LogisticRegression()."
            )
        if self.engine == EM and self.family == MEAN:
            raise InputError("family='mean' has no likelihood for EM; use engine='likelihood'.")
        if self.engine == LIKELIHOOD and self.outcome_model is not None:
            raise InputError("outcome_model is for engine='em'; leave it out, or set the engine.")
        if self.policy_model is not None and not is_classifier(self.policy_model):
            raise InputError(
                f"policy_model must be None or a classifier, got {self.policy_model!r}."
            )

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
        names = getattr(self, "feature_names_in_", np.empty(0, dtype=object)).tolist()
        columns = []
        for one in self.categorical_features:
            column = names.index(one) if one in names else one
            if isinstance(column, bool | str) or column not in range(self.n_features_in_):
                known = f"one of {names}" if names else f"below {self.n_features_in_}"
                raise InputError(f"categorical_features must be {known}, got {one!r}.")
            columns.append(int(column))
        return tuple(sorted(columns))


def outcome_scaling(rows: LabelledRows, family: str) -> Scaling:
    """Return what lies between the outcome and the fit's coding of it."""
    if family == BERNOULLI:  # from 0/1
        low, reach = rows.coding.offset - rows.coding.scale, 2.0 * rows.coding.scale
        return Scaling(np.array([low]), np.array([reach]))
    outcome = rows.of_kind(OUTCOME)
    in_units = rows.coding.offset + rows.coding.scale * rows.label[outcome, None]
    return Scaling.of_rows(in_units, rows.share[outcome])


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
