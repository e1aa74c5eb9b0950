"""What all estimators share: declared parameters, how rows come in, and how a fit is scored."""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted, validate_data

from unjoined._support import LOGGER, narrated
from unjoined._threads import all_finite, all_within
from unjoined._typing import Array, ArrayLike, Basis, BoolArray, MatrixLike
from unjoined._validation import (
    LARGEST,
    OUTCOME,
    check_count,
    check_feature_sizes,
    check_finite_features,
    check_numeric_columns,
    check_option,
    shown,
)
from unjoined.data.chunks import NotNumbersError
from unjoined.data.columns import column_names, has_numbers_only, needs_encoding
from unjoined.data.dask import DaskSource, in_memory, predict_lazily
from unjoined.data.encode import Encoded, TableEncoder, own_columns, warn_of_notes
from unjoined.data.labels import COLUMNS, SeparateLabels
from unjoined.data.rows import LabelledRows, check_rows
from unjoined.data.sources import ChunkSource
from unjoined.data.tables import is_dask
from unjoined.errors import BeyondWarning, ColumnWarning, InputError, RatioGuardWarning
from unjoined.estimators.inputs import (
    MOST_NAMED,
    columns_of,
    fingerprint,
    package_versions,
)
from unjoined.evaluate.checks import warn_of_tables
from unjoined.evaluate.estimate import Estimate, critical_value
from unjoined.evaluate.scores import weighted_risk
from unjoined.evaluate.strength import IdentificationStrength, strength_of, warn_if_weak
from unjoined.evaluate.terms import evaluation_of, linear_evaluation
from unjoined.evaluate.verdict import Verdict, verdict_of_fit
from unjoined.model.basis import Scaling
from unjoined.model.census import Census
from unjoined.model.contrasts import contrasts_of, in_two_groups
from unjoined.model.passes import look_through
from unjoined.model.plan import PlannedSums
from unjoined.model.regressors import (
    ConditionalMean,
    fit_conditional_mean,
    seeded_clone,
)
from unjoined.words import (
    UNNAMED,
    Unit,
    effect_in_words,
    policies_in_words,
    robustness_in_words,
)

LATE = 3650.0  # days since 1970 that no duration has
FEW_ROWS = 20  # to predict, which say nothing about units
QUANTILES = (0.0, 0.01, 0.5, 0.99, 1.0)
RANGE_ROWS = 10_000  # that quantiles between the extremes are taken from
MUCH = (
    0.25  # of the range of a feature in the fit: what is beyond by more is far outside
)
MOST_WRITTEN = 1_000_000  # people whose rows are written out
FAR = 100.0  # times the range of a column: beyond, a value is a mistake more likely than a fact


