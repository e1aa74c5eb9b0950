"""Numbers and words of commands and of the library stay what they are in stored files.

`python tests/reliability/test_golden_numbers.py` writes the files again, or those of the cases
named behind it. What then differs is a change of behaviour, to be explained in its commit.
"""

import contextlib
import io
import json
import math
import re
import shlex
import sys
import tempfile
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from unjoined import (
    EMUplift,
    FourRidge,
    MinMaxGau,
    MinMaxUplift,
    SeparateLabels,
    Uplift,
    WeightedUplift,
    identification_strength,
    record_gain,
)
from unjoined.cli import main
from unjoined.errors import InputError
from unjoined.evaluate import (
    compare_uplift,
    diagnose,
    effect_summary,
    evaluate_uplift,
    plan_study,
)

GOLDEN = Path(__file__).parent / "golden_numbers"
DIFFERENT_EACH_TIME = {"seconds"}  # keys; paths are the same, being relative
DIGITS = 10  # significant ones that are stored
RELATIVE, ABSOLUTE = (
    1e-6,
    1e-9,
)  # tolerance, the second in units of the largest number of a list
MOST_NAMED = 8  # differences
ROWS = 300  # in each table
LISTED = 20  # people whose predictions are stored

POLICIES = {
    "north": (1.4, 0.5),
    "south": (-1.4, -0.5),
    "west": (0.0, 1.0),
}  # level, by age


def people(n, rng):
    """Draw features: a number, a count and a word."""
    return pd.DataFrame(
        {
            "age": rng.uniform(20.0, 80.0, n).round(2),
            "orders": rng.poisson(2.0, n),
            "channel": rng.choice(["phone", "shop", "web"], n),
        }
    )


def draw(populations, *, seed, real=False, weighted=False):
    """Draw tables of outcomes and of treatments, by population, and people without labels."""
    rng = np.random.default_rng(seed)
    outcomes, treatments = {}, {}
    for name in populations:
        for label, tables in (("bought", outcomes), ("mailed", treatments)):
            X = people(ROWS, rng)
            age = (X["age"] - 50.0) / 30.0
            level, slope = POLICIES[name]
            mailed = rng.random(ROWS) < 1.0 / (1.0 + np.exp(-level - slope * age))
            mean = 0.3 + 0.05 * np.minimum(X["orders"], 4) + mailed * (0.2 + 0.2 * age)
            drawn = (
                mean + rng.normal(0.0, 0.3, ROWS) if real else rng.random(ROWS) < mean
            )
            X[label] = (
                mailed.astype(int) if label == "mailed" else (1.0 * drawn).round(6)
            )
            if weighted:
                X["weight"] = rng.choice([0.5, 1.0, 2.0], ROWS)
            tables[name] = X
    return outcomes, treatments, people(LISTED, rng)


