"""`NeuralMinMaxUplift` keeps scikit-learn's contract, through its own checks."""

import numpy as np
import pytest
from sklearn.base import RegressorMixin
from sklearn.utils.estimator_checks import parametrize_with_checks

from unjoined.estimators._neural import NeuralMinMaxUplift

pytest.importorskip("torch")


class RowwiseNeural(RegressorMixin, NeuralMinMaxUplift):
    """Lend ``fit(X, y)`` the two columns scikit-learn's checks do not know of."""

    def fit(self, X, y):
        row = np.arange(X.shape[0] if hasattr(X, "shape") else len(np.asarray(X)))
        kind = np.where(row // 2 % 2, "outcome", "treatment")
        return super().fit(X, _recoded(y, kind), kind=kind, population=row % 2)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags


def _recoded(y, kind):
    """Make 0/1 of the treatment labels; malformed labels pass untouched."""
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
    return np.where(kind == "treatment", two_valued, label).reshape(raw.shape)


@pytest.mark.filterwarnings("ignore::unjoined.errors.WeakIdentificationWarning")
@parametrize_with_checks([RowwiseNeural(max_epochs=2, n_hidden=8)])
def test_scikit_learn_contract(estimator, check):
    """The whole suite of ``check_estimator``; a check that fails raises."""
    check(estimator)
    assert estimator.get_params()
