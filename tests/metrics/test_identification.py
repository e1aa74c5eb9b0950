"""Whether policies differ enough: a statistic with a known law when they do not."""

import numpy as np
import pytest
from scipy.stats import chi2, kstest

from unjoined import SeparateLabels, identification_strength
from unjoined.data import SimulatedProblem, paper_problem


def problem(first, second, d=2):
    return SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, d)),
        policies={"A": first, "B": second},
        outcome=lambda X, treated, rng: rng.standard_normal(len(X)),
        outcome_mean=lambda X, treated: np.zeros(len(X)),
    )


def constant(p):
    return lambda X: np.full(len(X), p)


@pytest.mark.statistical
def test_statistic_is_chi_square_when_policies_are_equal():
    """200 draws: the Kolmogorov-Smirnov test rejects a right law once in a thousand seeds."""
    equal = problem(lambda X: 1 / (1 + np.exp(-X[:, 0])), lambda X: 1 / (1 + np.exp(-X[:, 0])))
    found = [identification_strength(**equal.draw(300, random_state=s)) for s in range(200)]
    assert {s.degrees for s in found} == {5}  # a constant, two features, two squares
    assert kstest([s.f_statistic * 5 for s in found], chi2(5).cdf).pvalue > 1e-3


@pytest.mark.statistical
def test_gap_of_constant_policies_is_measured_within_four_standard_errors():
    """Each share treated has variance p (1 - p) / n; the gap is constant, so rms and mean agree."""
    n, p, q = 4000, 0.7, 0.4
    s = identification_strength(**problem(constant(p), constant(q)).draw(n, random_state=0))
    error = np.sqrt((p * (1 - p) + q * (1 - q)) / n)
    assert abs(s.mean_gap - (p - q)) < 4 * error
    assert abs(s.rms_gap - (p - q)) < 4 * error
    assert not s.is_weak


def test_opposed_policies_with_equal_shares_are_not_weak():
    """The mean gap is about zero, yet at almost every x the policies differ."""
    opposed = problem(
        lambda X: np.where(X[:, 0] > 0, 0.9, 0.1), lambda X: np.where(X[:, 0] > 0, 0.1, 0.9)
    )
    s = identification_strength(**opposed.draw(1000, random_state=0))
    assert abs(s.mean_gap) < 0.1
    assert s.rms_gap > 0.5
    assert not s.is_weak


def test_a_gap_in_the_square_of_a_feature_is_seen():
    middle = problem(lambda X: np.where(np.abs(X[:, 0]) < 0.67, 0.8, 0.2), constant(0.5))
    s = identification_strength(**middle.draw(1000, random_state=0))
    assert not s.is_weak


def test_equal_policies_are_weak_and_the_rms_gap_is_not_inflated_by_noise():
    gaps = [
        identification_strength(**paper_problem(b=0.0).draw(500, random_state=s)) for s in range(20)
    ]
    assert all(s.is_weak for s in gaps)
    assert np.median([s.rms_gap for s in gaps]) < np.sqrt(5 / 1000)  # what noise alone would show


def test_repeated_binary_features_do_not_inflate_the_degrees():
    """The square of a 0/1 feature is the feature: it must not count twice."""
    rng = np.random.default_rng(0)
    data = problem(constant(0.8), constant(0.3), d=1).draw(500, random_state=0)
    binary = SeparateLabels(**{**dict(data), "X": rng.integers(0, 2, (data.n_rows, 1))})
    assert identification_strength(**binary).degrees == 2


@pytest.mark.parametrize(("n", "degrees"), [(500, 41), (200, 21), (50, 1)])
def test_functions_are_left_out_when_rows_are_few(n, degrees):
    """Twenty features: squares need 410 treatment rows, slopes 210."""
    data = problem(constant(0.8), constant(0.3), d=20).draw(n, random_state=0)
    assert identification_strength(**data).degrees == degrees


def test_weights_act_like_repeated_rows_in_the_gap():
    data = problem(constant(0.8), constant(0.3)).draw(300, random_state=0)
    weight = np.random.default_rng(0).integers(1, 4, data.n_rows)
    weighted = identification_strength(**{**dict(data), "sample_weight": weight})
    repeated = identification_strength(**data.take(np.repeat(np.arange(data.n_rows), weight)))
    assert weighted.mean_gap == pytest.approx(repeated.mean_gap, abs=1e-12)
    # Copies carry no information: weights must not make the test more confident.
    assert weighted.f_statistic < repeated.f_statistic
