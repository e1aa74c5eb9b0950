"""Every estimator keeps scikit-learn's contract, through its own checks."""

import numpy as np
import pytest
from scipy.sparse import issparse
from sklearn.base import RegressorMixin
from sklearn.linear_model import Ridge
from sklearn.utils.estimator_checks import check_estimator

from unjoined import (
    DensityUplift,
    MinMaxUplift,
    NeuralMinMaxUplift,
    PlugInUplift,
    TwoStageUplift,
    Uplift,
    WeightedUplift,
)
from unjoined.data.rows import separate_labels
from unjoined.model.specifications import EFFECT_SPECIFICATIONS


class _Rowwise(RegressorMixin):
    """Lend ``fit(X, y)`` the two columns scikit-learn's checks do not know of."""

    binary = False  # whether outcomes must have two values

    def fit(self, X, y, sample_weight=None):
        row = _numbered(X, sample_weight)
        # Some checks alternate between two labels; so must the rows of either kind.
        kind = np.where(row // 2 % 2, "outcome", "treatment")
        population = row % 2
        rest = {"population": population, "sample_weight": sample_weight}
        if y is None:
            return super().fit(X, None, treatment=np.full(len(kind), np.nan), **rest)
        labels = np.asarray(_recoded(y, kind, binary=self.binary))
        if labels.size == kind.size:  # one check passes a matrix of one column
            kind = kind.reshape(labels.shape)
        return super().fit(X, **separate_labels(labels, kind), **rest)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags


def _numbered(X, sample_weight):
    """Number the rows: by position, or by content where one check asks what copies do.

    A row's copies must lie in its own table, and a row of weight 0 must not move the others.
    """
    n = X.shape[0] if hasattr(X, "shape") else len(np.asarray(X))
    by_position = np.arange(n)
    if issparse(X):
        return by_position
    weight = np.ones(n) if sample_weight is None else np.asarray(sample_weight)
    matrix = np.asarray(X, dtype=object)
    if weight.shape != (n,) or matrix.ndim != 2:
        return by_position
    try:
        distinct = np.unique(matrix[weight > 0].astype(float), axis=0)
    except (TypeError, ValueError):
        return by_position
    if len(distinct) == n or len(distinct) < 8:
        return by_position
    place = {tuple(values): i for i, values in enumerate(distinct.tolist())}
    return np.array(
        [place.get(tuple(values), 0) for values in matrix.astype(float).tolist()]
    )


def _recoded(y, kind, *, binary):
    """Make 0/1 of the labels that must have two values; malformed labels pass untouched."""
    raw = np.asarray(y)
    if np.iscomplexobj(raw):
        return y
    try:
        label = raw.astype(float).reshape(kind.shape)
    except (TypeError, ValueError):
        return y
    if label.size == 0 or not np.isfinite(label).all():
        return y
    two_valued = (label > np.median(np.unique(label))).astype(float)
    recoded = two_valued if binary else np.where(kind == "treatment", two_valued, label)
    return recoded.reshape(raw.shape)


class RowwiseUplift(_Rowwise, Uplift):
    pass


class RowwiseMinMax(_Rowwise, MinMaxUplift):
    pass


class RowwisePlugIn(_Rowwise, PlugInUplift):
    pass


class RowwiseClassifiers(_Rowwise, PlugInUplift):
    binary = True


class RowwiseWeighted(_Rowwise, WeightedUplift):
    pass


class RowwiseTwoStage(_Rowwise, TwoStageUplift):
    pass


class RowwiseDensity(_Rowwise, DensityUplift):
    pass


class RowwiseNeural(_Rowwise, NeuralMinMaxUplift):
    pass


COPIES = "check_sample_weight_equivalence_on_dense_data"
PENALTY = (
    "Copies of a row weigh more against a penalty; weights count by their ratios alone."
)
CHANCE = (
    "Folds or centres are drawn row by row, so that copies are drawn by themselves."
)


def _no_copies(estimator):
    """Return why a whole weight is not as many rows, for the estimators where it cannot be."""
    if isinstance(estimator, TwoStageUplift):
        return {}
    return {COPIES: PENALTY if isinstance(estimator, PlugInUplift) else CHANCE}


# The default, the paper's estimator and its baseline; the rest is checked in the slow run.
QUICK = [
    RowwiseUplift(n_jobs=1),
    RowwiseMinMax(basis="linear"),
    RowwisePlugIn(outcome_model=Ridge(), treatment_model=Ridge()),
]
LONG = [
    RowwiseMinMax(),
    RowwiseMinMax(basis="linear", critic_basis="gaussian", loss="huber"),
    RowwiseMinMax(bounds="auto"),
    RowwiseClassifiers(),
    RowwiseWeighted(n_folds=2),
    RowwiseTwoStage(),
    RowwiseDensity(n_folds=2),
    RowwiseNeural(max_epochs=2, n_hidden=8),
]
pytestmark = [
    pytest.mark.filterwarnings("ignore::unjoined.errors.WeakIdentificationWarning"),
    pytest.mark.filterwarnings("ignore::unjoined.errors.RatioGuardWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


def _check_all(estimator):
    """All checks in one test: one test for each would take seconds to collect."""
    expected = _no_copies(estimator)
    found = check_estimator(estimator, expected_failed_checks=expected, on_skip=None)
    assert len(found) > 40
    assert {one["check_name"] for one in found if one["status"] == "xfail"} == set(
        expected
    )


@pytest.mark.parametrize("estimator", QUICK, ids=repr)
def test_scikit_learn_contract(estimator, limits):
    """The whole suite of ``check_estimator``; a check that fails raises, and is named.

    Two folds and three forms keep the contract if more do: no check asks how well a fit ranks.
    """
    forms = {
        "EFFECT_SPECIFICATIONS": EFFECT_SPECIFICATIONS[:3],
        "GROWING_SPECIFICATIONS": (),
    }
    limits("model.crossfit", N_FOLDS=2, **forms)
    _check_all(estimator)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", LONG, ids=repr)
def test_scikit_learn_contract_of_those_that_take_long(estimator):
    _check_all(estimator)
