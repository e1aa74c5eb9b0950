"""What all estimators share: declared parameters, how rows come in, and how a fit is scored."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted

from unjoined._typing import Array, ArrayLike, Basis, MatrixLike
from unjoined._validation import (
    OUTCOME,
    check_count,
    check_option,
)
from unjoined.basis import Scaling
from unjoined.data import (
    LabelledRows,
    in_memory,
    is_dask,
    label_rows,
    predict_lazily,
    target_rows,
)
from unjoined.errors import InputError, RatioGuardWarning
from unjoined.estimators.features import FeatureEstimator
from unjoined.metrics import (
    Estimate,
    IdentificationStrength,
    strength_of,
    warn_if_weak,
    weighted_risk,
)
from unjoined.nuisance import ConditionalMean, fit_conditional_mean, seeded_clone

# What a parameter may be: takes its name and value, and says what is wrong in an InputError.
# Those of `unjoined._validation` that take a name and a value are such checks too.
Check = Callable[[str, Any], Any]


def one_of(*words: str) -> Check:
    """Allow some words."""
    return lambda name, value: check_option(name, value, words)


def word_or(check: Check, *words: str) -> Check:
    """Allow some words, or what ``check`` allows."""

    def either(name: str, value: Any) -> None:
        if isinstance(value, str):
            check_option(name, value, words)
        else:
            check(name, value)

    return either


def optional(check: Check) -> Check:
    """Allow None, or what ``check`` allows."""
    return lambda name, value: None if value is None else check(name, value)


def count_from(least: int) -> Check:
    """Allow whole numbers from ``least`` on."""

    def count(name: str, value: Any) -> None:
        if check_count(name, value) < least:
            raise InputError(f"{name} must be {least} or above, got {value!r}.")

    return count


def basis_or(*words: str) -> Check:
    """Allow the names of some bases, or a `Basis`."""

    def basis(name: str, value: Any) -> None:
        if not isinstance(value, Basis):
            raise InputError(
                f"{name} must be a name, or a callable with size and n_features, got {value!r}."
            )

    return word_or(basis, *words)


def check_flag(name: str, value: Any) -> None:
    """Allow True and False."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name} must be True or False, got {value!r}.")


def check_model(name: str, value: Any) -> None:
    """Allow a scikit-learn estimator, or None for the default one."""
    made = not isinstance(value, type) and hasattr(value, "fit") and hasattr(value, "predict")
    if value is not None and not made:
        raise InputError(
            f"{name} must be None or a scikit-learn estimator, such as LogisticRegression(), got "
            f"{value!r}."
        )


class UpliftEstimator(FeatureEstimator, ABC):
    """Base of estimators that learn uplift from separate labels.

    ``fit`` and ``score`` take the labels' ``kind`` and ``population`` beside ``X`` and ``y``,
    and ask for them by default when scikit-learn's metadata routing is on, so that estimators
    work in `Pipeline` and `GridSearchCV` without ``set_fit_request``.
    """

    # How scikit-learn lets a class state its default requests.
    __metadata_request__fit = {"kind": True, "population": True}  # noqa: RUF012
    __metadata_request__score = {"kind": True, "population": True}  # noqa: RUF012

    _takes_several = False  # whether there may be more than two populations

    identification_: IdentificationStrength
    populations_: list[Any]
    average_effect_: Estimate

    _parameters: ClassVar[Mapping[str, Check]] = {}  # what each parameter may be

    @abstractmethod
    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        *,
        kind: ArrayLike,
        population: ArrayLike,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from rows that carry one label each."""

    def _check_parameters(self) -> None:
        """Refuse parameters that are wrong whatever the rows."""
        for name, check in self._parameters.items():
            check(name, getattr(self, name))

    def _begin(self, X: MatrixLike) -> Array:
        """Check parameters and features."""
        self._check_parameters()
        self._forget()
        return self._check_features(X, reset=True)

    def _forget(self) -> None:
        """Become unfitted, so that a fit that fails from here on leaves no parts of two fits."""
        self.__dict__.pop("identification_", None)

    def _conclude(
        self, populations: Sequence[Any], strength: IdentificationStrength, *, stacklevel: int
    ) -> None:
        """Warn of policies that are hardly different, and become fitted."""
        warn_if_weak(strength, stacklevel=stacklevel + 1)
        self.populations_, self.identification_ = list(populations), strength

    def __sklearn_is_fitted__(self) -> bool:
        """Whether the last fit went through to its end."""
        return hasattr(self, "identification_")

    def predict(self, X: MatrixLike) -> Array:
        """Return the estimated uplift at each row.

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            Features, with the columns seen in ``fit``. A Dask array or DataFrame is not
            computed: what comes back is lazy too.

        Returns
        -------
        array of shape (n,)
            Uplift in the units of the outcome; for a 0/1 outcome, probability points. Finite.
            A Dask array or Series for a Dask collection.

        Warns
        -----
        RatioGuardWarning
            The estimator divides, and kept the ratio from exploding at some rows; the message
            says at how many.
        """
        if is_dask(X):
            check_is_fitted(self)
            lazy: Array = predict_lazily(self, X)  # stands in for an array, as Dask has no types
            return lazy
        matrix = self._check_features(X, reset=False, fewest=0)
        return self._predict_rows(matrix) if len(matrix) else np.empty(0)

    @abstractmethod
    def _predict_rows(self, matrix: Array) -> Array:
        """Return the uplift at checked rows, in outcome units."""

    def score(
        self,
        X: MatrixLike,
        y: ArrayLike,
        *,
        kind: ArrayLike,
        population: ArrayLike,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Return minus the weighted risk on held-out separate labels; higher is better.

        Needs no joint labels, so that `GridSearchCV` can choose among settings. Not an R²: only
        differences on the same rows mean something.

        Parameters
        ----------
        X, y, kind, population, sample_weight
            Held-out rows, as in ``fit``. Dask collections are computed to memory.

        Returns
        -------
        float
            In squared outcome units.

        See Also
        --------
        unjoined.metrics.weighted_risk : the definition.
        """
        X, y, kind, population, sample_weight = in_memory(X, y, kind, population, sample_weight)
        return -weighted_risk(
            self.predict(X),
            X,
            y,
            kind=kind,
            population=population,
            sample_weight=sample_weight,
        )


