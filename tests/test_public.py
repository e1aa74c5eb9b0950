"""Public names: importable, documented, and light to import."""

import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

import unjoined


def test_every_public_name_is_there_and_documented():
    things = {name: getattr(unjoined, name) for name in unjoined.__all__}
    assert [
        name for name, thing in things.items() if callable(thing) and not thing.__doc__
    ] == []


def listed():
    """Return the modules and names of the page of public names."""
    page = (Path(__file__).parents[1] / "docs" / "api.md").read_text("utf-8")
    for section in page.split("\n## ")[1:]:
        module, *names = re.findall(r"`([\w.]+)`", section)
        yield from ((module, name) for name in names)


def test_every_name_of_the_page_is_where_it_says_and_documented():
    assert len(list(listed())) > 90
    for module, name in listed():
        thing = getattr(importlib.import_module(module), name)
        assert (inspect.getdoc(thing) or "").split("\n")[0], name


def test_the_page_lists_the_names_at_the_top():
    top = {name for module, name in listed() if module == "unjoined"}
    modules = {module.removeprefix("unjoined.") for module, _ in listed()}
    assert set(unjoined.__all__) - {"__version__"} <= top | modules


def test_a_module_says_that_the_names_of_the_page_are_public_and_no_others():
    """Packages that only a few names are public of have no list of them."""
    top = {name for home, name in listed() if home == "unjoined"}
    for module in sorted({module for module, _ in listed()} - {"unjoined"}):
        names = getattr(importlib.import_module(module), "__all__", None)
        on_page = {name for home, name in listed() if home == module}
        assert names is None or set(names) - top == on_page, module


def test_all_holds_strings_and_star_import_works():
    names = {}
    exec("from unjoined import *", names)  # noqa: S102
    assert set(unjoined.__all__) <= set(names)


EXTRAS = (
    "pandas",
    "polars",
    "pyarrow",
    "duckdb",
    "matplotlib",
    "typer",
    "rich",
    "skops",
    "torch",
)

# Makes the extras look as if they were not installed.
BLOCK = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRAS}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


def run(code, *words, check=True):
    command = [sys.executable, "-c", code, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done


LIGHT = f"""
import sys
def extras():
    return [m for m in {EXTRAS} if m in sys.modules]
import unjoined
assert extras() == [], extras()
import sklearn.linear_model
theirs = extras()
import unjoined.estimators
assert extras() == theirs, extras()
unjoined.load_model(sys.argv[1])
assert not {{"torch", "dask"}} & set(sys.modules)
"""


def test_importing_the_package_imports_no_extra_that_scikit_learn_does_not():
    """And loading a model that needs neither torch nor dask imports neither."""
    golden = Path(__file__).parent / "reliability" / "golden" / "0.1.0" / "minmax.skops"
    run(LIGHT, golden)


MISSING = {
    "unjoined.plot.plot_uplift_histogram([0.1])": "plot",
    "unjoined.read_table(table)": "cli",
    "unjoined.load_model('x.skops')": "cli",
}


def test_without_extras_the_core_fits_and_the_rest_says_which_install_brings_it(
    tmp_path,
):
    table = tmp_path / "x.csv"
    table.write_text("a\n1\n")
    code = f"""
import unjoined
table = {str(table)!r}
data = unjoined.data.paper_problem().draw(200, random_state=0)
print(unjoined.MinMaxUplift(random_state=0).fit(**data).predict(data.X).shape)
for call in {list(MISSING)}:
    try:
        eval(call)
    except unjoined.errors.MissingExtraError as error:
        print(error)
from unjoined.cli import main
main(["demo"])
"""
    done = run(BLOCK + code, check=False)
    shape, *messages = done.stdout.splitlines()
    assert shape == "(800,)"
    for message, extra in zip(messages, MISSING.values(), strict=True):
        assert message.endswith(f'Install it with: pip install "unjoined[{extra}]"')
    assert done.returncode == 2
    assert 'pip install "unjoined[cli]"' in done.stderr
    assert "Traceback" not in done.stderr


def test_an_import_error_inside_an_extra_is_passed_on(tmp_path):
    """An install hint would mislead: the package is installed."""
    (tmp_path / "matplotlib").mkdir()
    (tmp_path / "matplotlib" / "__init__.py").write_text("import no_such_dependency\n")
    first = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport unjoined\n"
    done = run(first + "unjoined.plot.plot_uplift_histogram([0.1])", check=False)
    assert done.stderr.strip().endswith("No module named 'no_such_dependency'")


ROOT = Path(__file__).parents[1]


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def floors(requirements):
    """Return the lowest version of each package, without trailing zeros."""
    found = {}
    for entry in requirements:
        if match := re.match(r"([\w-]+)(?:\[.*\])?(?:>=|==)([\d.]+)", entry):
            found[match[1]] = re.sub(r"(\.0)+$", "", match[2])
    return found


def declared():
    extras = PROJECT["optional-dependencies"]
    named = [
        extras[name]
        for name in extras
        if name not in ("all", "docs", "test", "workflows", "release")
    ]
    return floors(
        [*PROJECT["dependencies"], *(entry for extra in named for entry in extra)]
    )


def test_the_oldest_environment_has_the_oldest_versions_that_are_declared():
    pinned = floors((ROOT / "constraints-oldest.txt").read_text("utf-8").splitlines())
    without_torch = {
        name: version for name, version in declared().items() if name != "torch"
    }
    assert without_torch.items() <= pinned.items()


def test_every_runtime_dependency_has_a_lowest_version():
    extras = PROJECT["optional-dependencies"]
    for name in set(extras) - {"all", "docs", "test"}:
        others = [entry for entry in extras[name] if not entry.startswith("unjoined[")]
        assert len(floors(others)) == len(others)
    assert len(floors(PROJECT["dependencies"])) == len(PROJECT["dependencies"])


def test_the_recipe_for_conda_is_the_package_with_its_command():
    recipe = yaml.safe_load((ROOT / "recipe" / "meta.yaml").read_text("utf-8"))
    extras = PROJECT["optional-dependencies"]
    asked = [*PROJECT["dependencies"], *extras["plot"], *extras["cli"]]
    wanted = floors([*asked, *extras["report"]])
    names = {"python-duckdb": "duckdb", "matplotlib-base": "matplotlib"}
    run = dict(entry.split(" >=") for entry in recipe["requirements"]["run"])
    assert run.pop("python") == PROJECT["requires-python"].removeprefix(">=")
    assert {names.get(name, name): version for name, version in run.items()} == wanted
    assert recipe["package"] == {
        "name": PROJECT["name"],
        "version": unjoined.__version__,
    }
    (command,) = recipe["build"]["entry_points"]
    assert dict([command.split(" = ")]) == PROJECT["scripts"]
    assert recipe["about"]["summary"] == PROJECT["description"]
