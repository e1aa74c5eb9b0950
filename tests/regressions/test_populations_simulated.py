"""Simulated problems of three populations, and what is wrong with others."""

import numpy as np
import pytest

from unjoined.data import SimulatedProblem
from unjoined.errors import InputError


def law(policies):
    return SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 1)),
        policies=policies,
        outcome=lambda X, treated, rng: rng.standard_normal(len(X)),
        outcome_mean=lambda X, treated: np.zeros(len(X)),
    )


def share(p):
    return lambda X: np.full(len(X), p)


def test_the_gap_of_three_simulated_policies_is_twice_their_spread():
    X = np.zeros((2, 1))
    two, three = {"A": share(0.7), "B": share(0.4)}, {"C": share(0.55)}
    assert law(two).policy_gap(X) == pytest.approx([0.3, 0.3], abs=1e-15)
    expected = 2.0 * np.std([0.7, 0.4, 0.55])
    assert law(two | three).policy_gap(X) == pytest.approx([expected] * 2, abs=1e-15)


def test_a_simulated_problem_of_three_populations_is_drawn():
    problem = law({"A": share(0.7), "B": share(0.4), "C": share(0.0)})
    data = problem.draw({(k, p): 5 for k in ("outcome", "treatment") for p in "ABC"}, n_target=2)
    assert [cell.n_rows for cell in data.summary()] == [5] * 6 + [2]
    assert data.y[data.rows("treatment", "C")].sum() == 0.0


def test_a_simulated_problem_says_what_is_wrong_with_its_populations():
    with pytest.raises(InputError, match="two populations or more, got 1"):
        law({"A": share(0.5)})
    with pytest.raises(InputError, match=r"named by text, got 1"):
        law({1: share(0.5), 2: share(0.6)})
    problem = law({"A": share(0.5), "B": share(0.6)})
    with pytest.raises(InputError, match=r"no population 'C'; there are 'A', 'B'"):
        problem.draw_joint(5, policy="C")
    with pytest.raises(InputError, match=r"n_per_table lacks \('treatment', 'B'\)"):
        problem.draw({("outcome", "A"): 5, ("outcome", "B"): 5, ("treatment", "A"): 5})
