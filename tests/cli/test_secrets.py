"""No password of an address is shown, written or saved."""

import copy
import pickle

import pandas as pd
import pytest

from unjoined import FourLogistic, SeparateLabels, read_table, save_model
from unjoined.cli.entry import main
from unjoined.errors import ColumnWarning, MissingExtraError, TableError

pytestmark = pytest.mark.usefixtures("two_folds")

SECRET = "hunter2"  # noqa: S105
ADDRESSES = [
    f"https://me:{SECRET}@shop.example/a.csv",
    f"https://me:{SECRET}@at@shop.example/a.csv",
    f"https://{SECRET}@shop.example/a.csv",
    f"https://shop.example/a.csv?x=1&access_token={SECRET}",
    f"s3://key:{SECRET}@bucket/a.parquet?s3_secret_access_key={SECRET}",
    f"FROM 'https://me:{SECRET}@shop.example/a.csv'",
    f"FROM read_csv('https://shop.example/a.csv', password='{SECRET}')",
]


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return stop.value.code, printed.out + printed.err


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    path = tmp_path_factory.mktemp("secrets")
    rows = pd.DataFrame({"age": range(80), "y": [0, 1] * 40})
    tables = [
        {n: rows.rename(columns={"y": label}) for n in "ab"} for label in ("y", "t")
    ]
    data = SeparateLabels.from_tables(
        *tables, outcome="y", treatment="t", features=["age"]
    )
    save_model(FourLogistic().fit(**data), path / "m.skops")
    return path


@pytest.mark.filterwarnings("ignore::unjoined.errors.UnjoinedWarning")
def test_no_message_shows_a_password(capsys, shop):
    for address in ADDRESSES:
        for words in ((), ("--json",)):
            line = (
                "score",
                "--model",
                shop / "m.skops",
                "--table",
                address,
                "--out",
                shop / "l.csv",
            )
            code, said = run(capsys, *line, *words)
            assert code == 2
            assert "example" in said or "bucket" in said
            assert SECRET not in said
            with pytest.raises(TableError) as error:
                read_table(address)
            assert SECRET not in str(error.value)
            assert SECRET not in repr(error.value)


def test_the_report_repeats_a_command_without_its_password(
    capsys, tmp_path, write_campaign
):
    write_campaign(tmp_path, n_per_table=300, n_customers=50, seed=0)
    hidden = f"/* https://me:{SECRET}@shop.example */"
    tables = []
    for kind in ("outcomes", "treatments"):
        for name in ("north", "south"):
            query = f"FROM '{tmp_path}/{kind}_{name}.parquet' {hidden}"
            tables += [f"--{kind}", f"{name}={query}"]
    tables += ["--outcome", "bought", "--treatment", "mailed"]
    model, page = tmp_path / "m.skops", tmp_path / "r.html"
    fit = ("fit", *tables, "--model", model, "--estimator", "FourLogistic", "--json")
    people = ("--table", f"FROM '{tmp_path}/customers.parquet' {hidden}")
    for line in (
        fit,
        ("report", *tables, *people, "--model", model, "--out", page, "--json"),
    ):
        code, said = run(capsys, *line)
        assert not code
        assert SECRET not in said
    text = page.read_text("utf-8")
    assert "***@shop.example" in text
    assert SECRET not in text
    assert SECRET.encode() not in model.read_bytes()


def test_errors_and_warnings_are_as_before_but_for_the_password():
    for kind in (TableError, MissingExtraError, ColumnWarning):
        error = kind(f"ask ftp://me:{SECRET}@host/x for north=a.csv")
        assert str(error) == "ask ftp://***@host/x for north=a.csv"
        assert (
            str(pickle.loads(pickle.dumps(error)))  # noqa: S301
            == str(copy.copy(error))
            == str(error)
        )
    plain = "'C:/a@b/north=x.csv' has 5 @ signs, and key=7"
    assert str(TableError(plain)) == plain
