"""Public names: importable, documented, and light to import."""

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import unjoined


@pytest.mark.parametrize("name", unjoined.__all__)
def test_every_public_name_is_there_and_documented(name):
    thing = getattr(unjoined, name)
    if callable(thing):
        assert inspect.getdoc(thing)


def listed():
    """Return the modules and names of the page of public names."""
    page = (Path(__file__).parents[1] / "docs" / "api.md").read_text("utf-8")
    for section in page.split("\n## ")[1:]:
        module = section.split("`")[1]
        yield from ((module, name) for name in re.findall(r"^\| `(\w+)` \|", section, flags=re.M))


@pytest.mark.parametrize(("module", "name"), list(listed()))
def test_every_name_of_the_page_is_where_it_says_and_documented(module, name):
    thing = getattr(importlib.import_module(module), name)
    first = (inspect.getdoc(thing) or "").split("\n")[0]
    page = (Path(__file__).parents[1] / "docs" / "api.md").read_text("utf-8")
    assert first
    assert f"| `{name}` | {first} |" in page


def test_the_page_lists_the_names_at_the_top():
    top = {name for module, name in listed() if module == "unjoined"}
    modules = {module.removeprefix("unjoined.") for module, _ in listed()}
    assert set(unjoined.__all__) - {"__version__"} <= top | modules


def test_all_holds_strings_and_star_import_works():
    names = {}
    exec("from unjoined import *", names)  # noqa: S102
    assert set(unjoined.__all__) <= set(names)


EXTRAS = ("pandas", "polars", "pyarrow", "duckdb", "matplotlib", "typer", "rich", "skops", "torch")

# Makes the extras look as if they were not installed.
BLOCK = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRAS}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


def run(code, *, check=True):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done


def test_importing_the_package_imports_no_extra_that_scikit_learn_does_not():
    code = f"import sys, {{}}; print([m for m in {EXTRAS} if m in sys.modules])"
    ours = run(code.format("unjoined")).stdout
    assert ours == run(code.format("sklearn.linear_model")).stdout


@pytest.mark.parametrize(
    ("call", "extra"),
    [
        ("unjoined.plot.plot_uplift_histogram([0.1])", "plot"),
        ("unjoined.read_table('x.csv')", "cli"),
        ("unjoined.load_model('x.skops')", "cli"),
    ],
)
def test_a_missing_extra_says_which_install_brings_it(call, extra):
    done = run(f"{BLOCK}\nimport unjoined\n{call}", check=False)
    assert done.stderr.strip().endswith(f'Install it with: pip install "unjoined[{extra}]"')


def test_the_core_fits_without_any_extra():
    code = """
from unjoined import MinMaxUplift
from unjoined.data import paper_problem
data = paper_problem().draw(200, random_state=0)
print(MinMaxUplift(random_state=0).fit(**data).predict(data.X).shape)
"""
    assert run(BLOCK + code).stdout.strip() == "(800,)"


def test_without_its_extra_the_command_says_how_to_get_it():
    done = run(f"{BLOCK}\nfrom unjoined.cli import main\nmain(['demo'])", check=False)
    assert done.returncode == 2
    assert 'pip install "unjoined[cli]"' in done.stderr
    assert "Traceback" not in done.stderr
