"""The command report: files it writes, files it leaves alone, and how to make it again."""

import contextlib
import html
import json
import math
import re
import shlex
import shutil

import numpy as np
import pandas as pd
import pytest

from unjoined.cli.entry import main

pytestmark = pytest.mark.usefixtures("two_folds")


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return stopped.value.code, out, err


def table_options(folder):
    options = ["--outcome", "bought", "--treatment", "mailed"]
    for kind in ("outcomes", "treatments"):
        for name in ("north", "south"):
            options += [f"--{kind}", f"{name}={folder / f'{kind}_{name}.parquet'}"]
    return options


@pytest.fixture(scope="module")
def campaign(tmp_path_factory, write_campaign):
    """The tables of a campaign, and a model of them."""
    folder = tmp_path_factory.mktemp("campaign")
    write_campaign(folder, n_per_table=150, n_customers=100, seed=0)
    words = [
        *table_options(folder),
        "--estimator",
        "two-stage",
        "--model",
        folder / "m.skops",
    ]
    with pytest.raises(SystemExit) as stopped:
        main(["fit", *map(str, words)])
    assert not stopped.value.code
    return folder


def test_a_report_and_a_list_are_written_once_and_say_how(capsys, here, campaign):
    shutil.copytree(campaign, here, dirs_exist_ok=True)
    tables = table_options(here)
    command = ["report", "--model", "m.skops", *tables, "--table", here / "customers.parquet",
               "--held-out", "--share", "0.3", "--title", "It's mine"]  # fmt: skip
    code, out, _ = run(
        capsys,
        *command,
        "--list",
        "list.csv",
        "--keep",
        "customer_id",
        "--out",
        "r.html",
        "--json",
    )
    assert code == 0
    found = json.loads(out)
    assert (found["report"], found["list"]) == ("r.html", "list.csv")
    page, listed = (
        (here / "r.html").read_text("utf-8"),
        (here / "list.csv").read_text().splitlines(),
    )
    assert listed[0].startswith('"customer_id","treat","rank","uplift"')
    assert sum(",true," in line for line in listed) == 30
    assert '<a href="list.csv" download>' in page
    assert html.escape(found["verdict"]) in page
    assert f'class="sign {found["colour"]}"' in page
    assert (found["rows"], found["treated"]["people"], found["treated"]["cost"]) == (
        100,
        30,
        0,
    )
    for number in (
        found["treated"]["gain"],
        *(found[n] for n in ("average_effect", "auuc")),
    ):
        low, high = (
            math.inf if end is None else end for end in (number["low"], number["high"])
        )
        assert (-math.inf if low == math.inf else low) <= number["value"] <= high
    (shown,) = re.findall(r'<th scope="row">Qini</th><td>([^<]*)</td>', page)
    places = len(shown.partition(".")[2])
    assert float(shown) == pytest.approx(
        100 * found["qini"]["value"], abs=0.51 * 10**-places
    )
    again = page.partition('<dd class="command">')[2].partition("</dd>")[0]
    words = shlex.split(html.unescape(again))
    assert words[:3] == ["unjoined", "report", "--force"]
    assert words[words.index("--title") + 1] == "It's mine"
    assert words.count("--outcomes") == 2
    assert "--held-out" in words
    assert "--json" in words

    code, _, err = run(capsys, *command, "--out", "r.html")
    assert code == 2
    assert err.startswith(
        "unjoined: --out 'r.html' exists. Add --force to replace it, or name another file."
    )
    assert (here / "r.html").read_text("utf-8") == page
    code, out, _ = run(capsys, *words[1:])
    assert code == 0
    assert (here / "r.html").read_text("utf-8") == page


def test_a_list_with_the_ids_of_people_lies_beside_the_report(capsys, here, campaign):
    shutil.copytree(campaign, here, dirs_exist_ok=True)
    tables = table_options(here)
    code, out, _ = run(capsys, "report", "--model", "m.skops", *tables, "--held-out",
                       "--table", "customers.parquet", "--out", "r.html")  # fmt: skip
    assert code == 0
    assert "r-list.csv" in out
    assert (
        (here / "r-list.csv")
        .read_text()
        .startswith('"customer_id","treat","rank","uplift"')
    )
    page = (here / "r.html").read_text("utf-8")
    assert '<a href="r-list.csv" download>' in page
    assert (
        "responses per 100 people" in page
    )  # the outcome is 0 or 1, and has no other name
    score = "unjoined score --model m.skops --table customers.parquet"
    assert f"{score} --keep customer_id --out LIST.csv" in page


def test_a_red_report_has_a_list_without_decisions(capsys, here, campaign):
    shutil.copytree(campaign, here, dirs_exist_ok=True)
    same = ["treatments_north.parquet", "treatments_south.parquet"]
    shutil.copy(
        here / same[0], here / same[1]
    )  # both populations treated the same people
    code, out, _ = run(capsys, "report", "--model", "m.skops", *table_options(here),
                       "--table", "customers.parquet", "--out", "r.html")  # fmt: skip
    assert code == 3
    said = "Wrote r-list.csv, the list of people. It has no column treat: the report is red"
    assert said in " ".join(out.split())
    page = (here / "r.html").read_text()
    assert "with the people advised marked" not in page
    assert "unjoined score" not in page


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "report needs --outcomes, --treatments, --outcome, --treatment"),
        (("--list", "list.csv"), "give that table too"),
        (("--keep", "id"), "give --table too"),
        (("--budget", "5"), "a budget needs a cost per person above 0"),
    ],
)
def test_mistakes_are_named_before_anything_is_read(capsys, here, options, message):
    tables = table_options(here) if options else []
    code, _, err = run(capsys, "report", "--model", "none.skops", *tables, *options)
    assert code == 2
    assert message in err
    assert list(here.iterdir()) == []


