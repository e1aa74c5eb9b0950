"""Uplift by plain regressions: four of them and a ratio, or two-stage least squares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import block_diag
from sklearn.base import is_classifier
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, RidgeCV
from sklearn.utils import check_random_state

from unjoined._typing import Array, Basis, IntArray, MatrixLike, RandomState
from unjoined._validation import (
    OUTCOME,
    TREATMENT,
    check_count,
    check_not_negative,
    check_positive,
)
from unjoined.data.rows import LabelledRows
from unjoined.errors import InputError
from unjoined.estimators.base import (
    Check,
    UpliftEstimator,
    basis_or,
    check_model,
    fit_pair,
    one_of,
    scale_outcomes,
    warn_of_gaps,
    word_or,
)
from unjoined.estimators.minmax import MinMaxUplift
from unjoined.model.basis import LinearBasis, Scaling
from unjoined.model.draw import BASES, draw_basis
from unjoined.model.regressors import (
    ConditionalMean,
    fit_conditional_mean,
    seeded_clone,
    takes_weights,
)


class PlugInUplift(UpliftEstimator):
    r"""Uplift from separate labels by four regressions and a ratio.

    Estimates :math:`u(x) = E[Y(1) - Y(0) \mid X = x]` by the paper's Lemma 1,

    .. math::

        u(x) = \frac{E_1[y \mid x] - E_2[y \mid x]}{P_1(t = 1 \mid x) - P_2(t = 1 \mid x)},

    each of the four conditional means being fitted to its own table. Where the policies come
    close the denominator goes through zero and the ratio explodes; see ``min_gap``.

    Parameters
    ----------
    outcome_model : scikit-learn regressor or classifier, optional
        Model of the outcome, cloned and fitted once per population. A classifier needs an
        outcome of two values. Default: logistic regression for two values, else ridge.
    treatment_model : scikit-learn classifier or regressor, optional
        Model of the policy, likewise. Default: logistic regression.
    min_gap : float, default=0.05
        A denominator closer to 0 than this difference in treatment probability is set to it,
        with its sign kept. With 0 only rows without any gap at all get the uplift 0. ``predict``
        says in a `RatioGuardWarning` how many rows were touched.
    random_state : int, RandomState or None, default=None
        Seed given to models whose own ``random_state`` is None.

    Attributes
    ----------
    outcome_means_, treatment_means_ : tuple of two callables
        The fitted conditional means of each population, on scaled features: outcomes in the
        inner coding, treatments from -1 to 1.
    scaling_, outcome_scale_ : Scaling and float
        What features were scaled by, and outcome units per unit of the inner coding.
    identification_, populations_, n_features_in_, feature_names_in_
        As in `MinMaxUplift`.

    See Also
    --------
    FourLogistic, FourNNC, FourRidge, FourNNR : the paper's baselines, presets of this class.
    MinMaxUplift : avoids the ratio.

    Notes
    -----
    Costs what the four models cost. Features, and outcomes of more than two values, are brought to
    mean 0 and variance 1 for the models. A population in which all or none were treated has a known
    policy and needs no model; if the other population is its opposite, this is the T-learner.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from unjoined import PlugInUplift
    >>> from unjoined.data import paper_problem, unjoin
    >>> trial = paper_problem().draw_joint(4000, random_state=0)
    >>> tables = unjoin(
    ...     trial.X, trial.y, trial.treatment, policies={"A": 0.9, "B": 0.2}, random_state=0
    ... )
    >>> forest = RandomForestClassifier(50, min_samples_leaf=20)
    >>> model = PlugInUplift(outcome_model=forest, random_state=0).fit(**tables.data)
    >>> new = paper_problem().draw_joint(1000, random_state=1)
    >>> bool(np.corrcoef(model.predict(new.X), new.uplift)[0, 1] > 0.8)
    True
    """

    _parameters: ClassVar[dict[str, Check]] = {
        "outcome_model": check_model,
        "treatment_model": check_model,
        "min_gap": check_not_negative,
    }

    def __init__(
        self,
        *,
        outcome_model: Any = None,
        treatment_model: Any = None,
        min_gap: float = 0.05,
        random_state: RandomState = None,
    ) -> None:
        self.outcome_model = outcome_model
        self.treatment_model = treatment_model
        self.min_gap = min_gap
        self.random_state = random_state

    def _fit_rows(self, rows: LabelledRows, target: tuple[Array, Array] | None) -> None:
        rng = check_random_state(self.random_state)
        scaling = Scaling.of_rows(rows.X, rows.share)
        Z = scaling(rows.X)
        # Networks do not learn outcomes in the thousands.
        scaled, outcome_scaling = scale_outcomes(rows)
        model = self.outcome_model
        if model is None and not rows.coding.is_binary:
            model = Ridge()
        self.outcome_means_ = fit_pair(model, Z, scaled, OUTCOME, rng)
        self.treatment_means_ = fit_pair(self.treatment_model, Z, rows, TREATMENT, rng)
        self.scaling_ = scaling
        self.outcome_scale_ = float(outcome_scaling.scale[0])

    def _predict_rows(self, matrix: Array) -> Array:
        Z = self.scaling_(matrix)
        m_1, m_2 = (mean(Z) for mean in self.outcome_means_)
        t_1, t_2 = (mean(Z) for mean in self.treatment_means_)
        uplift, n_touched = _guarded_ratio(m_1 - m_2, (t_1 - t_2) / 2.0, self.min_gap)
        warn_of_gaps(
            n_touched, len(Z), "the ratio is not finite", self.min_gap, stacklevel=4
        )
        return self.outcome_scale_ * uplift


def _guarded_ratio(numerator: Array, gap: Array, min_gap: float) -> tuple[Array, int]:
    """Divide with the denominator kept away from 0; return how many rows that touched."""
    if min_gap > 0.0:
        small = np.abs(gap) < min_gap
        return numerator / np.where(small, np.copysign(min_gap, gap), gap), int(
            small.sum()
        )
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = numerator / gap
    broken = ~np.isfinite(ratio)
    return np.where(broken, 0.0, ratio), int(broken.sum())


HIDDEN = (10, 10)  # two hidden layers of ten units, as in the paper
DECAY = 1.0  # scikit-learn's alpha; ranked better than 1e-4 on small tables
MAX_EPOCHS = 5000  # the loss settles long before, and a network that has not says so
RIDGES = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
# (ridge_f, ridge_g) of MinMaxGau for the two readings of the paper's sigma. Those of width 25 lose
# a third of the area at width 5, on the paper's data at b = 5.
MINMAX_RIDGES = {25.0: (1e-4, 1e-2), 5.0: (1e-2, 1.0)}


def _preset(
    outcome_model: Any, treatment_model: Any, random_state: RandomState
) -> PlugInUplift:
    """Return a ratio without guard, as in the paper."""
    models = {"outcome_model": outcome_model, "treatment_model": treatment_model}
    return PlugInUplift(**models, min_gap=0.0, random_state=random_state)


def FourLogistic(*, random_state: RandomState = None) -> PlugInUplift:  # noqa: N802
    """Return the paper's FourLogistic: four logistic regressions and a ratio.

    For outcomes of two values; ``random_state`` is the seed, an int or RandomState.

    Examples
    --------
    >>> FourLogistic().min_gap
    0.0
    """
    return _preset(LogisticRegression(), LogisticRegression(), random_state)


def FourNNC(*, random_state: RandomState = None) -> PlugInUplift:  # noqa: N802
    """Return the paper's FourNNC: four neural classifiers and a ratio.

    Two hidden layers of ten units each, cross-entropy loss. For outcomes of two values;
    ``random_state`` is the seed, an int or RandomState.

    Examples
    --------
    >>> FourNNC().outcome_model.hidden_layer_sizes
    (10, 10)
    """
    from sklearn.neural_network import (
        MLPClassifier,
    )  # a third of a second saved at import

    model = MLPClassifier(hidden_layer_sizes=HIDDEN, alpha=DECAY, max_iter=MAX_EPOCHS)
    return _preset(model, model, random_state)


def FourRidge(*, random_state: RandomState = None) -> PlugInUplift:  # noqa: N802
    """Return the paper's FourRidge: four ridge regressions and a ratio.

    For real outcomes. Policies are fitted by ridge regression as well, on -1/+1.
    ``random_state`` is the seed, an int or RandomState.

    Examples
    --------
    >>> type(FourRidge().outcome_model).__name__
    'RidgeCV'
    """
    model = RidgeCV(alphas=RIDGES)
    return _preset(model, model, random_state)


def FourNNR(*, random_state: RandomState = None) -> PlugInUplift:  # noqa: N802
    """Return the paper's FourNNR: four neural regressions and a ratio.

    Two hidden layers of ten units each, squared loss. For real outcomes; ``random_state`` is the
    seed, an int or RandomState.

    Examples
    --------
    >>> FourNNR().outcome_model.hidden_layer_sizes
    (10, 10)
    """
    from sklearn.neural_network import (
        MLPRegressor,
    )  # a third of a second saved at import

    model = MLPRegressor(hidden_layer_sizes=HIDDEN, alpha=DECAY, max_iter=MAX_EPOCHS)
    return _preset(model, model, random_state)


def MinMaxGau(  # noqa: N802
    *,
    width: float = 25.0,
    ridge_f: float | str | None = None,
    ridge_g: float | str | None = None,
    random_state: RandomState = None,
) -> MinMaxUplift:
    r"""Return `MinMaxUplift` with the settings of the paper's experiments.

    100 Gaussian centres among the training rows, width 25, features and labels as they are.

    Parameters
    ----------
    width : float, default=25.0
        The paper's :math:`\sigma` in :math:`\exp(-\|x - c\|^2 / \sigma^2)`, units of the features.
        Read as :math:`\sigma^2 = 25` the width would be 5, and results differ much.
    ridge_f, ridge_g : float, "auto" or None, default=None
        Penalties, as in `MinMaxUplift`. The paper does not state its own. None takes ridges that
        suit the width: 1e-4 and 0.01 for width 25, 0.01 and 1 for width 5, and "auto", chosen
        from the rows, for any other. Those of 25 and 5 do well on the paper's synthetic data at
        every b from 1 to 5, which is knowledge a user does not have.
    random_state : int, RandomState or None, default=None
        Seed for the centres.

    Notes
    -----
    What comes back is a plain `MinMaxUplift`: a width that is set on it later leaves the ridges
    as they are.

    Examples
    --------
    >>> MinMaxGau(width=5.0)
    MinMaxUplift(basis='gaussian', center=False, n_centers=100, ridge_f=0.01,
                 ridge_g=1.0, standardize=False, width=5.0)
    """
    suited_f, suited_g = MINMAX_RIDGES.get(width, ("auto", "auto"))
    return MinMaxUplift(
        basis="gaussian",
        n_centers=100,
        width=width,
        ridge_f=suited_f if ridge_f is None else ridge_f,
        ridge_g=suited_g if ridge_g is None else ridge_g,
        center=False,
        standardize=False,
        random_state=random_state,
    )


@dataclass(frozen=True, slots=True)
class TwoStageCoefficients:
    """Coefficients of the second stage, in the units of the outcome per unit of the feature.

    First those of the mean outcome without treatment, then those of the uplift.
    """

    names: tuple[
        str, ...
    ]  # "intercept", features, "treatment", "treatment:" and feature
    estimates: Array  # (q,)
    covariance: (
        Array | None
    )  # (q, q); None with a first stage of the user's or q rows or fewer

    @property
    def standard_errors(self) -> Array | None:
        """Standard errors, robust to unequal variances, or None."""
        return None if self.covariance is None else np.sqrt(np.diag(self.covariance))


class TwoStageUplift(UpliftEstimator):
    r"""Uplift from separate labels by two-sample two-stage least squares.

    Estimates :math:`u(x) = E[Y(1) - Y(0) \mid X = x]` as the second half of the paper's section 3
    describes, by solving

    .. math::

        E_k[y \mid x] = \sum_{t = \pm 1} E[y \mid x, t] \, p_k(t \mid x), \qquad k = 1, 2,

    for the two conditional means. They are combinations of basis functions :math:`\phi`, by
    default a constant and the features:
    :math:`E[y \mid x, -1] = \phi(x)^\top \beta` and :math:`u(x) = \phi(x)^\top \tau`. With
    :math:`T` = 1 for the treated and 0 for others, and :math:`s` = 1 in the first population and
    0 in the second,

    1. :math:`T \phi_j(x)` is regressed on the instruments :math:`\phi(x), s \phi(x)` in the
       treatment rows, for every :math:`j`, and predicted in the outcome rows;
    2. :math:`y` is regressed on :math:`\phi(x)` and these predictions in the outcome rows.

    Were both labels on the same rows, this would be two-stage least squares.

    Parameters
    ----------
    effect : {"linear", "constant"}, default="linear"
        Whether the uplift is a combination of the basis functions, or one number; then :math:`T`
        alone is predicted, and :math:`s` alone its instrument.
    first_stage : scikit-learn classifier or regressor, optional
        Model of the policy :math:`e_k(x)`, cloned and fitted once per population; then
        :math:`e_k(x) \phi(x)` takes the place of the first regression. Default: least squares.
    second_stage : scikit-learn regressor, optional
        Model of the second regression, cloned; it should be linear in its columns, as it is
        asked for the outcome at :math:`(\phi, \phi)` and :math:`(\phi, 0)`. With many basis
        functions it should have a penalty, such as `RidgeCV`. Default: least squares.
    basis : {"linear", "gaussian", "fourier"} or Basis, default="linear"
        The functions :math:`\phi`, of the standardised features.
    n_centers, width : as in `MinMaxUplift`, default="auto" and "median"
        Number and length scale of the Gaussian or Fourier functions.
    random_state : int, RandomState or None, default=None
        Seed of the basis, and of models whose own ``random_state`` is None.

    Attributes
    ----------
    coefficients_ : TwoStageCoefficients
        Names, estimates and standard errors; None if ``second_stage`` was given. On a basis other
        than the linear one they belong to its functions of the standardised features.
    first_stage_, second_stage_ : tuple of two callables or None, and callable
        The fitted policies, -1 to 1, on scaled features, None for least squares; the second
        regression, from its columns to the outcome on the inner scale.
    basis_, scaling_, outcome_scaling_ : Basis, Scaling and Scaling
        The functions, and what features and the outcome were scaled by.
    identification_, populations_, n_features_in_, feature_names_in_
        As in `MinMaxUplift`; the first population has :math:`s` = 1.

    See Also
    --------
    PlugInUplift : solves the same system row by row, with a ratio.

    Notes
    -----
    Both regressions count each population the same, whatever the sizes of its tables; otherwise
    predictions of the first would be wrong on average in the second. Costs :math:`O(n p^2)` time
    and :math:`O(n p)` memory for p basis functions, and what given models cost. Given models must
    take row weights if there are any, and the second stage also if the two outcome tables have
    different sizes. If the second regression has no unique answer, the one with the smallest
    coefficients is taken.

    Standard errors hold for two samples of different people: the errors of both stages are
    independent, so that the covariance is the sum of two sandwiches (Pacini and Windmeijer 2016).
    They are large-sample errors, misleading if policies hardly differ.

    References
    ----------
    I. Yamane, F. Yger, J. Atif, M. Sugiyama. Uplift Modeling from Separate Labels. NeurIPS 2018.
    A. Inoue, G. Solon. Two-Sample Instrumental Variables Estimators. Rev. Econ. Stat. 2010.
    D. Pacini, F. Windmeijer. Robust Inference for the Two-Sample 2SLS Estimator. Econ. Lett. 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from unjoined.data import SimulatedProblem
    >>> problem = SimulatedProblem(
    ...     features=lambda n, rng: rng.standard_normal((n, 1)),
    ...     policies={"A": lambda X: np.full(len(X), 0.9), "B": lambda X: np.full(len(X), 0.2)},
    ...     outcome=lambda X, treated, rng: treated * X[:, 0] + rng.standard_normal(len(X)),
    ...     outcome_mean=lambda X, treated: treated * X[:, 0],
    ... )
    >>> model = TwoStageUplift().fit(**problem.draw(2000, random_state=0))
    >>> model.coefficients_.names
    ('intercept', 'x0', 'treatment', 'treatment:x0')
    >>> error = model.coefficients_.estimates - [0.0, 0.0, 0.0, 1.0]
    >>> bool(np.all(np.abs(error) < 4.0 * model.coefficients_.standard_errors))
    True
    """

    _parameters: ClassVar[dict[str, Check]] = {
        "effect": one_of("linear", "constant"),
        "first_stage": check_model,
        "second_stage": check_model,
        "basis": basis_or(*BASES),
        "n_centers": word_or(check_count, "auto"),
        "width": word_or(check_positive, "median"),
    }

    coefficients_: TwoStageCoefficients | None
    first_stage_: tuple[ConditionalMean, ConditionalMean] | None

    def __init__(
        self,
        *,
        effect: str = "linear",
        first_stage: Any = None,
        second_stage: Any = None,
        basis: str | Basis = "linear",
        n_centers: int | str = "auto",
        width: float | str = "median",
        random_state: RandomState = None,
    ) -> None:
        self.effect = effect
        self.first_stage = first_stage
        self.second_stage = second_stage
        self.basis = basis
        self.n_centers = n_centers
        self.width = width
        self.random_state = random_state

    def _fit_rows(self, rows: LabelledRows, target: tuple[Array, Array] | None) -> None:
        rng = check_random_state(self.random_state)
        scaling = Scaling.of_rows(rows.X, rows.share)
        Z = scaling(rows.X)
        size: dict[str, Any] = {"n_centers": self.n_centers, "width": self.width}
        basis = draw_basis(self.basis, Z, **size, rng=rng, weight=rows.relative)
        self.basis_, self.scaling_ = basis, scaling
        rows, self.outcome_scaling_ = scale_outcomes(rows)
        self._fit_stages(Z, rows, rng)

    def _predict_rows(self, matrix: Array) -> Array:
        treated, untreated = self._inner_means(matrix)
        return float(self.outcome_scaling_.scale[0]) * (treated - untreated)

    def predict_outcomes(self, X: MatrixLike) -> tuple[Array, Array]:
        """Return the estimated mean outcome with and without treatment at each row.

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            Features, with the columns seen in ``fit``.

        Returns
        -------
        treated, untreated : array of shape (n,)
            In the units of the outcome; their difference is ``predict(X)``. For a 0/1 outcome,
            probabilities, though nothing keeps them between 0 and 1.
        """
        treated, untreated = self._inner_means(self._check_features(X, reset=False))
        scale = float(self.outcome_scaling_.scale[0])
        offset = float(self.outcome_scaling_.mean[0])
        return offset + scale * treated, offset + scale * untreated

    def _inner_means(self, matrix: Array) -> tuple[Array, Array]:
        phi = self.basis_(self.scaling_(matrix))
        modified = self._modified(phi)
        treated = np.hstack([phi, modified])
        untreated = np.hstack([phi, 0.0 * modified])
        return self.second_stage_(treated), self.second_stage_(untreated)

    def _modified(self, phi: Array) -> Array:
        """Return the functions that the uplift is a combination of."""
        return phi if self.effect == "linear" else np.ones((len(phi), 1))

    def _fit_stages(
        self, Z: Array, rows: LabelledRows, rng: np.random.RandomState
    ) -> None:
        """Predict the treatment's terms at the outcome rows and regress the outcome on them."""
        at_t = rows.of_kind(TREATMENT)
        at_y = rows.of_kind(OUTCOME)
        treatment = self._sample(Z, rows, at_t)
        outcome = self._sample(Z, rows, at_y)
        treated = 0.5 + 0.5 * rows.label[at_t]
        y = rows.label[at_y]
        first, self.first_stage_ = None, None
        if self.first_stage is None:
            first = _first_stage(treatment, treated)
            predicted = outcome.instruments @ first.coef
        else:
            self.first_stage_ = fit_pair(self.first_stage, Z, rows, TREATMENT, rng)
            e_1, e_2 = (0.5 + 0.5 * policy(Z[at_y]) for policy in self.first_stage_)
            e = np.where(rows.population[at_y] == 0, e_1, e_2)
            predicted = e[:, None] * outcome.modified
        design = np.hstack([outcome.phi, predicted])
        model = LinearRegression(fit_intercept=False)
        if self.second_stage is not None:
            model = seeded_clone(self.second_stage, rng)
            _check_takes_shares(model, rows.weight[at_y], outcome.weight)
        self.second_stage_ = fit_conditional_mean(model, design, y, outcome.weight)
        self.coefficients_ = None
        if self.second_stage is None:
            gamma = np.asarray(self.second_stage_.model.coef_)
            # With as many coefficients as rows nothing is left over to tell their errors by, and
            # inverting the products of thousands of them takes minutes.
            covariance = None
            if first is not None and design.shape[1] < len(design):
                covariance = _covariance(gamma, design, y, outcome, first)
            self.coefficients_ = self._in_user_units(gamma, covariance)

    def _sample(self, Z: Array, rows: LabelledRows, at: IntArray) -> _Sample:
        phi = self.basis_(Z[at])
        modified = self._modified(phi)
        first = (rows.population[at] == 0)[:, None]
        return _Sample(
            phi, modified, np.hstack([phi, first * modified]), rows.share[at]
        )

    def _in_user_units(
        self, gamma: Array, covariance: Array | None
    ) -> TwoStageCoefficients:
        """Undo the scaling of features and outcome, and name the coefficients."""
        p = self.basis_.size
        constant = self.effect == "constant"
        names = [f"basis[{j}]" for j in range(p)]
        effects = ["treatment"] if constant else [f"treatment:{name}" for name in names]
        offset = float(self.outcome_scaling_.mean[0])
        scale = float(self.outcome_scaling_.scale[0])
        turn = np.eye(len(gamma))
        if isinstance(self.basis_, LinearBasis):
            features = list(self._feature_names or [f"x{j}" for j in range(p - 1)])
            names = ["intercept", *features]
            effects = [
                "treatment",
                *([] if constant else [f"treatment:{f}" for f in features]),
            ]
            # phi(scaled x) = phi(x) @ back, so coefficients of the former go through it.
            back = np.diag(np.append(1.0, 1.0 / self.scaling_.scale))
            back[0, 1:] = -self.scaling_.mean / self.scaling_.scale
            turn = block_diag(back, np.eye(1) if constant else back)
        values = scale * (turn @ gamma)
        values[0] += offset if isinstance(self.basis_, LinearBasis) else 0.0
        if covariance is not None:
            with np.errstate(
                over="ignore", invalid="ignore"
            ):  # beyond numbers in such units
                covariance = scale**2 * (turn @ covariance @ turn.T)
        return TwoStageCoefficients((*names, *effects), values, covariance)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.second_stage is not None and is_classifier(self.second_stage):
            raise InputError(
                f"second_stage must be a regressor, got {type(self.second_stage).__name__}. Pass a "
                "linear regression, also for an outcome of two values."
            )


