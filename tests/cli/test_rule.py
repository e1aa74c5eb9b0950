"""The command rule says, draws and writes what `learn_rule` finds."""

import json

import duckdb
import pytest

from unjoined import SeparateLabels, load_model, read_table
from unjoined.cli.entry import main
from unjoined.evaluate.estimate import as_text
from unjoined.targeting import learn_rule

pytestmark = pytest.mark.usefixtures("two_folds")


@pytest.fixture(scope="module")
def shop(tmp_path_factory, write_campaign):
    """A folder with four tables, settings and a fitted model."""
    folder = tmp_path_factory.mktemp("rule")
    write_campaign(folder, n_per_table=900, n_customers=200, seed=0)
    tables = {
        kind: ", ".join(f'{n} = "{kind}_{n}.parquet"' for n in ("north", "south"))
        for kind in ("outcomes", "treatments")
    }
    lines = [f"{kind} = {{ {named} }}" for kind, named in tables.items()]
    lines += ['outcome = "bought"', 'treatment = "mailed"', 'model = "model.skops"']
    (folder / "unjoined.toml").write_text(
        "\n".join([*lines, "[rule]", 'table = "crm"'])
    )
    with pytest.raises(SystemExit) as stop:
        main(["fit", "--config", str(folder / "unjoined.toml")])
    assert not stop.value.code
    return folder


def run(folder, capsys, *words):
    with pytest.raises(SystemExit) as stop:
        main(["rule", "--config", str(folder / "unjoined.toml"), *map(str, words)])
    printed = capsys.readouterr()
    return stop.value.code or 0, printed.out, printed.err


def test_the_command_says_what_the_function_finds(shop, tmp_path, capsys):
    data = SeparateLabels.from_tables(
        *(
            {n: read_table(shop / f"{kind}_{n}.parquet") for n in ("north", "south")}
            for kind in ("outcomes", "treatments")
        ),
        outcome="bought",
        treatment="mailed",
    )
    model = load_model(shop / "model.skops")
    rule = learn_rule(model, data, share=0.4, max_depth=1, random_state=0)
    files = ["--sql", tmp_path / "rule.sql", "--picture", tmp_path / "rule.png"]
    asked = ["--share", "40%", "--depth", "1", "--keep", "customer_id", *files]
    code, out, _ = run(shop, capsys, *asked, "--details")
    assert code == 0
    said = " ".join(out.split())
    shown = [
        *rule.sentences("responses"),
        *as_text([], rule.result_tables()).splitlines(),
    ]
    assert all(" ".join(line.split()) in said for line in shown)
    assert (tmp_path / "rule.png").read_bytes().startswith(b"\x89PNG")
    people = duckdb.read_parquet(str(shop / "customers.parquet"))
    connection = duckdb.connect()
    connection.register("crm", people.arrow())
    given = connection.sql((tmp_path / "rule.sql").read_text()).df()
    customers = people.df()
    assert (given["treat"] == rule.assign(customers[data.feature_names])).all()
    assert (given["customer_id"] == customers["customer_id"]).all()
    code, _, err = run(shop, capsys, *asked)
    assert code
    assert "--force" in err
    code, out, _ = run(shop, capsys, "--share", "0.4", "--depth", "1", "--json")
    plain = json.loads(out)
    assert plain["gain"]["value"] == pytest.approx(rule.gain.value)
    assert plain["leaves"][0]["where"] == rule.leaves[0].where


def test_what_the_command_cannot_take(shop, tmp_path, capsys):
    for words, message in (
        (["--by", "agee"], "--by names 'agee'"),
        (["--cost", "3"], "--cost needs --value"),
        (["--cost", "mail=3", "--value", "2"], "takes one number"),
        (["--keep", "customer_id"], "give --sql too"),
        (["--picture", tmp_path / "rule.txt"], ".png"),
        (["--depth", "9"], "--depth"),
        (["--share", "300%"], "100%"),
    ):
        code, _, err = run(shop, capsys, *words)
        assert code, words
        assert message in " ".join(err.split()), words


def test_on_red_tables_no_rule_is_written(shop, tmp_path, capsys):
    """Outcomes of one population under both names cannot tell anything."""
    for kind in ("outcomes", "treatments"):
        for name in ("north", "south"):
            rows = read_table(shop / f"{kind}_north.parquet")
            half = rows.slice(0, 450) if name == "north" else rows.slice(450)
            duckdb.from_arrow(half).write_parquet(
                str(tmp_path / f"{kind}_{name}.parquet")
            )
    (tmp_path / "unjoined.toml").write_text((shop / "unjoined.toml").read_text())
    with pytest.raises(SystemExit):
        main(["fit", "--config", str(tmp_path / "unjoined.toml")])
    capsys.readouterr()
    sql = tmp_path / "rule.sql"
    code, out, _ = run(tmp_path, capsys, "--sql", sql)
    assert code == 3
    assert "red" in out
    assert not sql.exists()
    code, out, _ = run(tmp_path, capsys, "--sql", sql, "--despite-red")
    assert code == 0
    assert sql.exists()
