"""Files as people have them: encodings, separators, titles, packing, sheets and databases."""

import contextlib
import gzip
import json
import sqlite3

import duckdb
import openpyxl
import pandas as pd
import pyarrow as pa
import pytest
import zstandard

from unjoined import SeparateLabels, read_table
from unjoined.data import SqlQuery, TableEncoder, write_table
from unjoined.data.tables import estimate_bytes, fits_in_memory
from unjoined.errors import TableError

PEOPLE = {
    "name": ["Müller", "Weiß", "Ärp"],
    "age": [31, 54, 22],
    "spend": [12.5, 1234.25, 7.0],
}
GERMAN = "name;age;spend\nMüller;31;12,5\nWeiß;54;1.234,25\nÄrp;22;7\n"
ENGLISH = "name,age,spend\nMüller,31,12.5\nWeiß,54,1234.25\nÄrp,22,7\n"
CONTENTS = {
    "utf-8.csv": ENGLISH.encode(),
    "bom.csv": ENGLISH.encode("utf-8-sig"),
    "utf-16.csv": ENGLISH.encode("utf-16"),
    "utf-16-le.csv": ENGLISH.encode("utf-16-le"),
    "utf-16-be.csv": ENGLISH.encode("utf-16-be"),
    "cp1252.csv": ENGLISH.encode("cp1252"),
    "german.csv": GERMAN.encode("cp1252"),
    "a comma in every row.csv": GERMAN.replace(";7\n", ";7,0\n").encode(),
    "tabs.txt": ENGLISH.replace(",", "\t").encode(),
    "bars.csv": ENGLISH.replace(",", "|").encode(),
    "title.csv": ("People of 2024\n\n" + ENGLISH).encode(),
    "titles.csv": ("People;;\nas of today;;\n;;\n" + GERMAN).encode("cp1252"),
    "packed.csv.gz": gzip.compress(ENGLISH.encode()),
    "packed.csv.zst": zstandard.compress(ENGLISH.encode()),
    "german.csv.gz": gzip.compress(GERMAN.encode("cp1252")),
    "lines.jsonl": "\n".join(
        json.dumps(dict(zip(PEOPLE, row, strict=True)))
        for row in zip(*PEOPLE.values(), strict=True)
    ).encode(),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_one_table_is_read_the_same_however_it_is_written(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(CONTENTS[name])
    assert read_table(path).to_pydict() == PEOPLE


@pytest.mark.parametrize(
    "name", ["german.csv", "titles.csv", "packed.csv.zst", "lines.jsonl"]
)
def test_pieces_of_such_files_are_the_rows_of_the_table(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(CONTENTS[name])
    source = SeparateLabels.from_tables(
        {"A": path}, {}, outcome="spend", treatment="t", features=["age"], stream=2
    )
    assert [float(v) for chunk in source.chunks() for v in chunk.label] == PEOPLE[
        "spend"
    ]


def test_a_letter_far_into_a_file_decides_its_encoding(tmp_path):
    path = tmp_path / "late.csv"
    rows = [f"Meier,{i}" for i in range(150_000)] + ["Müller,1"]
    path.write_bytes(("name,age\n" + "\n".join(rows)).encode("cp1252"))
    assert read_table(path).column("name")[-1].as_py() == "Müller"
    source = SeparateLabels.from_tables(
        {"A": path}, {}, outcome="age", treatment="t", features=["name"], stream=True
    )
    assert source.feature_names == ["name"]


@pytest.mark.parametrize("name", ["utf-8.csv", "titles.csv"])
def test_a_ragged_line_is_named_by_file_and_line(tmp_path, name):
    path = tmp_path / name
    mark = b";" if name == "titles.csv" else b","
    path.write_bytes(CONTENTS[name] + mark.join([b"Huber", b"44"]) + b"\n")
    line = CONTENTS[name].count(b"\n") + 1
    with pytest.raises(
        TableError, match=rf"{name}.*: line {line} has 2 cells, the header has 3"
    ):
        read_table(path)
    source = SeparateLabels.from_tables(
        {"A": path}, {}, outcome="spend", treatment="t", features=["age"], stream=True
    )
    with pytest.raises(TableError, match=rf"{name}.*line {line} has 2 cells"):
        list(source.chunks())


def test_an_index_that_pandas_wrote_has_a_name(tmp_path):
    pd.DataFrame(PEOPLE).to_csv(tmp_path / "t.csv")
    assert read_table(tmp_path / "t.csv").column_names == ["Unnamed: 0", *PEOPLE]


def test_a_line_that_is_too_short_is_no_title(tmp_path):
    (tmp_path / "t.csv").write_text("age\n1,2\n3,4\n")
    with pytest.raises(TableError, match="line 2 has 2 cells, the header has 1"):
        read_table(tmp_path / "t.csv")


def test_a_workbook_goes_in_and_out(tmp_path):
    table = pa.table(
        PEOPLE
        | {
            "on": pa.array(["2024-01-05", None, "2024-03-01"]).cast(pa.date32()),
            "vip": [True, False, None],
        }
    )
    path = write_table(table, tmp_path / "people.xlsx")
    assert read_table(path).to_pydict() == table.to_pydict()
    book = openpyxl.Workbook()
    for row in (
        ["People of 2024"],
        [None],
        ["name", "code"],
        ["Müller", 7],
        ["Weiß", "x"],
    ):
        book.active.append(row)
    book.save(tmp_path / "titled.xlsx")
    assert read_table(tmp_path / "titled.xlsx").to_pydict() == {
        "name": ["Müller", "Weiß"],
        "code": ["7", "x"],
    }
    book.active.append(["Huber", 1, "stray"])
    book.save(tmp_path / "stray.xlsx")
    with pytest.raises(
        TableError, match=r"row 5 of .*stray.xlsx.* a column that has no name"
    ):
        read_table(tmp_path / "stray.xlsx")
    (tmp_path / "no.xlsx").write_bytes(b"age,visit\n")
    with pytest.raises(
        TableError, match=r"no.xlsx' cannot be read as an Excel workbook"
    ):
        read_table(tmp_path / "no.xlsx")


def test_formulas_that_nobody_computed_are_not_missing_values(tmp_path):
    book = openpyxl.Workbook()
    for row in (["a", "b"], [1, 2], [3, "=A3*2"]):
        book.active.append(row)
    book.save(tmp_path / "made.xlsx")
    with pytest.raises(
        TableError, match=r"row 3 of .*made.xlsx' has the formula '=A3\*2'"
    ):
        read_table(tmp_path / "made.xlsx")


def test_json_of_several_kinds_is_text_without_quotes_and_nests_not_forever(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"the \\"zip\\"": 5}\n{"the \\"zip\\"": "north"}\n')
    assert read_table(path).to_pydict() == {'the "zip"': ["5", "north"]}
    path.write_text(f"{'[' * 100_000}\n")
    with pytest.raises(TableError, match="line 1 is not a JSON object"):
        read_table(path)


def test_tables_of_a_database_and_queries(tmp_path):
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE people AS SELECT * FROM (VALUES ('Ärp', 22)) t(name, age)"
        )
    expected = {"name": ["Ärp"], "age": [22]}
    assert read_table(f"{path}:people").to_pydict() == expected
    assert read_table(path).to_pydict() == expected
    assert read_table(SqlQuery("people", path)).to_pydict() == expected
    assert read_table("SELECT 22 AS age").to_pydict() == {"age": [22]}
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE orders AS SELECT 1 AS n")
    with pytest.raises(
        TableError, match=r"holds 2 tables: .* Say which one, as shop.duckdb:TABLE"
    ):
        read_table(path)
    with pytest.raises(TableError, match="peple"):
        read_table(f"{path}:peple")
    with pytest.raises(TableError, match="one SELECT that only reads"):
        read_table(SqlQuery("DROP TABLE people", path))


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".csv.gz"])
def test_the_size_of_a_table_is_estimated_from_its_file(tmp_path, ending):
    frame = pd.DataFrame(
        {"a": range(50_000), "b": [f"{i % 97} words" for i in range(50_000)]}
    )
    path = tmp_path / f"t{ending}"
    frame.to_parquet(path) if ending == ".parquet" else frame.to_csv(path, index=False)
    there = read_table(path).nbytes
    assert there / 4.0 < estimate_bytes(path) < 4.0 * there
    assert fits_in_memory([path, frame])
    assert not fits_in_memory([SqlQuery("SELECT * FROM range(1000000000000)")])