EXPONENT = re.compile(r"\de[-+]\d|-0(?![.\d])")


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Large amounts, and an effect that depends on the store alone, of which there are 30."""
    folder = tmp_path_factory.mktemp("stores")
    rng = np.random.default_rng(0)
    n, effect = 750, 40_000.0 * rng.standard_normal(30)
    for kind, label in (("outcomes", "paid"), ("treatments", "mailed")):
        for name, often in (("north", 0.8), ("south", 0.2)):
            store, visits = rng.integers(0, 30, n), rng.poisson(3, n)
            treated = rng.random(n) < often
            paid = (
                9e5
                + 2e4 * visits
                + effect[store] * treated
                + 1e4 * rng.standard_normal(n)
            )
            frame = pd.DataFrame(
                {"store": [f"no {s}" for s in store], "visits": visits}
            )
            frame["age"] = [
                str(age) if age < 89 else "old" for age in rng.integers(20, 90, n)
            ]
            frame[label] = paid.round() if label == "paid" else treated.astype(int)
            frame.to_csv(folder / f"{kind}_{name}.csv", index=False)
    names = [f"no {s}" for s in range(30) for _ in range(50 if s < 20 else 10)]
    people = pd.DataFrame({"store": names, "visits": rng.poisson(3, len(names))})
    people["age"] = rng.integers(20, 89, len(names))
    people.to_csv(folder / "people.csv", index=False)
    return folder


STORES = [
    *("--outcome", "paid", "--treatment", "mailed", "--model", "m.skops"),
    *(
        "--outcomes",
        "north=outcomes_north.csv",
        "--outcomes",
        "south=outcomes_south.csv",
    ),
    *(
        "--treatments",
        "north=treatments_north.csv",
        "--treatments",
        "south=treatments_south.csv",
    ),
]


def words_of(page):
    text = re.sub(r"<(script|style).*?</\1>", "", page, flags=re.S)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def assert_the_biggest_driver_is_shown(page):
    """Also if it is a category of many levels."""
    found = page.partition("How much uplift varies with each feature")[2].partition(
        "</svg>"
    )[0]
    names = re.findall(r'text-anchor="end"[^>]*>([^<]+)</text>', found)
    assert names[0] == "store"
    size = float(
        re.findall(r'class="label"[^>]*>([\d,]+)</text>', found)[0].replace(",", "")
    )
    assert size == pytest.approx(40_000, rel=0.35)
    assert (
        "store, 12 of 30 values" in page
    )  # the six highest and lowest of those with 20 people


def test_numbers_are_written_as_people_do_and_warnings_come_once(capsys, stores):
    with contextlib.chdir(stores):
        code, out, err = run(capsys, "fit", *STORES)
        assert code == 0
        warned = [line for line in err.splitlines() if "warning" in line]
        code, scored, _ = run(capsys, "score", "--model", "m.skops", "--table", "people.csv",
                              "--share", "30%", "--out", "list.csv")  # fmt: skip
        assert code == 0
        command = [
            "report",
            *STORES,
            "--table",
            "people.csv",
            "--share",
            "30%",
            "--force",
        ]
        code, _, err = run(capsys, *command)
        assert code == 0
        assert err == ""  # the fit has said it, and so does the page
        raw = (stores / "report.html").read_text("utf-8")
        page = words_of(raw)
        words = [w for w in STORES if w not in ("--model", "m.skops")]
        code, checked, _ = run(capsys, "check", *words, "--details")
    assert warned
    for warning in warned:
        said = " ".join(warning.removeprefix("unjoined: warning: ").split())
        said = said.partition(" More: ")[0]  # which a page needs no file for
        assert page.count(said) == 1
    for text in (out, scored, checked, page):
        assert not EXPONENT.search(text)
    strength = re.search(r"Strength: ([\d,]+)", checked)[1]
    assert f"strength {strength};" in page
    assert_the_biggest_driver_is_shown(raw)


def test_check_fit_and_report_agree_on_the_same_tables(capsys, here, write_campaign):
    """One cross-fit of one seed: the same strength and the same average, whoever is asked."""
    write_campaign(here, n_per_table=600, n_customers=100, seed=0)
    tables = table_options(here)
    checked = json.loads(run(capsys, "check", *tables, "--json")[1])
    fitted = json.loads(run(capsys, "fit", *tables, "--model", "m.skops", "--json")[1])
    assert fitted["verdict"]["verdict"] == checked["verdict"]
    told = checked["sensitivity"]["claims"][0]
    for end in ("value", "low", "high"):
        assert told[end] == pytest.approx(fitted["average_effect"][end])
    words = ["--model", "m.skops", "--out", "r.html", "--despite-red", "--json"]
    reported = json.loads(run(capsys, "report", *tables, *words)[1])
    page = (here / "r.html").read_text("utf-8")
    for name in ("average_effect", "relative_effect"):
        for end in ("value", "low", "high"):
            assert reported[name][end] == pytest.approx(fitted[name][end])
    share = f"{100 * fitted['relative_effect']['value']:+.0f}% (95% interval "
    assert f"gain if everyone is treated; {share}" in html.unescape(page)
    assert "of what it would be untreated" in page
    assert f"{checked['strength']:.3g}" in html.unescape(page)
