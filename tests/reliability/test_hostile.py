"""Names and categories that mean mischief are shown as text on screens, in reports, CSV, SQL."""

import csv
import html.parser
import os
import re

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from unjoined import load_model, read_table
from unjoined.cli.entry import main
from unjoined.data import write_table

pytestmark = pytest.mark.usefixtures("two_folds")

MARKUP = "<img src=x onerror=alert(1)>"
QUOTES = "a'b\"c`; DROP TABLE people; --"
ESCAPE = "red \x1b[31m\x1b]0;title\x07"
FORMULA = "=cmd|' /C calc'!A0"
LINES = "two\nlines"
BIDI = "user\u202egpj.exe"
FEATURES = [
    MARKUP,
    QUOTES,
    ESCAPE,
    FORMULA,
    LINES,
    BIDI,
    "[bold red]rich[/]",
    "{{ 7 * 7 }}",
]
LEVELS = [
    "</script><script>alert(2)</script>",
    "'; DROP TABLE people; --",
    "=1+1",
    "\x1b[2J",
]
POPULATIONS = ["<b>east</b>", "we'st\x1b[0m"]


def table(label, share, rng, n=150):
    columns = {name: rng.normal(size=n) for name in FEATURES}
    columns["shop"] = np.array(LEVELS)[rng.integers(len(LEVELS), size=n)]
    treated = rng.random(n) < share
    if label == "treated":
        columns[label] = treated.astype(int)
    elif label == "bought":
        columns[label] = (rng.random(n) < 0.3 + 0.3 * treated).astype(int)
    return columns


def run(capsys, *words):
    with pytest.raises(SystemExit) as stop:
        main(list(map(str, words)))
    printed = capsys.readouterr()
    shown = printed.out + printed.err
    assert not stop.value.code, shown
    # Colours of our own are allowed for terminals only; here nobody has one.
    assert not re.search(
        "[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown
    )
    return shown


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile") / "<b>'\x1b[31m\n$(touch x); folder"
    path.mkdir()
    rng = np.random.default_rng(0)
    for kind, label in (("outcomes", "bought"), ("treatments", "treated")):
        parts = []
        for name, share in zip(POPULATIONS, (0.2, 0.8), strict=True):
            own = table(label, share, rng)
            parts.append(pa.table(own | {"place": [name] * 150}))
        write_table(pa.concat_tables(parts), path / f"{kind}.parquet")
    people = table("", 0.0, rng, 50) | {"id": [f"{FORMULA}{i}" for i in range(50)]}
    write_table(pa.table(people), path / "people.parquet")
    return path


class Elements(html.parser.HTMLParser):
    """Names of elements and of their handlers."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, sorted(name for name, _ in attrs)))


@pytest.fixture
def tables(folder):
    return [
        *(
            "--outcomes",
            folder / "outcomes.parquet",
            "--treatments",
            folder / "treatments.parquet",
        ),
        *("--population", "place", "--outcome", "bought", "--treatment", "treated"),
    ]


@pytest.fixture
def model(folder, tables, capsys):
    """The file of a model, which the first test that asks for it fits."""
    if not (path := folder / "m.skops").exists():
        words = "fit", *tables, "--estimator", "minmax", "--model", path, "--details"
        assert MARKUP in run(capsys, *words)
    return path


def test_lists_hold_no_formula_and_screens_no_escapes(folder, model, capsys):
    people = ["--model", model, "--table", folder / "people.parquet"]
    listed = [*people, "--keep", "id", "--share", "30%", "--out", folder / "list.csv"]
    assert "50 cells of" in run(capsys, "score", *listed)
    with (folder / "list.csv").open(newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not [cell for cell in cells if re.match("[=+@\t\r]", cell)]
    assert f"'{FORMULA}0" in cells


@pytest.mark.slow  # tests of the report have hostile names too
def test_a_report_shows_mischief_as_text(folder, model, tables, capsys):
    people, out = (
        ["--model", model, "--table", folder / "people.parquet"],
        folder / "r.html",
    )
    run(
        capsys,
        "report",
        *people,
        *tables,
        "--held-out",
        "--out",
        out,
        "--title",
        MARKUP,
    )
    text = out.read_text("utf-8")
    (page := Elements()).feed(text)
    names = {tag for tag, _ in page.found}
    assert not names & {"img", "iframe", "object", "embed", "link", "base"}
    assert not any(name.startswith("on") for _, attrs in page.found for name in attrs)
    assert "onerror=alert(1)" in text
    assert not re.search("<b>east|<script>alert|<img src=x", text)
    assert "{{ 7 * 7 }}" in text
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", text)


def test_a_query_of_hostile_names_scores_the_same_and_does_nothing_else(
    folder, model, capsys
):
    query, fitted = folder / "s.sql", load_model(model)
    name = 'peo"ple; DROP TABLE x; --'
    run(capsys, "export", "--model", model, "--sql", query, "--table", name)
    people = read_table(folder / "people.parquet")
    with duckdb.connect() as connection:
        connection.register(name, people)
        connection.execute("CREATE TABLE x AS SELECT 1")
        statements = connection.extract_statements(query.read_text("utf-8"))
        assert [statement.type.name for statement in statements] == ["SELECT"]
        found = connection.sql(query.read_text("utf-8")).to_arrow_table()
        assert connection.sql("SELECT count(*) FROM x").fetchall() == [(1,)]
    wanted = fitted.predict(people.select(list(fitted.feature_names_in_)))
    uplift = found.column(found.column_names[-1]).to_numpy()
    np.testing.assert_allclose(uplift, wanted, rtol=1e-6, atol=1e-9)
    assert not os.path.exists("x")
