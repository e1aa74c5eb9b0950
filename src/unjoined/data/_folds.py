"""Cross-validation folds that leave no cell empty."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_random_state

from unjoined._typing import ArrayLike, IntArray, MatrixLike, RandomState
from unjoined._validation import TARGET, check_count, check_kind, check_population
from unjoined.errors import InputError

__all__ = ["CellKFold"]


class CellKFold(BaseCrossValidator):  # type: ignore[misc]  # scikit-learn carries no types
    """K folds that deal the rows of each kind and population out evenly.

    Separate labels usually come table after table, so that plain `KFold` would leave whole
    tables out. Pass ``cv=CellKFold(5)`` to `GridSearchCV`, with metadata routing on.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds, at least 2 and at most the rows of the smallest table.
    random_state : int, RandomState or None, default=0
        Seed for the dealing.

    Examples
    --------
    >>> from unjoined import CellKFold, paper_problem
    >>> data = paper_problem().draw(10, random_state=0)
    >>> train, test = next(CellKFold(5).split(**data))
    >>> data.take(test)
    SeparateLabels of 8 rows, 2 features
      outcome   1: 2 rows, mean ...
    """

    # How scikit-learn lets a splitter ask for metadata.
    __metadata_request__split = {"kind": True, "population": True, "sample_weight": False}  # noqa: RUF012

    def __init__(self, n_splits: int = 5, *, random_state: RandomState = 0) -> None:
        self.n_splits = n_splits
        self.random_state = random_state

    def split(
        self,
        X: MatrixLike,
        y: ArrayLike | None = None,
        groups: Any = None,
        *,
        kind: ArrayLike,
        population: ArrayLike,
        sample_weight: ArrayLike | None = None,
    ) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield the positions of training and held-out rows, fold after fold.

        Parameters
        ----------
        X, y, groups, sample_weight
            Not looked at, but for the number of rows.
        kind, population : array-like of shape (n,)
            As in ``fit``. Target rows are dealt out as well.
        """
        n_splits = check_count("n_splits", self.n_splits)
        n = len(np.asarray(kind))
        kinds = check_kind(kind, n)
        populations = check_population(population, kinds)
        cells = np.where(kinds == TARGET, "", populations.astype(str))
        rng = check_random_state(self.random_state)
        fold = np.empty(n, dtype=np.int64)
        # Sorted, since sets of strings come in another order in every process.
        for name, cell in sorted({*zip(kinds.tolist(), cells.tolist(), strict=True)}):
            at = np.flatnonzero((kinds == name) & (cells == cell))
            if n_splits < 2 or (len(at) < n_splits and name != TARGET):
                raise InputError(
                    f"n_splits={n_splits} must be at least 2 and at most the rows of the smallest "
                    f"table; the {name} table of population {cell!r} has {len(at)}."
                )
            fold[at] = rng.permutation(np.resize(np.arange(n_splits), len(at)))
        for j in range(n_splits):
            yield np.flatnonzero(fold != j), np.flatnonzero(fold == j)

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None, **_: Any) -> int:
        """Return the number of folds."""
        return self.n_splits
