"""Text files: every cell is read as it is written, or refused by name."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from unjoined import MinMaxUplift, SeparateLabels, read_table, save_model
from unjoined.cli.entry import main
from unjoined.errors import TableError

SAMPLE = 20_480  # rows by which DuckDB would settle types


def write(folder, content, name="t.csv"):
    path = folder / name
    raw = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    return stop.value.code or 0, capsys.readouterr().err


def streamed(path, **options):
    """Features of a file with the columns x and y, read in pieces."""
    source = SeparateLabels.from_tables(
        {"A": path}, {}, outcome="y", treatment="t", **options, stream=True
    )
    return np.concatenate([chunk.X for chunk in source.chunks()])[:, 0]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model of the one feature x, in a file."""
    rng = np.random.default_rng(0)
    tables = [
        {
            name: pa.table(
                {"x": rng.normal(size=99), label: (rng.random(99) < share).astype(int)}
            )
            for name, share in shares.items()
        }
        for label, shares in (("y", {"N": 0.5, "S": 0.3}), ("t", {"N": 0.8, "S": 0.2}))
    ]
    fast = MinMaxUplift(basis="linear", center=False, ridge_f=0.1, ridge_g=0.1)
    fitted = fast.fit(**SeparateLabels.from_tables(*tables, outcome="y", treatment="t"))
    return save_model(fitted, tmp_path_factory.mktemp("model") / "m.skops")


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_a_decimal_late_in_a_csv_is_not_rounded(tmp_path, name):
    path = write(tmp_path, "x,y\n" + "0,1\n" * (SAMPLE + 5000) + "0.55,1\n", name)
    assert read_table(path)["x"].to_pylist()[-1] == 0.55
    assert streamed(path)[-1] == 0.55


def test_a_csv_and_a_parquet_file_of_the_same_people_give_the_same_list(
    tmp_path, capsys, model
):
    rng = np.random.default_rng(0)
    # Whole numbers first, decimals behind what a sample would see.
    x = np.concatenate([rng.integers(0, 2, SAMPLE + 50), rng.normal(0.5, 0.3, 1000)])
    lists = []
    for ending, writer in (("csv", pa_csv.write_csv), ("parquet", pq.write_table)):
        people, scores = (
            tmp_path / f"people.{ending}",
            tmp_path / f"list_{ending}.parquet",
        )
        writer(pa.table({"x": x}), people)
        code, err = run(
            capsys, "score", "--model", model, "--table", people, "--out", scores
        )
        assert code == 0, err
        lists.append(pq.read_table(scores))
    assert lists[0].equals(lists[1])


def test_no_type_is_settled_by_a_sample(tmp_path):
    """Numbers then words, booleans then words, dates and long numbers keep every cell."""
    columns = {
        "id": ["1", "A17"],
        "flag": ["true", "maybe"],
        "day": ["2024-01-05", "soon"],
        "zip": ["00123", "99999"],
        "account": ["7", "12345678901234567890"],
        "long": ["1", "123456789012345678"],
        "hex": ["31", "0x1F"],
        "thousands": ['"1"', '"1,000"'],
        "number": ["1", " 2.5e0"],
        "truth": ["TRUE", "false"],
    }
    first, last = (",".join(cells) for cells in zip(*columns.values(), strict=True))
    path = write(
        tmp_path, "\n".join([",".join(columns), *[first] * (SAMPLE + 1), last])
    )
    table = read_table(path)
    found = {
        name: (str(table.schema.field(name).type), table[name][-1].as_py())
        for name in columns
    }
    assert found == {
        "id": ("string", "A17"),
        "flag": ("string", "maybe"),
        "day": ("string", "soon"),
        "zip": ("string", "99999"),
        "account": ("string", "12345678901234567890"),
        "long": ("int64", 123456789012345678),
        "hex": ("string", "0x1F"),
        "thousands": ("string", "1,000"),
        "number": ("double", 2.5),
        "truth": ("bool", False),
    }
    assert table["zip"][0].as_py() == "00123"


