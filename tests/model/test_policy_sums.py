"""Sums over treatment rows that tell the policies apart, against sums row by row."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from unjoined.data import paper_problem
from unjoined.data.rows import label_rows
from unjoined.evaluate.strength import strength_of
from unjoined.model.basis import Scaling
from unjoined.model.moments import PolicySums, sum_policies

ROWS = label_rows(**paper_problem().draw(60, random_state=0))
SCALING = Scaling(np.array([0.5, -1.0]), np.array([2.0, 3.0]))


def slow(X, label, weight):
    """Return the sums of one population, one row after the other."""
    a, G, V = np.zeros(5), np.zeros((5, 5)), np.zeros((5, 5))
    for x, t, r in zip(X, label, weight, strict=True):
        z = (x - SCALING.mean) / SCALING.scale
        d = np.array([1.0, *z, *z**2])
        a += r * t * d
        G += r * np.outer(d, d)
        V += r**2 * np.outer(d, d)
    return a, G, V


@pytest.mark.parametrize("weighted", [False, True])
def test_sums_are_those_of_the_rows_one_by_one(weighted, limits):
    limits("model.moments", CACHE_ROWS=16)  # a last chunk that is not full
    at = ROWS.at("treatment", 1)
    weight = np.linspace(0.5, 2.0, len(at)) if weighted else np.ones(len(at))
    X, label = ROWS.X[at], ROWS.label[at]
    found = PolicySums.zero(2)
    found.add(1, X, SCALING, label, weight)
    a, G, V = slow(X, label, weight)
    assert_allclose(found.label[1], a, rtol=1e-12, atol=1e-12)
    assert_allclose(found.gram[1], G, rtol=1e-12)
    assert_allclose(found.square[1], V, rtol=1e-12)
    assert found.n_rows.tolist() == [0, len(at)]
    assert_allclose(found.weight, [0.0, weight.sum()])
    assert not found.gram[0].any()


def test_sums_of_parts_add_up_to_those_of_all():
    """Also of parts without the treatment rows of one population, or of any."""
    one, two, none, whole = (
        sum_policies(ROWS.take(some), SCALING)
        for some in (slice(50), slice(50, None), ROWS.of_kind("outcome"), slice(None))
    )
    merged = one + two + none
    for name in ("n_rows", "weight", "label", "gram", "square"):
        assert_allclose(
            getattr(merged, name), getattr(whole, name), rtol=1e-12, atol=1e-12
        )


def test_strength_rests_on_as_many_functions_as_the_rows_can_carry():
    """Ten treatment rows to each: a constant, then slopes, then squares."""
    for n, degrees in ((4, 1), (20, 3), (400, 5)):
        rows = label_rows(**paper_problem().draw(n, random_state=0))
        assert strength_of(rows).degrees == degrees
