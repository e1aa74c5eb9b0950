"""Uplift by conditional densities: least squares, and the 2x2 system that unmixes them.

Shapes: n rows, d features, c centres, g grid values, r ridges. Kernels are written as in the
paper, exp(-|x - u|^2 / width^2), in x and in y.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.utils import check_random_state, gen_batches
from threadpoolctl import threadpool_limits

from unjoined._typing import Array, BoolArray, IntArray, MatrixLike, RandomState
from unjoined._validation import OUTCOME, TREATMENT, check_not_negative, check_positive
from unjoined.data.rows import LabelledRows
from unjoined.errors import InputError
from unjoined.estimators.base import (
    Check,
    UpliftEstimator,
    check_model,
    count_from,
    fit_pair,
    scale_outcomes,
    warn_of_gaps,
    word_or,
)
from unjoined.model.basis import Scaling
from unjoined.model.draw import median_width
from unjoined.model.regressors import ConditionalMean

MIN_GRID, MAX_GRID = 101, 10_001
FARTHEST = -1e300  # of a Gaussian's exponent
NO_GAP = 1e-100  # policies this close are the same; dividing by less could overflow


@dataclass(frozen=True, slots=True)
class ConditionalDensity:
    r"""A density of y given x: Gaussians in y, whose shares depend on x.

    .. math::

        p(y \mid x) = \sum_l s_l(x) \frac{\exp(-(y - v_l)^2 / \omega^2)}{\omega \sqrt\pi}, \qquad
        s_l(x) \propto \alpha_l \exp(-\|x - u_l\|^2 / \sigma^2), \quad \sum_l s_l(x) = 1.

    It is positive and integrates to one at every x.
    """

    centers: Array  # (c, d) u
    values: Array  # (c,) v
    alpha: Array  # (c,) > 0
    width_x: float  # sigma
    width_y: float  # omega

    def shares(self, X: Array) -> Array:
        """Return the shares s_l(x), shape (n, c); every row adds up to one."""
        exponent = cdist(X, self.centers, "sqeuclidean")
        exponent /= -(self.width_x**2)
        np.maximum(
            exponent, FARTHEST, out=exponent
        )  # a squared distance may be infinite
        exponent += np.log(self.alpha)
        # Far from all centres every kernel underflows. Divided by the largest one first, what
        # is left is the density at the nearest centres instead of 0 / 0.
        exponent -= exponent.max(axis=1, keepdims=True)
        shares = np.exp(exponent, out=exponent)
        shares /= shares.sum(axis=1, keepdims=True)
        return shares

    def bumps(self, y: Array) -> Array:
        """Return the Gaussian of each centre at each value of y, shape (c, g)."""
        z = (y[None, :] - self.values[:, None]) / self.width_y
        return np.asarray(np.exp(-(z**2)) / (self.width_y * np.sqrt(np.pi)))

    def __call__(self, X: Array, grid: Array) -> Array:
        """Return p(y | x) for every row and grid value, shape (n, g)."""
        return self.shares(X) @ self.bumps(grid)

    def mean(self, X: Array) -> Array:
        """Return the mean of y given x, shape (n,), without a grid."""
        return self.shares(X) @ self.values

    def risk(self, X: Array, y: Array, weight: Array) -> float:
        r"""Return the least-squares risk on held-out rows; lower is better.

        .. math::

            \tfrac12 \overline{\int p(y \mid x)^2 dy} - \overline{p(y \mid x)},

        which is half the mean squared distance from the true density, less a constant.
        Costs O(n c^2).
        """
        shares = self.shares(X)
        square = np.einsum("il,il->i", shares @ self._products(), shares)
        at_y = np.einsum("il,li->i", shares, self.bumps(y))
        return float(np.average(0.5 * square - at_y, weights=weight))

    def _products(self) -> Array:
        """Return the integrals over y of the products of two bumps, shape (c, c)."""
        apart = (self.values[:, None] - self.values[None, :]) / self.width_y
        return np.asarray(
            np.exp(-0.5 * apart**2) / (self.width_y * np.sqrt(2.0 * np.pi))
        )


def fit_densities(
    X: Array,
    y: Array,
    weight: Array,
    n_centers: int,
    width_x: float,
    width_y: float,
    ridges: Array,
) -> list[ConditionalDensity]:
    r"""Estimate a conditional density by least squares, once per ridge (Sugiyama et al. 2010).

    Minimises :math:`\tfrac12 \alpha^\top H \alpha - h^\top \alpha + \tfrac\lambda2 \|\alpha\|^2`
    over the coefficients of :math:`\phi_l(x, y) = e^{-\|x - u_l\|^2/\sigma^2 - (y -
    v_l)^2/\omega^2}` with :math:`H = \overline{\int \phi \phi^\top dy}` and
    :math:`h = \overline{\phi}`, bars being means over rows, and sets negative coefficients to 0.
    The centres :math:`(u_l, v_l)` are the first ``n_centers`` rows: shuffle them first. So no
    held-out row is a centre, which would make small widths look good. Costs O(n c^2 + r c^3).
    """
    u = X[:n_centers]
    v = y[:n_centers]
    share = weight / weight.sum()
    K = np.exp(-cdist(X, u, "sqeuclidean") / width_x**2)  # (n, c)
    apart = (v[:, None] - v[None, :]) / width_y
    overlap = (
        np.sqrt(np.pi / 2.0) * width_y * np.exp(-0.5 * apart**2)
    )  # integral over y
    H = (K * share[:, None]).T @ K * overlap  # (c, c)
    near = np.exp(-(((y[:, None] - v[None, :]) / width_y) ** 2))
    h = share @ (K * near)  # (c,)
    densities = []
    for ridge in ridges:
        # An eigendecomposition for all ridges would cost more than a handful of these.
        alpha = np.linalg.solve(H + ridge * np.eye(len(h)), h)
        # Not all are negative: h >= 0 and, as centres are rows, h > 0, while
        # alpha^T (H + ridge I) alpha = h^T alpha > 0.
        kept = alpha > 0.0
        densities.append(
            ConditionalDensity(u[kept], v[kept], alpha[kept], width_x, width_y)
        )
    return densities


@dataclass(frozen=True, slots=True)
class DensitySearch:
    """Held-out least-squares risks of every candidate; lower is better."""

    widths_x: Array  # (a,)
    widths_y: Array  # (b,)
    ridges: Array  # (r,)
    risks: Array  # (a, b, r)

    @property
    def best(self) -> tuple[float, float, float]:
        """Width in x, width in y and ridge of the smallest risk, the first among equals."""
        i, j, k = np.unravel_index(int(np.argmin(self.risks)), self.risks.shape)
        return float(self.widths_x[i]), float(self.widths_y[j]), float(self.ridges[k])


def search_density(
    X: Array,
    y: Array,
    weight: Array,
    fold: IntArray,
    *,
    n_centers: int,
    widths_x: Array,
    widths_y: Array,
    ridges: Array,
) -> DensitySearch:
    """Cross-validate every pair of widths and every ridge by the least-squares risk."""
    n_folds = int(fold.max()) + 1
    size = np.array([weight[fold == v].sum() for v in range(n_folds)])
    risks = np.zeros((len(widths_x), len(widths_y), len(ridges)))
    # Hundreds of small factorisations: threads inside BLAS cost more than they bring.
    with threadpool_limits(limits=1, user_api="blas"):
        for v, i, j in np.ndindex(n_folds, len(widths_x), len(widths_y)):
            held = fold == v
            kept = fold != v
            widths = float(widths_x[i]), float(widths_y[j])
            densities = fit_densities(
                X[kept], y[kept], weight[kept], n_centers, *widths, ridges
            )
            risk = [
                density.risk(X[held], y[held], weight[held]) for density in densities
            ]
            risks[i, j] += size[v] / size.sum() * np.asarray(risk)
    return DensitySearch(widths_x, widths_y, ridges, risks)


@dataclass(frozen=True, slots=True)
class UnmixedDensities:
    """The law of the outcome with and without treatment; it may be negative here and there."""

    grid: Array  # (g,) values of y, outcome units
    measure: Array  # (g,) what one grid value counts for in a sum that stands for an integral
    treated: Array  # (n, g) p(y | x, t = 1), per outcome unit
    untreated: Array  # (n, g) p(y | x, t = -1), per outcome unit
    guarded: (
        BoolArray  # (n,) rows where the policies were too alike, and were moved apart
    )

    @property
    def means(self) -> tuple[Array, Array]:
        """Mean outcome with and without treatment at each row, outcome units."""
        moment = self.grid * self.measure
        return self.treated @ moment, self.untreated @ moment

    @property
    def uplift(self) -> Array:
        """Integral of y against the difference of the two, at each row, outcome units."""
        return (self.treated - self.untreated) @ (self.grid * self.measure)


def separate_policies(
    e_1: Array, e_2: Array, min_gap: float
) -> tuple[Array, Array, BoolArray]:
    """Move probabilities closer than ``min_gap`` apart, and say which rows that touched."""
    gap = e_1 - e_2
    touched = np.abs(gap) < min_gap
    half = np.copysign(min_gap / 2.0, gap)
    middle = np.clip((e_1 + e_2) / 2.0, min_gap / 2.0, 1.0 - min_gap / 2.0)
    return (
        np.where(touched, middle + half, e_1),
        np.where(touched, middle - half, e_2),
        touched,
    )


def unmix(
    q_1: Array, q_2: Array, e_1: Array, e_2: Array, *, min_gap: float
) -> tuple[Array, Array, BoolArray]:
    r"""Solve the paper's Eq. (p_y_given_x) at every row and grid value.

    .. math::

        q_k(y) = e_k \, p(y \mid t = 1) + (1 - e_k) \, p(y \mid t = -1), \qquad k = 1, 2.

    Policies closer than ``min_gap`` are moved apart first; where they are the same, both laws are
    the mean of the two, that is an uplift of 0. Returns the laws (n, g) and the rows touched.
    """
    e_1, e_2, touched = separate_policies(e_1, e_2, min_gap)
    gap = e_1 - e_2
    broken = np.abs(gap) < NO_GAP
    gap[broken] = 1.0
    # Written as corrections of q_k, so that nothing is lost where e is 1 and 0.
    slope = (q_1 - q_2) / gap[:, None]
    treated = q_1 + (1.0 - e_1)[:, None] * slope
    untreated = q_2 - e_2[:, None] * slope
    middle = (q_1[broken] + q_2[broken]) / 2.0
    treated[broken], untreated[broken] = middle, middle
    return treated, untreated, touched | broken


def trapezoid_weights(grid: Array) -> Array:
    """Return the weights under which a sum over the increasing ``grid`` is the trapezoid rule."""
    # For smooth functions that vanish at both ends its error falls faster than any power of the
    # spacing; Simpson's rule does worse there.
    step = np.diff(grid)
    weights = np.zeros(len(grid))
    weights[:-1] += step / 2.0
    weights[1:] += step / 2.0
    return weights


def outcome_grid(y: Array, widths: Sequence[float]) -> Array:
    """Return equally spaced values over ``y`` and three kernel widths at both ends."""
    # Of the mass of a Gaussian at the extreme outcome, 1e-5 lies beyond. With steps of a third of
    # the smallest width the trapezoid rule is exact to rounding on each Gaussian.
    low = float(y.min()) - 3.0 * max(widths)
    high = float(y.max()) + 3.0 * max(widths)
    needed = int(np.ceil(3.0 * (high - low) / min(widths))) + 1
    return np.linspace(low, high, min(max(needed, MIN_GRID), MAX_GRID))


# Candidates of the search. Widths in x are multiples of the median distance between rows.
WIDTHS_X = (0.15, 0.25, 0.4, 0.7, 1.5)
WIDTHS_Y = (0.2, 0.4, 0.8)
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)
DEFAULT_CENTERS = 200
NO_SOLUTION = "the system has no solution"
CHUNK_ENTRIES = 2_000_000  # numbers in a matrix of rows times grid or centres: 16 MB


class DensityUplift(UpliftEstimator):
    r"""Uplift from separate labels by conditional densities and numerical integration.

    Estimates :math:`u(x) = E[Y(1) - Y(0) \mid X = x]` as the first half of the paper's section 3
    describes: the densities :math:`p_k(y \mid x)` from the outcome rows and the policies
    :math:`p_k(t \mid x)` from the treatment rows of each population :math:`k`; then the system

    .. math::

        p_k(y \mid x) = \sum_{t = \pm 1} p(y \mid x, t) \, p_k(t \mid x), \qquad k = 1, 2,

    solved for :math:`p(y \mid x, \pm 1)` at every value of a grid; then
    :math:`\int y \, (p(y \mid x, 1) - p(y \mid x, -1)) \, dy` by the trapezoid rule. A baseline.

    An outcome of two values needs no grid: its law is one probability, fitted by
    ``outcome_model``, and the result is that of `PlugInUplift` with the same models.

    Parameters
    ----------
    outcome_model : scikit-learn classifier or regressor, optional
        Model of an outcome of two values; default logistic regression. Refused for others.
    treatment_model : scikit-learn classifier or regressor, optional
        Model of the policy, cloned and fitted once per population; default logistic regression.
    n_centers : int or "auto", default="auto"
        Number of Gaussian kernels of each density, at randomly drawn outcome rows; "auto" is 200,
        or all rows if there are fewer.
    width_x : float or "cv", default="cv"
        Width of the kernels in the (standardised) features; "cv" chooses among 0.15 to 1.5
        times the median distance between rows.
    width_y : float or "cv", default="cv"
        Width in the outcome, in its standard deviations; "cv" chooses among 0.2 to 0.8.
    ridge : float or "cv", default="cv"
        Penalty of the least squares; "cv" chooses among 1e-4 to 0.1.
    n_folds : int, default=3
        Folds of the cross-validation, for each population by its own least-squares risk.
    min_gap : float, default=0.05
        Policies that differ by less in treatment probability are moved apart to this gap, and
        ``predict`` warns of them (`RatioGuardWarning`). With 0, rows where they are the same get
        the uplift 0.
    random_state : int, RandomState or None, default=None
        Seed of centres, folds, and models whose own ``random_state`` is None.

    Attributes
    ----------
    outcome_laws_, treatment_means_ : tuple of two callables
        The density of each population, scaled, or for an outcome of two values its mean, -1 to 1;
        the fitted policies, -1 to 1, on scaled features.
    searches_ : tuple of two DensitySearch, or None for an outcome of two values
        The candidates and their held-out risks; ``best`` has the widths and the ridge chosen.
    grid_, measure_ : array of shape (g,)
        Values of the outcome, outcome units, and what each counts for in an integral: the grid
        and its trapezoid weights, or the two values and ones.
    scaling_, outcome_scaling_ : Scaling
        What was subtracted from and divided out of the features and the outcome.
    identification_, populations_, n_features_in_, feature_names_in_
        As in `MinMaxUplift`.

    See Also
    --------
    TwoStageUplift : the paper's second naive estimator, without densities.

    Notes
    -----
    With c centres, fitting costs :math:`O(n c^2 + c^3)` time per pair of widths and fold (there are
    15 and 3), predicting :math:`O(n c (d + g))` in chunks that keep every matrix below 16 MB. What
    the system gives integrates to one, but may be negative in places, and is left so. Kernels blur
    outcomes of a few values, such as counts, but not their mean.

    References
    ----------
    I. Yamane, F. Yger, J. Atif, M. Sugiyama. Uplift Modeling from Separate Labels. NeurIPS 2018.
    M. Sugiyama, I. Takeuchi, T. Suzuki, T. Kanamori, H. Hachiya, D. Okanohara. Conditional
    Density Estimation via Least-Squares Density Ratio Estimation. AISTATS 2010.

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
    >>> model = DensityUplift(random_state=0).fit(**problem.draw(200, random_state=0))
    >>> new = problem.draw_joint(1000, random_state=1)
    >>> bool(np.corrcoef(model.predict(new.X), new.uplift)[0, 1] > 0.8)
    True
    """

    _parameters: ClassVar[dict[str, Check]] = {
        "outcome_model": check_model,
        "treatment_model": check_model,
        "n_centers": word_or(count_from(2), "auto"),
        "width_x": word_or(check_positive, "cv"),
        "width_y": word_or(check_positive, "cv"),
        "ridge": word_or(check_positive, "cv"),
        "n_folds": count_from(2),
        "min_gap": check_not_negative,
    }

    outcome_densities_: (
        tuple[ConditionalDensity, ConditionalDensity]
        | tuple[ConditionalMean, ConditionalMean]
    )
    searches_: tuple[DensitySearch, DensitySearch] | None

    def __init__(
        self,
        *,
        outcome_model: Any = None,
        treatment_model: Any = None,
        n_centers: int | str = "auto",
        width_x: float | str = "cv",
        width_y: float | str = "cv",
        ridge: float | str = "cv",
        n_folds: int = 3,
        min_gap: float = 0.05,
        random_state: RandomState = None,
    ) -> None:
        self.outcome_model = outcome_model
        self.treatment_model = treatment_model
        self.n_centers = n_centers
        self.width_x = width_x
        self.width_y = width_y
        self.ridge = ridge
        self.n_folds = n_folds
        self.min_gap = min_gap
        self.random_state = random_state

    def _fit_rows(self, rows: LabelledRows, target: tuple[Array, Array] | None) -> None:
        if self.outcome_model is not None and not rows.coding.is_binary:
            raise InputError(
                "outcome_model is for outcomes of two values, but the outcome takes more. Leave it "
                "out, and a density is estimated; or use PlugInUplift."
            )
        rng = check_random_state(self.random_state)
        scaling = Scaling.of_rows(rows.X, rows.share)
        Z = scaling(rows.X)
        policies = fit_pair(self.treatment_model, Z, rows, TREATMENT, rng)
        if rows.coding.is_binary:
            self.outcome_densities_ = fit_pair(
                self.outcome_model, Z, rows, OUTCOME, rng
            )
            _, values = scale_outcomes(rows)
            self.searches_ = None
            self.outcome_scaling_ = values
            self.grid_ = values.mean + values.scale * np.array([-1.0, 1.0])
            self.measure_ = np.ones(2)
        else:
            self._fit_densities(Z, rows, rng)
        self.scaling_ = scaling
        self.treatment_means_ = policies

    def _predict_rows(self, matrix: Array) -> Array:
        Z = self.scaling_(matrix)
        uplift = np.empty(len(Z))
        touched = np.zeros(len(Z), dtype=bool)
        centers = [len(getattr(law, "alpha", ())) for law in self.outcome_densities_]
        widest = max(len(self.grid_), *centers)
        for batch in gen_batches(len(Z), max(CHUNK_ENTRIES // widest, 1)):
            laws = self._unmix(Z[batch])
            uplift[batch], touched[batch] = laws.uplift, laws.guarded
        warn_of_gaps(
            int(touched.sum()), len(Z), NO_SOLUTION, self.min_gap, stacklevel=4
        )
        return uplift

    def predict_density(self, X: MatrixLike) -> UnmixedDensities:
        """Return the estimated law of the outcome with and without treatment at each row.

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            Features as in ``fit``. The result takes memory for rows times grid values, twice.

        Returns
        -------
        UnmixedDensities
            Densities per outcome unit on ``grid_``; for an outcome of two values, probabilities.

        Warns
        -----
        RatioGuardWarning
            The guard touched some rows; the message says how many.
        """
        laws = self._unmix(self.scaling_(self._check_features(X, reset=False)))
        n_touched = int(laws.guarded.sum())
        n = len(laws.guarded)
        warn_of_gaps(n_touched, n, NO_SOLUTION, self.min_gap, stacklevel=3)
        return laws

    def _unmix(self, Z: Array) -> UnmixedDensities:
        """Estimate both populations' laws at scaled rows and solve the system."""
        e_1, e_2 = (0.5 + 0.5 * mean(Z) for mean in self.treatment_means_)
        q_1, q_2 = (self._law(law, Z) for law in self.outcome_densities_)
        treated, untreated, touched = unmix(q_1, q_2, e_1, e_2, min_gap=self.min_gap)
        return UnmixedDensities(self.grid_, self.measure_, treated, untreated, touched)

    def _law(self, law: ConditionalDensity | ConditionalMean, Z: Array) -> Array:
        """Return densities or probabilities of the grid values, shape (n, g)."""
        if isinstance(law, ConditionalMean):
            propensity = 0.5 + 0.5 * law(Z)
            return np.column_stack([1.0 - propensity, propensity])
        q = law(Z, self.outcome_scaling_(self.grid_[:, None])[:, 0])
        return np.asarray(q / (q @ self.measure_)[:, None])

    def _fit_densities(
        self, Z: Array, rows: LabelledRows, rng: np.random.RandomState
    ) -> None:
        """Choose and fit the density of each population, and lay the grid."""
        outcome = rows.of_kind(OUTCOME)
        scaled, scaling = scale_outcomes(rows)
        fits = [self._fit_density(Z, scaled, k, rng) for k in (0, 1)]
        self.searches_ = (fits[0][0], fits[1][0])
        self.outcome_densities_ = (fits[0][1], fits[1][1])
        self.outcome_scaling_ = scaling
        widths = [density.width_y * float(scaling.scale[0]) for _, density in fits]
        self.grid_ = outcome_grid(rows.label[outcome], widths)
        self.measure_ = trapezoid_weights(self.grid_)

    def _fit_density(
        self, Z: Array, rows: LabelledRows, k: int, rng: np.random.RandomState
    ) -> tuple[DensitySearch, ConditionalDensity]:
        """Search for the widths and ridge of one population, and fit with the best."""
        at = rng.permutation(rows.at(OUTCOME, k))  # the first rows are the centres
        n_centers = self._n_centers(len(at), rows.names[k])
        median = (
            median_width(Z[at], rng, rows.weight[at])
            if isinstance(self.width_x, str)
            else 1.0
        )
        data = Z[at], rows.label[at], rows.weight[at]
        search = search_density(
            *data,
            rng.permutation(len(at)) % min(self.n_folds, len(at)),
            n_centers=n_centers,
            widths_x=median * _candidates(self.width_x, WIDTHS_X),
            widths_y=_candidates(self.width_y, WIDTHS_Y),
            ridges=_candidates(self.ridge, RIDGES),
        )
        width_x, width_y, ridge = search.best
        (density,) = fit_densities(
            *data, n_centers, width_x, width_y, np.array([ridge])
        )
        return search, density

    def _n_centers(self, n: int, population: Any) -> int:
        least = 2 if isinstance(self.n_centers, str) else max(2, self.n_centers)
        if n < least:
            raise InputError(
                f"population {population!r} has {n} outcome rows, but its density needs {least} "
                f"for centres and held-out rows (n_centers={self.n_centers!r}). Pass a smaller "
                "n_centers, or use TwoStageUplift."
            )
        return min(DEFAULT_CENTERS, n) if isinstance(self.n_centers, str) else least

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.min_gap > 1.0:
            raise InputError(
                f"min_gap is a difference of probabilities, got {self.min_gap!r} > 1."
            )


def _candidates(given: float | str, words: tuple[float, ...]) -> Array:
    return np.array(words if isinstance(given, str) else [float(given)])
