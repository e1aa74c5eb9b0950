"""The paper's second naive estimator: a system of conditional means, in two regressions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import block_diag
from sklearn.base import is_classifier
from sklearn.linear_model import LinearRegression
from sklearn.utils import check_random_state

from unjoined._typing import Array, Basis, IntArray, MatrixLike, RandomState
from unjoined._validation import OUTCOME, TREATMENT, check_count, check_positive
from unjoined.basis import BASES, LinearBasis, draw_basis
from unjoined.data import LabelledRows
from unjoined.errors import InputError
from unjoined.estimators.base import (
    Check,
    RowEstimator,
    basis_or,
    check_flag,
    check_model,
    fit_pair,
    one_of,
    scale_features,
    scale_outcomes,
    word_or,
)
from unjoined.nuisance import ConditionalMean, fit_conditional_mean, seeded_clone, takes_weights


@dataclass(frozen=True, slots=True)
class TwoStageCoefficients:
    """Coefficients of the second stage, in the units of the outcome per unit of the feature.

    First those of the mean outcome without treatment, then those of the uplift.
    """

    names: tuple[str, ...]  # "intercept", features, "treatment", "treatment:" and feature
    estimates: Array  # (q,)
    covariance: Array | None  # (q, q); None with a first stage of the user's or q rows or fewer

    @property
    def standard_errors(self) -> Array | None:
        """Standard errors, robust to unequal variances, or None."""
        return None if self.covariance is None else np.sqrt(np.diag(self.covariance))


class TwoStageUplift(RowEstimator):
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
        The functions :math:`\phi`, of the standardised features if ``standardize`` is on.
    n_centers, width : as in `MinMaxUplift`, default="auto" and "median"
        Number and length scale of the Gaussian or Fourier functions.
    standardize : bool, default=True
        Whether features, and outcomes of more than two values, are brought to mean 0 and
        variance 1 first. Least squares on the linear basis gives the same either way.
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
        "standardize": check_flag,
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
        standardize: bool = True,
        random_state: RandomState = None,
    ) -> None:
        self.effect = effect
        self.first_stage = first_stage
        self.second_stage = second_stage
        self.basis = basis
        self.n_centers = n_centers
        self.width = width
        self.standardize = standardize
        self.random_state = random_state

    def _fit_rows(self, rows: LabelledRows, target: tuple[Array, Array] | None) -> None:
        rng = check_random_state(self.random_state)
        scaling = scale_features(rows, standardize=self.standardize)
        Z = scaling(rows.X)
        size: dict[str, Any] = {"n_centers": self.n_centers, "width": self.width}
        basis = draw_basis(self.basis, Z, **size, rng=rng, weight=rows.relative)
        self.basis_, self.scaling_ = basis, scaling
        rows, self.outcome_scaling_ = scale_outcomes(rows, standardize=self.standardize)
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
        scale, offset = float(self.outcome_scaling_.scale[0]), float(self.outcome_scaling_.mean[0])
        return offset + scale * treated, offset + scale * untreated

    def _inner_means(self, matrix: Array) -> tuple[Array, Array]:
        phi = self.basis_(self.scaling_(matrix))
        modified = self._modified(phi)
        treated, untreated = np.hstack([phi, modified]), np.hstack([phi, 0.0 * modified])
        return self.second_stage_(treated), self.second_stage_(untreated)

    def _modified(self, phi: Array) -> Array:
        """Return the functions that the uplift is a combination of."""
        return phi if self.effect == "linear" else np.ones((len(phi), 1))

    def _fit_stages(self, Z: Array, rows: LabelledRows, rng: np.random.RandomState) -> None:
        """Predict the treatment's terms at the outcome rows and regress the outcome on them."""
        at_t, at_y = rows.of_kind(TREATMENT), rows.of_kind(OUTCOME)
        treatment, outcome = self._sample(Z, rows, at_t), self._sample(Z, rows, at_y)
        treated, y = 0.5 + 0.5 * rows.label[at_t], rows.label[at_y]
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
        return _Sample(phi, modified, np.hstack([phi, first * modified]), rows.share[at])

    def _in_user_units(self, gamma: Array, covariance: Array | None) -> TwoStageCoefficients:
        """Undo the scaling of features and outcome, and name the coefficients."""
        p, constant = self.basis_.size, self.effect == "constant"
        names = [f"basis[{j}]" for j in range(p)]
        effects = ["treatment"] if constant else [f"treatment:{name}" for name in names]
        offset, scale = float(self.outcome_scaling_.mean[0]), float(self.outcome_scaling_.scale[0])
        turn = np.eye(len(gamma))
        if isinstance(self.basis_, LinearBasis):
            features = list(self._feature_names or [f"x{j}" for j in range(p - 1)])
            names = ["intercept", *features]
            effects = ["treatment", *([] if constant else [f"treatment:{f}" for f in features])]
            # phi(scaled x) = phi(x) @ back, so coefficients of the former go through it.
            back = np.diag(np.append(1.0, 1.0 / self.scaling_.scale))
            back[0, 1:] = -self.scaling_.mean / self.scaling_.scale
            turn = block_diag(back, np.eye(1) if constant else back)
        values = scale * (turn @ gamma)
        values[0] += offset if isinstance(self.basis_, LinearBasis) else 0.0
        if covariance is not None:
            with np.errstate(over="ignore", invalid="ignore"):  # beyond numbers in such units
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
    weight: Array  # (n,) under which both populations count the same, whatever their sizes


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
    return np.asarray(np.linalg.pinv((design * weight[:, None]).T @ design, hermitian=True))


def _check_takes_shares(model: Any, weight: Array, share: Array) -> None:
    """Refuse a model without row weights if tables of different sizes alone call for them."""
    unequal = weight.min() == weight.max() and share.min() < share.max()
    if unequal and not takes_weights(model):
        raise InputError(
            "the outcome tables have different sizes and each population is to count the same, "
            f"but second_stage, a {type(model).__name__}, takes no sample_weight. Choose a model "
            "that does, or give outcome tables of one size."
        )