def column_ranges(matrix: Array) -> Array:
    """Return extremes of each column and, of evenly spaced rows, quantiles; shape (5, d)."""
    some = matrix[:: max(len(matrix) // RANGE_ROWS, 1)]
    ranges: Array = np.quantile(some, QUANTILES, axis=0)
    ranges[0], ranges[-1] = matrix.min(axis=0), matrix.max(axis=0)
    return ranges


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


def check_verbose(name: str, value: Any) -> None:
    """Allow True, False and 0, 1, 2, ..."""
    if not isinstance(value, Integral) or value < 0:
        raise InputError(
            f"{name} must be True, False or a whole number such as 2, got {value!r}."
        )


def check_model(name: str, value: Any) -> None:
    """Allow a scikit-learn estimator, or None for the default one."""
    made = (
        not isinstance(value, type)
        and hasattr(value, "fit")
        and hasattr(value, "predict")
    )
    if value is not None and not made:
        raise InputError(
            f"{name} must be None or a scikit-learn estimator, such as LogisticRegression(), got "
            f"{value!r}."
        )


class UpliftEstimator(BaseEstimator, ABC):
    """Base of estimators that learn uplift from separate labels.

    ``fit`` and ``score`` take ``treatment`` and ``population`` beside ``X`` and ``y``,
    and ask for them by default when scikit-learn's metadata routing is on, so that estimators
    work in `Pipeline` and `GridSearchCV` without ``set_fit_request``.

    A data frame that holds anything but finite numbers is encoded by a `TableEncoder`, which is
    kept as ``encoder_``. Columns are found by name, whatever their order.
    """

    # How scikit-learn lets a class state its default requests.
    __metadata_request__fit = {"treatment": True, "population": True}  # noqa: RUF012
    __metadata_request__score = {"treatment": True, "population": True}  # noqa: RUF012

    n_features_in_: int
    encoder_: TableEncoder
    training_range_: (
        Array  # (5, d) least, 1 %, median, 99 % and greatest of each column of numbers
    )
    identification_: IdentificationStrength
    populations_: list[Any]
    average_effect_: Estimate
    relative_effect_: Estimate | None = None
    run_: dict[
        str, Any
    ]  # versions, settings with the seed, and a fingerprint of the rows
    verdict_: Verdict  # of the tables
    contrast_: (
        Array  # (number of populations,) if there are more than two, in two groups
    )

    _parameters: ClassVar[Mapping[str, Check]] = {}  # what each parameter may be

    _takes_counts: ClassVar[bool] = False  # or needs a row for each person
    _takes_joint: ClassVar[bool] = False  # rows with both labels, and known policies

    @property
    def _as_two_groups(self) -> bool:
        """Whether more than two populations are fitted as two groups of them."""
        return True

    def fit(
        self,
        X: MatrixLike | SeparateLabels,
        y: ArrayLike | None = None,
        *unnamed: Any,
        treatment: ArrayLike | None = None,
        population: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        cluster: ArrayLike | None = None,
        count: ArrayLike | None = None,
        policy: ArrayLike | None = None,
        dose: bool | None = None,
        control: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Estimate the uplift from rows that carry one label each.

        Parameters
        ----------
        X : SeparateLabels, or array or data frame of shape (n, d)
            All columns in one, in memory or streamed; or the features alone.
        y : array-like of shape (n,)
            The outcome, NaN where a row has none.
        treatment : array-like of shape (n,)
            The treatment, NaN where a row has none.
        population : array-like of shape (n,)
            Which of the populations the row comes from: two, or more. Of more than two,
            estimators that are made for two fit the contrast between two groups of them that tells
            the most, each population counting by its entry of ``contrast_``.
        sample_weight : array-like of shape (n,), optional
            Non-negative row weights. Only their ratios within a table count: the weights of
            each table are brought to mean 1, so that their units change nothing, be it in all
            tables or in one. Equal weights are as good as none, and a row of weight 0 is as good
            as absent. Models that are given get weights of mean 1, so that their penalties mean
            what they mean without weights.
        cluster : array-like of shape (n,), optional
            The household, store or customer of a row, if rows depend on each other. Fits are held
            out and errors computed by cluster; predictions change little.
        count : array-like of shape (n,), optional
            How many people a row stands for. All is as if their rows were written out; labels may
            be shares of them.
        policy : array-like of shape (n,), optional
            The probability with which a row's person was treated, where it is known, NaN elsewhere.
            `Uplift` alone takes it, and rows that have both labels.
        dose : bool, optional
            Whether treatments are amounts: uplift is what one unit more does. `Uplift` alone takes
            them.
        control : value, optional
            The treatment that is none, where there are several others, which `ArmUplift` takes.
        checkpoint : path, optional
            Of streamed rows only: a file that keeps what was added up and is removed at the end.
            If it exists, the fit goes on from there. Needs an integer ``random_state``.

        Returns
        -------
        UpliftEstimator
            Itself.

        Warns
        -----
        WeakIdentificationWarning
            The policies can hardly be told apart.

        Notes
        -----
        `Uplift` and `MinMaxUplift` take streamed rows. The first pass looks at the labels and keeps
        a sample of 10,000 rows of each table, which settles functions and scales; further passes
        add up sums. Memory is the sample, one chunk and O(p^2), whatever the number of rows. The
        result does not depend on chunks but for rounding; on the order of rows it depends as on a
        seed, since the sample goes by the rows' numbers. It is not that of rows in memory to the
        last digit.
        """
        if unnamed:
            raise InputError(
                "fit takes X and y, and everything else by name: fit(data) with a SeparateLabels, "
                "or fit(X, y, treatment=..., population=...). A row has a treatment or an outcome, "
                "NaN standing for the other. If you know both of each row, use an ordinary uplift "
                "model."
            )
        beside = (sample_weight, cluster, count, policy, dose, control)
        columns = (y, treatment, population, *beside)
        features, checked = columns_of(X, columns, method="fit")
        if isinstance(features, SeparateLabels):
            self._check_parameters()
            with narrated(self, "rows in chunks"):
                self._fit_stream(features, checkpoint)
            if checkpoint is not None:
                Path(checkpoint).unlink(missing_ok=True)
            return self
        if checkpoint is not None:
            raise InputError(
                "checkpoint is for streamed rows, and these are in memory."
            )
        matrix = self._begin(features)
        n_jobs = getattr(self, "n_jobs", None)
        if checked is None:
            given = dict(zip(COLUMNS[1:], columns, strict=True))
            checked, _ = check_rows(given, len(matrix))
        rows = self._suited(checked.labelled(matrix))
        target = checked.target(matrix)
        fitted = rows
        contrast = None
        several = len(rows.names) > 2
        if several and self._as_two_groups:
            contrast = contrasts_of(rows, n_jobs=n_jobs)[0]
            fitted, _ = in_two_groups(rows, contrast)
        with narrated(self, f"{len(rows):,} rows of {rows.X.shape[1]} features"):
            strength = self._fit_rows(fitted, target)
        if contrast is not None:
            self.contrast_ = contrast
        if strength is None or several:
            strength = strength_of(rows, n_jobs=n_jobs)
        if not hasattr(self, "average_effect_"):
            own = linear_evaluation(rows)
            self.average_effect_, self.relative_effect_ = own.average(), own.relative()
        self._conclude(rows, strength, stacklevel=3)
        return self

    def _suited(self, rows: LabelledRows) -> LabelledRows:
        """Return a row for each person if that is needed, and refuse labels that are not taken."""
        if rows.exposure is not None and not self._takes_joint:
            raise InputError(
                f"{type(self).__name__} takes one label a row, and no policy. Uplift takes rows "
                "that have both labels, and known policies; or leave the treatments of these rows "
                "out."
            )
        if rows.dose is not None and not self._takes_joint:
            raise InputError(
                f"{type(self).__name__} takes people who are treated or not. Uplift takes doses."
            )
        if rows.count is None or self._takes_counts:
            return rows
        if (people := sum(rows.people)) > MOST_WRITTEN:
            raise InputError(
                f"{type(self).__name__} takes a row for each person, and count says that they are "
                f"{people:,}, more than {MOST_WRITTEN:,}. Use Uplift, which takes counts as they "
                "are."
            )
        return rows.written_out()

    def _fit_stream(
        self, data: SeparateLabels, checkpoint: str | os.PathLike[str] | None
    ) -> None:
        """Learn from streamed rows and conclude."""
        raise InputError(
            f"{type(self).__name__} needs all rows in memory, and these are streamed. Read them "
            "with SeparateLabels.from_tables(..., stream=False), or use Uplift or MinMaxUplift."
        )

    @abstractmethod
    def _fit_rows(
        self, rows: LabelledRows, target: tuple[Array, Array] | None
    ) -> IdentificationStrength | None:
        """Learn from checked rows, and from the features and weights of target rows if any.

        Returns how different the policies are, if that was found on the way.
        """

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
        for name in (
            "identification_",
            "verdict_",
            "average_effect_",
            "relative_effect_",
            "gain_",
            "contrast_",
        ):
            self.__dict__.pop(name, None)

    def _conclude(
        self,
        rows: LabelledRows | PlannedSums,
        strength: IdentificationStrength,
        *,
        stacklevel: int,
    ) -> None:
        """Warn of policies that are hardly different, and become fitted."""
        strength = strength.measured_by(getattr(self, "average_effect_", None))
        crossfit = getattr(self, "crossfit_", None)
        own = None
        if crossfit is not None:  # as a diagnosis of the same rows says it
            own = evaluation_of(crossfit.rows, crossfit.fold, crossfit.nuisances)
            strength = replace(strength, strength=max(own.gap_in_errors(), 0.0) ** 2)
        elif isinstance(rows, LabelledRows) and rows.cluster is not None:
            own = linear_evaluation(rows)
        if own is not None:
            strength = replace(strength, design_effect=own.design_effect())
        warn_if_weak(strength, stacklevel=stacklevel + 1)
        coded = rows if isinstance(rows, LabelledRows) else rows.plan
        names = rows.names if isinstance(rows, LabelledRows) else rows.plan.populations
        doubts = []
        if isinstance(rows, LabelledRows):
            doubts = warn_of_tables(rows, stacklevel=stacklevel + 1)
        self.verdict_ = replace(
            verdict_of_fit(strength, doubts),
            is_randomised=bool(getattr(self, "randomised", False)),
        )
        self.run_ = {
            "versions": package_versions(),
            "settings": {
                name: repr(value)[:200] for name, value in self.get_params().items()
            },
            "data": fingerprint(rows),
        }
        self.populations_ = list(names)
        self._is_rate = coded.coding.is_rate
        self.identification_ = strength

    def __sklearn_is_fitted__(self) -> bool:
        """Whether the last fit went through to its end."""
        return hasattr(self, "identification_")

    def summary(self) -> str:
        """Return what was found, in a few lines of words.

        Returns
        -------
        str
            The average effect with its 95 % interval, in units of the outcome; how different the
            policies are; the features that were used; and what was fitted.
        """
        check_is_fitted(self)
        return "\n".join(self.summary_lines().values())

    def summary_lines(self) -> dict[str, str]:
        """Return the lines of the summary by what they are about."""
        return {
            "average": effect_in_words(
                getattr(self, "average_effect_", None),
                relative=self.relative_effect_,
                unit=self._unit,
            ),
            **self._robustness(),
            "policies": policies_in_words(
                self.identification_, getattr(self, "contrast_", None)
            ),
            "features": self._features_in_words(),
            "fit": f"Fitted by {type(self).__name__}{self._fitted_in_words()}.",
        }

    def _robustness(self) -> dict[str, str]:
        """Say by how much equal people may differ before the average turns, if that is known.

        Where chance decided who is in which population, people are alike.
        """
        record = getattr(self, "gain_", None)
        alike = len(self.populations_) < 2 or getattr(self, "randomised", False)
        if record is None or alike:
            return {}
        words = robustness_in_words(
            record.claim(),
            self.identification_.sides,
            is_rate=self._is_rate,
            level=0.95,
            unit=self._unit.name,
        )
        return {"robustness": words}

    @property
    def _largest_effect(self) -> float:
        """What no effect can exceed."""
        return float(np.inf)

    @property
    def _unit(self) -> Unit:
        """What outcomes are called, if ``unit_`` says it."""
        name = getattr(self, "unit_", None)
        return UNNAMED if name is None else Unit(name, getattr(self, "_is_rate", False))

    def _features_in_words(self) -> str:
        """Name the features that were used."""
        names = getattr(self, "feature_names_in_", None)
        n = self.n_features_in_
        if names is None:
            return f"It uses {n} feature{'s' * (n != 1)}."
        more = f" and {n - MOST_NAMED} more" if n > MOST_NAMED else ""
        some = ", ".join(names[:MOST_NAMED])
        return f"It uses {n} feature{'s' * (n != 1)}: {some}{more}."

    def _fitted_in_words(self) -> str:
        """Say what was fitted, to go behind the name of the estimator."""
        return ""

    def predict_interval(
        self, X: MatrixLike, level: float = 0.95
    ) -> tuple[Array, Array]:
        """Return how far the model is unsure of the uplift at each row: model uncertainty.

        It says how far the fit itself would move with other rows. That the true uplift of a
        person lies within cannot be promised by any method; averages and lists of people have
        intervals that can: ``average_effect_``, ``gain_`` and `evaluate_uplift`.

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            Features, with the columns seen in ``fit``.
        level : float, default=0.95
            Strictly between 0 and 1.

        Returns
        -------
        low, high : array of shape (n,)
            In the units of the outcome, around ``predict(X)``.

        Raises
        ------
        InputError
            This estimator, as it was fitted, does not know its uncertainty.
        """
        check_is_fitted(self)
        z = critical_value(level)
        matrix = self._check_features(X, reset=False, fewest=0)
        if not len(matrix):
            return np.empty(0), np.empty(0)
        uplift = self._predict_rows(matrix)
        error = self._row_errors(matrix)
        return uplift - z * error, uplift + z * error

    def _row_errors(self, matrix: Array) -> Array:
        """Return the standard deviation of the uplift at checked rows, outcome units."""
        raise InputError(
            f"{type(self).__name__} does not know its uncertainty at single rows. Uplift, "
            "and MinMaxUplift with ridges chosen by the rows do; average_effect_ and "
            "evaluate_uplift have intervals for any estimator."
        )

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
            lazy: Array = predict_lazily(
                self, X
            )  # stands in for an array, as Dask has no types
            return lazy
        matrix = self._check_features(X, reset=False, fewest=0)
        return self._predict_rows(matrix) if len(matrix) else np.empty(0)

    def predict_gain(self, X: MatrixLike) -> Array:
        """Return what deciding for each row gains, which is what lists are ordered by.

        That is the uplift. Of an offer that people take up or not (``randomised``), it is the
        uplift times the share who take it up because of it: costs are those of the offer.

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            As in ``predict``.

        Returns
        -------
        array of shape (n,)
            In the units of the outcome.
        """
        return self.predict(X)

    @abstractmethod
    def _predict_rows(self, matrix: Array) -> Array:
        """Return the uplift at checked rows, in outcome units."""

    def score(
        self,
        X: MatrixLike | SeparateLabels,
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
        """Return minus the weighted risk on held-out separate labels; higher is better.

        Needs no joint labels, so that `GridSearchCV` can choose among settings. Not an R²: only
        differences on the same rows mean something.

        Parameters
        ----------
        X, y, treatment, population, sample_weight, cluster, count, policy, dose, control
            Held-out rows, as in ``fit``, or a `SeparateLabels` as ``X`` alone. Dask collections
            are computed to memory.

        Returns
        -------
        float
            In squared outcome units.

        See Also
        --------
        unjoined.evaluate.weighted_risk : the definition.
        """
        beside = (sample_weight, cluster, count, policy, dose, control)
        columns = in_memory(X, y, treatment, population, *beside)
        features, rows = columns_of(columns[0], columns[1:], method="score")
        given = (
            dict(zip(COLUMNS, columns, strict=True))
            if rows is None
            else dict(columns[0])
        )
        return -weighted_risk(self.predict(features), **given)

    def outside_training(self, X: MatrixLike) -> BoolArray:
        """Tell which rows are unlike all rows of the fit, so that their uplift is a guess.

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            Features, with the columns seen in ``fit``.

        Returns
        -------
        boolean array of shape (n,)
            True for rows with a number beyond those of the fit by more than a quarter of their
            range, with a category that no row of the fit has, or without a value where all
            rows of the fit have one. Costs one pass over the rows.

        Raises
        ------
        InputError
            The model was fitted to sums of rows, and knows no ranges.
        """
        matrix, strange, _ = self._look(X)
        ranges = self._ranges()
        reach = MUCH * (ranges[-1] - ranges[0])
        far = (matrix < ranges[0] - reach) | (matrix > ranges[-1] + reach)
        return np.asarray(strange | far.any(axis=1))

    def _ranges(self) -> Array:
        """Return quantiles of the features of the fit, shape (5, d)."""
        check_is_fitted(self)
        known = getattr(self, "training_range_", None)
        if known is None:
            raise InputError(
                "this model does not know the ranges of its features, because it was fitted to "
                "sums of rows. Fit it to rows to compare others with them."
            )
        ranges: Array = known
        return ranges

    @property
    def _feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns of numbers that the model works with."""
        if hasattr(self, "encoder_"):
            return tuple(self.encoder_.get_feature_names_out().tolist())
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else tuple(names.tolist())

    @property
    def _n_columns(self) -> int:
        """Number of columns of numbers that the model works with."""
        names = self._feature_names
        return self.n_features_in_ if names is None else len(names)

    def _set_features(
        self, n: int, names: Sequence[str] | None, encoder: TableEncoder | None = None
    ) -> None:
        """Set what scikit-learn says of features: ``n`` numbers, or the columns of an encoder."""
        for name in ("feature_names_in_", "encoder_", "training_range_"):
            self.__dict__.pop(name, None)  # of an earlier fit
        if encoder is not None:
            self.encoder_ = encoder
            n = encoder.n_features_in_
            names = encoder.feature_names_in_.tolist()
        self.n_features_in_ = n
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)

    def _new_encoder(self) -> TableEncoder:
        """Return an encoder, not fitted, as the estimator needs it."""
        return TableEncoder()

    def _check_features(self, X: MatrixLike, *, reset: bool, fewest: int = 1) -> Array:
        """Return ``X`` as a float64 matrix; at predict, with the columns seen in ``fit``."""
        if not reset:
            matrix, _, notes = self._look(X, fewest=fewest)
            warn_of_notes(notes, stacklevel=3)
            self._compare_ranges(matrix, X)
            return matrix
        self.__dict__.pop("encoder_", None)
        numbers = self._numbers(X, reset=True, fewest=fewest)
        if numbers is None:
            encoder = self._new_encoder().fit(X)
            self._set_features(0, None, encoder)
            numbers = encoder.encode(X).matrix
            check_feature_sizes(numbers, self._feature_names)
        self.training_range_ = column_ranges(numbers)
        return numbers

    def _look_through(
        self, data: SeparateLabels, sample_rows: int
    ) -> tuple[ChunkSource | DaskSource, Census]:
        """Take the census of streamed rows, encoded if their features are not numbers."""
        rows = data.chunks()
        rows = rows.settled() if isinstance(rows, DaskSource) else rows
        encoder = self._new_encoder() if rows.needs_encoding() else None
        if encoder is None:
            try:
                found, census = look_through(rows, sample_rows=sample_rows)
            except NotNumbersError:
                encoder = self._new_encoder()
        if encoder is not None:
            found, census = look_through(rows.encoded(encoder), sample_rows=sample_rows)
        self._set_features(census.n_features, census.feature_names, encoder)
        return found, census

    def _look(self, X: MatrixLike, fewest: int = 0) -> Encoded:
        """Return rows to predict as numbers, which of them are strange, and why."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        if names is not None and column_names(X) is not None:
            if extra := [name for name in column_names(X) or () if name not in names]:
                LOGGER.info(
                    "columns that the model does not know are left out: %s",
                    shown(extra),
                )
            X = own_columns(X, names)
        encoder = getattr(self, "encoder_", None)
        if encoder is None:
            numbers = self._numbers(X, reset=False, fewest=fewest)
            if numbers is not None:
                return Encoded(numbers, np.zeros(len(numbers), dtype=np.bool_), [])
            fill = self._ranges()[2]
            encoder = TableEncoder.of_numbers(column_names(X) or (), fill)
        return encoder.encode(X)

    def _numbers(self, X: MatrixLike, *, reset: bool, fewest: int) -> Array | None:
        """Return ``X`` as a matrix, or None for a data frame that has to be encoded."""
        framed = column_names(X) is not None and (
            reset or hasattr(self, "feature_names_in_")
        )
        if framed and (needs_encoding(X) if reset else not has_numbers_only(X)):
            return None
        check_numeric_columns(X)
        checks: dict[str, Any] = {
            "dtype": np.float64,
            "order": "C",
            "ensure_all_finite": False,
        }
        matrix: Array = np.require(
            validate_data(self, X, reset=reset, ensure_min_samples=fewest, **checks),
            requirements=["C", "A"],
        )
        n_jobs = getattr(self, "n_jobs", None)
        fine = (
            all_within(matrix, LARGEST, n_jobs=n_jobs)
            if reset
            else all_finite(matrix, n_jobs=n_jobs)
        )
        if not fine:
            if framed and np.isnan(matrix).any():
                return None
            check_finite_features(matrix, self._feature_names)
            if reset:
                check_feature_sizes(matrix, self._feature_names)
        return matrix

    def _compare_ranges(self, matrix: Array, X: MatrixLike) -> None:
        """Warn of values far beyond those of the fit, and of columns that mostly are beyond."""
        known = getattr(self, "training_range_", None)
        names = self._feature_names
        if known is None:
            return
        reach = FAR * (known[-1] - known[0])
        far = ((matrix < known[0] - reach) | (matrix > known[-1] + reach)) & (
            reach > 0.0
        )
        if far.any():
            i, j = np.argwhere(far)[0]
            warnings.warn(
                f"{int(far.any(axis=1).sum()):,} of {len(matrix):,} rows have a value far beyond "
                f"those of the fit, such as {matrix[i, j]:.3g} in "
                f"{f'column {j}' if names is None else repr(names[j])}, in the fit from "
                f"{known[0, j]:.3g} to {known[-1, j]:.3g}. Their predictions are guesses; "
                "outside_training says which rows they are.",
                ColumnWarning,
                stacklevel=4,
            )
        if names is None or column_names(X) is None or len(matrix) < FEW_ROWS:
            return
        found = column_ranges(matrix)
        beyond = (found[2] < known[1]) | (found[2] > known[3])
        holds = ["numbers"] * len(names)
        if (encoder := getattr(self, "encoder_", None)) is not None:
            of = ((c, c.names(encoder.categories)) for c in encoder.columns_)
            holds = [column.holds for column, each in of for _ in each]
        odd = [j for j in np.flatnonzero(beyond).tolist() if holds[j] != "categories"]
        if odd:  # of new categories the encoder has told

            def ends(ranges: Array, j: int) -> str:
                low, high = ranges[[0, 4], j]
                if holds[j] == "times" and low > LATE:  # no time of day and no duration
                    low, high = (np.datetime64(int(end), "D") for end in (low, high))
                    return f"{low} to {high}"
                return f"{low:g} to {high:g}"

            said = [
                f"{names[j]!r} from {ends(found, j)}, in the fit from {ends(known, j)}"
                for j in odd
            ]
            remedy = "Check the units of such columns."
            if any(holds[j] == "times" for j in odd):
                remedy = (
                    "Leave dates out (ignore) that are later for people to be scored, and fit "
                    "again. Of others check the units."
                )
            apart = bool(((found[3] < known[1]) | (found[1] > known[3]))[odd].any())
            which = "nearly all" if apart else "most"
            told = BeyondWarning(
                f"{which} rows lie beyond nearly all rows that the model was fitted to: "
                f"{'; '.join(said)}. {remedy}",
                apart=apart,
            )
            warnings.warn(told, stacklevel=4)


def scale_outcomes(rows: LabelledRows) -> tuple[LabelledRows, Scaling]:
    """Return rows with outcomes of mean 0 and variance 1, and what lies between inside and out.

    Two values are coded -1/+1 already and stay as they are.
    """
    if rows.coding.is_binary:
        return rows, Scaling(
            np.array([rows.coding.offset]), np.array([rows.coding.scale])
        )
    outcome = rows.of_kind(OUTCOME)
    label = rows.label.copy()
    scaling = Scaling.of_rows(label[outcome, None], rows.share[outcome])
    label[outcome] = scaling(label[outcome, None])[:, 0]
    return replace(rows, label=label), scaling


def fit_pair(
    model: Any, Z: Array, rows: LabelledRows, kind: str, rng: np.random.RandomState
) -> tuple[ConditionalMean, ConditionalMean]:
    """Fit a clone of ``model``, by default a logistic regression, to each of two cells."""
    model = LogisticRegression() if model is None else model
    first, second = (
        fit_conditional_mean(
            seeded_clone(model, rng), Z[at], rows.label[at], rows.weight[at]
        )
        for at in (rows.at(kind, 0), rows.at(kind, 1))
    )
    return first, second


def warn_of_gaps(
    n_touched: int, n: int, why: str, min_gap: float, *, stacklevel: int
) -> None:
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