@pytest.mark.parametrize(
    "cell", ["0x1F", "00123", "1_000", '"1,5"', "12:30:00", "2024-01-05", "NA"]
)
def test_a_cell_that_is_no_number_is_refused_as_a_feature_with_its_row(tmp_path, cell):
    path = write(tmp_path, f"x,y\n1,0\n2,1\n{cell},0\n")
    with pytest.raises(
        TableError, match=r"column 'x' of '.*t\.csv' holds.*first at row 2,"
    ) as error:
        streamed(path)
    assert repr(cell.strip('"')) in str(error.value)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_kept_columns_come_out_as_they_went_in(tmp_path, capsys, model, ending):
    cells = {
        "id": ["00123", "12345678901234567890", "1.50", "TRUE", "2024-1-5", "#10"],
        "whole": ["1", "9007199254740993", "3", "4", "5", "+6"],
        "note": ['"a, b"', '"two\nlines"', "", " x ", "-5", "1e5"],
        "x": ["1", "2", "3", "4", "5", "6"],
    }
    lines = [
        ",".join(cells),
        *(",".join(row) for row in zip(*cells.values(), strict=True)),
    ]
    people, scores = (
        write(tmp_path, "\n".join(lines), "people.csv"),
        tmp_path / f"list.{ending}",
    )
    code, err = run(
        capsys,
        *("score", "--model", model, "--table", people, "--out", scores),
        *("--keep", "id,whole,note,x"),
    )
    assert (code, err) == (0, "")
    names = ("id", "whole", "note", "x")
    found = read_table(scores, text=names)
    rows = {tuple(str(found[name][i]) for name in names) for i in range(found.num_rows)}
    plain = zip(
        *[[c.strip('"') or "None" for c in cells[name]] for name in names], strict=True
    )
    assert rows == set(plain)


def test_rows_that_begin_with_a_hash_are_rows(tmp_path):
    path = write(tmp_path, "id,x,y\n#N/A,1,0\n#10,2,1\n3,3,0\n")
    assert read_table(path)["id"].to_pylist() == ["#N/A", "#10", "3"]
    source = SeparateLabels.from_tables(
        {"A": path}, {}, outcome="y", treatment="t", features=["x"], stream=True
    )
    assert [len(chunk) for chunk in source.chunks()] == [3]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("made, by us\nx,y,z\n1,2,3\n", "line 2 has 3 cells"),  # no line is skipped
        ("x,y\n1,2\n3\n", "line 3 has 1 cell, the"),  # no cell is made up
        ("x,y\n1,2\n3,4,5\n", "line 3 has 3 cells"),  # none is dropped
        ("x,y\n" + "1,2\n" * 30_000 + "3\n", "line 30,002 has 1 cell"),
        ('x,y\n1,"2\n3,4\n', "line 2 begins a quote that does not end"),
        ('x,y\n"a,2\n3,4\n"b,6\n', "line 2 begins a quote that does not end"),
        ("x,x\n1,2\n", "two columns named 'x'"),
        ("x,,y\n0,1,2\n", "column 2 of .* has no name"),
        ("a,b;c\n1,2;3\n", "Put quotes around names"),
    ],
)
def test_a_malformed_text_file_is_refused(tmp_path, content, message):
    path = write(tmp_path, content)
    with pytest.raises(TableError, match=message) as error:
        read_table(path)
    assert str(path) in str(error.value)
    with pytest.raises(TableError, match=message):
        list(
            SeparateLabels.from_tables(
                {"A": path}, {}, outcome="y", treatment="t", stream=True
            ).chunks()
        )


@pytest.mark.parametrize(
    "content",
    [
        "x,y\n1,a\n2,b\n",
        "\ufeffx,y\n1,a\n2,b\n",
        "# made by us\nx,y\n1,a\n2,b\n",
        "\nx,y\n1,a\n2,b\n",
        '\ufeff"x","y"\n1,"a"\n2,"b"\n',
        "x;y\r\n1;a\r\n2;b\r\n",
        "x\ty\n1\ta\n2\tb",
        "x|y\n\n1|a\n\n2|b\n",
        "x,y\r1,a\r2,b\r",
    ],
)
def test_marks_delimiters_and_line_ends_do_not_change_a_table(tmp_path, content):
    assert read_table(write(tmp_path, content)).to_pydict() == {
        "x": [1, 2],
        "y": ["a", "b"],
    }


def test_names_and_cells_may_hold_anything_within_quotes(tmp_path):
    path = write(tmp_path, '"it\'s; x","X","x"\n"a ""b"", c",1,2\n"two\r\nlines",3,4\n')
    assert read_table(path).to_pydict() == {
        "it's; x": ['a "b", c', "two\r\nlines"],
        "X": [1, 3],
        "x": [2, 4],
    }


def test_a_comma_that_cannot_separate_is_part_of_a_name(tmp_path):
    (file := tmp_path / "t.csv").write_bytes(',"\n2,5;'.encode("utf-16-le"))
    try:
        found = read_table(file)
    except TableError as error:
        assert "t.csv" in str(error)  # noqa: PT017
    else:
        assert found.column_names[0] == ',"'
