"""A trial taken apart into the tables of three populations or more."""

import numpy as np
import pytest

from unjoined.data import unjoin
from unjoined.errors import InputError

POLICIES = {"A": lambda X: 0.2 + 0.3 * X[:, 0], "B": 0.5, "C": lambda X: 0.8 - 0.3 * X[:, 0]}
CHANCE = np.array([[0.1, 0.5, 0.7], [0.6, 0.5, 0.2]])  # of the outcome 1, by treatment and x


def trial(n=60_000):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, n)
    treated = (rng.random(n) < 0.4).astype(int)
    y = (rng.random(n) < CHANCE[treated, x]).astype(float)
    return x[:, None].astype(float), y, treated


def chance_errors(found, expected):
    """By how many standard errors the mean of each group of 0/1 is off."""
    return [
        abs(values.mean() - p) / np.sqrt(p * (1 - p) / len(values))
        for values, p in zip(found, expected, strict=True)
    ]


def test_a_trial_is_taken_apart_into_the_tables_of_three_populations():
    """p(x) and p(y|x,t) stay as they were and p_k(t|x) is the policy: 54 shares, each a binomial.

    One of 54 normal variables is beyond 4.5 once in 2,700 seeds.
    """
    X, y, treated = trial()
    found = unjoin(X, y, treated, policies=POLICIES, propensity=0.4, random_state=0)
    assert len(set(found.rows.tolist())) == found.data.n_rows == len(found.rows)
    assert found.data.populations == ["A", "B", "C"]
    np.testing.assert_array_equal(found.data.X, X[found.rows])
    errors = []
    for name, policy in POLICIES.items():
        for kind, label in (("outcome", y), ("treatment", treated)):
            at = found.data.rows(kind, name)
            rows = found.rows[at]
            np.testing.assert_array_equal(found.data.y[at], label[rows])
            x, t = X[rows, 0].astype(int), treated[rows]
            errors += chance_errors([x == v for v in range(3)], [1 / 3] * 3)
            wanted = policy(np.arange(3.0)[:, None]) if callable(policy) else np.full(3, policy)
            errors += chance_errors([t[x == v] for v in range(3)], wanted)
            if kind == "outcome":
                cells = [(u, v) for u in (0, 1) for v in range(3)]
                labels = [y[rows][(t == u) & (x == v)] for u, v in cells]
                errors += chance_errors(labels, [CHANCE[u, v] for u, v in cells])
    assert len(errors) == 54
    assert max(errors) < 4.5


def test_a_row_of_the_trial_is_in_one_table_of_five_populations():
    X, y, treated = trial(5000)
    shares = dict(zip("EDCBA", (0.1, 0.3, 0.5, 0.7, 0.9), strict=True))
    found = unjoin(X, y, treated, policies=shares, n_per_table=40, random_state=0)
    assert found.data.populations == list("ABCDE")
    assert found.data.n_rows == 10 * 40 == len(set(found.rows.tolist()))


@pytest.mark.parametrize(
    ("policies", "found"), [({}, "0"), ({"A": 0.5}, "1"), ([0.5, 0.4], "list")]
)
def test_one_policy_is_refused(policies, found):
    X, y, treated = trial(100)
    with pytest.raises(InputError, match=f"two populations or more, got {found}"):
        unjoin(X, y, treated, policies=policies)
