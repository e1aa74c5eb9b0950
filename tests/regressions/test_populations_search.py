"""Searches among estimators on rows of three populations."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression

from unjoined import (
    MixtureUplift,
    UpliftSearchCV,
    identification_strength,
)
from unjoined.data import SimulatedProblem

QUICK = {"cv": 2, "policy_model": LogisticRegression(), "outcome_model": LinearRegression()}
SCORES = ["weighted_risk", "outcome_risk", "fixed_critic"]


def mean(X, treated):
    return X[:, 1] + treated * (1.0 + 2.0 * X[:, 0])


def three(n, slope=2.0):
    slopes = {"A": slope, "B": -slope, "C": 0.0}
    return SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 2)),
        policies={
            name: (lambda X, slope=slope: 1 / (1 + np.exp(-slope * (X[:, 0] + 0.5))))
            for name, slope in slopes.items()
        },
        outcome=lambda X, treated, rng: mean(X, treated) + rng.standard_normal(len(X)),
        outcome_mean=mean,
    ).draw(n, random_state=0)


class Known(BaseEstimator):
    """Predict a multiple of the true uplift; learn nothing."""

    def __init__(self, scale=1.0):
        self.scale = scale

    def fit(self, X, y, *, kind, population):
        return self

    def predict(self, X):
        return self.scale * (1.0 + 2.0 * X[:, 0])


@pytest.mark.parametrize("scoring", [*SCORES, SCORES], ids=str)
def test_the_right_candidate_is_found_on_three_populations(scoring):
    """The truth is ahead of 0 and of its negative, and of that by many standard errors."""
    data = three(600)
    given = [(str(scale), Known(scale)) for scale in (0.0, 1.0, -1.0)]
    found = UpliftSearchCV(given, scoring=scoring, random_state=0, **QUICK).fit(**data)
    assert found.best_name_ == "1.0"
    assert found.populations_ == ["A", "B", "C"]
    assert found.identification_ == identification_strength(**data)
    wrong = found.candidates_["-1.0"]
    assert wrong.behind > max(3 * wrong.standard_error, found.candidates_["0.0"].behind)


def test_a_search_without_candidates_takes_those_for_three_populations():
    data = three(80, slope=9.0)
    found = UpliftSearchCV(scoring="likelihood", cv=2, random_state=0).fit(**data)
    assert all(isinstance(model, MixtureUplift) for model in found.estimators_)
    truth = 1.0 + 2.0 * data.X[:, 0]
    assert np.corrcoef(found.predict(data.X), truth)[0, 1] > 0.9


def test_a_search_inside_a_search_takes_three_populations():
    inner = UpliftSearchCV([("true", Known()), ("none", Known(0.0))], **QUICK)
    found = UpliftSearchCV([("inner", inner), ("wrong", Known(-1.0))], **QUICK).fit(**three(400))
    assert found.best_name_ == "inner"