class RowEstimator(UpliftEstimator):
    """Base of estimators that learn from checked rows, in one coding."""

    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        *,
        kind: ArrayLike,
        population: ArrayLike,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Estimate the uplift from rows that carry one label each.

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            Features, finite numbers.
        y : array-like of shape (n,)
            Whichever label the row has; NaN for target rows.
        kind : array-like of shape (n,)
            "outcome", "treatment" or "target".
        population : array-like of shape (n,)
            Which of the populations the row comes from; there are two, unless the estimator
            takes more.
        sample_weight : array-like of shape (n,), optional
            Non-negative row weights. Only their ratios within a table count: the weights of
            each table are brought to mean 1, so that their units change nothing, be it in all
            tables or in one. Equal weights are as good as none, and a row of weight 0 is as good
            as absent. Models that are given get weights of mean 1, so that their penalties mean
            what they mean without weights.

        Returns
        -------
        UpliftEstimator
            Itself.

        Warns
        -----
        WeakIdentificationWarning
            The policies can hardly be told apart.
        """
        matrix, n_jobs = self._begin(X), getattr(self, "n_jobs", None)
        rows = label_rows(
            matrix,
            y,
            kind=kind,
            population=population,
            sample_weight=sample_weight,
            several=self._takes_several,
            n_jobs=n_jobs,
        )
        # Target rows have no labels, so that they are among those that are left out.
        target = None if rows.X is matrix else target_rows(matrix, kind, sample_weight)
        strength = self._fit_rows(rows, target)
        if strength is None:
            strength = strength_of(rows, n_jobs=n_jobs)
        self._conclude(rows.names, strength, stacklevel=3)
        return self

    @abstractmethod
    def _fit_rows(
        self, rows: LabelledRows, target: tuple[Array, Array] | None
    ) -> IdentificationStrength | None:
        """Learn from checked rows, and from the features and weights of target rows if any.

        Returns how different the policies are, if that was found on the way.
        """


def scale_features(rows: LabelledRows, *, standardize: bool) -> Scaling:
    """Return what brings features to mean 0 and variance 1, or leaves them as they are."""
    if standardize:
        return Scaling.of_rows(rows.X, rows.share)
    return Scaling.identity(rows.X.shape[1])


def scale_outcomes(rows: LabelledRows, *, standardize: bool) -> tuple[LabelledRows, Scaling]:
    """Return rows with outcomes of mean 0 and variance 1, and what lies between inside and out.

    Two values are coded -1/+1 already and stay as they are.
    """
    if rows.coding.is_binary:
        return rows, Scaling(np.array([rows.coding.offset]), np.array([rows.coding.scale]))
    if not standardize:
        return rows, Scaling.identity(1)
    outcome, label = rows.of_kind(OUTCOME), rows.label.copy()
    scaling = Scaling.of_rows(label[outcome, None], rows.share[outcome])
    label[outcome] = scaling(label[outcome, None])[:, 0]
    return replace(rows, label=label), scaling


def fit_pair(
    model: Any, Z: Array, rows: LabelledRows, kind: str, rng: np.random.RandomState
) -> tuple[ConditionalMean, ConditionalMean]:
    """Fit a clone of ``model``, by default a logistic regression, to each of two cells."""
    model = LogisticRegression() if model is None else model
    first, second = (
        fit_conditional_mean(seeded_clone(model, rng), Z[at], rows.label[at], rows.weight[at])
        for at in (rows.at(kind, 0), rows.at(kind, 1))
    )
    return first, second


def warn_of_gaps(n_touched: int, n: int, why: str, min_gap: float, *, stacklevel: int) -> None:
    """Warn of rows at which the policies were too alike; ``why`` says what fails without a gap."""
    if n_touched:
        instead = f"{why} and the uplift was set to 0."
        if min_gap:
            instead = f"the uplift was computed with a gap of {min_gap:g} (min_gap)."
        warnings.warn(
            f"the policy gap was too small at {n_touched} of {n} rows; there {instead}",
            RatioGuardWarning,
            stacklevel=stacklevel,
        )