MOSCOW = "\u041c\u043e\u0441\u043a\u0432\u0430"


@pytest.mark.parametrize(
    ("content", "line", "byte"),
    [
        (f"{MOSCOW},y\n{MOSCOW},1\n".encode("cp1251"), 1, "0xCC"),
        (f"city,y\nkiel,0\n{MOSCOW},1\n".encode("cp1251"), 3, "0xCC"),
        ("city,y\n東京,1\n大阪,0\n".encode("shift-jis"), 2, "0x93"),
        ("city,y\nMünchen,1\n".encode() + b"Ba\xffl,0\n", 3, "0xFF"),
        (b"city,y\nK\xf6ln,1\n" + "München,0\n".encode(), 2, "0xF6"),
        (
            ("city,y\n" + "Köln,0\n" * 200_000).encode() + b"B\xe9ziers,1\n",
            200_002,
            "0xE9",
        ),
        (b"city,y\nk\x81ln,1\n", 2, "0x81"),
    ],
)
def test_letters_that_would_become_others_are_refused_by_line_and_byte(
    tmp_path, content, line, byte
):
    (path := tmp_path / "t.csv").write_bytes(content)
    message = rf"line {line:,} of '.*t\.csv' is not UTF-8 text \(byte {byte}\).*Save the file as"
    with pytest.raises(TableError, match=message):
        read_table(path)
    with pytest.raises(TableError, match=message):
        SeparateLabels.from_tables(
            {"A": path}, {}, outcome="y", treatment="t", features=["city"], stream=True
        ).chunks().encoded(TableEncoder())