def call(words):
    """Run one command; return what it prints, and its warnings on one line."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as stop,
    ):
        main(shlex.split(words))
    assert not stop.value.code, f"unjoined {words}\n{err.getvalue()}"
    return out.getvalue(), " ".join(err.getvalue().split())


def run(commands):
    """Run commands one after the other; return the JSON of each and the warnings beside it."""
    said = {}
    for name, words in commands.items():
        printed, warned = call(f"{words} --json")
        said[name] = {"out": json.loads(printed), "err": warned}
    return said


def first_rows(file):
    return pd.read_csv(file, nrows=LISTED).astype(object).to_dict("split", index=False)


def demo_commands():
    """Every command on the demo's raw tables, from the demo itself to a query that scores."""
    money = "--budget 300 --cost 0.5 --value 8"
    guess = "--gap 0.4 --outcome-sd 0.3 --uplift 0.05 --uplift-sd 0.1 --half-width 0.02"
    commands = {
        "demo": f"demo --rows {ROWS} --out .",
        "init": "init --out unjoined.toml",
        "check": "check --config unjoined.toml --target customers.csv",
        "fit": "fit --config unjoined.toml --model again.skops",
        "fit ridge": "fit --config unjoined.toml --estimator FourRidge --model ridge.skops",
        "score": f"score --config unjoined.toml --model again.skops {money} --force",
        "score ridge": "score --config unjoined.toml --model ridge.skops --share 30% "
        "--out share.csv",
        "evaluate": "evaluate --config unjoined.toml --cross --share 20% --threshold 0.05",
        "report": f"report --config unjoined.toml --model again.skops {money} --currency EUR "
        "--out decision.html",
        "plan-study": "plan-study --config unjoined.toml --half-width 0.05",
        "plan-study guess": f"plan-study {guess}",
        "export": "export --config unjoined.toml --model again.skops --sql score.sql "
        "--table customers --keep customer_id",
    }
    said = run(commands)
    said["list"] = first_rows("list.csv")
    said["list of a share"] = first_rows("share.csv")
    said["list of the report"] = first_rows("decision-list.csv")
    with duckdb.connect() as database:
        database.execute("CREATE TABLE customers AS SELECT * FROM 'customers.csv'")
        scored = database.execute(Path("score.sql").read_text()).df()
    said["scored by the query"] = scored.sort_values("customer_id")[:LISTED].to_dict(
        "list"
    )
    return said


def write_tables(outcomes, treatments, write):
    """Write each table by a function of it and of its name; return the options that name them."""
    words = []
    for kind, tables in (("outcomes", outcomes), ("treatments", treatments)):
        for name, table in tables.items():
            words.append(f"--{kind} {name}={write(table, f'{kind}_{name}')}")
        if tables:
            words.append(
                {"outcomes": "--outcome bought", "treatments": "--treatment mailed"}[
                    kind
                ]
            )
    return " ".join(words)


def write_file(table, name):
    table.to_csv(f"{name}.csv", index=False)
    return f"{name}.csv"


def write_folder(table, name):
    """Write a table as a folder of two files, which are read one after the other."""
    Path(name).mkdir()
    for i, at in enumerate(np.array_split(np.arange(len(table)), 2)):
        table.iloc[at].to_parquet(Path(name, f"{i}.parquet"))
    return name


def commands_on(populations, write=write_file, *, seed, real=False):
    """Check and fit on some tables, evaluate on others that the model has not seen."""
    *tables, listed = draw(populations, seed=seed, real=real)
    fitted = write_tables(*tables, write)
    listed.to_csv("people.csv", index=False)
    *tables, _ = draw(populations, seed=seed + 1, real=real)
    unseen = write_tables(*tables, lambda table, name: write(table, f"unseen_{name}"))
    commands = {
        "check": f"check {fitted}",
        "fit": f"fit {fitted} --model model.skops",
        "evaluate": f"evaluate --model model.skops {unseen}",
        "score": "score --model model.skops --table people.csv --keep age --out list.csv",
    }
    return run(commands) | {"list": first_rows("list.csv")}


def real_commands():
    return commands_on(["north", "south"], seed=10, real=True)


def three_commands():
    return commands_on(["north", "south", "west"], seed=20)


def streamed_commands():
    return commands_on(["north", "south"], write_folder, seed=30)


def sums_commands():
    """Parties that add up their own tables, and the model of the sums of all of them."""
    outcomes, treatments, listed = draw(["north", "south"], seed=0)
    listed.to_csv("people.csv", index=False)
    parties = [
        write_tables(outcomes, {}, write_file),
        write_tables({}, treatments, write_file),
    ]
    features = "--feature age=50:17 --feature orders=2:1.5 --outcome-values 0,1"
    size = "--functions 4 --groups 4"
    call(f"plan {features} {size} --populations north,south --out plan.sums")
    commands = {
        "outcomes": f"aggregate --plan plan.sums {parties[0]} --out outcomes.sums",
        "treatments": f"aggregate --plan plan.sums {parties[1]} --out treatments.sums",
        "merge": "merge outcomes.sums treatments.sums --out all.sums",
        "fit": "fit --moments all.sums --model model.skops",
        "score": "score --model model.skops --table people.csv --keep age --out list.csv",
    }
    return run(commands) | {"list": first_rows("list.csv")}


