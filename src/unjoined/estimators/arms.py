"""Several treatments: the effect of each against none, and the best one for everybody."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NoReturn

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from unjoined._support import narrated
from unjoined._typing import Array, ArrayLike, IntArray, MatrixLike, RandomState
from unjoined._validation import OUTCOME, TREATMENT, shown
from unjoined.data.labels import COLUMNS, SeparateLabels
from unjoined.data.rows import LabelledRows, Rows, check_rows
from unjoined.errors import InputError, LabelError
from unjoined.estimators.base import Check, UpliftEstimator, check_verbose
from unjoined.estimators.inputs import columns_of
from unjoined.estimators.uplift import Uplift, check_list
from unjoined.evaluate.estimate import Estimate
from unjoined.evaluate.strength import strength_of
from unjoined.evaluate.terms import EvaluationRows, evaluation_of
from unjoined.model.crossfit import CLIP, MEAN, N_FOLDS, CrossFit, Likelihood
from unjoined.model.linear import cross_fit_effects
from unjoined.model.regressors import FoldedPolicy, fit_policies
from unjoined.words import arms_in_words

Function = Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class ArmPolicy:
    """A population's policy for one treatment, less what goes along with the other treatments.

    Attributes
    ----------
    propensities : tuple
        Of each population and each treatment, that of none first, a function of the features.
    population_share : array of shape (K,)
        Of the outcome rows.
    arm, population : int
        Which treatment, from 1, and which population.
    is_coded : bool
        Whether all functions, this one included, are of treatments -1/+1.
    """

    propensities: tuple[tuple[Function, ...], ...]
    population_share: Array
    arm: int
    population: int
    is_coded: bool

    def __call__(self, X: Array) -> Array:
        """Return the policy at each row."""
        P = _propensities(self.propensities, X, is_coded=self.is_coded)
        _, alone, _ = _taken_apart(P, self.population_share)
        own: Array = alone[:, self.population, self.arm - 1]
        return 2.0 * own - 1.0 if self.is_coded else own


def _propensities(
    functions: tuple[tuple[Function, ...], ...], X: Array, *, is_coded: bool
) -> Array:
    """Return the probability of each treatment in each population, shape (n, K, J + 1)."""
    P = np.array([[function(X) for function in of] for of in functions])
    P = np.clip(0.5 + 0.5 * P if is_coded else P, CLIP, 1.0)
    return np.asarray((P / P.sum(axis=1, keepdims=True)).transpose(2, 0, 1))


def _taken_apart(P: Array, share: Array) -> tuple[Array, Array, Array]:
    r"""Return policies less their mean over populations, and what is left of each, (n, K, J).

    What is left of treatment j is :math:`P_{kj} - \bar P_j - \sum_l \gamma_{jl} (P_{kl} - \bar
    P_l)`, uncorrelated over the populations with every other one: the contrast that shows j alone.
    The third array (n, J, J) holds :math:`\gamma`.
    """
    apart = P[:, :, 1:] - np.einsum("k,nkj->nj", share, P[:, :, 1:])[:, None]
    J = apart.shape[2]
    products = np.einsum("k,nkj,nkl->njl", share, apart, apart)
    along = np.zeros_like(products)
    for j in range(J):
        others = np.delete(np.arange(J), j)
        inverse = np.linalg.pinv(
            products[:, others[:, None], others], rcond=1e-6, hermitian=True
        )
        along[:, j, others] = np.einsum("nlm,nm->nl", inverse, products[:, j, others])
    alone = apart - np.einsum("njl,nkl->nkj", along, apart)
    return apart, alone, along


class ArmUplift(UpliftEstimator):
    r"""Uplift of several treatments, each against none, from separate labels.

    .. math::

        E_k[y \mid x] = m(x) + \sum_j P_k(j \mid x) \, u_j(x)

    holds in every population k, with :math:`u_j` the effect of treatment j. It takes at least one
    population more than there are treatments, and they must differ in as many independent ways. At
    each person's features, what is left of a treatment's policies once the others are taken out is
    a policy gap of that treatment alone: with it each treatment has an `Uplift` of its own, with
    its average, gains, verdict and intervals.

    Parameters
    ----------
    categorical_features, n_jobs, random_state, verbose
        As in `Uplift`.

    Attributes
    ----------
    arms_ : list of str
        The treatments, in the order of the columns of ``predict``.
    control_ : str
        What the one that is none is called.
    models_ : dict of str to Uplift
        That of each treatment against none: ``average_effect_``, ``gain_``, ``verdict_`` and
        ``summary()`` are about it alone.
    values_ : dict of str to Estimate
        What each person gains on average, over treating nobody, if all get one treatment, and, as
        "the best for each", if everybody gets the one that is predicted to be best by fits that
        have not seen the person, or none; "over the best for all" is how much more that is than
        the best single one. Outcome units, doubly robust, of people for whom policies differ
        enough.
    identification_, average_effect_, verdict_
        Those of the treatment whose policies differ least.
    populations_, n_features_in_, feature_names_in_
        As in scikit-learn.

    See Also
    --------
    Uplift : one treatment, or a dose.
    unjoined.targeting.assign_arms : whom to give which within a budget.

    Notes
    -----
    Costs a fit of `Uplift` for each treatment, and a policy for each treatment and population. A
    0/1 outcome is fitted by its mean. Known policies, counts, doses and rows with both labels are
    not taken.

    Examples
    --------
    >>> import numpy as np
    >>> from unjoined import ArmUplift, SeparateLabels
    >>> rng = np.random.default_rng(0)
    >>> n = 900
    >>> X, place = rng.normal(size=(2 * n, 2)), np.tile(["east", "south", "west"], 2 * n // 3)
    >>> shares = {"east": [0.2, 0.6, 0.2], "south": [0.2, 0.2, 0.6], "west": [0.8, 0.1, 0.1]}
    >>> arm = np.array([rng.choice(["none", "mail", "phone"], p=shares[name]) for name in place])
    >>> effect = np.select([arm == "mail", arm == "phone"], [0.5, 1.0 + X[:, 0]], 0.0)
    >>> is_outcome = np.arange(2 * n) < n
    >>> data = SeparateLabels(
    ...     X,
    ...     y=np.where(is_outcome, X[:, 1] + effect + rng.normal(size=2 * n), np.nan),
    ...     treatment=np.where(is_outcome, None, arm),
    ...     population=place,
    ...     control="none",
    ... )
    >>> model = ArmUplift(random_state=0).fit(data)
    >>> model.arms_
    ['mail', 'phone']
    >>> model.predict([[0.0, 0.0]]).shape
    (1, 2)
    """

    _parameters: ClassVar[Mapping[str, Check]] = {
        "categorical_features": check_list,
        "verbose": check_verbose,
    }

    arms_: list[str]
    control_: str
    models_: dict[str, Uplift]
    values_: dict[str, Estimate]

    def __init__(
        self,
        *,
        categorical_features: Any = (),
        n_jobs: int | None = -1,
        random_state: RandomState = None,
        verbose: bool | int = False,
    ) -> None:
        self.categorical_features = categorical_features
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(  # type: ignore[override]  # one label a row, and no doses
        self,
        X: MatrixLike | SeparateLabels,
        y: ArrayLike | None = None,
        *,
        treatment: ArrayLike | None = None,
        population: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        cluster: ArrayLike | None = None,
        control: Any = None,
    ) -> ArmUplift:
        """Estimate the uplift of every treatment from rows that carry one label each.

        Parameters
        ----------
        X : SeparateLabels, or array or data frame of shape (n, d)
            All rows, made with ``control=``; or their features, with the columns below.
        y, treatment, population, sample_weight, cluster
            As in `Uplift`; treatments are words, or numbers that stand for them.
        control : value
            The treatment that is none.

        Returns
        -------
        ArmUplift
            Itself.
        """
        beside = (sample_weight, cluster, None, None, None, control)
        columns = (y, treatment, population, *beside)
        features, checked = columns_of(X, columns, method="fit")
        if isinstance(features, SeparateLabels):
            raise InputError(
                "ArmUplift needs all rows in memory, and these are streamed."
            )
        self._check_parameters()
        if checked is None:
            given = dict(zip(COLUMNS[1:], columns, strict=True))
            checked, _ = check_rows(given, len(np.asarray(treatment)))
        _check_arms(checked)
        self.control_, *self.arms_ = checked.arms
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with narrated(self, f"{len(checked):,} rows, {len(self.arms_)} treatments"):
                self._fit_arms(features, checked)
        for said in {str(w.message): w for w in caught}.values():
            warnings.warn(said.message, said.category, stacklevel=2)
        return self

    def _fit_arms(self, features: MatrixLike, checked: Rows) -> None:
        """Fit policies, then base and effect of every treatment."""
        rng = check_random_state(self.random_state)
        models = [Uplift(**self.get_params()) for _ in self.arms_]
        matrix = next(iter([model._begin(features) for model in models]))
        each = [checked.of_arm(matrix, a) for a in range(len(checked.arms))]
        contrasts = Contrasts.of_rows(
            each, models[0]._categorical_columns(), self.n_jobs, rng
        )
        found: list[EvaluationRows] = []
        for j, model in enumerate(models):
            rows, policies = contrasts.of_arm(j)
            functions = tuple(policy.policy for policy in policies)
            likelihood = Likelihood.of_rows(rows, MEAN, functions)
            crossfit = CrossFit.of_policies(
                rows,
                likelihood,
                policies,
                contrasts.fold,
                categorical=model._categorical_columns(),
                n_jobs=self.n_jobs,
                rng=rng,
            )
            model._adopt(crossfit, rng)
            model._conclude(rows, strength_of(rows, n_jobs=self.n_jobs), stacklevel=4)
            found.append(evaluation_of(rows, crossfit.fold, crossfit.nuisances))
        self.models_ = dict(zip(self.arms_, models, strict=True))
        self.values_ = _values(self.arms_, found)
        weakest = min(models, key=lambda model: model.identification_.strength or 0.0)
        for name in (
            "identification_",
            "average_effect_",
            "verdict_",
            "run_",
            "populations_",
            "n_features_in_",
            "training_range_",
        ):
            setattr(self, name, getattr(weakest, name))
        for name in ("feature_names_in_", "encoder_"):
            if hasattr(weakest, name):
                setattr(self, name, getattr(weakest, name))

    def _fit_rows(self, rows: LabelledRows, target: Any) -> NoReturn:
        raise NotImplementedError  # pragma: no cover - `fit` is its own

    def _predict_rows(self, matrix: Array) -> Array:
        return np.column_stack(
            [model._predict_rows(matrix) for model in self.models_.values()]
        )

    def _row_errors(self, matrix: Array) -> Array:
        return np.column_stack(
            [model._row_errors(matrix) for model in self.models_.values()]
        )

    def predict(self, X: MatrixLike) -> Array:
        """Return the estimated uplift of every treatment at each row.

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            Features, with the columns seen in ``fit``.

        Returns
        -------
        array of shape (n, J)
            Uplift over no treatment, units of the outcome; columns as in ``arms_``.
        """
        check_is_fitted(self)
        matrix = self._check_features(X, reset=False, fewest=0)
        if not len(matrix):
            return np.empty((0, len(self.arms_)))
        return self._predict_rows(matrix)

    def score(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: each treatment is scored by itself, with ``models_[arm]``."""
        raise InputError(
            "ArmUplift has no score of all treatments together. See values_, and models_ for each."
        )

    def summary_lines(self) -> dict[str, str]:
        """Return the lines of the summary: all treatments, then what each is by itself."""
        lines = {"arms": arms_in_words(self.control_, self.arms_, self.values_)}
        for arm, model in self.models_.items():
            own = model.summary_lines()
            kept = ("average", "differences", "varies with", "policies")
            lines |= {f"{arm}: {name}": f"{arm}: {own[name]}" for name in kept}
        return lines | {"features": self._features_in_words()}


def _check_arms(rows: Rows) -> None:
    """Refuse rows of one treatment, and fewer populations than show the treatments apart."""
    if not rows.arms:
        raise InputError(
            "ArmUplift compares several treatments with none: name the latter with control=..., "
            "in SeparateLabels or in fit. For one treatment use Uplift."
        )
    if rows.joint is not None:
        raise InputError(
            "rows with both labels cannot have several treatments yet. Leave their treatments out."
        )
    control, *arms = rows.arms
    K = len(rows.names)
    if len(arms) + 1 > K:
        many = f"{len(arms)} treatments ({shown(arms)})"
        raise LabelError(
            f"{many} take {len(arms) + 1} populations that were treated differently, and there "
            f"{'are' if K > 1 else 'is'} {K} ({shown(rows.names)}). What {K} populations show is "
            f"{K - 1} effect{'s' * (K > 2)}: any of them against {control!r}, with "
            f"treated={shown(arms)}, is the effect of the mix that was given. Or bring more "
            "populations."
        )


@dataclass(frozen=True, slots=True, eq=False)
class Contrasts:
    """Rows of several treatments, and what tells each from the others."""

    rows: list[LabelledRows]  # with each treatment, that of none first, as 1
    fold: IntArray
    propensities: list[tuple[FoldedPolicy, ...]]  # of each treatment, each population
    population_share: Array
    P: Array  # (n, K, J + 1) without the row's fold
    effects: Array  # (n, J) linear, without the row's fold

    @classmethod
    def of_rows(
        cls,
        rows: list[LabelledRows],
        categorical: tuple[int, ...],
        n_jobs: int | None,
        rng: np.random.RandomState,
    ) -> Contrasts:
        """Fit the probability of each treatment in each population, and linear effects."""
        one = rows[0]
        fold = one.deal(N_FOLDS, rng)
        options: dict[str, Any] = {"categorical": categorical, "n_jobs": n_jobs}
        found = [
            fit_policies(each.X, each, None, fold=fold, rng=rng, **options)
            for each in rows
        ]
        K = len(one.names)
        size = np.array([len(one.at(OUTCOME, k)) for k in range(K)], dtype=np.float64)
        share = size / size.sum()
        P = np.empty((len(one), K, len(rows)))
        for j in range(int(fold.max()) + 1):
            at = fold == j
            P[at] = _propensities(_without(found, j), one.X[at], is_coded=True)
        apart, _, _ = _taken_apart(P, share)
        own = apart[np.arange(len(one)), one.population]
        return cls(rows, fold, found, share, P, cross_fit_effects(one, fold, own))

    def of_arm(self, j: int) -> tuple[LabelledRows, tuple[FoldedPolicy, ...]]:
        """Return rows and policies in which treatment j, from 0, stands alone.

        The outcome is freed of what the others are thought to add, and treatment rows say how far
        their policies were off.
        """
        rows = self.rows[j + 1]
        at = np.arange(len(rows))
        apart, alone, along = _taken_apart(self.P, self.population_share)
        own = apart[at, rows.population]
        others = np.delete(np.arange(own.shape[1]), j)
        added = self.effects + along[:, j] * self.effects[:, [j]]
        label = rows.label - np.sum((own * added)[:, others], axis=1)
        is_it = 0.5 + 0.5 * rows.label - self.P[at, rows.population, j + 1]
        mine = alone[at, rows.population, j]
        label = np.where(rows.is_outcome, label, 2.0 * (is_it + mine) - 1.0)
        aside = np.zeros(len(rows))
        for other in others:
            got = 0.5 + 0.5 * self.rows[other + 1].label
            beyond = got - self.P[at, rows.population, other + 1]
            aside += np.where(rows.is_outcome, 0.0, self.effects[:, other] * beyond)
        policies = []
        for k in range(len(rows.names)):
            whole = tuple(
                tuple(of[i].policy for of in self.propensities)
                for i in range(len(rows.names))
            )
            without = tuple(
                ArmPolicy(
                    _without(self.propensities, i),
                    self.population_share,
                    j + 1,
                    k,
                    is_coded=True,
                )
                for i in range(int(self.fold.max()) + 1)
            )
            policy = ArmPolicy(whole, self.population_share, j + 1, k, is_coded=False)
            policies.append(
                FoldedPolicy(policy, without, self.fold[rows.at(TREATMENT, k)])
            )
        return replace(rows, label=label, aside=aside), tuple(policies)


def _without(
    found: list[tuple[FoldedPolicy, ...]], j: int
) -> tuple[tuple[Function, ...], ...]:
    """Return the fits without fold j: of each population, each treatment."""
    K = len(found[0])
    return tuple(tuple(of[k].without[j] for of in found) for k in range(K))


def _values(arms: list[str], found: list[EvaluationRows]) -> dict[str, Estimate]:
    """Return what people gain on average by single treatments, and by the best for each."""
    omega = np.min([rows.omega() for rows in found], axis=0)
    terms = [rows.terms(omega) for rows in found]
    effects = np.column_stack([rows.effect for rows in found])
    best = np.argmax(effects, axis=1)
    chosen = (np.arange(len(arms)) == best[:, None]) & (effects > 0.0)
    gains = np.column_stack([each.plain for each in terms])
    whole = np.column_stack([gains, np.sum(gains * chosen, axis=1)])
    total = terms[0].totals(whole, terms[0].aim)
    n = len(arms)
    values = {arm: total.ratio(j, n + 1) for j, arm in enumerate(arms)}
    values["the best for each"] = total.ratio(n, n + 1)
    first = max(range(n), key=lambda j: values[arms[j]].value)
    more = terms[first].totals(whole[:, n] - whole[:, first], terms[0].aim)
    values["over the best for all"] = more.ratio(0, 1)
    return values
