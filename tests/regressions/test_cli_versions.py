"""The versions that the package declares are those that it is tested with."""

import re
import tomllib
from pathlib import Path

import pytest

import unjoined
from unjoined.cli import main

ROOT = Path(__file__).parents[2]
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
    named = [extras[name] for name in extras if name not in ("all", "docs", "test", "workflows")]
    return floors([*PROJECT["dependencies"], *(entry for extra in named for entry in extra)])


def test_the_oldest_environment_has_the_oldest_versions_that_are_declared():
    pinned = floors((ROOT / "constraints-oldest.txt").read_text("utf-8").splitlines())
    without_torch = {name: version for name, version in declared().items() if name != "torch"}
    assert without_torch.items() <= pinned.items()


def test_every_runtime_dependency_has_a_lowest_version():
    extras = PROJECT["optional-dependencies"]
    for name in set(extras) - {"all", "docs", "test"}:
        others = [entry for entry in extras[name] if not entry.startswith("unjoined[")]
        assert len(floors(others)) == len(others)
    assert len(floors(PROJECT["dependencies"])) == len(PROJECT["dependencies"])


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("--version", unjoined.__version__),
        ("--help", "Usage: unjoined [OPTIONS] COMMAND"),
        ("fit --help", "Usage: unjoined fit [OPTIONS]"),
    ],
)
def test_the_first_words_a_user_types_are_answered(capsys, words, answer):
    """With some pairs of typer and click every command printed the version, or help raised."""
    with pytest.raises(SystemExit) as stop:
        main(words.split())
    out, err = capsys.readouterr()
    assert (stop.value.code or 0, err) == (0, "")
    assert out.strip().startswith(answer)


def test_a_missing_option_is_told(capsys):
    """With some pairs of typer and click the command ran on without it."""
    with pytest.raises(SystemExit) as stop:
        main(["score", "--table", "t.csv", "--out", "o.csv"])
    assert stop.value.code == 2
    assert "Missing option '--model'" in capsys.readouterr().err