def in_memory(**options):
    """Return drawn tables as the library holds them, and people without labels."""
    *tables, listed = draw(options.pop("populations", ["north", "south"]), **options)
    weight = "weight" if options.get("weighted") else None
    names = {"outcome": "bought", "treatment": "mailed", "sample_weight": weight}
    return SeparateLabels.from_tables(*tables, **names), listed


def estimate_numbers(estimate):
    return [estimate.value, estimate.standard_error, *estimate.interval(0.95)]


def model_numbers(model, listed):
    """Return what a fitted model predicts, and what it says of averages and lists."""
    uplift = model.predict(listed)
    try:
        interval = model.predict_interval(listed)
    except InputError as error:
        interval = str(error)
    numbers = {
        "uplift": uplift,
        "interval": interval,
        "average effect": estimate_numbers(model.average_effect_),
        "summary": model.summary().splitlines(),
    }
    if hasattr(model, "gain_"):
        best = uplift >= np.median(uplift)
        numbers["gain of everyone"] = estimate_numbers(model.gain_.everyone())
        numbers["gain by rank"] = estimate_numbers(model.gain_.slope())
        numbers["gain of a list"] = estimate_numbers(model.gain_.gain(uplift, best))
        numbers["gain of each on it"] = estimate_numbers(
            model.gain_.average(uplift, best)
        )
    return numbers


def estimators():
    """Predictions, intervals and gains of estimators that are fitted in memory."""
    logistic = LogisticRegression()
    models = {
        "Uplift": Uplift(random_state=0),
        "MinMaxUplift": MinMaxUplift(random_state=0),
        "MinMaxGau": MinMaxGau(random_state=0),
        "EMUplift": EMUplift(outcome_model=logistic, n_starts=1, random_state=0),
        "WeightedUplift": WeightedUplift(random_state=0),
        "FourRidge": FourRidge(random_state=0),
    }
    numbers = {}
    data, listed = in_memory(seed=2)
    for name, model in models.items():
        model.fit(data)
        if name != "Uplift":  # which has it from its fit
            record_gain(model, data, random_state=0)
        numbers[name] = model_numbers(model, listed)
    cases = {
        "real, weighted": {"real": True, "weighted": True},
        "three populations": {"populations": list(POLICIES)},
    }
    for case, options in cases.items():
        data, listed = in_memory(seed=2, **options)
        for name in ("Uplift", "MinMaxUplift"):
            model = clone(models[name]).fit(data)
            numbers[f"{name}, {case}"] = model_numbers(model, listed)
    return numbers


def results():
    """What results of the library hold as numbers, and what they say in words."""
    data, listed = in_memory(seed=2, real=True, weighted=True)
    unseen, _ = in_memory(seed=3, real=True, weighted=True)
    ridge, minmax = (
        FourRidge(random_state=0).fit(data),
        MinMaxUplift(random_state=0).fit(data),
    )
    rules = {"best fifth": ("share", 0.2), "from 0.1 on": ("threshold", 0.1)}
    models = {"ridge": ridge, "minmax": minmax}
    found = {
        "evaluate_uplift": evaluate_uplift(minmax, unseen, rules=rules, random_state=0),
        "compare_uplift": compare_uplift(models, unseen, random_state=0),
        "diagnose": diagnose(data, listed, random_state=0),
        "plan_study": plan_study(
            data, quantity="qini", half_width=0.02, random_state=0
        ),
        "effect_summary": effect_summary(minmax, unseen, random_state=0),
    }
    strength = identification_strength(**data)
    return {
        name: {"numbers": result.to_dict(), "words": str(result).splitlines()}
        for name, result in found.items()
    } | {
        "identification_strength": [
            strength.f_statistic,
            strength.mean_gap,
            strength.rms_gap,
        ]
    }


