"""Documents say what is true: their examples run, their lists and numbers are the real ones."""

import ast
import importlib
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import unjoined
from unjoined.cli.entry import main
from unjoined.data.raw import write_raw_files
from unjoined.errors import ANCHORS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
OTHERS = [
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    *(ROOT / f"{folder}/README.md" for folder in ("tests", "studies", "studies/paper")),
]
SOURCES = sorted((ROOT / "src" / "unjoined").rglob("*.py"))


@cache
def parsed(path):
    return ast.parse(path.read_text())


def python_blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.M | re.S)


@pytest.fixture(scope="session")
def files(tmp_path_factory, write_campaign):
    """The files that examples read."""
    folder = tmp_path_factory.mktemp("files")
    write_campaign(folder / "campaign", n_per_table=300, n_customers=20, seed=0)
    write_raw_files(folder / "shop", n_per_table=800, n_customers=1000, seed=0)
    return folder


@pytest.mark.filterwarnings(
    "ignore::unjoined.errors.ColumnWarning"
)  # of ids in raw files
@pytest.mark.parametrize(
    "page", [p for p in PAGES if python_blocks(p)], ids=lambda p: p.name
)
@pytest.mark.usefixtures("two_folds")
def test_examples_of_a_page_run_in_order(page, files, here):
    shutil.copytree(files, here, dirs_exist_ok=True)
    names = {}
    for block in python_blocks(page):
        exec(compile(block, str(page), "exec"), names)  # noqa: S102 - our own pages
    assert names


def test_links_between_pages_lead_somewhere():
    for page in (*PAGES, *OTHERS):
        for target in re.findall(
            r"\]\(([\w./-]+\.(?:md|png|cff))(?:#[^)]*)?\)", page.read_text()
        ):
            assert (page.parent / target.strip()).exists(), target


def test_files_that_pages_name_exist():
    named = [
        (page.name, path)
        for page in (*PAGES, *OTHERS)
        for path in re.findall(
            r"\b(?:tests|tools|benchmarks|docs|studies)/[\w./-]+\.(?:py|json|md)\b",
            page.read_text("utf-8"),
        )
    ]
    assert len(named) > 50
    assert [each for each in named if not (ROOT / each[1]).exists()] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "example", sorted((ROOT / "docs" / "examples").glob("*/*.py")), ids=lambda p: p.stem
)
def test_examples_draw_the_pictures_of_the_pages(example, tmp_path):
    subprocess.run(
        [sys.executable, str(example), str(tmp_path)], check=True, cwd=tmp_path
    )
    pictures = list(tmp_path.glob("*.png"))
    assert pictures
    assert all(
        (ROOT / "docs" / "images" / picture.name).exists() for picture in pictures
    )


