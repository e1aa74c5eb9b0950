"""A list for a spreadsheet holds no text that the spreadsheet would run."""

import csv
import datetime as dt
from decimal import Decimal

import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unjoined import MinMaxUplift, SeparateLabels, read_table, save_model
from unjoined.cli.entry import main
from unjoined.data import write_table
from unjoined.errors import TableError, UnjoinedWarning

FORMULAS = [
    "=cmd|' /C calc'!A0",
    "+1+1",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "-",
    "＝1",  # noqa: RUF001
]
HARMLESS = [
    "-5",
    "+49170",
    "-0.5e-3",
    "a=b",
    "#10",
    "00123",
    "'",
    "",
    None,
    "x-y",
    " =1",
    "-inf",
]


def cells(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), "dictionary"])
def test_text_that_begins_a_formula_gets_a_quote_in_csv_and_a_warning(tmp_path, kind):
    text = pa.array(FORMULAS + HARMLESS)
    text = text.dictionary_encode() if kind == "dictionary" else text.cast(kind)
    table = pa.table({"id": text, "uplift": np.linspace(-1.0, 1.0, len(text))})
    with pytest.warns(
        UnjoinedWarning, match=rf"{len(FORMULAS)} cells of '.*list\.csv'.*quote"
    ):
        path = write_table(table, tmp_path / "list.csv")
    header, *rows = cells(path)
    assert header == ["id", "uplift"]
    found = [row[0] for row in rows]
    assert found == [f"'{text}" for text in FORMULAS] + [
        text or "" for text in HARMLESS
    ]
    assert [float(row[1]) for row in rows] == table[
        "uplift"
    ].to_pylist()  # numbers stay numbers


def test_names_of_columns_are_text_too(tmp_path):
    with pytest.warns(UnjoinedWarning, match="1 cell of"):
        path = write_table(pa.table({"=1+1": [1]}), tmp_path / "t.csv")
    assert cells(path) == [["'=1+1"], ["1"]]


def test_parquet_and_harmless_text_are_written_as_they_are(tmp_path):
    table = pa.table({"id": FORMULAS + [text or "." for text in HARMLESS]})
    assert pq.read_table(write_table(table, tmp_path / "t.parquet")).equals(table)
    harmless = pa.table({"id": [text for text in HARMLESS if text]})
    path = write_table(harmless, tmp_path / "t.csv")
    assert read_table(path, text=["id"]).to_pydict() == harmless.to_pydict()


@pytest.mark.parametrize("value", [[1.0], {"a": 1}, b"raw", dt.timedelta(1)])
def test_a_column_that_csv_has_no_form_for_is_named(tmp_path, value):
    table = pa.table({"good": [1], "bad": [value]})
    with pytest.raises(TableError, match=r"column 'bad' holds .* write Parquet"):
        write_table(table, tmp_path / "t.csv")
    assert not (tmp_path / "t.csv").exists()
    assert pq.read_table(write_table(table, tmp_path / "t.parquet")).equals(table)


def test_score_says_that_it_changed_cells(tmp_path, capsys):
    rng = np.random.default_rng(0)
    outcomes, treatments = (
        {
            name: pd.DataFrame(
                {"x": rng.normal(size=300), label: np.arange(300) % k == 0}
            )
            for name, k in (("N", 2), ("S", 5))
        }
        for label in ("y", "t")
    )
    data = SeparateLabels.from_tables(outcomes, treatments, outcome="y", treatment="t")
    fast = MinMaxUplift(basis="linear", center=False, ridge_f=0.1, ridge_g=0.1)
    model = save_model(fast.fit(**data), tmp_path / "m.skops")
    people, out = tmp_path / "people.csv", tmp_path / "list.csv"
    people.write_text("id,balance,x\n=cmd(),-5,1\n7,-6,2\n")
    with pytest.raises(SystemExit) as stop:
        main(
            [
                *(
                    "score",
                    "--model",
                    str(model),
                    "--table",
                    str(people),
                    "--out",
                    str(out),
                ),
                *("--keep", "id,balance"),
            ]
        )
    assert not stop.value.code
    assert "1 cell of" in capsys.readouterr().err
    assert {tuple(row[:2]) for row in cells(out)[1:]} == {
        ("'=cmd()", "-5"),
        ("7", "-6"),
    }


def in_sheet(path):
    """Return the cells below the header, as a workbook holds them."""
    sheet = openpyxl.load_workbook(path).active
    return [row[0] for row in sheet.iter_rows(min_row=2, values_only=True)]


LONG_IDS = [12345678901234567, 12345678901234568]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (LONG_IDS, list(map(str, LONG_IDS))),
        (pa.array([2**64 - 1], pa.uint64()), [str(2**64 - 1)]),
        ([10**15 - 1, None, -1], [10**15 - 1, None, -1]),
        ([-(10**15), None, 1], [str(-(10**15)), None, "1"]),
        ([Decimal("12345678901234567.89")], ["12345678901234567.89"]),
        (pa.array([0], pa.timestamp("us", "UTC")), ["1970-01-01 00:00:00.000000Z"]),
        ([dt.date(1850, 1, 1), dt.date(2000, 1, 1)], ["1850-01-01", "2000-01-01"]),
        ([dt.datetime(2000, 1, 1, 5)], [dt.datetime(2000, 1, 1, 5)]),
    ],
)
def test_a_workbook_holds_every_digit_and_time_zone(tmp_path, values, expected):
    path = write_table(pa.table({"id": values}), tmp_path / "t.xlsx")
    assert in_sheet(path) == expected


def test_a_workbook_without_control_characters_opens_and_says_so(tmp_path):
    table = pa.table({"a\x07": ["b\x07ell", None, "\uffff", "fine"]})
    with pytest.warns(
        UnjoinedWarning, match="2 cells of the column .* control characters"
    ):
        path = write_table(table, tmp_path / "t.xlsx")
    assert in_sheet(path) == ["b\ufffdell", None, "\ufffd", "fine"]
    assert read_table(path).column_names == ["a\ufffd"]
    assert read_table(write_table(table, tmp_path / "t.csv")).equals(table)


def test_text_longer_than_a_cell_is_refused_rather_than_cut(tmp_path):
    with pytest.raises(
        TableError, match="40,000 characters, a cell of Excel holds 32,767"
    ):
        write_table(pa.table({"note": ["x" * 40_000]}), tmp_path / "t.xlsx")
    assert not (tmp_path / "t.xlsx").exists()


def test_text_of_polars_in_its_newest_form_is_text(tmp_path):
    if not hasattr(pa, "string_view"):
        pytest.skip("this version of pyarrow has no such type")
    table = pa.table({"id": pa.array(["a", "=1"], pa.string_view())})
    with pytest.warns(UnjoinedWarning, match="1 cell of"):
        path = write_table(table, tmp_path / "t.csv")
    assert cells(path) == [["id"], ["a"], ["'=1"]]
