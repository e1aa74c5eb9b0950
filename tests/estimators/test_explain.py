"""What raises and lowers the uplift of a person, against the average one."""

import numpy as np
import pandas as pd
import pytest

from unjoined import SeparateLabels, Uplift
from unjoined.errors import ColumnWarning, TableError

pytestmark = pytest.mark.usefixtures("two_folds")
LEVELS = ("phone", "shop", "web")


@pytest.fixture(scope="module")
def data():
    """Tables of an outcome on the real line, whose uplift is a sum over features."""
    rng = np.random.default_rng(0)
    outcomes, treatments = {}, {}
    for name, share in (("north", 0.8), ("south", 0.2)):
        for tables in (outcomes, treatments):
            X = pd.DataFrame(
                {
                    "age": rng.uniform(20.0, 80.0, 1500).round(1),
                    "channel": rng.choice(LEVELS, 1500),
                    "noise": rng.normal(size=1500),
                }
            )
            treated = rng.random(1500) < share
            gain = 0.02 * (X["age"] - 50.0) + (X["channel"] == "web")
            X["spend"] = 1.0 + gain * treated + rng.normal(0.0, 0.2, 1500)
            X["mailed"] = treated.astype(int)
            tables[name] = X.drop(columns="mailed" if tables is outcomes else "spend")
    return SeparateLabels.from_tables(
        outcomes, treatments, outcome="spend", treatment="mailed"
    )


@pytest.fixture(scope="module")
def fitted(data):
    return Uplift(random_state=0).fit(data)


@pytest.fixture
def outcomes(data):
    """The features of the outcome rows."""
    return data.X.iloc[data.rows("outcome")]


@pytest.fixture
def people():
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "age": rng.uniform(20.0, 80.0, 50).round(1),
            "channel": rng.choice(LEVELS, 50),
            "noise": rng.normal(size=50),
        }
    )


def test_parts_add_up_to_the_uplift_of_an_outcome_on_the_real_line(fitted, people):
    found = fitted.explain(people)
    total = found.average + found.parts.sum(axis=1)
    np.testing.assert_allclose(total, fitted.predict(people), atol=1e-9)
    np.testing.assert_allclose(found.rest, 0.0, atol=1e-9)
    np.testing.assert_array_equal(found.uplift, fitted.predict(people))
    np.testing.assert_array_equal(
        [found.low, found.high], fitted.predict_interval(people)
    )


def test_a_part_is_what_the_feature_does_in_truth(fitted, people):
    found = fitted.explain(people)
    truth = np.column_stack(
        [
            0.02 * (people["age"] - 50.0),
            (people["channel"] == "web") - 1 / 3,
            0.0 * people["noise"],
        ]
    )
    assert found.names == ("age", "channel", "noise")
    assert np.sqrt(((found.parts - truth) ** 2).mean(axis=0)) == pytest.approx(
        0.0, abs=0.12
    )


def test_parts_are_0_on_average_over_the_people_of_the_fit(fitted, outcomes):
    found = fitted.explain(outcomes)
    np.testing.assert_allclose(found.parts.mean(axis=0), 0.0, atol=1e-9)
    assert found.average == pytest.approx(fitted.predict(outcomes).mean())


def test_reasons_name_what_weighs_most_with_the_persons_value(fitted, people):
    found = fitted.explain(people)
    raised = found.uplift >= found.average
    for i, said in enumerate(found.reasons(raised)):
        toward = (1.0 if raised[i] else -1.0) * found.parts[i]
        best = found.names[int(np.argmax(toward))]
        assert said.startswith(f"{best} {found.value(i, found.names.index(best))}")
        assert said.endswith(" it")
    lacking = people.assign(age=np.nan)
    with pytest.warns(ColumnWarning, match="no number in 50 of 50 rows of 'age'"):
        assert fitted.explain(lacking).value(0, 0) == "missing"


def test_a_result_is_shown_and_a_frame_of_it_is_complete(fitted, people):
    found = fitted.explain(people)
    frame = found.to_frame("pandas")
    assert len(frame) == 50 * 3
    assert frame["adds"].sum() == pytest.approx(found.parts.sum())
    assert "45 more people are not shown" in str(found)
    assert "age" in str(fitted.explain(people[:1]))


def test_a_missing_column_is_named(fitted, people):
    with pytest.raises(TableError, match="lacks the column 'age'"):
        fitted.explain(people.drop(columns="age"))
