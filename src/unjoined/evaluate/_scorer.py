"""Scores without joint labels in the form scikit-learn's searches take."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from sklearn.utils.metadata_routing import MetadataRequest

from unjoined._typing import ArrayLike, MatrixLike
from unjoined._validation import check_option
from unjoined.data._frames import feature_matrix
from unjoined.evaluate._held_out import SCORES, HeldOutRows

__all__ = ["UpliftScorer", "uplift_scorer"]

# As many sets of held-out rows as a search usually has folds; a search comes back to each of
# them once per candidate.
REMEMBERED = 16


class UpliftScorer:
    """Minus a held-out score of an uplift estimator's predictions; higher is better.

    Made by `uplift_scorer`. Remembers the policies and outcome means of the last 16 sets of rows,
    so that they are cross-fitted once per fold and not once per candidate.
    """

    def __init__(self, name: str, *, weighted: bool = False) -> None:
        self.name = name
        self.weighted = weighted
        self._held: dict[bytes, HeldOutRows] = {}

    def __call__(
        self,
        estimator: Any,
        X: MatrixLike,
        y: ArrayLike,
        *,
        kind: ArrayLike,
        population: ArrayLike,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Return the score of a fitted estimator on held-out rows, squared outcome units."""
        key = _digest(feature_matrix(X), y, kind, population, sample_weight)
        if key not in self._held:
            while len(self._held) >= REMEMBERED:
                del self._held[next(iter(self._held))]  # the oldest
            self._held[key] = HeldOutRows.from_data(
                X, y, kind=kind, population=population, sample_weight=sample_weight
            )
        return -self._held[key].score(estimator.predict(X), self.name)

    def get_metadata_routing(self) -> Any:
        """Return what the scorer asks for: kind, population, and weights if it is weighted."""
        request = MetadataRequest(owner=repr(self))
        for name in ("kind", "population"):
            request.score.add_request(param=name, alias=True)
        request.score.add_request(param="sample_weight", alias=self.weighted)
        return request

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the rows, which need not travel to other processes."""
        return {"name": self.name, "weighted": self.weighted, "_held": {}}

    def __repr__(self) -> str:
        """Return how the scorer was made."""
        return f"uplift_scorer({self.name!r}{', weighted=True' if self.weighted else ''})"


def _digest(*parts: Any) -> bytes:
    """Return a fingerprint of the rows: the same rows, the same cross-fits."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        array = np.asarray(part)
        if array.dtype.kind == "O":
            array = array.astype(str)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.digest()


def uplift_scorer(name: str, *, weighted: bool = False) -> UpliftScorer:
    """Return a score without joint labels as ``scoring`` for `GridSearchCV` and its like.

    Parameters
    ----------
    name : {"weighted_risk", "fixed_critic", "outcome_risk"}
        Which score; see `weighted_risk`, `fixed_critic_score` and `outcome_risk`.
    weighted : bool, default=False
        Whether the scorer asks for ``sample_weight``.

    Returns
    -------
    callable
        ``scorer(estimator, X, y, *, kind, population, sample_weight=None)`` returns minus the
        score, in squared outcome units: higher is better. It asks for kind and population through
        metadata routing, which must be on, and works with `CellKFold`.

    See Also
    --------
    unjoined.UpliftSearchCV : scores all folds together, with standard errors.

    Examples
    --------
    >>> from sklearn import config_context
    >>> from sklearn.model_selection import GridSearchCV
    >>> from unjoined import CellKFold, MinMaxUplift, paper_problem
    >>> data = paper_problem().draw(1000, random_state=0)
    >>> with config_context(enable_metadata_routing=True):
    ...     search = GridSearchCV(
    ...         MinMaxUplift(random_state=0),
    ...         {"ridge_f": [0.01, 100.0]},
    ...         scoring=uplift_scorer("outcome_risk"),
    ...         cv=CellKFold(3),
    ...     ).fit(**data)
    >>> search.best_params_
    {'ridge_f': 0.01}
    """
    check_option("name", name, SCORES)
    return UpliftScorer(name, weighted=weighted)
