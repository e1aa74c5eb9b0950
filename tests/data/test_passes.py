"""A source is gone through once per pass, and what goes wrong inside it is not hidden."""

import numpy as np
import pandas as pd
import pytest

from unjoined import MinMaxUplift, SeparateLabels
from unjoined.data import paper_problem
from unjoined.errors import TableError
from unjoined.federated import aggregate_rows, fourier_plan

FAST = MinMaxUplift(
    basis="linear", center=False, ridge_f=0.1, ridge_g=0.1, random_state=0
)


def rows(names):
    data = dict(paper_problem().draw(200, random_state=0))
    if names:
        data["X"] = pd.DataFrame(data["X"], columns=names)
    return data


class Counted:
    """A function that makes chunks, and how often it was called and gone through."""

    def __init__(self, data):
        self.data, self.calls, self.chunks = data, 0, 0

    def __call__(self):
        self.calls += 1
        for _ in range(3):
            self.chunks += 1
            yield self.data


@pytest.mark.parametrize("names", [None, ["a", "b"]])
def test_a_function_is_called_once_per_pass(names):
    factory = Counted(rows(names))
    model = FAST.fit(SeparateLabels.from_chunks(factory))
    assert (factory.calls, factory.chunks) == (2, 6)
    assert getattr(model, "feature_names_in_", np.array(None)).tolist() == names


def test_a_function_is_called_once_per_pass_of_a_party():
    factory = Counted(rows(["x1", "x2"]))
    plan = fourier_plan({"x1": (0, 1), "x2": (0, 1)}, [1, 2], n_functions=5, n_groups=2)
    aggregate_rows(SeparateLabels.from_chunks(factory), plan)
    assert (factory.calls, factory.chunks) == (2, 6)  # which its notes say


def test_an_error_inside_a_function_is_its_own():
    def broken():
        yield rows(None)
        raise OSError("the line is dead")

    with pytest.raises(OSError, match="the line is dead"):
        FAST.fit(SeparateLabels.from_chunks(broken))


def test_a_table_that_cannot_be_read_says_so(tmp_path):
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and no more")
    table = {"N": tmp_path / "t.parquet"}
    source = SeparateLabels.from_tables(
        table, table, outcome="y", treatment="t", stream=True
    )
    with pytest.raises(TableError, match=r"t\.parquet' cannot be read"):
        FAST.fit(source)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_files_are_streamed_with_any_supported_duckdb(tmp_path, ending):
    data = SeparateLabels(**rows(["a", "b"]))
    frame = data.X.assign(
        y=data.checked.label, region=[f"r{p}" for p in data.population]
    )
    files = []
    for kind in ("outcome", "treatment"):
        part, file = frame[data.kind == kind], tmp_path / f"{kind}.{ending}"
        part.to_csv(file, index=False) if ending == "csv" else part.to_parquet(
            file, index=False
        )
        files.append(file)
    source = SeparateLabels.from_tables(
        *files, outcome="y", treatment="y", population="region", stream=True
    )
    expected = FAST.fit(data).predict(data.X)
    np.testing.assert_allclose(FAST.fit(source).predict(data.X), expected, rtol=1e-9)
