"""The job training data: text and Stata files read alike, and the published facts hold."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from unjoined.datasets import fetch_jobs
from unjoined.errors import InputError, TableError

REAL = Path(__file__).parents[3] / "shared" / "data" / "nsw"
STATA_COLUMNS = (
    *("treat", "age", "education", "black", "hispanic", "married", "nodegree"),
    *("re74", "re75", "re78"),
)
needs_files = pytest.mark.skipif(not REAL.is_dir(), reason="the NSW files are not here")

TREATED_TEXT = (
    "  1.0000000e+000  3.7000000e+001  1.1000000e+001  1.0000000e+000  0.0000000e+000"
    "  1.0000000e+000  1.0000000e+000  0.0000000e+000  9.9300460e+003\n"
    "  1.0 22 9 0 1 0 1 100.5 3595.894"
)
CONTROL_TEXT = "0 23 10 1 0 0 1 0 0\n0 26 12 0 0 0 0 12 7506.5\n0 30 12 1 0 0 0 0 1.5"


def small(tmp_path, treated=TREATED_TEXT, control=CONTROL_TEXT):
    (tmp_path / "nsw_treated.txt").write_text(treated)
    (tmp_path / "nsw_control.txt").write_text(control)
    return tmp_path


def frame(n=5, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({name: rng.integers(0, 2, n) for name in STATA_COLUMNS[:-3]})
    table = table.assign(**{name: 1e4 * rng.random(n) for name in STATA_COLUMNS[-3:]})
    return table.assign(treat=np.arange(n) % 2)


def write_stata(path, table, **kwargs):
    table.to_stata(path, version=117, write_index=False, **kwargs)
    return path


def test_both_text_files_are_read_treated_rows_first(tmp_path):
    data = fetch_jobs(path=small(tmp_path))
    assert_array_equal(data.treatment, [1, 1, 0, 0, 0])
    assert_array_equal(data.y, [9930.046, 3595.894, 0, 7506.5, 1.5])
    assert data.feature_names == (
        "age", "education", "black", "hispanic", "married", "nodegree", "re75",
    )  # fmt: skip
    assert_array_equal(data.X[1], [22, 9, 0, 1, 0, 1, 100.5])
    assert_array_equal(data.propensity, np.full(5, 0.4))


def test_gzipped_copies_are_found_in_the_folder(tmp_path):
    plain = fetch_jobs(path=small(tmp_path))
    for name in ("nsw_treated.txt", "nsw_control.txt"):
        path = tmp_path / name
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert_array_equal(fetch_jobs(path=tmp_path).X, plain.X)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("1 2 3", "inhomogeneous"),
        ("1 x 3 4 5 6 7 8 9", "could not convert string to float: b'x'"),
        ("2 2 3 4 5 6 7 8 9", "treat coded 0/1"),
        ("1 2 3 4 5 6 7 8 nan", "expected rows without missing numbers"),
    ],
)
def test_a_file_with_another_line_is_refused(tmp_path, row, message):
    folder = small(
        tmp_path, control=f"0 23 10 1 0 0 1 0 0\n{row}\n0 26 12 0 0 0 0 12 75"
    )
    with pytest.raises(
        TableError, match=rf"nsw_control.txt' is not the NSW file: .*{message}"
    ):
        fetch_jobs(path=folder)


def test_what_is_no_folder_or_lacks_a_file_is_named(tmp_path):
    folder = small(tmp_path)
    with pytest.raises(
        TableError, match=r"path must be the folder that holds 'nsw_treated.txt'"
    ):
        fetch_jobs(path=folder / "nsw_treated.txt")
    (folder / "nsw_control.txt").write_text("")
    with pytest.raises(
        TableError, match=r"nsw_control.txt' is not the NSW file: it has no rows"
    ):
        fetch_jobs(path=folder)
    (folder / "nsw_control.txt").unlink()
    with pytest.raises(
        TableError, match=r"no 'nsw_control.txt' .* by hand from https://users.nber"
    ):
        fetch_jobs(path=folder)
    with pytest.raises(
        InputError, match="sample must be one of 'lalonde', 'dehejia-wahba'"
    ):
        fetch_jobs(sample="everyone")


# --- Stata ----------------------------------------------------------------------------------


def test_the_dehejia_wahba_file_is_read_plain_or_gzipped(tmp_path):
    table = frame()
    path = write_stata(tmp_path / "nsw_dw.dta", table)
    packed = tmp_path / "mine.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for place in (path, packed, tmp_path):
        data = fetch_jobs(sample="dehejia-wahba", path=place)
        assert data.feature_names == STATA_COLUMNS[1:-1]
        assert_array_equal(data.X, table[list(STATA_COLUMNS[1:-1])])
        assert_array_equal(data.y, table["re78"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns="re74"), "re74"),
        (lambda t: t.assign(treat=2), "treat coded 0/1"),
        (lambda t: t.assign(age=np.nan), "expected rows without missing numbers"),
    ],
)
def test_another_stata_table_is_refused(tmp_path, change, message):
    path = write_stata(tmp_path / "t.dta", change(frame()))
    with pytest.raises(TableError, match=f"is not the Dehejia-Wahba file: .*{message}"):
        fetch_jobs(sample="dehejia-wahba", path=path)


def test_what_is_no_stata_file_or_a_damaged_one_is_refused(tmp_path):
    path = tmp_path / "t.dta"
    path.write_bytes(b"age,visit\n1,2\n")
    whole = write_stata(tmp_path / "whole.dta", frame()).read_bytes()
    for broken in (
        path.read_bytes(),
        b"",
        whole[:100],
        whole[: whole.index(b"<data>") + 20],
    ):
        path.write_bytes(broken)
        with pytest.raises(
            TableError, match=r"t.dta' is not the Dehejia-Wahba file: .*again"
        ):
            fetch_jobs(sample="dehejia-wahba", path=path)


# --- the real files -------------------------------------------------------------------------


@needs_files
@pytest.mark.parametrize(("sample", "rows"), [("lalonde", 722), ("dehejia-wahba", 445)])
def test_the_real_files_are_those_whose_checksums_we_know(cache, sample, rows):
    """Files in the cache are compared with their checksums, copies of the user's are not."""
    cache.symlink_to(REAL)
    assert fetch_jobs(sample=sample, download=False).n_rows == rows


