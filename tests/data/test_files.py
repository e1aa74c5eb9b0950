"""Tables on disk: what is written is read, and what is not a table is named."""

import gzip
import time

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from unjoined import SeparateLabels, read_table
from unjoined.data import write_table
from unjoined.data.tables import scan_table
from unjoined.errors import TableError

TABLE = pa.table({"age": [31.5, 54.0], "visit": [1, 0], "region": ["north", "south"]})


@pytest.mark.parametrize("ending", [".parquet", ".pq", ".csv"])
def test_a_written_table_reads_back_the_same(tmp_path, ending):
    path = write_table(TABLE, tmp_path / f"it's a table{ending}")
    assert read_table(path).to_pydict() == TABLE.to_pydict()


def test_compressed_and_tab_separated_text_is_read(tmp_path):
    path = tmp_path / "t.tsv.gz"
    path.write_bytes(gzip.compress(b"age\tvisit\n31.5\t1\n54\t0\n"))
    assert read_table(path).to_pydict() == {"age": [31.5, 54.0], "visit": [1, 0]}


def test_a_parquet_file_has_the_names_that_stand_in_it(tmp_path):
    """DuckDB alone would call a second one Age_1, or C1 if it has no name."""
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"age": [1.0], "Age": [2.0], "AGE": [3.0]}), path)
    assert read_table(path).to_pydict() == {"age": [1.0], "Age": [2.0], "AGE": [3.0]}
    for names, message in (
        (["age", "age"], "two columns named 'age'"),
        (["age", ""], "no name"),
    ):
        pq.write_table(pa.table([[1.0], [2.0]], names=names), path)
        with pytest.raises(TableError, match=message):
            read_table(path)


@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize(
    ("first", "second"), [("\n", "\r\n"), ("\r\n", "\n"), ("\r", "\n")]
)
def test_lines_that_end_in_two_ways_are_read(tmp_path, first, second, quote):
    """As where files of two systems were put together: whole, and piece by piece."""
    rows, path = (
        [f"{i},{i % 7},{quote}n{i % 3}{quote}" for i in range(3000)],
        tmp_path / "t.csv",
    )
    text = f"age,size,region{first}{first.join(rows)}{first}{second.join(rows)}"
    path.write_bytes(text.encode())
    found = read_table(path).to_pydict()
    assert (found["age"], found["region"][-1]) == ([*range(3000)] * 2, "n2")
    options = {"outcome": "age", "treatment": "t", "features": ["size"]}
    source = SeparateLabels.from_tables({"A": path}, {}, **options, stream=2048)
    assert [y for chunk in source.chunks() for y in chunk.label] == found["age"]


