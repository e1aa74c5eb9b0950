"""Sums are of two populations, and say what takes more, wherever the rows come from."""

import numpy as np
import pytest

from unjoined import MinMaxUplift
from unjoined.data import ArraySource, DaskSource, SimulatedProblem
from unjoined.errors import LabelError
from unjoined.sums import aggregate_rows, fourier_plan


def three(n=20):
    shares = {"A": 0.2, "B": 0.5, "C": 0.8}
    return SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 2)),
        policies={k: (lambda X, p=p: np.full(len(X), p)) for k, p in shares.items()},
        outcome=lambda X, treated, rng: rng.standard_normal(len(X)),
        outcome_mean=lambda X, treated: np.zeros(len(X)),
    ).draw(n, random_state=0)


WAY_OUT = r"3: 'A', 'B', 'C'.* Choose two of them, or (use|fit) Uplift or MixtureUplift"


def test_three_populations_in_chunks():
    with pytest.raises(LabelError, match=WAY_OUT + ", which take any number"):
        MinMaxUplift().fit_chunks(ArraySource(**three(), chunk_rows=7))


def test_three_populations_in_dask():
    da = pytest.importorskip("dask.array")
    data = three()
    columns = {
        name: da.from_array(np.asarray(data[name]), chunks=(13,) * np.ndim(data[name]))
        for name in ("y", "kind", "population")
    }
    X = da.from_array(data.X, chunks=(13, 2))
    with pytest.raises(LabelError, match=WAY_OUT + ", which take any number"):
        MinMaxUplift().fit_chunks(DaskSource.from_arrays(X, **columns))


def test_rows_of_a_third_population_are_named_where_a_plan_is_for_two():
    plan = fourier_plan({"a": (0, 1), "b": (0, 1)}, ["A", "B"])
    with pytest.raises(LabelError, match=r"rows of population 'C'; the sums are for 'A' and 'B'"):
        aggregate_rows(ArraySource(**three()), plan)