@pytest.mark.parametrize(
    "words", [["Köln", "Zürich", "café"], ["naïve", "Ærø", "créée"]]
)
def test_western_files_of_two_encodings_have_the_same_letters(tmp_path, words):
    tables = []
    for encoding in ("utf-8", "cp1252", "utf-16"):
        (path := tmp_path / f"{encoding}.csv").write_text(
            "\n".join(["x", *words]), encoding
        )
        tables.append(read_table(path)["x"].to_pylist())
    assert tables == [words] * 3


def book(path, **sheets):
    """Write a workbook with some sheets of rows."""
    written = openpyxl.Workbook()
    written.remove(written.active)
    for name, rows in sheets.items():
        sheet = written.create_sheet(name)
        for row in rows:
            sheet.append(row)
    written.save(path)
    return path


def test_no_sheet_of_a_workbook_is_dropped_in_silence(tmp_path):
    north, south = [["age", "visit"], [30, 1]], [["age", "visit"], [40, 0], [50, 1]]
    path = book(
        tmp_path / "b.xlsx", **{"north.1": north, "south": south, "Notes": [["by me"]]}
    )
    with pytest.raises(
        TableError, match=r"2 sheets with rows: 'north.1', 'south'. Say which one"
    ):
        read_table(path)
    assert read_table(f"{path}:north.1").to_pydict() == {"age": [30], "visit": [1]}
    assert read_table(f"{path}:south").to_pydict() == {"age": [40, 50], "visit": [0, 1]}
    with pytest.raises(
        TableError, match=r"has no table 'nord'. Its tables are 'Notes', 'north.1'"
    ):
        read_table(f"{path}:nord")
    book(
        path, south=[["age", "visit"], [60, 0]]
    )  # what was read before is not shown again
    assert read_table(f"{path}:south").to_pydict() == {"age": [60], "visit": [0]}
    one = book(tmp_path / "one.xlsx", Legend=[["age in years"]], south=south)
    assert read_table(one).num_rows == 2


def test_a_row_of_formulas_that_nobody_computed_does_not_vanish(tmp_path):
    path = book(
        tmp_path / "b.xlsx", s=[["age", "visit"], [30, 1], ["=A2", "=B2"], [40, 0]]
    )
    with pytest.raises(TableError, match=r"row 3 of .*b.xlsx' has the formula '=A2'"):
        read_table(path)


def test_tables_of_a_sqlite_database_are_read(tmp_path):
    path = tmp_path / "shop.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as opened:
        opened.execute("CREATE TABLE people (id INTEGER, name TEXT, spent REAL)")
        opened.executemany(
            "INSERT INTO people VALUES (?, ?, ?)", [(1, "a", 1.5), (2, None, 2)]
        )
        opened.execute("CREATE VIEW ids AS SELECT id FROM people")
        opened.commit()
    assert read_table(f"{path}:people").to_pydict() == {
        "id": [1, 2],
        "name": ["a", None],
        "spent": [1.5, 2.0],
    }
    assert read_table(f"{path}:ids").to_pydict() == {"id": [1, 2]}
    with pytest.raises(
        TableError, match=r"holds 2 tables: 'ids', 'people'. Say which one"
    ):
        read_table(path)
    with pytest.raises(
        TableError, match=r"has no table 'peple'.*Did you mean 'people'"
    ):
        read_table(f"{path}:peple")
    before = path.read_bytes()
    with pytest.raises(TableError, match="must be one SELECT that only reads"):
        read_table(f"{path}:WITH a AS (SELECT 1) DELETE FROM people")  # noqa: S608
    assert path.read_bytes() == before
    path.write_bytes(before[:16] + b"?" * 2000)
    with pytest.raises(TableError, match="SQLite database that cannot be read"):
        read_table(f"{path}:people")