@pytest.mark.slow
def test_numbers_of_the_readme_are_those_of_the_demo(tmp_path):
    """To two hundredths: networks differ a little between machines."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "unjoined",
            "demo",
            "--json",
            "--out",
            str(tmp_path / "d"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    methods = json.loads(done.stdout)["methods"]
    readme = (ROOT / "README.md").read_text()
    stated = dict(re.findall(r"^\| (\w+): .* \| (-?[0-9.]+) \|$", readme, flags=re.M))
    assert set(stated) == set(methods)
    for name, value in stated.items():
        assert float(value) == pytest.approx(methods[name]["oracle_share"], abs=0.02)


def screens():
    """Return commands in the order of the pages, and the lines that each is said to print."""
    readme = PAGES[0].read_text()
    commands = re.findall(r"^unjoined ((?:init|fit|score) .*)$", readme, flags=re.M)
    (shown,) = re.findall(r"^```text\n(.*?)^```", readme, flags=re.M | re.S)
    found = [(command, "") for command in commands[:-1]] + [(commands[-1], shown)]
    for page in ("start", "report"):
        text = (ROOT / "docs" / "guide" / f"{page}.md").read_text()
        for block in re.findall(r"^```console\n(\$ .*?)^```", text, flags=re.M | re.S):
            parts = re.split(r"^\$ unjoined (.*)\n", block, flags=re.M)
            found += zip(parts[1::2], parts[2::2], strict=True)
    return found


@pytest.mark.slow
def test_screens_of_the_pages_are_what_the_commands_print(here):
    """Every line, in order; a line of three dots stands for those that are not shown."""
    write_raw_files(here / "shop", n_per_table=5000, n_customers=2000, seed=0)
    assert len(screens()) > 9
    for command, shown in screens():
        words = shlex.split(command)
        if words[0] in ("fit", "score", "report"):
            words.append("--force")
        done = subprocess.run(
            [sys.executable, "-m", "unjoined", *words],
            capture_output=True,
            text=True,
            check=True,
            cwd=here,
            env=os.environ | {"COLUMNS": "80"},
        )
        printed = (line.rstrip() for line in done.stdout.splitlines())
        wanted = [line for line in shown.splitlines() if line != "..."]
        assert [line for line in wanted if line not in printed] == [], command


def test_tables_of_which_estimator_are_those_of_the_benchmark(tmp_path, capsys):
    """The page quotes the committed results, line by line."""
    script = ROOT / "docs" / "examples" / "3-comparison" / "which_estimator.py"
    before = sys.path[:]
    runpy.run_path(str(script))["main"](tmp_path)
    sys.path[:] = before  # the script adds the benchmarks in front
    page = (ROOT / "docs" / "guide" / "which-estimator.md").read_text().splitlines()
    printed = capsys.readouterr().out.splitlines()
    tables = [line for line in printed if line.startswith("| ")]
    assert len(tables) > 28
    assert [line for line in page if line in tables] == tables


def test_every_file_says_what_it_is_for():
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "files.py")],
        capture_output=True,
        text=True,
        check=True,
    )
    listed = dict(
        re.findall(r"^\| `([\w./]+\.py)` \| (.*) \|$", done.stdout, flags=re.M)
    )
    real = {str(path.relative_to(ROOT / "src" / "unjoined")) for path in SOURCES}
    assert set(listed) == {path for path in real if not path.endswith("__init__.py")}
    assert all(listed.values())


def test_the_citation_and_the_package_agree_on_the_version():
    assert f"version: {unjoined.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {unjoined.__version__}" in (ROOT / "CHANGELOG.md").read_text()


IMPORTS = re.compile(r"^\s*from unjoined[\w.]* import (\([^)]*\)|.*)$", re.M)


def private_imports(path):
    """Return the private names that a test imports."""
    lists = IMPORTS.findall(path.read_text())
    return [name for names in lists for name in re.findall(r"(?<!as )\b_\w+", names)]


def test_tests_import_no_private_name_and_patch_little():
    """The number may go down and not up. Limits lowered by the fixture `limits` do not count."""
    tests = sorted((ROOT / "tests").rglob("*.py"))
    assert {
        path.name: names for path in tests if (names := private_imports(path))
    } == {}
    patched = [
        path.name
        for path in tests
        if re.search("monkey[p]atch", path.read_text(), re.I)
    ]
    assert len(patched) <= 25, patched


def test_messages_of_the_page_of_messages_are_those_of_the_code():
    page = (ROOT / "docs" / "guide" / "errors.md").read_text()
    anchored = dict(re.findall(r"^\(([\w-]+)\)=\n### `([^`]+)`$", page, flags=re.M))
    quoted = re.findall(r"^### `([^`]+)`$", page, flags=re.M)
    assert list(anchored.values()) == quoted
    assert ANCHORS.items() <= {words: at for at, words in anchored.items()}.items()
    sources = (path for path in SOURCES if path.name != "errors.py")
    nodes = [node for path in sources for node in ast.walk(parsed(path))]
    texts = [
        n.value
        for n in nodes
        if isinstance(n, ast.Constant) and isinstance(n.value, str)
    ]
    assert len(quoted) > 15
    assert [words for words in quoted if not any(words in text for text in texts)] == []


def test_a_message_names_the_place_that_says_more(capsys):
    tables = "--outcomes no.csv --treatments no.csv --population region"
    with pytest.raises(SystemExit):
        main(f"check {tables} --outcome y --treatment t".split())
    assert capsys.readouterr().err.endswith(" More: guide/errors.html#no-file\n")


def test_every_page_begins_with_a_sentence_that_the_list_of_pages_can_show(monkeypatch):
    """It says what the page answers, without markup, for llms.txt of the built documentation."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    opening = importlib.import_module("prose").opening
    for page in (*PAGES, *(ROOT / "docs").glob("*.md")):
        title, sentence = opening(page.read_text("utf-8"))
        assert title, page
        assert 3 < len(sentence.split()) < 50, (page, sentence)
        assert sentence[-1] in ".?!", (page, sentence)


def test_the_documentation_is_short_enough_to_read():
    """Without the page of the paper, which is generated."""
    pages = [*PAGES[1:], *(ROOT / "docs").glob("*.md")]
    assert len(pages) <= 22
    words = sum(len(p.read_text("utf-8").split()) for p in pages if p.stem != "paper")
    assert words <= 20_000


def test_every_page_of_the_guide_has_a_place_in_the_order_but_once():
    index = (ROOT / "docs" / "index.md").read_text()
    placed = re.findall(r"^(?:guide|notebooks)/[\w-]+$", index, flags=re.M)
    assert len(set(placed)) == len(placed)
    pages = {f"guide/{page.stem}" for page in PAGES[1:]}
    sources = {
        f"notebooks/{p.stem}" for p in (ROOT / "docs" / "notebooks").glob("*.py")
    }
    assert pages | sources <= set(placed)
