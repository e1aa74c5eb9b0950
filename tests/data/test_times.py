"""Outcomes that are times of which some had not ended: refused, with what to use instead."""

import warnings

import numpy as np
import pandas as pd
import pytest

from unjoined import SeparateLabels
from unjoined.data.rows import label_rows
from unjoined.errors import ColumnWarning, LeftOutWarning, TableError
from unjoined.evaluate.terms import average_effect

SHARES = {"N": 0.8, "S": 0.2}


def subscribers(n=300, seed=0, time="months", status="churned", first=9.0, **written):
    """Months until people leave, which treatment lengthens; followed from ``first`` to 30.

    People of the south came later, so that they were followed for less long.
    """
    rng = np.random.default_rng(seed)
    outcomes, treatments = {}, {}
    for name, share in SHARES.items():
        age, treated = rng.normal(size=(2, n)), rng.random((2, n)) < share
        ends = rng.exponential(np.where(treated[0], 20.0, 10.0) * np.exp(0.2 * age[0]))
        followed = rng.uniform(first, 30.0 if name == "N" else 15.0, n)
        has_ended = ends <= followed
        words = written.get("words", (0, 1))
        outcomes[name] = pd.DataFrame(
            {
                "age": age[0],
                time: np.round(np.minimum(ends, followed), 3),
                status: np.where(has_ended, words[1], words[0]),
            }
        )
        treatments[name] = pd.DataFrame({"age": age[1], "mailed": treated[1] * 1})
    return outcomes, treatments


def load(outcomes, treatments, outcome="months", **options):
    labels = {"outcome": outcome, "treatment": "mailed"}
    return SeparateLabels.from_tables(outcomes, treatments, **labels, **options)


def shortest(outcomes, time="months", status="churned", still=0):
    whole = pd.concat(outcomes.values())
    return whole.loc[whole[status] == still, time].min()


@pytest.mark.parametrize(
    ("time", "status", "words"),
    [
        ("months", "churned", (0, 1)),
        ("time", "status", (1, 2)),  # as R's survival writes it
        ("time", "status", ("alive", "dead")),
        ("survival_time", "event", (False, True)),
        ("days_to_readmission", "event_observed", ("no", "yes")),
        ("T", "censored", (1, 0)),
        ("duration", "is_censored", ("true", "false")),
        ("lifetimeWeeks", "hasChurned", (0.0, 1.0)),
        ("tenure", "status", ("Active", "Cancelled")),
        ("days", "Status", ("censored", "event")),
    ],
)
@pytest.mark.parametrize("options", [{}, {"features": ["age"]}], ids=["all", "named"])
def test_a_time_that_had_not_ended_is_refused_with_the_restricted_mean(
    time, status, words, options
):
    tables = subscribers(time=time, status=status, words=words)
    least = shortest(tables[0], time, status, words[0])
    with pytest.raises(TableError, match=r"had not ended in all rows") as error:
        load(*tables, outcome=time, **options)
    assert f"Give min({time}, {least:g}) as the outcome" in str(error.value)
    assert f"{status!r} is no feature, as only outcome tables have it" in str(
        error.value
    )


def test_where_some_were_hardly_followed_a_window_is_to_be_chosen():
    with pytest.raises(TableError, match=r"too short to tell. Choose a window"):
        load(*subscribers(first=0.0))


def test_streamed_files_are_refused_too(tmp_path):
    outcomes, treatments = subscribers()
    for kind, tables in (("o", outcomes), ("t", treatments)):
        for name, table in tables.items():
            table.to_csv(tmp_path / f"{kind}{name}.csv", index=False)
    files = [{name: tmp_path / f"{kind}{name}.csv" for name in "NS"} for kind in "ot"]
    for options in ({}, {"features": ["age"]}):
        with pytest.raises(TableError, match=r"Give min\(months, 9"):
            load(*files, stream=True, **options).chunks().feature_names  # noqa: B018


def test_the_restricted_mean_is_taken_and_is_right():
    """Within four standard errors of what joint labels show; the times themselves are not."""
    outcomes, treatments = subscribers(n=20_000)
    window = shortest(outcomes)
    for table in outcomes.values():
        table["within"] = np.minimum(table.pop("months"), window)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeftOutWarning)
        data = load(outcomes, treatments, outcome="within")

    def restricted(scale):
        age = np.random.default_rng(1).normal(size=1_000_000)
        mean = scale * np.exp(0.2 * age)
        return np.mean(mean * -np.expm1(-window / mean))

    truth = restricted(20.0) - restricted(10.0)
    average = average_effect(
        label_rows(np.asarray(data.X, dtype=float), **labels(data))
    )
    assert average.value == pytest.approx(truth, abs=4.0 * average.standard_error)
    assert average.standard_error < truth / 10.0


def labels(data):
    return {name: data[name] for name in ("y", "treatment", "population")}


def in_all(tables):
    """Give treatment tables the column as well, so that it is a feature like others."""
    outcomes, treatments = tables
    for table in treatments.values():
        table["churned"] = np.arange(len(table)) % 2
    return outcomes, treatments


def with_three_kinds(tables):
    for table in tables[0].values():
        table["status"] = np.resize(["new", "active", "cancelled"], len(table))
    return tables


FINE = {
    "an amount": subscribers(time="spend"),
    "visits of a window": subscribers(time="visits_30_days"),
    "orders per month": subscribers(time="orders_per_months"),
    "another kind of status": subscribers(status="status", words=("gold", "silver")),
    "another column": subscribers(status="premium"),
    "a feature of all": in_all(subscribers()),
    "three kinds": with_three_kinds(subscribers(status="status")),
}


@pytest.mark.parametrize("case", FINE)
def test_other_columns_beside_outcomes_are_no_alarm(case):
    outcomes, treatments = FINE[case]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ColumnWarning)
        warnings.simplefilter("ignore", LeftOutWarning)
        load(outcomes, treatments, outcome=outcomes["N"].columns[1])


def test_a_window_that_all_were_followed_for_is_no_alarm():
    """Nor is what the refusal asks for, and what is ignored by name."""
    outcomes, treatments = subscribers()
    window = shortest(outcomes)
    capped = {
        name: table.assign(months=table["months"].clip(upper=window))
        for name, table in outcomes.items()
    }
    for tables, options in ((capped, {}), (outcomes, {"ignore": ["churned"]})):
        with warnings.catch_warnings():
            warnings.simplefilter("error", ColumnWarning)
            warnings.simplefilter("ignore", LeftOutWarning)
            assert list(load(tables, treatments, **options).X.columns) == ["age"]


@pytest.mark.filterwarnings("ignore::unjoined.errors.LeftOutWarning")
def test_an_end_that_takes_follow_up_for_an_effect_is_warned_of():
    outcomes, treatments = subscribers()
    least = shortest(outcomes)
    says = rf"'churned' seems to say whether a time, 'months', had ended.*min\(months, {least:g}\)"
    with pytest.warns(ColumnWarning, match=says):
        load(outcomes, treatments, outcome="churned")
    with warnings.catch_warnings():
        warnings.simplefilter("error", ColumnWarning)
        load(outcomes, treatments, outcome="churned", ignore=["months"])