@needs_files
def test_lalondes_sample_has_its_published_sizes_and_means():
    data = fetch_jobs(path=REAL)
    treated, re75 = data.treatment == 1, data.X[:, -1]
    assert (treated.sum(), (~treated).sum()) == (297, 425)
    for rows, re78_mean, re75_mean, zero, rising in (
        (treated, 5976.35, 3066.10, 0.226, 0.603),
        (~treated, 5090.05, 3026.68, 0.304, 0.539),
    ):
        assert data.y[rows].mean() == pytest.approx(re78_mean, abs=0.005)
        assert re75[rows].mean() == pytest.approx(re75_mean, abs=0.005)
        assert (data.y[rows] == 0).mean() == pytest.approx(zero, abs=0.0005)
        assert (data.y[rows] > re75[rows]).mean() == pytest.approx(rising, abs=0.0005)


@needs_files
def test_the_dehejia_wahba_sample_has_its_published_sizes_and_means():
    data = fetch_jobs(sample="dehejia-wahba", path=REAL)
    treated = data.treatment == 1
    assert (treated.sum(), (~treated).sum()) == (185, 260)
    assert data.y[treated].mean() == pytest.approx(6349.14, abs=0.005)
    assert data.y[~treated].mean() == pytest.approx(4554.80, abs=0.005)


@needs_files
def test_the_second_sample_is_part_of_the_first():
    """Dehejia and Wahba took rows out of LaLonde's; single precision is all they share."""
    first, second = fetch_jobs(path=REAL), fetch_jobs(sample="dehejia-wahba", path=REAL)
    names = list(first.feature_names)
    shared = [second.feature_names.index(name) for name in names]
    rows = {
        tuple(row)
        for row in np.column_stack([first.treatment, first.X, first.y]).round(0)
    }
    part = np.column_stack([second.treatment, second.X[:, shared], second.y]).round(0)
    assert all(tuple(row) in rows for row in part)
