"""How estimators take columns and features, and what they say of a fit in words."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from platform import python_version
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from unjoined._support import LOGGER, in_digits
from unjoined._threads import all_finite, all_within
from unjoined._typing import Array, BoolArray, MatrixLike
from unjoined._validation import (
    LARGEST,
    check_feature_sizes,
    check_finite_features,
    check_numeric_columns,
    shown,
)
from unjoined.data import (
    ChunkSource,
    DaskSource,
    Encoded,
    LabelledRows,
    NotNumbersError,
    TableEncoder,
    as_dask_source,
    as_source,
    column_names,
    has_numbers_only,
    needs_encoding,
    own_columns,
    warn_of_notes,
)
from unjoined.errors import ColumnWarning, InputError
from unjoined.metrics import Estimate, IdentificationStrength, row_fingerprint
from unjoined.sums import Census, PlannedSums, dask_census, take_census

FEW_ROWS = 20  # to predict, which say nothing about units
QUANTILES = (0.0, 0.01, 0.5, 0.99, 1.0)
RANGE_ROWS = 10_000  # that quantiles between the extremes are taken from
MUCH = 0.25  # of the range of a feature in the fit: what is beyond by more is far outside
FAR = 100.0  # times the range of a column: beyond, a value is a mistake more likely than a fact


def column_ranges(matrix: Array) -> Array:
    """Return extremes of each column and, of evenly spaced rows, quantiles; shape (5, d)."""
    some = matrix[:: max(len(matrix) // RANGE_ROWS, 1)]
    ranges: Array = np.quantile(some, QUANTILES, axis=0)
    ranges[0], ranges[-1] = matrix.min(axis=0), matrix.max(axis=0)
    return ranges


class FeatureEstimator(BaseEstimator):
    """Base of estimators that encode data frames, and know the ranges of what they were fitted to.

    A data frame that holds anything but finite numbers is encoded by a `TableEncoder`, which is
    kept as ``encoder_``. Columns are found by name, whatever their order.
    """

    n_features_in_: int
    encoder_: TableEncoder
    training_range_: Array  # (5, d) least, 1 %, median, 99 % and greatest of each column of numbers

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
            n, names = encoder.n_features_in_, encoder.feature_names_in_.tolist()
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
        self, source: Any, sample_rows: int
    ) -> tuple[ChunkSource | DaskSource, Census]:
        """Take the census of a source, encoded if its features are not numbers."""
        partitions = as_dask_source(source)
        rows: Any = as_source(source) if partitions is None else partitions.settled()
        look = take_census if partitions is None else dask_census
        wants = getattr(rows, "needs_encoding", None)
        encoder = self._new_encoder() if wants is not None and wants() else None
        if encoder is None:
            try:
                census = look(rows, sample_rows=sample_rows)
            except NotNumbersError:
                if not hasattr(rows, "encoded"):  # a source of the user's own
                    raise
                encoder = self._new_encoder()
        if encoder is not None:
            rows = rows.encoded(encoder)
            census = look(rows, sample_rows=sample_rows)
        self._set_features(census.n_features, census.feature_names, encoder)
        return rows, census

    def _look(self, X: MatrixLike, fewest: int = 0) -> Encoded:
        """Return rows to predict as numbers, which of them are strange, and why."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        if names is not None and column_names(X) is not None:
            if extra := [name for name in column_names(X) or () if name not in names]:
                LOGGER.info("columns that the model does not know are left out: %s", shown(extra))
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
        framed = column_names(X) is not None and (reset or hasattr(self, "feature_names_in_"))
        if framed and (needs_encoding(X) if reset else not has_numbers_only(X)):
            return None
        check_numeric_columns(X)
        checks: dict[str, Any] = {"dtype": np.float64, "order": "C", "ensure_all_finite": False}
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
        known, names = getattr(self, "training_range_", None), self._feature_names
        if known is None:
            return
        reach = FAR * (known[-1] - known[0])
        far = ((matrix < known[0] - reach) | (matrix > known[-1] + reach)) & (reach > 0.0)
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
        if (encoder := getattr(self, "encoder_", None)) is not None:
            beyond &= [  # of new categories the encoder has told
                column.holds != "categories"
                for column in encoder.columns_
                for _ in column.names(encoder.categories)
            ]
        odd = np.flatnonzero(beyond).tolist()
        if odd:
            said = [
                f"{names[j]!r} from {found[0, j]:g} to {found[4, j]:g}, in the fit from "
                f"{known[0, j]:g} to {known[4, j]:g}"
                for j in odd
            ]
            warnings.warn(
                "most rows lie beyond nearly all rows that the model was fitted to: "
                f"{'; '.join(said)}. Check the units of such columns.",
                ColumnWarning,
                stacklevel=4,
            )