CASES = {
    "demo": demo_commands,
    "real": real_commands,
    "three": three_commands,
    "streamed": streamed_commands,
    "sums": sums_commands,
    "estimators": estimators,
    "results": results,
}


def stored(value):
    """Return a result as the files hold it, without what is different each time."""
    if isinstance(value, Mapping):
        kept = value.keys() - DIFFERENT_EACH_TIME
        return {str(key): stored(value[key]) for key in value if key in kept}
    if isinstance(value, list | tuple):
        return [stored(entry) for entry in value]
    if isinstance(value, np.ndarray | np.generic):
        return stored(value.tolist())
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else str(value)
    return value


def result(case):
    """Return all numbers and words of one case, as the files hold them."""
    with threadpool_limits(
        1
    ):  # small matrices: more threads would only wait for each other
        return stored(CASES[case]())


def is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def differences(now, then, path="", scale=1.0):
    """Say where two stored results differ: numbers beyond the tolerance, words at all."""
    if isinstance(now, dict) and isinstance(then, dict):
        for key in [*then, *(now.keys() - then.keys())]:
            if key not in now or key not in then:
                yield f"{path}/{key}: {'gone' if key in then else 'new'}"
            else:
                yield from differences(now[key], then[key], f"{path}/{key}")
    elif isinstance(now, list) and isinstance(then, list):
        if len(now) != len(then):
            yield f"{path}: {len(then)} entries before, {len(now)} now"
        largest = max([1.0, *(abs(entry) for entry in then if is_number(entry))])
        for i, (one, other) in enumerate(zip(now, then, strict=False)):
            yield from differences(one, other, f"{path}/{i}", largest)
    elif is_number(now) and is_number(then):
        if abs(now - then) > RELATIVE * abs(then) + ABSOLUTE * scale:
            yield f"{path}: {then!r} before, {now!r} now"
    elif now != then or type(now) is not type(then):
        yield f"{path}: {then!r} before, {now!r} now"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems round differently")
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(name, marks=pytest.mark.slow if name == "demo" else ())
        for name in CASES
    ],
)
def test_numbers_and_words_are_those_of_the_stored_file(case, here):
    then = json.loads((GOLDEN / f"{case}.json").read_text())
    named = list(islice(differences(result(case), then), MOST_NAMED))
    assert not named, "\n".join([f"{case}.json, the first differences:", *named])


@pytest.mark.parametrize(
    ("now", "named"),
    [
        ({"a": [1.0, 200.0], "b": "word", "c": None, "d": True}, []),
        ({"a": [1.0 + 1e-7, 200.0001], "b": "word", "c": None, "d": True}, []),
        ({"a": [1.0, 200.001], "b": "word", "c": None, "d": True}, ["/a/1"]),
        ({"a": [1.0], "b": "words", "c": 0.0, "d": 1}, ["/a", "/b", "/c", "/d"]),
        (
            {"a": [1.0, "nan"], "b": "word", "e": None, "d": False},
            ["/a/1", "/c", "/d", "/e"],
        ),
    ],
)
def test_a_difference_is_named_by_its_path(now, named):
    then = {"a": [1.0, 200.0], "b": "word", "c": None, "d": True}
    assert [line.split(":")[0] for line in differences(now, then)] == named


def write(cases):
    """Write the files of some cases, with what holds no other list or mapping on one line."""
    GOLDEN.mkdir(exist_ok=True)
    for case in cases:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            text = json.dumps(result(case), indent=1, ensure_ascii=False)
        for innermost in (r"\[[^][{}]*\]", r"\{[^][{}]*\}"):
            text = re.sub(innermost, lambda found: re.sub(r"\n *", "", found[0]), text)
        (GOLDEN / f"{case}.json").write_text(text + "\n")


if __name__ == "__main__":
    write(sys.argv[1:] or CASES)
