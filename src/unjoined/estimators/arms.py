"""Several treatments: the effect of each against none, and the best one for everybody."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from unjoined._support import narrated
from unjoined._typing import Array, ArrayLike, MatrixLike, RandomState
from unjoined.data.labels import COLUMNS, SeparateLabels
from unjoined.data.rows import LabelledRows, Rows, check_rows
from unjoined.errors import InputError
from unjoined.estimators.base import Check, UpliftEstimator, check_verbose
from unjoined.estimators.inputs import columns_of
from unjoined.estimators.uplift import Uplift, check_list
from unjoined.evaluate.arms import BEST, arm_values, best_arms
from unjoined.evaluate.estimate import Estimate
from unjoined.evaluate.strength import strength_of
from unjoined.evaluate.tables import row_fingerprint
from unjoined.evaluate.terms import EvaluationRows, evaluation_of
from unjoined.model.arms import Contrasts, check_arms
from unjoined.words import arms_in_words


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
    unjoined.evaluate.evaluate_arms : what the scores are worth, on these or other rows.

    Notes
    -----
    Costs a fit of `Uplift` for each treatment, and a policy for each treatment and population. A
    0/1 outcome is fitted by its mean. Known policies, doses and rows with both labels are not
    taken.

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
        count: ArrayLike | None = None,
        control: Any = None,
    ) -> ArmUplift:
        """Estimate the uplift of every treatment from rows that carry one label each.

        Parameters
        ----------
        X : SeparateLabels, or array or data frame of shape (n, d)
            All rows, made with ``control=``; or their features, with the columns below.
        y, treatment, population, sample_weight, cluster, count
            As in `Uplift`; treatments are words, or numbers that stand for them.
        control : value
            The treatment that is none.

        Returns
        -------
        ArmUplift
            Itself.
        """
        beside = (sample_weight, cluster, count, None, None, control)
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
        check_arms(checked)
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
            crossfit = contrasts.cross_fit(j, rng)
            rows = crossfit.rows
            model._adopt(crossfit, rng)
            model._conclude(rows, strength_of(rows, n_jobs=self.n_jobs), stacklevel=4)
            found.append(evaluation_of(rows, crossfit.fold, crossfit.nuisances))
        self.models_ = dict(zip(self.arms_, models, strict=True))
        self.values_ = arm_values(self.arms_, found, {BEST: best_arms(found)})
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
        self.run_ = self.run_ | {"data": row_fingerprint(each[1])}
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
            "ArmUplift has no score of all treatments together. See values_, and evaluate_arms."
        )

    def summary_lines(self) -> dict[str, str]:
        """Return the lines of the summary: all treatments, then what each is by itself."""
        lines = {}
        if not self.identification_.is_weak:
            said = arms_in_words(self.control_, self.arms_, self.values_, self._unit)
            lines["arms"] = said
        for arm, model in self.models_.items():
            own = model.summary_lines()
            kept = ("average", "differences", "varies with", "policies")
            lines |= {f"{arm}: {name}": f"{arm}: {own[name]}" for name in kept}
        return lines | {"features": self._features_in_words()}
