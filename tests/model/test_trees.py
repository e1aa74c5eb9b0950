"""The best of all shallow trees, held against trying all of them."""

from itertools import product

import numpy as np
import pytest

from unjoined.model.trees import Grower, assigned, cut_points


def every_value(X, net, weight, least, depth):
    """Return the value of the best tree by trying every cut at every node."""
    best = max(net.sum(axis=0).max(), 0.0)
    if depth == 0 or not len(X):
        return best
    for j in range(X.shape[1]):
        for cut in np.unique(X[:, j])[:-1]:
            below = X[:, j] <= cut
            parts = (below, ~below)
            if min(weight[part].sum() for part in parts) < least:
                continue
            value = sum(
                every_value(X[part], net[part], weight[part], least, depth - 1)
                for part in parts
            )
            best = max(best, value)
    return best


def value_of(leaves, X, net):
    given = assigned(leaves, X)
    treated = given > 0
    return net[treated, given[treated] - 1].sum()


@pytest.mark.parametrize(("seed", "n_arms"), [(0, 1), (1, 1), (2, 2), (3, 3)])
def test_a_tree_of_depth_two_is_the_best_there_is(seed, n_arms):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 5, size=(60, 3)).astype(float)
    net = rng.normal(size=(60, n_arms))
    weight = np.full(60, 1 / 60)
    for depth, least in product((0, 1, 2), (0.0, 0.2)):
        grower = Grower.of_rows(X, net, np.ones_like(net), weight, least)
        found = grower.tree(depth)
        wanted = every_value(X, net, weight, least, depth)
        assert value_of(found, X, net) == pytest.approx(wanted, abs=1e-12)
        sizes = [weight[leaf.holds(X)].sum() for leaf in found]
        assert sum(sizes) == pytest.approx(1.0)
        assert len(found) == 1 or min(sizes) >= least - 1e-12


def test_deeper_trees_bring_more_and_find_what_depth_two_cannot():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, size=(400, 4)).astype(float)
    odd = X[:, :3].sum(axis=1) % 2  # three columns at once
    net = (2.0 * odd - 1.0)[:, None]
    grower = Grower.of_rows(X, net, np.ones_like(net), np.full(400, 1 / 400), 0.0)
    values = [value_of(grower.tree(depth), X, net) for depth in range(4)]
    assert values == sorted(values)
    assert values[3] == odd.sum() > values[2]


def test_what_is_dear_is_given_to_fewer():
    """If each use costs as much more, those are treated who bring more than that."""
    X = np.arange(40.0)[:, None]
    net = np.arange(40.0)[:, None]
    grower = Grower.of_rows(X, net, np.ones_like(net), np.full(40, 1 / 40), 0.0)
    treated = [
        int((assigned(grower.tree(1, dearer), X) > 0).sum())
        for dearer in (0.0, 9.5, 29.5, 99.0)
    ]
    assert treated[0] == 40
    assert treated == sorted(treated, reverse=True)
    assert treated[-1] == 0


def test_cuts_are_round_numbers_that_lie_between_values():
    assert cut_points(np.array([0.0, 1.0, 1.0])).tolist() == [0.0]
    assert cut_points(np.array([3.0, 3.0])).tolist() == []
    assert cut_points(np.array([1.234, 8.9])).tolist() == [5.0]
    x = np.random.default_rng(0).normal(50.0, 10.0, 4000)
    cuts = cut_points(x)
    assert len(cuts) == 23
    shares = np.array([(x <= cut).mean() for cut in cuts])
    np.testing.assert_allclose(shares, np.arange(1, 24) / 24, atol=0.02)
    assert np.mean([len(f"{cut:g}") <= 4 for cut in cuts]) > 0.9