MOST_NAMED = 5  # features
COLUMNS = ("X", "y", "kind", "population", "sample_weight")
ROUTING = (
    "In GridSearchCV, cross_validate or a Pipeline, call "
    "sklearn.set_config(enable_metadata_routing=True) first, and pass kind and population to "
    "their fit"
)


class GivenRows(NamedTuple):
    """The columns that a method was called with."""

    X: Any
    y: Any
    kind: Any
    population: Any
    sample_weight: Any = None

    @classmethod
    def of_call(
        cls, X: Any, y: Any, kind: Any, population: Any, sample_weight: Any, *, method: str
    ) -> GivenRows:
        """Return the columns, which may come in one mapping such as `SeparateLabels`."""
        labels = {"y": y, "kind": kind, "population": population}
        whole = isinstance(X, Mapping) and not issparse(X)  # some sparse matrices are mappings
        if whole and set(X) <= set(COLUMNS) and "X" in X:
            given = {name for name, value in labels.items() if value is not None}
            if given or sample_weight is not None:
                raise InputError(
                    f"{method} was given a data set and other columns as well. Write "
                    f"{method}(data), or {method}(X, y, kind=..., population=...)."
                )
            X, labels = (
                X["X"],
                {name: X.get(name) for name in labels} | {"sample_weight": X.get("sample_weight")},
            )
            sample_weight = labels.pop("sample_weight")
        if y is None and kind is not None and not whole:
            raise InputError(f"{method} requires y to be passed, but the target y is None.")
        if missing := [name for name, value in labels.items() if value is None]:
            raise InputError(
                f"{method} needs {', '.join(missing)} beside the features: write {method}(data) "
                f"with a SeparateLabels, or {method}(X, y, kind=..., population=...). {ROUTING}."
            )
        return cls(X, labels["y"], labels["kind"], labels["population"], sample_weight)


def interval_in_words(estimate: Estimate, most: float = np.inf, level: float = 0.95) -> str:
    """Return an interval, which cannot reach beyond ``most``, or that there is none."""
    low, high = estimate.interval(level)
    if not np.isfinite([low, high]).all():
        return "the tables cannot bound it"
    low, high = np.clip([low, high], -most, most)
    return f"{level:.0%} interval {in_digits(low, sign=True)} to {in_digits(high, sign=True)}"


def effect_in_words(estimate: Estimate | None, most: float = np.inf) -> str:
    """Say what the average effect is, as far as it is known."""
    if estimate is None:
        return "Average effect: not known; fit to rows to know it."
    if not np.isfinite(estimate.value):
        return "Average effect: the rows are too few, or the policies too alike, to tell."
    low, high = estimate.interval(0.95)
    if low > most or high < -most:
        value = in_digits(estimate.value, sign=True)
        return (
            f"Average effect: {value} ({interval_in_words(estimate)}), which is more than"
            " the outcome allows: the tables contradict each other. Run diagnose."
        )
    value = in_digits(float(np.clip(estimate.value, -most, most)), sign=True)
    interval = interval_in_words(estimate, most)
    return f"Average effect: {value} ({interval}), in units of the outcome."


def policies_in_words(strength: IdentificationStrength, contrast: Array | None = None) -> str:
    """Say how different the policies are, and which populations were held against which."""
    gap = f"{100 * strength.rms_gap:.0f} percentage points"
    known = "" if strength.strength is None else f" (strength {strength.strength:,.0f})"
    words = (
        "The policies can hardly be told apart: nothing here is reliable."
        if strength.is_weak
        else f"The policies differ by about {gap}, which the rows can tell{known}."
    )
    if contrast is None:
        return words
    parts = [
        [
            f"{name} ({abs(c):.0%})"
            for name, c in zip(strength.populations, contrast, strict=True)
            if s * c > 5e-3
        ]
        for s in (1, -1)
    ]
    return f"{words} Held against each other: {', '.join(parts[0])} and {', '.join(parts[1])}."


@cache
def package_versions() -> dict[str, str]:
    """Return the versions of what computes."""
    packages = ("unjoined", "numpy", "scipy", "scikit-learn")
    return {name: version(name) for name in packages} | {"python": python_version()}


def fingerprint(rows: LabelledRows | PlannedSums) -> str:
    """Return 16 hexadecimal digits that change with the rows, but not with their order."""
    if isinstance(rows, LabelledRows):
        return row_fingerprint(rows)
    cells = [
        (*key, sums.n_rows, f"{sums.label_basis.sum():.6g}", f"{np.trace(sums.gram):.6g}")
        for key, sums in sorted(rows.sums.cells.items())
    ]
    return hashlib.sha256(repr(cells).encode()).hexdigest()[:16]
