"""The likelihood of the tables: outcomes are a mixture of treated and untreated ones."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.random import RandomState as Rng
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from unjoined._threads import over_pieces
from unjoined._typing import Array, ArrayLike, Basis, IntArray, MatrixLike, RandomState
from unjoined._validation import (
    OUTCOME,
    OutcomeCoding,
    check_count,
    check_kind,
    check_labels,
    check_option,
    check_population,
    check_positive,
    check_weight,
    check_word_or,
)
from unjoined.basis import Scaling, StackedBasis, draw_pool, kernel_size
from unjoined.data import LabelledRows
from unjoined.errors import InputError, LabelError
from unjoined.estimators.base import RowEstimator
from unjoined.estimators.em import EMFit, fit_em
from unjoined.estimators.mixture_fit import (
    BERNOULLI,
    FAMILIES,
    GAUSSIAN,
    MEAN,
    MixtureFit,
    fit_mixture,
    outcome_scaling,
)
from unjoined.estimators.mixture_rules import Walk
from unjoined.estimators.mixture_search import OutcomeRows, deal_folds
from unjoined.nuisance import PolicyFit, ShiftReport, fit_policies, weigh_shift

PREDICT_ROWS = 16_384


class MixtureUplift(RowEstimator):
    r"""Uplift from separate labels by the likelihood of the tables.

    Among outcome rows of population :math:`k` at :math:`x`, a share :math:`e_k(x)` was treated,
    and nobody knows which rows. Their outcomes are a mixture,

    .. math::

        p_k(y \mid x) = e_k(x) \, p(y \mid x, 1) + (1 - e_k(x)) \, p(y \mid x, 0),

    whose shares come from the treatment tables and whose two parts are the same in every
    population. The likelihood of the outcomes needs no row with both labels. The two parts are
    written as a base plus and minus half an effect, each on functions and with ridges of its own,
    so that heterogeneity can be shrunk without shrinking the main effect; functions and ridges
    are chosen by held-out likelihood, and settings that do about as well are averaged.

    Parameters
    ----------
    engine : {"likelihood", "em"}, default="likelihood"
        "likelihood" is the penalised likelihood above. "em" fits ``outcome_model`` to the treated
        and to the untreated by expectation-maximisation.
    family : {"auto", "bernoulli", "gaussian", "mean"}, default="auto"
        Law of the outcome. "bernoulli" for two values: base and effect are log-odds. For real
        outcomes "mean" assumes nothing but a mean: the squared distance of y from
        :math:`m(x) + (e_k(x) - \bar e(x)) u(x)`; "gaussian" takes normal noise of one variance and
        gains from it if it is true. "auto" is "bernoulli" or "mean", for "em" "gaussian".
    outcome_model : scikit-learn classifier or regressor, default=None
        For ``engine="em"``: must take ``sample_weight``; a classifier if the outcome has two
        values.
    policy_model : "auto" or scikit-learn classifier, default="auto"
        Model of each population's policy. "auto" chooses among logistic regressions, linear and
        smooth, and gradient boosting by held-out likelihood.
    basis : {"auto", "linear"} or Basis, default="auto"
        Functions added to the linear part: "auto" tries smooth ones of several widths and, up to
        ten features, squares and products of features; "linear" adds none; a given `Basis` (on
        scaled features) is tried as it is.
    widths : tuple of float, default=(0.5, 1.0, 2.0)
        Widths of the smooth functions, in median distances between rows.
    n_centers : int or "auto", default="auto"
        Centres of the smooth functions, at most; "auto" is four times the cube root of the number
        of outcome rows, between 20 and 100.
    ridge_base, ridge_effect : float or "auto", default="auto"
        Ridges on the coefficients of base and effect, per row; "auto" chooses.
    average : bool, default=True
        Whether settings that held-out rows cannot tell apart are averaged, weighted by their
        likelihood; otherwise the best one is used alone.
    n_folds : int, default=5
        Folds of the held-out likelihood.
    n_starts : int, default=2
        Starts of the final fits, as the likelihood has more than one peak; the highest is kept.
    shift : None, "classifier", "rulsif" or scikit-learn classifier, default=None
        Weight the tables to the target's features, as in `MinMaxUplift`. Seldom needed here: the
        likelihood is conditional on x, so that tables may describe different people.
    shift_clip : float or None, default=None
        Cap on those weights.
    n_jobs : int or None, default=-1
        Threads; -1 uses all cores. Results do not depend on it.
    random_state : int, RandomState or None, default=None
        Seed for folds, centres and starts; the same seed gives the same bits.

    Attributes
    ----------
    family_ : str
        The law in use.
    policies_ : tuple of PolicyFit
        One for each population, with the held-out loss of each model tried.
    fit_ : MixtureFit or EMFit
        Settings kept, path of the objective, convergence.
    candidates_ : MixtureCandidates or None
        Every setting tried, its held-out loss, the difference to the best with its standard
        error, and its weight in the average.
    scaling_, outcome_scaling_ : Scaling
        Of the features, and of a real outcome.
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
    MinMaxUplift : models neither policies nor base.
    TwoStageUplift : two-stage least squares, with standard errors.

    Notes
    -----
    Time is that of about 40 settings times ``n_folds`` fits of O(n p^2) each on at most 8,000
    outcome rows, and a few final fits to all rows; memory beside the rows is that of p columns for
    the rows that choose. The number p of functions is at most that of linear ones and centres,
    twice. Linear functions are the features, or, of more than 100 features and more than a
    twentieth of the rows, so many leading principal components: with n fixed, time is
    proportional to the number of features from there on.

    The treatment tables say which part is which, so the two cannot change places. If policies
    hardly differ, the answer rests on the functions' form alone: a `WeakIdentificationWarning`
    says so.

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

    family_: str
    policies_: tuple[PolicyFit, ...]
    fit_: MixtureFit | EMFit
    scaling_: Scaling
    outcome_scaling_: Scaling
    shift_: ShiftReport | None

    def __init__(
        self,
        *,
        engine: str = "likelihood",
        family: str = "auto",
        outcome_model: Any = None,
        policy_model: Any = "auto",
        basis: str | Basis = "auto",
        widths: tuple[float, ...] = (0.5, 1.0, 2.0),
        n_centers: int | str = "auto",
        ridge_base: float | str = "auto",
        ridge_effect: float | str = "auto",
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
        self.basis = basis
        self.widths = widths
        self.n_centers = n_centers
        self.ridge_base = ridge_base
        self.ridge_effect = ridge_effect
        self.average = average
        self.n_folds = n_folds
        self.n_starts = n_starts
        self.shift = shift
        self.shift_clip = shift_clip
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _fit_rows(self, rows: LabelledRows, target: tuple[Array, Array] | None) -> None:
        rng = check_random_state(self.random_state)
        shift_report = None
        if self.shift is not None:
            X, weight = (None, None) if target is None else target
            rows, shift_report = weigh_shift(
                rows,
                X,
                self.shift,
                clip=self.shift_clip,
                rng=rng,
                target_weight=weight,
                stacklevel=4,
            )
        self.family_ = choose_family(self, is_binary=rows.coding.is_binary)
        scaling = Scaling.of_rows(rows.X, rows.share)
        Z = scaling(rows.X)
        outcome = rows.of_kind(OUTCOME)
        pool = choose_pool(self, Z, rows.relative, len(outcome), rng)
        policies = fit_policies(Z, rows, pool, self.policy_model, n_folds=self.n_folds, rng=rng)
        self.scaling_, self.policies_, self.shift_ = scaling, policies, shift_report
        self._coding, self.outcome_scaling_ = rows.coding, outcome_scaling(rows, self.family_)
        outcomes = OutcomeRows(
            Z[outcome],
            self._encode(rows.label[outcome]),
            self._exposure(Z[outcome], rows.population[outcome]),
            rows.weight[outcome] / rows.weight[outcome].mean(),
            deal_folds(rows.population[outcome], self.n_folds, rng),
        )
        self.fit_ = self._fit_outcomes(outcomes, pool, rng)
        if not self.fit_.converged:
            warnings.warn(
                "the mixture likelihood did not settle; see fit_.objective or fit_.path. Raise the "
                "ridges, or look for features that determine the outcome.",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _fit_outcomes(
        self, rows: OutcomeRows, pool: tuple[Basis, ...], rng: np.random.RandomState
    ) -> MixtureFit | EMFit:
        if self.engine == "em":
            return fit_em(
                rows.Z,
                rows.y,
                rows.exposure,
                rows.weight,
                self.outcome_model,
                family=self.family_,
                n_starts=self.n_starts,
                rng=rng,
            )
        return fit_mixture(
            rows,
            pool,
            self.family_,
            Walk.of(self.ridge_base, self.ridge_effect),
            average=self.average,
            n_starts=1 if self.family_ == MEAN else self.n_starts,  # squared loss: one minimum
            n_jobs=self.n_jobs,
            rng=rng,
        )

    @property
    def candidates_(self) -> Any:
        """Every setting tried; None for ``engine="em"``."""
        return self.fit_.candidates if isinstance(self.fit_, MixtureFit) else None

    def _chances(self, Z: Array) -> Array:
        """Return every population's probability of treatment, shape (n, number of them)."""
        return np.column_stack([policy(Z) for policy in self.policies_])

    def _exposure(self, Z: Array, population: IntArray) -> Array:
        """Return what the outcome's law needs of the policies at each row."""
        chances = self._chances(Z)
        own: Array = chances[np.arange(len(Z)), population]
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
        return self._means(self._check_features(X, reset=False))

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
        return self._chances(self.scaling_(self._check_features(X, reset=False)))

    def _means(self, matrix: Array) -> tuple[Array, Array]:
        # Chunk by chunk, so that basis values of all rows are never in memory together.
        chunks = [
            matrix[start : start + PREDICT_ROWS] for start in range(0, len(matrix), PREDICT_ROWS)
        ]
        # Models of the user's have their own ways with threads.
        n_jobs = 1 if isinstance(self.fit_, EMFit) else self.n_jobs
        parts = list(over_pieces(self._chunk_means, chunks, n_jobs))
        scale, offset = float(self.outcome_scaling_.scale[0]), float(self.outcome_scaling_.mean[0])
        treated, untreated = (np.concatenate(part) for part in zip(*parts, strict=True))
        return offset + scale * treated, offset + scale * untreated

    def _chunk_means(self, chunk: Array) -> tuple[Array, Array]:
        Z = self.scaling_(chunk)
        if isinstance(self.fit_, EMFit):
            return self.fit_.means(Z)
        chance = self._chances(Z).mean(axis=1) if self.family_ == MEAN else np.empty(0)
        return self.fit_.means(Z, chance)

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
        Z = self.scaling_(matrix[used])
        outcome = self._encode(self._coding.encode(labels[used]))
        exposure = self._exposure(Z, index)
        return float(
            np.average(self.fit_.log_likelihood(Z, outcome, exposure), weights=weight[used])
        )

    def _check_parameters(self) -> None:
        check_mixture(self)


ENGINES = ("likelihood", "em")


def check_mixture(model: Any) -> None:
    """Refuse parameters of a `MixtureUplift` that are wrong whatever the rows."""
    check_option("engine", model.engine, ENGINES)
    check_option("family", model.family, ("auto", *FAMILIES))
    if model.engine == "em" and model.outcome_model is None:
        raise InputError(
            "engine='em' needs outcome_model, a scikit-learn estimator that takes "
            "sample_weight, such as LogisticRegression()."
        )
    if model.engine == "em" and model.family == MEAN:
        raise InputError("family='mean' has no likelihood for EM; use engine='likelihood'.")
    if model.engine == "likelihood" and model.outcome_model is not None:
        raise InputError("outcome_model is for engine='em'; leave it out, or set the engine.")
    if isinstance(model.policy_model, str):
        check_option("policy_model", model.policy_model, ["auto"])
    elif not is_classifier(model.policy_model):
        raise InputError(
            f"policy_model must be 'auto' or a classifier, got {model.policy_model!r}."
        )
    if isinstance(model.basis, str):
        check_option("basis", model.basis, ["auto", "linear"])
    elif not isinstance(model.basis, Basis):
        raise InputError(
            f"basis must be a name, or a callable with size and n_features, got {model.basis!r}."
        )
    for width in model.widths:
        check_positive("widths", width)
    check_word_or("n_centers", model.n_centers, "auto", check_count)
    check_word_or("ridge_base", model.ridge_base, "auto", check_positive)
    check_word_or("ridge_effect", model.ridge_effect, "auto", check_positive)
    check_count("n_starts", model.n_starts)
    if check_count("n_folds", model.n_folds) < 2:
        raise InputError(f"n_folds must be at least 2, got {model.n_folds}.")


def choose_family(model: Any, *, is_binary: bool) -> str:
    """Return the law of the outcome: the one asked for, or the one that suits the rows."""
    if model.family == "auto":
        if is_binary:
            return BERNOULLI
        return GAUSSIAN if model.engine == "em" else MEAN
    if model.family == BERNOULLI and not is_binary:
        raise InputError(
            "family='bernoulli' needs an outcome of two values; use 'mean' or 'gaussian'."
        )
    return str(model.family)


def choose_pool(
    model: Any, Z: Array, weight: Array, n_outcomes: int, rng: Rng
) -> tuple[Basis, ...]:
    """Return the functions to choose among at scaled rows, linear ones first."""
    size = kernel_size(n_outcomes) if isinstance(model.n_centers, str) else model.n_centers
    is_auto = isinstance(model.basis, str) and model.basis == "auto"
    factors = tuple(map(float, model.widths)) if is_auto else ()
    pool = draw_pool(Z, factors=factors, n_centers=size, rng=rng, weight=weight)
    if isinstance(model.basis, str):
        return pool
    if model.basis.n_features != Z.shape[1]:
        raise InputError(
            f"the given basis takes {model.basis.n_features} features, but X has {Z.shape[1]}."
        )
    return (*pool, StackedBasis(pool[0], model.basis))


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
