"""Settings in a file: every key counts, and no table that they name is ever written over."""

import json
import os
import re
from importlib import import_module
from typing import get_type_hints

import numpy as np
import pytest
from typer.models import OptionInfo

from unjoined import FourLogistic, SeparateLabels, read_table, save_model
from unjoined.cli.entry import main
from unjoined.cli.program import COMMANDS, LOADED

pytestmark = pytest.mark.usefixtures("two_folds")

SETTINGS = """
outcomes = { north = "outcomes_north.parquet", south = "outcomes_south.parquet" }
treatments = { north = "treatments_north.parquet", south = "treatments_south.parquet" }
outcome = "bought"
treatment = "mailed"
model = "m.skops"
table = "customers.parquet"
share = "10%"

[check]
target = "target.csv"

[evaluate]
level = 0.9
estimator = "FourLogistic"
"""


def run(capsys, *arguments):
    """Run one command; return its exit code, stdout and stderr."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return stop.value.code or 0, printed.out, printed.err


@pytest.fixture(scope="module")
def shop(tmp_path_factory, write_campaign):
    """A campaign with settings and a model, in a folder that is not the working folder."""
    path = tmp_path_factory.mktemp("settings") / "shop"
    write_campaign(path, n_per_table=300, n_customers=50, seed=0)
    tables = [
        {
            name: read_table(path / f"{kind}_{name}.parquet")
            for name in ("north", "south")
        }
        for kind in ("outcomes", "treatments")
    ]
    data = SeparateLabels.from_tables(*tables, outcome="bought", treatment="mailed")
    save_model(FourLogistic().fit(**data), path / "m.skops")
    (path / "unjoined.toml").write_text(SETTINGS)
    (path / "target.csv").write_text("age,orders\n1,2\n")
    return path


def test_every_option_says_its_own_name():
    """Versions of typer differ in what they call an option that does not: 0.27 has --SHARE."""
    for name, (module, does) in COMMANDS.items():
        import_module(f"unjoined.cli.{module}")
        function, _ = LOADED[name]
        assert function.__doc__.startswith(does)
        for hint in get_type_hints(function, include_extras=True).values():
            for about in getattr(hint, "__metadata__", ()):
                if isinstance(
                    about, OptionInfo
                ):  # in annotations, the first word is a name
                    assert re.fullmatch("--[a-z-]+(/--[a-z-]+)?", str(about.default)), (
                        name,
                        about,
                    )


def test_a_share_above_the_sections_is_that_of_every_command(capsys, shop, tmp_path):
    settings = ("--config", shop / "unjoined.toml")
    code, out, _ = run(
        capsys, "score", *settings, "--out", tmp_path / "list.csv", "--json"
    )
    assert (code, json.loads(out)["treated"]) == (0, 5)
    code, out, _ = run(capsys, "evaluate", "--cross", *settings, "--json")
    assert code == 0
    assert "best 10%" in out
    pilot = ("--quantity", "top", "--half-width", "0.1", "--json")
    needs = []
    for share in ((), ("--share", "0.1"), ("--share", "50%")):
        code, out, _ = run(capsys, "plan-study", *settings, *pilot, *share)
        assert code == 0
        needs.append(json.loads(out)["needs"])
    assert needs[0] == needs[1]
    assert needs[0] != needs[2]


def test_a_typed_share_goes_before_the_budget_of_the_settings(capsys, shop, tmp_path):
    settings = SETTINGS.replace('share = "10%"', "budget = 4\ncost = 1\nvalue = 10")
    (shop / "budget.toml").write_text(settings)
    words = "score", "--config", shop / "budget.toml", "--force", "--despite-red"
    for typed, n in (((), 4), (("--share", "20%"), 10), (("--top", "7"), 7)):
        listed = tmp_path / "list.csv"
        code, _, said = run(capsys, *words, *typed, "--out", listed)
        assert code == 0, said
        assert sum(read_table(listed)["treat"].to_pylist()) == n
    code, _, said = run(capsys, *words, "--share", "20%", "--top", "7", "--out", listed)
    assert code
    assert "--share and --top both say how many" in said


def test_files_of_every_section_are_beside_the_settings(capsys, shop):
    cases = (
        ("report", 'list = "l.doc"'),
        ("check", 'target = "no.csv"'),
        ("export", 'sql = "no/q.sql"'),
    )
    for command, setting in cases:
        text = SETTINGS.replace("[check]\ntarget", "[init]\nout")
        (shop / "paths.toml").write_text(f"{text}[{command}]\n{setting}\n")
        code, _, err = run(capsys, command, "--config", shop / "paths.toml")
        assert code == 2
        assert f"'{shop}/" in err


def test_a_key_that_nobody_reads_is_an_error(capsys, shop):
    (shop / "key.toml").write_text(f'{SETTINGS}[score]\nconfig = "other.toml"\n')
    code, _, err = run(
        capsys, "score", "--config", shop / "key.toml", "--out", "list.csv"
    )
    assert code == 2
    assert "there is no setting 'config' in the section [score]" in err


@pytest.mark.parametrize(
    "way", ["same", "dotted", "symbolic link", "hard link", "folder", "new"]
)
def test_no_table_of_the_settings_is_overwritten(capsys, shop, tmp_path, way):
    table = shop / "outcomes_north.parquet"
    before = table.read_bytes()
    out, settings = table, shop / "unjoined.toml"
    if way == "dotted":
        out = shop / ".." / "shop" / table.name
    if way == "symbolic link":
        out = tmp_path / "link.parquet"
        os.symlink(table, out)
    if way == "hard link":
        out = tmp_path / "hard.parquet"
        os.link(table, out)
    if way in (
        "folder",
        "new",
    ):  # a list in a folder of outcomes would be read as outcomes
        out = table if way == "folder" else shop / "list.csv"
        (tmp_path / "all.toml").write_text(
            f'outcomes = "{shop}"\nmodel = "{shop}/m.skops"\ntable = "{shop}/customers.parquet"\n'
        )
        settings = tmp_path / "all.toml"
    code, _, err = run(capsys, "score", "--config", settings, "--force", "--out", out)
    assert code == 2
    assert f"--out {str(out)!r} is a table that the settings name" in err
    assert table.read_bytes() == before
    assert not (shop / "list.csv").exists()


def test_a_table_of_another_section_is_not_overwritten(capsys, shop):
    line = (
        "score",
        "--config",
        shop / "unjoined.toml",
        "--force",
        "--out",
        shop / "target.csv",
    )
    code, _, err = run(capsys, *line)
    assert code == 2
    assert "Nothing is written there, even with --force: name another file." in err
    assert (shop / "target.csv").read_text() == "age,orders\n1,2\n"


def test_a_list_that_the_settings_do_not_name_is_replaced(capsys, shop, tmp_path):
    line = (
        "score",
        "--config",
        shop / "unjoined.toml",
        "--out",
        tmp_path / "list.csv",
        "--force",
    )
    assert [run(capsys, *line)[0] for _ in range(2)] == [0, 0]
    assert np.sum(read_table(tmp_path / "list.csv")["treat"].to_pylist()) == 5