def test_a_header_without_rows_is_an_empty_table(tmp_path):
    header, rows = tmp_path / "header.csv", tmp_path / "rows.csv"
    header.write_text("age,mailed\n")
    rows.write_text("age,mailed\n40,1\n50,0\n")
    assert read_table(header).num_rows == 0
    both = {"west": rows, "east": header}
    with pytest.raises(TableError, match="population 'east' is empty"):
        SeparateLabels.from_tables(both, both, outcome="mailed", treatment="mailed")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.xls", b"PK", r"is not a table this program reads: expected .csv, .tsv"),
        ("t.parquet", b"age,visit\n1,2\n", r"cannot be read as parquet: .*"),
        ("t.csv", b"", "is empty, without even a header"),
    ],
)
def test_wrong_kinds_of_files_are_refused_by_name(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(TableError, match=message) as error:
        read_table(path)
    assert name in str(error.value)


@pytest.mark.slow
def test_a_bad_row_far_into_a_file_is_located(tmp_path):
    path = tmp_path / "long.csv"
    rows = [f"{i},{i % 2}" for i in range(50_000)]
    rows[40_000] = "forty thousand,1"
    path.write_text("age,visit\n" + "\n".join(rows) + "\n")
    table = read_table(path)
    # A column of words is no fault of the file's; whoever needs numbers names word and row.
    message = (
        r"column 'age'.* in 1 of 50,000 rows \(first at row 40,000.*'forty thousand'"
    )
    with pytest.raises(TableError, match=message):
        SeparateLabels.from_tables({"A": table}, {}, outcome="age", treatment="mailed")


def test_missing_files_and_folders_are_named(tmp_path):
    with pytest.raises(TableError, match=r"there is no file '.*nowhere.csv'"):
        read_table(tmp_path / "nowhere.csv")
    with pytest.raises(TableError, match="is a folder, not a table"):
        read_table(tmp_path)
    with pytest.raises(TableError, match=r"there is no folder '.*nowhere' to write to"):
        write_table(TABLE, tmp_path / "nowhere" / "t.csv")
    (tmp_path / "t.parquet").mkdir()
    with pytest.raises(TableError, match="is a folder; name a file"):
        write_table(TABLE, tmp_path / "t.parquet")
    with pytest.raises(TableError, match=r"must end in .parquet, .csv or .xlsx"):
        write_table(TABLE, tmp_path / "t.json")


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_reading_takes_little_longer_than_arrow_alone(tmp_path, ending):
    """Cells must not become Python values on the way, which takes thirty times as long."""
    rng = np.random.default_rng(0)
    table = pa.table({f"x{k}": rng.normal(size=300_000).round(4) for k in range(8)})
    path = tmp_path / f"t.{ending}"
    (pq.write_table if ending == "parquet" else pa_csv.write_csv)(table, path)
    alone = pq.read_table if ending == "parquet" else pa_csv.read_csv
    (reading, found), (least, _) = (seconds(read, path) for read in (read_table, alone))
    assert found.num_rows == table.num_rows
    assert reading < 0.5 + 8.0 * least


def seconds(read, path):
    """Return the processor time of the faster of two readings, and what was read."""
    times = []
    for _ in range(2):
        start = time.process_time()
        found = read(path)
        times.append(time.process_time() - start)
    return min(times), found


def test_a_column_of_a_long_text_file_is_of_one_type(tmp_path):
    """Types are found a piece at a time, and what one piece says counts for all."""
    n = 70_000
    last = {
        "late": "0.5",
        "word": "x",
        "code": "007",
        "truth": "maybe",
        "void": "3",
        "void2": "a",
    }
    first = {
        "late": "1",
        "word": "1.10",
        "code": "12",
        "truth": "TRUE",
        "void": "",
        "void2": "",
    }
    rows = [",".join(first), *[",".join(first.values())] * n, ",".join(last.values())]
    (path := tmp_path / "t.csv").write_text("\n".join(rows) + "\n")
    table = read_table(path)
    assert {
        name: (table[name][0].as_py(), table[name][-1].as_py()) for name in first
    } == {
        "late": (1.0, 0.5),
        "word": ("1.10", "x"),
        "code": ("12", "007"),
        "truth": ("TRUE", "maybe"),
        "void": (None, 3),
        "void2": (None, "a"),
    }


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["-0", "15", "-7"], [0, 15, -7]),
        (["+5", "0.5", "-.5"], [5.0, 0.5, -0.5]),
        (["0", "0e0", "0E1"], [0.0, 0.0, 0.0]),
        (["1", "-05"], None),
        (["0x0", "1"], None),
        (["1.5", "00.5"], None),
        (["1.5", "nan(x)"], None),
        (["1", "9999999999999999999"], None),
        ([" 1", "2 "], [1, 2]),
    ],
)
def test_numbers_are_what_people_write_as_numbers(tmp_path, cells, numbers):
    (path := tmp_path / "t.csv").write_text(
        "x,y\n" + "".join(f"{cell},1\n" for cell in cells)
    )
    assert read_table(path)["x"].to_pylist() == (cells if numbers is None else numbers)


@pytest.mark.parametrize(
    ("late", "number"),
    [
        ("n/a", None),
        (" ", None),
        ("inf", np.inf),
        ("12345678901234567890.5", 1.2345678901234567e19),
    ],
)
def test_a_cell_of_another_kind_is_met_late(tmp_path, late, number):
    numbers = [i / 4 for i in range(9000)]
    cells = [f"{value}" for value in numbers]
    cells[8000] = late
    (path := tmp_path / "t.csv").write_text(
        "x,y\n" + "".join(f"{cell},{i}\n" for i, cell in enumerate(cells))
    )
    numbers[8000] = number
    assert read_table(path)["x"].to_pylist() == (cells if number is None else numbers)
    pieces = [piece for piece, _ in scan_table(path, "t", 2048)]
    assert [y for piece in pieces for y in piece["y"].to_pylist()] == list(range(9000))
    assert pieces[0]["x"].to_pylist() == numbers[: len(pieces[0])]
