"""Criteo's uplift data: read in blocks as in one piece, bad rows located, published facts hold."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from studies.criteo_uplift import fetch_criteo_uplift
from unjoined.errors import InputError, TableError

REAL = (
    Path(__file__).parents[3] / "shared" / "data" / "criteo_uplift"
    / "criteo-uplift-v2.1_sample1000.csv.gz"
)  # fmt: skip
needs_file = pytest.mark.skipif(
    not REAL.is_file(), reason="the Criteo uplift sample is not here"
)
HEADER = [*(f"f{j}" for j in range(12)), "treatment", "conversion", "visit", "exposure"]


def made(n=25, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(rng.standard_normal((n, 12)), columns=HEADER[:12])
    return table.assign(**{name: rng.integers(0, 2, n) for name in HEADER[12:]})


def small(tmp_path, table=None, name="t.csv"):
    path = tmp_path / name
    (made() if table is None else table).to_csv(path, index=False)
    return path


@pytest.mark.parametrize("n", [1, 25, 12_001])
def test_rows_are_read_in_blocks_as_in_one_piece(tmp_path, n):
    """Blocks have 5,000 lines."""
    table = made(n)
    path = small(tmp_path, table)
    for outcome in ("visit", "conversion"):
        data = fetch_criteo_uplift(path=path, outcome=outcome)
        assert_array_equal(data.X, table[HEADER[:12]])
        assert_array_equal(data.y, table[outcome])
        assert_array_equal(data.treatment, table["treatment"])
        assert_array_equal(data.extra["exposure"], table["exposure"])
        assert_array_equal(data.propensity, np.full(n, table["treatment"].mean()))


def test_a_part_of_the_rows_may_be_read_and_gzip_is_unpacked(tmp_path):
    path = small(tmp_path)
    packed = tmp_path / "t.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    data = fetch_criteo_uplift(path=packed, max_rows=10)
    assert_array_equal(data.X, made()[HEADER[:12]][:10])
    assert fetch_criteo_uplift(path=path, max_rows=100).n_rows == 25


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1,2", "expected 16 cells, found 2"),
        ("", "expected 16 cells, found 1"),
        ("a" + ",0" * 15, "could not convert string to float: 'a'"),
        (
            "nan" + ",0" * 15,
            "expected finite numbers and treatment, .* coded 0/1, found 'nan",
        ),
        ("1" + ",0" * 14 + ",2", "expected finite numbers .* coded 0/1, found"),
    ],
)
@pytest.mark.parametrize("number", [14, 5005])
def test_a_bad_row_is_named_with_file_and_line(tmp_path, line, message, number):
    path = small(tmp_path, made(5010))
    lines = path.read_text().splitlines()
    lines[number - 1] = line
    path.write_text("\n".join(lines))
    with pytest.raises(
        TableError, match=rf"line {number} of '.*t.csv' cannot be read: {message}"
    ):
        fetch_criteo_uplift(path=path)


def test_a_block_of_nothing_but_short_rows_is_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(",".join(HEADER) + "\n1,2\n3,4\n")
    with pytest.raises(TableError, match=r"line 2 .* expected 16 cells, found 2"):
        fetch_criteo_uplift(path=path)


def test_another_file_is_refused_by_its_header(tmp_path):
    with pytest.raises(
        TableError, match=r"is not the Criteo uplift file: .*, not 'f0,f1"
    ):
        fetch_criteo_uplift(path=small(tmp_path, made().drop(columns="exposure")))
    with pytest.raises(TableError, match="has no rows"):
        fetch_criteo_uplift(path=small(tmp_path, made(0)))
    with pytest.raises(
        InputError, match="outcome must be one of 'visit', 'conversion'"
    ):
        fetch_criteo_uplift(path=small(tmp_path), outcome="spend")
    with pytest.raises(InputError, match="max_rows must be a whole number"):
        fetch_criteo_uplift(path=small(tmp_path), max_rows=-1)


@needs_file
def test_the_sample_has_its_published_facts():
    visit = fetch_criteo_uplift(path=REAL)
    conversion = fetch_criteo_uplift(path=REAL, outcome="conversion")
    assert visit.n_rows == 1000
    assert visit.treatment.mean() == pytest.approx(0.863)
    assert visit.y.mean() == pytest.approx(0.035)
    assert conversion.y.mean() == pytest.approx(0.002)
    assert visit.X[:, 0].min() == pytest.approx(12.616365, abs=5e-7)
    for column, mode in ((1, 10.059654), (4, 10.280525)):
        values, counts = np.unique(visit.X[:, column], return_counts=True)
        assert values[counts.argmax()] == pytest.approx(mode, abs=5e-7)
    assert not (visit.extra["exposure"][visit.treatment == 0]).any()
    assert (visit.y[conversion.y == 1] == 1).all()
