"""Every estimator keeps scikit-learn's contract, through its own checks."""

import numpy as np
import pytest
from scipy.sparse import issparse
from sklearn.base import RegressorMixin
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from unjoined import (
    DensityUplift,
    FourLogistic,
    FourNNC,
    FourNNR,
    FourRidge,
    MinMaxGau,
    MinMaxUplift,
    MixtureUplift,
    NeuralMinMaxUplift,
    PlugInUplift,
    TwoStageUplift,
    Uplift,
    WeightedUplift,
)


class _Rowwise(RegressorMixin):
    """Lend ``fit(X, y)`` the two columns scikit-learn's checks do not know of."""

    binary = False  # whether outcomes must have two values

    def fit(self, X, y, sample_weight=None):
        row = _numbered(X, sample_weight)
        # Some checks alternate between two labels; so must the rows of either kind.
        kind = np.where(row // 2 % 2, "outcome", "treatment")
        population = row % 2
        labels = _recoded(y, kind, binary=self.binary)
        return super().fit(X, labels, kind=kind, population=population, sample_weight=sample_weight)

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
    return np.array([place.get(tuple(values), 0) for values in matrix.astype(float).tolist()])


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


class RowwiseMinMax(_Rowwise, MinMaxUplift):
    pass


class RowwiseMixture(_Rowwise, MixtureUplift):
    pass


class RowwiseLikelihood(_Rowwise, MixtureUplift):
    binary = True


class RowwiseUplift(_Rowwise, Uplift):
    pass


class RowwiseWeighted(_Rowwise, WeightedUplift):
    pass


class RowwiseNeural(_Rowwise, NeuralMinMaxUplift):
    pass


class RowwiseTwoStage(_Rowwise, TwoStageUplift):
    pass


class RowwiseDensity(_Rowwise, DensityUplift):
    pass


class RowwiseProbability(_Rowwise, DensityUplift):
    binary = True


class RowwisePlugIn(_Rowwise, PlugInUplift):
    pass


class RowwiseClassifiers(_Rowwise, PlugInUplift):
    """For presets whose outcome model is a classifier."""

    binary = True


def _as(adapter, preset):
    return adapter(**preset.get_params(deep=False))


COPIES = "check_sample_weight_equivalence_on_dense_data"
PENALTY = "Copies of a row weigh more against a penalty; weights count by their ratios alone."
CHANCE = "Folds or centres are drawn row by row, so that copies are drawn by themselves."


def _no_copies(estimator):
    """Return why a whole weight is not as many rows, for the estimators where it cannot be."""
    settings = estimator.get_params(deep=False)
    models = {str(value) for name, value in settings.items() if name.endswith(("model", "stage"))}
    reason = CHANCE
    if isinstance(estimator, PlugInUplift | RowwiseProbability):
        reason = PENALTY
    elif isinstance(estimator, TwoStageUplift):
        reason = None if models == {"None"} else PENALTY
    elif isinstance(estimator, MinMaxUplift):
        drawn = settings["center"] or settings["basis"] != "linear"
        reason = CHANCE if drawn else None
    return {} if reason is None else {COPIES: reason}


SMALL = {"n_centers": 5}  # the checks fit tables of a dozen rows
SIMPLE = {"policy_model": LogisticRegression(), "outcome_model": Ridge()}

# One of each class and of each way it may take its rows; the rest is checked in the slow run.
QUICK = [
    RowwiseMinMax(basis="linear"),
    _as(RowwiseMinMax, MinMaxGau().set_params(**SMALL)),
    RowwisePlugIn(outcome_model=Ridge(), treatment_model=Ridge()),
    _as(RowwiseClassifiers, FourLogistic()),
    RowwiseDensity(n_folds=2, width_x=1.0, width_y=1.0, ridge=0.1),
    RowwiseTwoStage(),
    RowwiseWeighted(n_folds=2, basis="linear", **SIMPLE),
]
LONG = [
    RowwiseMinMax(),
    RowwiseMinMax(basis="linear", center=False, ridge_f=0.1, ridge_g=0.1, loss="huber"),
    RowwiseMinMax(basis="fourier", n_centers=20),
    RowwiseMinMax(basis="linear", critic_basis="gaussian", loss="huber"),
    RowwiseMinMax(bounds="auto"),
    RowwiseMinMax(basis="linear", center=False, ridge_f=0.1, ridge_g=0.1),
    RowwisePlugIn(),
    _as(RowwiseClassifiers, FourNNC()),
    _as(RowwisePlugIn, FourRidge()),
    _as(RowwisePlugIn, FourNNR()),
    RowwiseDensity(n_folds=2),
    RowwiseProbability(),
    RowwiseTwoStage(effect="constant"),
    RowwiseTwoStage(basis="gaussian", first_stage=LogisticRegression(), second_stage=Ridge(0.1)),
    RowwiseNeural(max_epochs=2, n_hidden=8),
    RowwiseUplift(n_jobs=1),
    RowwiseMixture(family="gaussian", n_folds=2, n_jobs=1),
    RowwiseMixture(engine="em", family="gaussian", n_jobs=1, **SIMPLE),
    RowwiseLikelihood(n_folds=2, n_jobs=1),
    RowwiseWeighted(n_folds=2),
]
pytestmark = [
    pytest.mark.filterwarnings("ignore::unjoined.errors.WeakIdentificationWarning"),
    pytest.mark.filterwarnings("ignore::unjoined.errors.RatioGuardWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


@parametrize_with_checks(QUICK, expected_failed_checks=_no_copies)
def test_scikit_learn_contract(estimator, check):
    """The whole suite of ``check_estimator``; a check that fails raises."""
    check(estimator)
    assert estimator.get_params()


@pytest.mark.slow
@pytest.mark.parametrize("estimator", LONG, ids=repr)
def test_scikit_learn_contract_of_those_that_take_long(estimator):
    """All checks in one test: one test for each would take seconds to collect, slow or not."""
    expected = _no_copies(estimator)
    found = check_estimator(estimator, expected_failed_checks=expected, on_skip=None)
    assert len(found) > 40
    assert {one["check_name"] for one in found if one["status"] == "xfail"} == set(expected)
