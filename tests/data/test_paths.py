"""Paths are literal: the file that was named is read, it alone, and nothing of its path."""

import gzip
import os

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from unjoined import SeparateLabels, read_table
from unjoined.cli.entry import main
from unjoined.errors import TableError

ENDINGS = ("csv", "csv.gz", "parquet")


def write(path, value):
    """A file whose column x holds one value, with which it is told from others."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"x": [float(value)], "y": [1]})
    if path.name.endswith(".parquet"):
        pq.write_table(table, path)
    else:
        with (
            gzip.open(path, "wb")
            if path.name.endswith(".gz")
            else path.open("wb") as file
        ):
            pa_csv.write_csv(table, file)
    return path


def features(table):
    source = SeparateLabels.from_tables(
        {"A": table}, {}, outcome="y", treatment="t", stream=True
    )
    return [chunk.X.tolist() for chunk in source.chunks()]


def message(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    assert stop.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("s[1]", ["s1"]),
        ("q*", ["q1", "q2"]),
        ("what?", ["what1"]),
        ("{a,b}", ["a", "b"]),
        ("[!a]", ["b"]),
        ("back\\slash", ["backslash"]),
        ("x=7/month=3/part", []),
    ],
)
def test_a_path_is_no_pattern_and_adds_no_column(tmp_path, name, others):
    for ending in ENDINGS:
        for i, other in enumerate(others):
            write(tmp_path / f"{other}.{ending}", 100 + i)
        path = write(tmp_path / f"{name}.{ending}", 5)
        assert read_table(path).to_pydict() == {"x": [5.0], "y": [1]}
        assert features(path) == features([path]) == [[[5.0]]]


def test_a_path_beside_the_working_folder_is_literal_too(here, tmp_path):
    for name in ("~t.csv", "-t.csv", "s3:.csv"):
        write(tmp_path / name, 4)
        assert read_table(name)["x"].to_pylist() == [4.0]


def test_folders_give_their_tables_and_nothing_that_is_hidden(tmp_path):
    folder = tmp_path / "data[1]"
    for i, name in enumerate(["a.csv", "month=3/b.parquet", "x=7/s*.csv"]):
        write(folder / name, i)
    for name in (
        ".hidden.csv",
        "_metadata.parquet",
        ".ipynb_checkpoints/a.csv",
        "_tmp/c.csv",
    ):
        write(folder / name, 99)
    (folder / "_SUCCESS").touch()
    assert features(folder) == [[[0.0]], [[1.0]], [[2.0]]]
    # A folder that lies in a hidden one was asked for by name.
    assert features(folder / "_tmp") == [[[99.0]]]


def test_links_to_folders_are_followed_once(tmp_path):
    write(tmp_path / "far" / "a.csv", 1)
    folder = tmp_path / "near"
    write(folder / "b.csv", 2)
    (folder / "link").symlink_to(tmp_path / "far")
    (tmp_path / "far" / "back").symlink_to(folder)
    assert sorted(features(folder)) == [[[1.0]], [[2.0]]]
    (tmp_path / "alias").symlink_to(folder)
    assert sorted(features(tmp_path / "alias")) == [[[1.0]], [[2.0]]]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_not_passed_over(tmp_path):
    write(tmp_path / "data" / "a.csv", 1)
    write(tmp_path / "data" / "closed" / "b.csv", 2).parent.chmod(0)
    with pytest.raises(TableError, match="closed"):
        features(tmp_path / "data")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("empty", "holds no file ending in"),
        ("https://example.org/t.csv", "is an address, and tables are read from files"),
        ("s3://bucket/t.parquet", "is an address"),
        ("-", "there is no file '-'"),
        ("nothing[1].csv", "there is no file"),
    ],
)
def test_what_is_no_table_is_named(here, tmp_path, capsys, path, expected):
    (tmp_path / "empty").mkdir()
    with pytest.raises(TableError, match=expected):
        features(path)
    if path != "empty":
        with pytest.raises(TableError, match=expected):
            read_table(path)
        labels = ["--outcome", "y", "--treatment", "t", "--population", "p"]
        command = ["check", "--outcomes", path, "--treatments", "t.csv", *labels]
        assert expected in message(capsys, *command)


def test_a_folder_where_one_file_is_needed_is_refused(tmp_path):
    write(tmp_path / "data" / "a.csv", 1)
    with pytest.raises(
        TableError, match=r"is a folder, not a table.*check, fit and aggregate"
    ):
        read_table(tmp_path / "data")


def test_an_equals_sign_in_a_path_is_not_guessed_at(here, tmp_path, capsys):
    write(tmp_path / "x=7" / "t.csv", 1)
    write(tmp_path / "7" / "t.csv", 2)
    options = ["--outcome", "y", "--treatment", "t", "--population", "p"]
    found = message(
        capsys, "check", "--outcomes", "x=7/t.csv", "--treatments", "t.csv", *options
    )
    assert "both exist" in found
    found = message(
        capsys, "check", "--outcomes", "./x=7/t.csv", "--treatments", "a.csv", *options
    )
    assert "there is no file 'a.csv'" in found
