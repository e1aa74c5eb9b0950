"""Boxes that boosted trees find: where they lie, and that they need not be there."""

import numpy as np
from numpy.testing import assert_array_equal

from unjoined.model.additive_basis import RULE, AdditiveBasis
from unjoined.model.boxes import OF_BASE, OF_EFFECT, find_rules, write_rules
from unjoined.model.families import MeanFamily


def draw(effect, n=2000, seed=0):
    """Return rows of five features with an exposure of half a unit either way."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 5))
    exposure = rng.choice([-0.5, 0.5], n)
    y = exposure * effect(X) + 0.3 * rng.standard_normal(n)
    return X, y, exposure, np.ones(n)


def found(rows, how, columns=range(5)):
    zeros = np.zeros(len(rows[1]))
    return find_rules(rows, columns, MeanFamily(variance=0.09), zeros, zeros, how)


def test_the_box_of_an_effect_is_found_to_within_a_bin():
    rows = draw(lambda X: 2.0 * ((X[:, 1] > 0.2) & (X[:, 3] <= 0.6)))
    first = found(rows, OF_EFFECT)[0]
    inside = np.empty((1, len(rows[1])))
    write_rules([first], rows[0], inside)
    sides = {(column, above) for column, _, above in first}
    assert sides <= {(1, True), (3, False)}
    boxes = np.empty((OF_EFFECT.most, len(rows[1])))
    write_rules(found(rows, OF_EFFECT), rows[0], boxes)
    truth = (rows[0][:, 1] > 0.2) & (rows[0][:, 3] <= 0.6)
    assert max(np.mean(box == truth) for box in boxes) > 0.9


def test_boxes_do_not_depend_on_the_units_and_the_order_of_rows():
    rows = draw(lambda X: 2.0 * (X[:, 0] > 0.0))
    plain = found(rows, OF_BASE)
    order = np.random.default_rng(1).permutation(len(rows[1]))
    turned = found(tuple(each[order] for each in rows), OF_BASE)
    assert set(turned) == set(plain)
    eight = found((8.0 * rows[0], *rows[1:]), OF_BASE)
    units = {tuple((c, cut / 8.0, above) for c, cut, above in rule) for rule in eight}
    assert units == set(plain)


def test_columns_of_one_value_and_few_rows_have_no_boxes():
    rows = draw(lambda X: X[:, 0], n=30)
    assert found(rows, OF_BASE) == ()
    X, *others = draw(lambda X: X[:, 0])
    assert found((np.zeros_like(X), *others), OF_BASE) == ()
    assert found((X, *others), OF_BASE, []) == ()


def test_a_basis_evaluates_its_rules_and_drops_unused_ones():
    X = np.random.default_rng(0).standard_normal((200, 2))
    plain = AdditiveBasis.of_rows(X, np.ones(200), with_products=True)
    rules = (((0, 0.5, True),), ((0, 0.5, False), (1, -0.2, True)))
    basis = AdditiveBasis(*(getattr(plain, n) for n in plain.__slots__[:-1]), rules)
    block, groups, columns = basis.blocks()
    assert groups[-2:] == (RULE, RULE)
    assert columns[-2:] == ((0,), (0, 1))
    values = basis(X)
    assert_array_equal(values[:, :-2], plain(X))
    assert_array_equal(values[:, -2], X[:, 0] > 0.5)
    assert_array_equal(values[:, -1], (X[:, 0] <= 0.5) & (X[:, 1] > -0.2))
    used = np.ones(basis.size, dtype=bool)
    used[-2] = False
    kept, left = basis.trimmed(used)
    assert kept.rules == rules[1:]
    assert_array_equal(kept(X), values[:, left])
    assert len(block) == basis.size
