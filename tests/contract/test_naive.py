"""The naive estimators keep scikit-learn's contract, through its own checks."""

import numpy as np
import pytest
from sklearn.base import RegressorMixin
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils.estimator_checks import parametrize_with_checks

from unjoined.estimators._density import DensityUplift
from unjoined.estimators._two_stage import TwoStageUplift


class _Rowwise(RegressorMixin):
    """Lend ``fit(X, y)`` the two columns scikit-learn's checks do not know of."""

    binary = False

    def fit(self, X, y):
        row = np.arange(X.shape[0] if hasattr(X, "shape") else len(np.asarray(X)))
        # Some checks alternate between two labels; so must the rows of either kind.
        kind = np.where(row // 2 % 2, "outcome", "treatment")
        labels = _recoded(y, kind, binary=self.binary)
        return super().fit(X, labels, kind=kind, population=row % 2)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags


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


class RowwiseDensity(_Rowwise, DensityUplift):
    pass


class RowwiseProbability(_Rowwise, DensityUplift):
    """For an outcome of two values."""

    binary = True


class RowwiseTwoStage(_Rowwise, TwoStageUplift):
    pass


@pytest.mark.filterwarnings("ignore::unjoined.errors.WeakIdentificationWarning")
@pytest.mark.filterwarnings("ignore::unjoined.errors.RatioGuardWarning")
@parametrize_with_checks(
    [
        RowwiseDensity(n_folds=2),
        RowwiseDensity(density="kernel", n_folds=2),
        RowwiseProbability(),
        RowwiseTwoStage(),
        RowwiseTwoStage(effect="constant"),
        RowwiseTwoStage(
            basis="gaussian", first_stage=LogisticRegression(), second_stage=Ridge(0.1)
        ),
    ]
)
def test_scikit_learn_contract(estimator, check):
    """The whole suite of ``check_estimator``; a check that fails raises."""
    check(estimator)
    assert estimator.get_params()