@dataclass(frozen=True, slots=True)
class _Sample:
    """Rows of one kind."""

    phi: Array  # (n, p) basis functions
    modified: Array  # (n, r) functions that the uplift is a combination of
    instruments: Array  # (n, p + r) phi, and s times modified
    weight: (
        Array  # (n,) under which both populations count the same, whatever their sizes
    )


@dataclass(frozen=True, slots=True)
class _FirstStage:
    """The regression of the treatment's terms on the instruments, and its errors."""

    coef: Array  # (p + r, r)
    sample: _Sample
    residual: Array  # (n, r)


def _first_stage(sample: _Sample, treated: Array) -> _FirstStage:
    targets = treated[:, None] * sample.modified
    model = LinearRegression(fit_intercept=False)
    model.fit(sample.instruments, targets, sample_weight=sample.weight)
    coef = np.asarray(model.coef_).T
    return _FirstStage(coef, sample, targets - sample.instruments @ coef)


def _covariance(
    gamma: Array, design: Array, y: Array, outcome: _Sample, first: _FirstStage
) -> Array:
    r"""Return the covariance of the second stage's coefficients, both stages' errors counted.

    With predictions :math:`\hat w = \hat\Pi^\top z` of what has the coefficients :math:`\gamma`,

    .. math::

        \hat\gamma - \gamma = \Big(\sum \hat w \hat w^\top\Big)^{-1} \Big(
        \sum \hat w (y - z^\top \Pi \gamma) - \sum \hat w z^\top (\hat\Pi - \Pi) \gamma \Big).

    The error of :math:`\hat\Pi` comes from treatment rows: other people, so variances add.
    """
    p = design.shape[1] - first.coef.shape[1]
    bread = _inverse(design, outcome.weight)
    score = design * (outcome.weight * (y - design @ gamma))[:, None]
    # (Pi_hat - Pi) gamma is the coefficient of a regression of this residual on instruments.
    weight, instruments = first.sample.weight, first.sample.instruments
    first_score = instruments * (weight * (first.residual @ gamma[p:]))[:, None]
    link = (design * outcome.weight[:, None]).T @ outcome.instruments
    link = link @ _inverse(instruments, weight)
    meat = score.T @ score + link @ (first_score.T @ first_score) @ link.T
    return np.asarray(bread @ meat @ bread)


def _inverse(design: Array, weight: Array) -> Array:
    """Return the (pseudo-)inverse of the weighted sums of squares and products."""
    return np.asarray(
        np.linalg.pinv((design * weight[:, None]).T @ design, hermitian=True)
    )


def _check_takes_shares(model: Any, weight: Array, share: Array) -> None:
    """Refuse a model without row weights if tables of different sizes alone call for them."""
    unequal = weight.min() == weight.max() and share.min() < share.max()
    if unequal and not takes_weights(model):
        raise InputError(
            "the outcome tables have different sizes and each population is to count the same, "
            f"but second_stage, a {type(model).__name__}, takes no sample_weight. Choose a model "
            "that does, or give outcome tables of one size."
        )
