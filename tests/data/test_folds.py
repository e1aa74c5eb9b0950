"""Folds that leave no cell empty."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unjoined.data import CellKFold, paper_problem
from unjoined.data.rows import separate_labels
from unjoined.errors import InputError


@given(
    seed=st.integers(0, 1000),
    n_splits=st.integers(2, 5),
    sizes=st.tuples(*[st.integers(5, 30)] * 4),
    n_target=st.integers(0, 7),
)
def test_every_row_is_held_out_once_and_every_cell_evenly(
    seed, n_splits, sizes, n_target
):
    cells = [(kind, name) for kind in ("outcome", "treatment") for name in ("1", "2")]
    kind = np.repeat([*[c[0] for c in cells], "target"], [*sizes, n_target])
    population = np.repeat([*[c[1] for c in cells], ""], [*sizes, n_target])
    order = np.random.default_rng(seed).permutation(len(kind))
    kind, population = kind[order], population[order]
    folds = list(
        CellKFold(n_splits, random_state=seed).split(
            kind, **separate_labels(np.ones(len(kind)), kind), population=population
        )
    )
    held = np.concatenate([test for _, test in folds])
    assert sorted(held) == list(range(len(kind)))
    for train, test in folds:
        assert not set(train) & set(test)
        for which, name in cells:
            n = ((kind == which) & (population == name)).sum()
            n_held = ((kind[test] == which) & (population[test] == name)).sum()
            assert n // n_splits <= n_held <= -(-n // n_splits)


def test_same_seed_same_folds():
    data = paper_problem().draw(20, random_state=0)
    first, second = (list(CellKFold(3, random_state=1).split(**data)) for _ in range(2))
    assert all(np.array_equal(a[1], b[1]) for a, b in zip(first, second, strict=True))
    assert CellKFold(3).get_n_splits() == 3


@pytest.mark.parametrize("n_splits", [1, 21])
def test_too_few_or_too_many_folds_are_refused(n_splits):
    data = paper_problem().draw(20, random_state=0)
    with pytest.raises(
        InputError, match=f"n_splits={n_splits} must be at least 2 and at most"
    ):
        next(CellKFold(n_splits).split(**data))
