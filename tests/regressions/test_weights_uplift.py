"""What `Uplift` says of the fits it makes on the way."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import unjoined as uj


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    row = np.arange(160)
    kind, population = np.where(row // 2 % 2, "outcome", "treatment"), row % 2
    X = rng.standard_normal((160, 1))
    treated = rng.random(160) < np.where(population == 0, 0.95, 0.05)
    y = np.where(kind == "outcome", X[:, 0] + treated, treated)
    return {"X": X, "y": y, "kind": kind, "population": population}


def test_warnings_of_folds_were_silenced_and_are_said_once_each(data, monkeypatch):
    """By monkeypatch: the rivals are made inside, and hardly anything makes them warn."""
    fit_rows = uj.WeightedUplift._fit_rows

    def complain(self, rows, target):
        warnings.warn("did not settle", ConvergenceWarning, stacklevel=2)
        warnings.warn("mind the gap", UserWarning, stacklevel=2)
        return fit_rows(self, rows, target)

    monkeypatch.setattr(uj.WeightedUplift, "_fit_rows", complain)
    with pytest.warns() as record:
        uj.Uplift(n_jobs=1, random_state=0).fit(**data)
    said = {(w.category, str(w.message)) for w in record}
    # Three folds of three estimators, and the models by which they are compared: ten fits.
    assert said == {
        (ConvergenceWarning, "in 3 of 10 fits, of 'weighted': did not settle"),
        (UserWarning, "in 3 of 10 fits, of 'weighted': mind the gap"),
    }
    assert len(record) == 2
    assert all(w.filename == __file__ for w in record)


def test_identification_was_measured_once_more_for_every_estimator(data):
    model = uj.Uplift(n_jobs=1, random_state=0).fit(**data)
    assert model.identification_ is model.mixture_.identification_
    assert model.identification_ is model.estimator_.identification_
    assert model.identification_ == uj.identification_strength(**data)
