"""Checkpoints: a pass goes on only with the rows, tables and plan that it was begun with."""

import numpy as np
import pytest

from unjoined import SeparateLabels
from unjoined.data.rows import separate_labels
from unjoined.errors import TableError
from unjoined.federated import aggregate_rows, fourier_plan

N = 1024  # rows of the first table, after which a checkpoint is written
PLAN = fourier_plan({"age": (0.0, 1.0)}, ["north", "south"], n_functions=1, n_groups=2)


@pytest.fixture(autouse=True)
def often(limits):
    """Write a checkpoint every 1024 rows: a million of them would take seconds for each test."""
    limits("data.fold", CHECKPOINT_ROWS=N)


class StoppedError(Exception):
    """What ends the pass, as a power cut would."""


def rows_of(*, first="north", second="south", kind="outcome", seed=0):
    """Return a function that makes the chunks: a checkpoint's worth of rows, then a few more."""

    def chunks():
        for i, name in enumerate((first, second)):
            rng = np.random.default_rng([seed, i])
            n = N if i == 0 else 1000
            y = rng.normal(size=n) if kind == "outcome" else rng.integers(0, 2, n)
            X = rng.normal(size=(n, 1))
            yield {
                "X": X,
                **separate_labels(y, np.full(n, kind)),
                "population": np.full(n, name),
            }

    return SeparateLabels.from_chunks(chunks)


@pytest.fixture
def checkpoint(tmp_path):
    """The checkpoint of a pass that was interrupted behind the first table."""
    path = tmp_path / "checkpoint"

    def chunks():
        for chunk in rows_of().source.factory():
            if path.exists():
                raise StoppedError
            yield chunk

    with pytest.raises(StoppedError):
        aggregate_rows(SeparateLabels.from_chunks(chunks), PLAN, checkpoint=path)
    return path


def test_a_checkpoint_is_of_use(checkpoint):
    assert np.load(checkpoint)["000.position"][0] == N
    found = aggregate_rows(rows_of(), PLAN, checkpoint=checkpoint)
    assert found.n_rows("outcome", 0) == N
    assert found.n_rows("outcome", 1) == 1000


def test_a_checkpoint_is_not_resumed_with_the_tables_populations_swapped(checkpoint):
    swapped = rows_of(first="south", second="north")
    with pytest.raises(
        TableError, match="belongs to another fit, or the source has changed"
    ):
        aggregate_rows(swapped, PLAN, checkpoint=checkpoint)


def test_a_checkpoint_is_not_resumed_with_other_rows(checkpoint):
    with pytest.raises(
        TableError, match="belongs to another fit, or the source has changed"
    ):
        aggregate_rows(rows_of(seed=1), PLAN, checkpoint=checkpoint)


def test_a_checkpoint_is_not_resumed_with_another_plan(checkpoint):
    other = fourier_plan(
        {"age": (0.0, 2.0)}, ["north", "south"], n_functions=1, n_groups=2
    )
    with pytest.raises(
        TableError, match=r"belongs to another .* Delete it to start anew"
    ):
        aggregate_rows(rows_of(), other, checkpoint=checkpoint)


@pytest.mark.parametrize("size", [0, 10, 200, -1])
def test_a_truncated_checkpoint_is_refused_and_the_message_says_what_to_do(
    checkpoint, size
):
    checkpoint.write_bytes(checkpoint.read_bytes()[:size])
    with pytest.raises(
        TableError,
        match=r"(?s)is not a checkpoint of this fit .* Delete it, or name another file",
    ):
        aggregate_rows(rows_of(), PLAN, checkpoint=checkpoint)
