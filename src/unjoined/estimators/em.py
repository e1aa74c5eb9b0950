"""The mixture of treated and untreated outcomes, fitted by EM over any scikit-learn models."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit, logit
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state

from unjoined._typing import Array, ArrayLike, IntArray, MatrixLike, RandomState
from unjoined._validation import (
    OUTCOME,
    OutcomeCoding,
    check_count,
    check_option,
    check_positive,
)
from unjoined.data.rows import LabelledRows
from unjoined.errors import InputError, LabelError
from unjoined.estimators.base import (
    Check,
    UpliftEstimator,
    check_model,
    check_verbose,
    one_of,
    optional,
)
from unjoined.estimators.uplift import OutcomesToScore
from unjoined.model.basis import Scaling
from unjoined.model.crossfit import AUTO, BERNOULLI, GAUSSIAN, Likelihood
from unjoined.model.regressors import (
    MEAN_FOLDS,
    fit_policies,
    last_step,
    seeded_clone,
    takes_weights,
)
from unjoined.model.shift import ShiftReport, weigh_shift

DEFAULT_MODELS = {BERNOULLI: LogisticRegression(), GAUSSIAN: LinearRegression()}
PROBABILITY_FLOOR = (
    1e-9  # how far likelihoods (not predictions) keep probabilities from 0 and 1
)
VARIANCE_FLOOR = 1e-6  # least residual variance, as a share of the outcome's variance
PATIENCE = (
    10  # iterations without a new best likelihood that end the run of a falling model
)
START_SPREAD = 2.0  # standard deviation of the coefficients of a random start, log-odds


@dataclass(frozen=True, slots=True)
class EMFit:
    """Outcome models of the treated and the untreated, and how the iterations went.

    The models are those of the likeliest iteration, the maximum of ``path``. EM promises a rising
    path only for models that maximise the weighted likelihood: no forest, no penalty.
    """

    treated: Any  # fitted model of y given x under treatment
    untreated: Any  # and without it
    sigma: float  # standard deviation of y around its mean, outcome units; NaN for "bernoulli"
    family: str
    path: Array  # (n_iter + 1,) mean log-likelihood per weight, nats: at the start and after each
    converged: (
        bool  # whether the last iteration changed it by no more than the tolerance
    )
    n_iter: int
    start: int  # which start was chosen; 0 takes the policies as they are
    is_monotone: bool  # whether no iteration lowered it by more than the tolerance

    def means(self, X: Array) -> tuple[Array, Array]:
        """Return E[y | x, treated] and E[y | x, untreated] at each row, outcome units."""
        treated = _mean(self.treated, X, self.family)
        return treated, _mean(self.untreated, X, self.family)

    def log_likelihood(self, X: Array, y: Array, propensity: Array) -> Array:
        """Return log p(y | x, population) of each row in nats, ``chance`` being its e.

        Its mean over held-out rows is a proper score of fits of one family, whatever their models.
        """
        log_density = (
            _log_density(y, mean, self.sigma, self.family) for mean in self.means(X)
        )
        return _mix(*_logs(propensity), *log_density)[0]


def fit_em(
    X: Array,
    y: Array,
    propensity: Array,
    weight: Array,
    model: Any,
    *,
    family: str,
    n_starts: int = 1,
    max_iter: int = 200,
    tol: float = 1e-6,
    rng: np.random.RandomState,
) -> EMFit:
    r"""Fit the outcome's law under treatment and without it to rows that do not tell which.

    In population k the outcome is a mixture,

    .. math::

        p_k(y \mid x) = e_k(x) \, p(y \mid x, 1) + (1 - e_k(x)) \, p(y \mid x, 0),

    with known chances of treatment :math:`e_k` and outcome laws shared by all populations. An
    iteration gives each row its probability of having been treated,
    :math:`r = e \, p(y \mid x, 1) / p_k(y \mid x)`, and fits ``model`` to the rows with weights
    :math:`w r`, and once more with :math:`w (1 - r)`. The two parts cannot change places: e says
    which is which. Where e hardly varies between rows of similar x, the answer rests on the
    functional form of ``model``.

    Outcomes are 0 and 1 for "bernoulli", whose model is a classifier. The first of ``n_starts``
    runs starts at r = e, the others at random; the likeliest counts. A run ends when an iteration
    changes the mean log-likelihood by at most ``tol`` of it, for "gaussian" by so many nats.
    A model keeps its seed over all iterations, else no iteration would be the last.

    With a penalty it is the penalised likelihood that rises; the plain one may fall, as a forest's
    may. Then the likeliest iteration is returned and ``is_monotone`` is False. A fully grown tree
    explains each outcome by itself and learns nothing from the mixture: limit its leaves' weight.
    """
    check_option("family", family, [BERNOULLI, GAUSSIAN])
    _check_model(model, family)
    _check_rows(y, propensity, family)
    problem = _prepare(X, y, propensity, weight, model, family, rng)
    fit = _climb(problem, propensity, 0, max_iter, tol)
    for start in range(1, n_starts):
        share = _draw_share(X, problem, propensity, rng)
        other = _climb(problem, share, start, max_iter, tol)
        value = fit.path.max()
        if other.path.max() > value + problem.slack(tol, value):
            fit = other
    return fit


@dataclass(frozen=True, slots=True)
class _Part:
    """A model that is fitted in every iteration, and the rows that have a say in it."""

    model: Any  # never fitted itself
    rows: IntArray  # (n',) rows that surely belong to the other part are left out
    treated: bool  # whether it is that of the treated
    X: Array  # (n', d)
    label: Any  # (n',)

    def fit(self, weight: Array, share: Array, previous: Any) -> Any:
        """Return the model fitted to rows that were treated with probability ``share``."""
        whole = clone(self.model)
        is_warm = previous is not None and _is_convex(last_step(whole))
        if is_warm:  # a copy, because the previous one may turn out to be the best
            whole = deepcopy(previous)
            last_step(whole).set_params(warm_start=True)
        Z = self.X
        if isinstance(whole, Pipeline) and len(whole) > 1:
            # By hand, because with metadata routing on a pipeline does not take weights by name.
            head = whole[:-1]
            Z = head.fit_transform(Z, self.label)
            whole.steps[:-1] = head.steps
        r = share[self.rows] if self.treated else 1.0 - share[self.rows]
        last_step(whole).fit(Z, self.label, sample_weight=weight[self.rows] * r)
        if is_warm:
            last_step(whole).set_params(warm_start=last_step(self.model).warm_start)
        return whole


@dataclass(frozen=True, slots=True)
class _Problem:
    """What stays the same over iterations and starts."""

    parts: tuple[_Part, _Part]  # the treated and the untreated
    X: Array  # (n, d)
    y: Array  # (n,)
    logs: tuple[Array, Array]  # (n,) each, log e and log(1 - e)
    weight: Array  # (n,)
    variance: float  # of y
    family: str

    def slack(self, tol: float, value: float) -> float:
        """Return the change of a mean log-likelihood that counts as none, in nats."""
        # Other units of a real outcome add a constant to the log-likelihood: no shares there.
        return tol * abs(value) if self.family == BERNOULLI else tol


@dataclass(frozen=True, slots=True)
class _Step:
    """Models after an M-step, and what they say about the rows."""

    models: tuple[Any, ...]  # fitted, of the treated and of the untreated
    sigma: float
    value: float  # mean log-likelihood per unit of weight
    share: Array  # (n,) probability of having been treated: the next E-step


def _climb(
    problem: _Problem, share: Array, start: int, max_iter: int, tol: float
) -> EMFit:
    """Iterate from the given probabilities of having been treated; keep the likeliest step."""
    step = best = _maximise(problem, share, None)
    path, stalled, converged, is_monotone = [step.value], 0, False, True
    for _ in range(max_iter):
        step = _maximise(problem, step.share, step.models)
        gain = step.value - path[-1]
        slack = problem.slack(tol, path[-1])
        path.append(step.value)
        is_monotone = is_monotone and gain >= -slack
        stalled = 0 if step.value > best.value + slack else stalled + 1
        best = step if step.value > best.value else best
        converged = abs(gain) <= slack
        if converged or stalled >= PATIENCE:
            break
    return EMFit(
        treated=best.models[0],
        untreated=best.models[1],
        sigma=best.sigma,
        family=problem.family,
        path=np.array(path),
        converged=converged,
        n_iter=len(path) - 1,
        start=start,
        is_monotone=is_monotone,
    )


def _maximise(
    problem: _Problem, share: Array, previous: tuple[Any, ...] | None
) -> _Step:
    """Do the M-step for ``share``, and with the new models the E-step that follows it."""
    y, weight, family = problem.y, problem.weight, problem.family
    models = tuple(
        part.fit(weight, share, None if previous is None else previous[i])
        for i, part in enumerate(problem.parts)
    )
    m_1, m_0 = (_mean(model, problem.X, family) for model in models)
    sigma = np.nan
    if family == GAUSSIAN:
        squares = share * (y - m_1) ** 2 + (1.0 - share) * (y - m_0) ** 2
        least = VARIANCE_FLOOR * problem.variance
        sigma = float(np.sqrt(max(np.average(squares, weights=weight), least)))
    log_density = (_log_density(y, mean, sigma, family) for mean in (m_1, m_0))
    value, next_share = _mix(*problem.logs, *log_density)
    return _Step(models, sigma, float(np.average(value, weights=weight)), next_share)


def _mix(
    log_e: Array, log_rest: Array, log_p1: Array, log_p0: Array
) -> tuple[Array, Array]:
    """Return log(e p_1 + (1 - e) p_0), and r = e p_1 / (e p_1 + (1 - e) p_0)."""
    # In logs, because densities of outlying rows underflow. As they are finite and e and 1 - e
    # are not both 0, r is exactly 0 or 1 where e is, and NaN nowhere.
    log_treated = log_e + log_p1
    total = np.logaddexp(log_treated, log_rest + log_p0)
    return total, np.exp(log_treated - total)


def _logs(propensity: Array) -> tuple[Array, Array]:
    """Return log e and log(1 - e), minus infinity where they are."""
    with np.errstate(divide="ignore"):
        return np.log(propensity), np.log1p(-propensity)


def _log_density(y: Array, mean: Array, sigma: float, family: str) -> Array:
    """Return log p(y | mean) of each row."""
    if family == BERNOULLI:
        p = np.clip(mean, PROBABILITY_FLOOR, 1.0 - PROBABILITY_FLOOR)
        return np.where(y > 0.5, np.log(p), np.log1p(-p))
    return np.asarray(
        -0.5 * ((y - mean) / sigma) ** 2 - np.log(sigma * np.sqrt(2.0 * np.pi))
    )


def _mean(model: Any, X: Array, family: str) -> Array:
    """Return the fitted conditional mean at each row, or say that it is none."""
    method = "predict_proba" if family == BERNOULLI else "predict"
    raw = np.asarray(getattr(model, method)(X), dtype=np.float64)
    mean: Array = raw[:, 1] if family == BERNOULLI else raw
    bad = ~np.isfinite(mean)
    if bad.any():
        raise InputError(
            f"{type(last_step(model)).__name__}.{method} returned NaN or infinite values in "
            f"{int(bad.sum())} of {len(X)} rows (first at row {int(np.argmax(bad))}). Scale the "
            "features, or choose a more stable model."
        )
    return mean


def _prepare(
    X: Array,
    y: Array,
    propensity: Array,
    weight: Array,
    model: Any,
    family: str,
    rng: np.random.RandomState,
) -> _Problem:
    """Clone and seed the models, and lay out their rows."""
    # Chosen by e alone, not by r, lest a row that underflows change what a forest counts.
    rows = (np.flatnonzero(propensity > 0.0), np.flatnonzero(propensity < 1.0))
    label: Any = y.astype(np.int64) if family == BERNOULLI else y
    first, second = (
        _Part(seeded_clone(model, rng), at, treated, X[at], label[at])
        for at, treated in zip(rows, (True, False), strict=True)
    )
    variance = float(
        np.average((y - np.average(y, weights=weight)) ** 2, weights=weight)
    )
    return _Problem((first, second), X, y, _logs(propensity), weight, variance, family)


def _draw_share(
    X: Array, problem: _Problem, propensity: Array, rng: np.random.RandomState
) -> Array:
    """Return the r of a log-density ratio drawn at random: linear in y, with slopes linear in x.

    Noise drawn row by row would not do: the models average it out, and all starts are alike.
    """
    slope, tilt = (START_SPREAD * rng.standard_normal(size) for size in (1, X.shape[1]))
    # A real outcome in its standard deviations; not a 0/1 outcome: a rare 1 is not an outlier.
    unit = np.sqrt(problem.variance) if problem.family == GAUSSIAN else 1.0
    centred = (problem.y - np.average(problem.y, weights=problem.weight)) / unit
    ratio = centred * (slope + X @ tilt / np.sqrt(X.shape[1]))
    return np.asarray(expit(logit(propensity) + ratio))  # 0 and 1 stay 0 and 1


def _is_convex(last: Any) -> bool:
    """Whether the solver's start changes only its speed, so that it may be the previous fit.

    ``warm_start`` alone does not say so: forests then keep their trees and networks go on.
    """
    return isinstance(last, LogisticRegression) and hasattr(last, "warm_start")


def _check_model(model: Any, family: str) -> None:
    """Refuse models that the family rules out, or that take no weights."""
    name = type(last_step(model)).__name__
    needed = "a regressor"
    suits = not is_classifier(model) and hasattr(model, "predict")
    if family == BERNOULLI:
        needed = "a classifier with predict_proba"
        suits = is_classifier(model) and hasattr(model, "predict_proba")
    if not suits:
        raise InputError(
            f"family {family!r} needs {needed}, got {name}. Pass one, or choose the other family "
            "if it suits the outcome."
        )
    if not takes_weights(model):
        raise InputError(
            f"EM weights rows by their probability of having been treated, but {name}.fit takes no "
            "sample_weight. Choose a model that does."
        )


def _check_rows(y: Array, propensity: Array, family: str) -> None:
    """Refuse rows that leave one of the two parts without anything to learn."""
    if not np.all((propensity >= 0.0) & (propensity <= 1.0)):
        raise InputError(
            "propensity must hold probabilities in [0, 1], got values from "
            f"{propensity.min():g} to {propensity.max():g}. Clip what a regression of the "
            "treatment predicts."
        )
    if family == BERNOULLI and not np.isin(y, (0.0, 1.0)).all():
        raise LabelError(
            f"family 'bernoulli' needs outcomes 0 and 1, got values from {y.min():g} to "
            f"{y.max():g}. Use family 'gaussian' for a real outcome."
        )
    for part, possible in (
        ("treated", propensity > 0.0),
        ("untreated", propensity < 1.0),
    ):
        if not possible.any():
            raise LabelError(
                f"no outcome row may have been {part}: propensity is {propensity[0]:g} everywhere. "
                "Add a population with another policy."
            )
        seen = y[possible] if family == BERNOULLI else y
        if seen.min() == seen.max():
            raise LabelError(
                f"the outcome is {seen[0]:g} in all {seen.size} rows that may have been {part}, "
                "so that there is nothing to fit. Add rows, or choose another outcome."
            )


class EMUplift(UpliftEstimator):
    r"""Uplift by the likelihood of the tables, with outcome models of your own.

    The outcomes of a population are a mixture of the treated and the untreated, as in `Uplift`.
    Expectation-maximisation fits ``outcome_model`` to each of the two, by the chance that a row
    was treated.

    Parameters
    ----------
    outcome_model : scikit-learn classifier or regressor, optional
        Must take ``sample_weight``; a classifier if the outcome has two values. Default: logistic
        or linear regression.
    policy_model : scikit-learn classifier or None, default=None
        Model of each population's policy; None for the additive model of `Uplift`.
    family : {"auto", "bernoulli", "gaussian"}, default="auto"
        Family of the outcome's distribution; "auto" is "bernoulli" for two values.
    n_starts : int, default=2
        Starts, since the likelihood has more than one peak; the highest is kept.
    shift : None, "classifier" or scikit-learn classifier, default=None
        Weight the tables to the target's features, as in `MinMaxUplift`.
    shift_clip : float or None, default=None
        Cap on those weights.
    random_state : int, RandomState or None, default=None
        Seed for folds and starts; models without a seed of their own get one from it.
    verbose : bool or int, default=False
        Whether to show on stderr what the logger ``unjoined`` is told.

    Attributes
    ----------
    fit_ : EMFit
        Both models, the path of the likelihood, convergence.
    family_ : str
        The family in use.
    policies_ : tuple of ConditionalMean
        One for each population.
    scaling_, outcome_scaling_ : Scaling
        Of the features, and of the outcome.
    average_effect_, identification_, populations_, shift_, n_features_in_, feature_names_in_
        As in `Uplift`.

    See Also
    --------
    Uplift : the same likelihood with an additive model, which leads on most problems.

    Notes
    -----
    Costs two fits of ``outcome_model`` for each iteration and start, of which there are some
    dozens.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression, LogisticRegression
    >>> from unjoined import EMUplift
    >>> from unjoined.data import campaign_problem
    >>> data = campaign_problem().draw(1000, random_state=0)
    >>> model = EMUplift(LogisticRegression(), random_state=0).fit(**data)
    >>> bool(np.ptp(model.predict(data.X)) > 0.05)
    True
    """

    _parameters: ClassVar[dict[str, Check]] = {
        "outcome_model": check_model,
        "policy_model": check_model,
        "family": one_of(AUTO, BERNOULLI, GAUSSIAN),
        "n_starts": check_count,
        "shift_clip": optional(check_positive),
        "verbose": check_verbose,
    }
    _as_two_groups = False

    fit_: EMFit
    family_: str
    policies_: tuple[Callable[[Array], Array], ...]
    scaling_: Scaling
    outcome_scaling_: Scaling
    shift_: ShiftReport | None
    _coding: OutcomeCoding

    def __init__(
        self,
        outcome_model: Any = None,
        *,
        policy_model: Any = None,
        family: str = AUTO,
        n_starts: int = 2,
        shift: Any = None,
        shift_clip: float | None = None,
        random_state: RandomState = None,
        verbose: bool | int = False,
    ) -> None:
        self.outcome_model = outcome_model
        self.policy_model = policy_model
        self.family = family
        self.n_starts = n_starts
        self.shift = shift
        self.shift_clip = shift_clip
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.policy_model is not None and not is_classifier(self.policy_model):
            raise InputError(
                f"policy_model must be None or a classifier, got {self.policy_model!r}."
            )

    @property
    def _likelihood(self) -> Likelihood:
        scaling = None if self.policy_model is None else self.scaling_
        return Likelihood(
            self.family_, self._coding, self.outcome_scaling_, self.policies_, scaling
        )

    def _fit_rows(self, rows: LabelledRows, target: tuple[Array, Array] | None) -> None:
        rng = check_random_state(self.random_state)
        self.shift_ = None
        if self.shift is not None:
            X, weight = (None, None) if target is None else target
            options = {"clip": self.shift_clip, "rng": rng, "target_weight": weight}
            rows, self.shift_ = weigh_shift(
                rows, X, self.shift, **options, stacklevel=4
            )
        family = self.family
        if family == AUTO:
            family = BERNOULLI if rows.coding.is_binary else GAUSSIAN
        if family == BERNOULLI and not rows.coding.is_binary:
            raise InputError(
                "family='bernoulli' needs an outcome of two values; use 'gaussian'."
            )
        self.scaling_ = Scaling.of_rows(rows.X, rows.share)
        self._coding = rows.coding
        Z = self.scaling_(rows.X)
        features = rows.X if self.policy_model is None else Z
        fold = rows.deal(MEAN_FOLDS, rng)
        folded = fit_policies(features, rows, self.policy_model, fold=fold, rng=rng)
        self.policies_ = tuple(each.policy for each in folded)
        self.outcome_scaling_ = Likelihood.of_rows(
            rows, family, self.policies_
        ).outcome_scaling
        self.family_ = family
        at = rows.of_kind(OUTCOME)
        outcomes, _ = self._likelihood.outcomes(rows, at)
        self.fit_ = fit_em(
            Z[at],
            outcomes.y,
            outcomes.exposure,
            outcomes.weight,
            DEFAULT_MODELS[family]
            if self.outcome_model is None
            else self.outcome_model,
            family=family,
            n_starts=self.n_starts,
            rng=rng,
        )
        if not self.fit_.converged:
            warnings.warn(
                "the likelihood did not settle; see fit_.path. Look for features that determine "
                "the outcome.",
                ConvergenceWarning,
                stacklevel=4,
            )

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
        matrix = self._check_features(X, reset=False)
        treated, untreated = (self._in_units(mean) for mean in self._means(matrix))
        return treated, untreated

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
        return self._likelihood.propensities(self._check_features(X, reset=False))

    def _in_units(self, mean: Array) -> Array:
        scaling = self.outcome_scaling_
        return np.asarray(float(scaling.mean[0]) + float(scaling.scale[0]) * mean)

    def _means(self, matrix: Array) -> tuple[Array, Array]:
        return self.fit_.means(self.scaling_(matrix))

    def _predict_rows(self, matrix: Array) -> Array:
        treated, untreated = self._means(matrix)
        return np.asarray(float(self.outcome_scaling_.scale[0]) * (treated - untreated))

    def score(
        self,
        X: MatrixLike | Mapping[str, Any],
        y: ArrayLike | None = None,
        *,
        treatment: ArrayLike | None = None,
        population: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        cluster: ArrayLike | None = None,
        count: ArrayLike | None = None,
        policy: ArrayLike | None = None,
        dose: bool | None = None,
        control: Any = None,
    ) -> float:
        """Return the mean log-likelihood of held-out outcome rows; higher is better.

        Parameters
        ----------
        X, y, treatment, population, sample_weight, cluster, count, policy, dose, control
            Held-out rows, as in ``fit``, or a `SeparateLabels` as ``X`` alone. Only outcome rows
            are used, of populations that ``fit`` has seen.

        Returns
        -------
        float
            In nats per row of the outcome as scaled in ``fit``.
        """
        beside = (sample_weight, cluster, count, policy, dose, control)
        columns = (y, treatment, population, *beside)
        rows = OutcomesToScore.of_call(self, X, columns)
        outcome, exposure, _ = self._likelihood.rows(
            rows.X, rows.label, rows.population
        )
        likelihood = self.fit_.log_likelihood(self.scaling_(rows.X), outcome, exposure)
        return float(np.average(likelihood, weights=rows.weight))
