"""What tables say where policies do not differ: linear programs, known truths, clear errors."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import expit

from unjoined import SeparateLabels, Uplift
from unjoined.data import SimulatedProblem, campaign_problem
from unjoined.errors import InputError
from unjoined.evaluate import diagnose, uplift_bounds
from unjoined.evaluate.bounds import bounds_of
from unjoined.evaluate.terms import linear_evaluation
from unjoined.report import report_with_numbers

pytestmark = pytest.mark.usefixtures("two_folds")


def chance(X, t):
    return expit(-1.5 + X[:, 1] + t * (1.0 + X[:, 0]))


def policy(X):
    return expit(0.3 + X[:, 0])


ALIKE = SimulatedProblem(
    features=lambda n, rng: rng.standard_normal((n, 2)),
    policies={"A": policy, "B": policy},
    outcome=lambda X, t, rng: (rng.random_sample(len(X)) < chance(X, t)) * 1.0,
    outcome_mean=chance,
)


def known_bounds(inside=lambda X: np.ones(len(X))):
    """The sharp bounds at 200,000 people, by the true mean and policy, and the truth."""
    X = ALIKE.draw_joint(200_000, random_state=1).X
    e, u, h = policy(X), ALIKE.uplift(X), inside(X)
    m = chance(X, np.zeros(len(X))) + e * u
    low = np.maximum(-m / (1.0 - e), (m - 1.0) / e)
    high = np.minimum(m / e, (1.0 - m) / (1.0 - e))
    return [float(np.mean(h * each)) for each in (low, u, high)]


@pytest.mark.parametrize("e", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("m", [0.05, 0.5, 0.7, 0.97])
def test_bounds_are_what_a_linear_program_finds(m, e):
    """Chances without and with treatment, (1 - e) p0 + e p1 = m, the largest and least p1 - p0."""
    data = ALIKE.draw(50, random_state=0)
    rows = linear_evaluation(data.labelled(np.asarray(data.X)))
    n = len(rows.cell)
    known = replace(
        rows,
        policies=np.full((n, 2), e),
        effect=np.full(n, 0.3),
        untreated=np.full(n, m - 0.3 * e),
        residual=np.zeros(n),
    )
    found = bounds_of(known, {}, never_harms=False, level=0.95).average
    for sign, end in ((1.0, found.low), (-1.0, found.high)):
        program = linprog(
            [-sign, sign], A_eq=[[1.0 - e, e]], b_eq=[m], bounds=[(0, 1), (0, 1)]
        )
        assert end.value == pytest.approx(sign * program.fun)


def test_bounds_and_their_intervals_are_those_of_the_truth():
    """Bounds are at most a little wider than they must be, which fits that err make them."""
    low, truth, high = known_bounds()
    draws = [
        uplift_bounds(None, ALIKE.draw(500, random_state=s), n_jobs=1, random_state=0)
        for s in range(12)
    ]
    ends = np.array([[d.average.low.value, d.average.high.value] for d in draws])
    errors = [draws[0].average.low.standard_error, draws[0].average.high.standard_error]
    off = (ends.mean(axis=0) - [low, high]) / np.array(errors)
    assert abs(off[0]) < 4.0 / np.sqrt(12) + 0.5
    assert abs(off[1]) < 4.0 / np.sqrt(12) + 0.5
    assert all(d.average.interval()[0] < truth < d.average.interval()[1] for d in draws)


def test_a_list_gains_what_its_people_gain_at_least_and_at_most():
    def old(X):
        return (X[:, 1] > 0.5) * 1.0

    data = ALIKE.draw(1000, random_state=3)
    rules = {"old": old, "nobody": lambda X: 0.0 * X[:, 0], "half": ("share", 0.5)}
    found = uplift_bounds(old, data, rules=rules, n_jobs=1, random_state=0)
    _, some, none, half = found.bounds
    assert some.name == "old"
    assert some.treated == pytest.approx(np.mean(old(np.asarray(data.X))))
    low, truth, high = known_bounds(old)
    assert some.low.value == pytest.approx(low, abs=4 * some.low.standard_error)
    assert some.high.value == pytest.approx(high, abs=4 * some.high.standard_error)
    assert some.interval()[0] < truth < some.interval()[1]
    assert (none.low.value, none.high.value) == (0.0, 0.0)
    assert half.treated == pytest.approx(0.5)


def test_what_never_harms_gains_nothing_at_least():
    data = ALIKE.draw(200, random_state=0)
    plain, signed = (
        uplift_bounds(None, data, never_harms=sure, n_jobs=1, random_state=0)
        for sure in (False, True)
    )
    assert plain.average.low.value < 0.0 == signed.average.interval()[0]
    assert signed.average.high == plain.average.high
    assert "if treatment never harms and nobody was picked" in str(signed)
    assert "never harms" not in str(plain)


def test_populations_need_not_be_alike_for_bounds():
    """People of B respond by 0.2 more than equal people of A, whatever they get."""
    rng = np.random.default_rng(0)
    parts = []
    for k, chances in enumerate((0.7, 0.3)):
        for kind in (0, 1):
            X = rng.normal(size=(1500, 1))
            t = (rng.random(1500) < chances) * 1.0
            y = (rng.random(1500) < 0.2 + 0.2 * k + 0.3 * t) * 1.0
            gone = np.full(1500, np.nan)
            labels = (gone, t) if kind else (y, gone)
            parts.append((X, *labels, np.repeat("AB"[k], 1500)))
    data = SeparateLabels(*map(np.concatenate, zip(*parts, strict=True)))
    found = uplift_bounds(None, data, n_jobs=1, random_state=0).average
    # On average half are treated, and (0.2 + 0.4) / 2 + 0.5 * 0.3 respond.
    assert found.high.value == pytest.approx(0.45 / 0.5, abs=4 * 0.02)
    assert found.low.value == pytest.approx(-0.45 / 0.5, abs=4 * 0.02)
    assert found.interval()[0] < 0.3 < found.interval()[1]


@pytest.mark.filterwarnings("ignore::unjoined.errors.WeakIdentificationWarning")
def test_a_red_verdict_says_what_is_left_to_say(tmp_path):
    data = ALIKE.draw(300, random_state=0)
    found = diagnose(data, random_state=0)
    assert found.colour == "red"
    assert "lies between" in str(found)
    assert found.to_dict()["bounds"]["bounds"][0]["what"] == "everyone"
    sure = diagnose(data, never_harms=True, random_state=0)
    assert sure.bounds.average.low.value == 0.0
    model = Uplift(n_jobs=1, random_state=0).fit(data)
    path, numbers = report_with_numbers(
        model, data, tmp_path / "r.html", never_harms=True, random_state=0
    )
    assert numbers["colour"] == "red"
    assert numbers["bounds"]["never_harms"]
    names = [each["what"] for each in numbers["bounds"]["bounds"]]
    assert names == ["everyone", "best 10%", "best 30%", "predicted to gain"]
    html = path.read_text()
    first = html[html.index('id="verdict"') : html.index('id="tables"')]
    assert "lies between 0 and" in first
    assert "What the tables say all the same" in html


def test_nothing_is_bounded_where_the_tables_themselves_are_wrong():
    data = campaign_problem().draw(200, random_state=0)
    assert diagnose(data, random_state=0).bounds is None  # they can tell
    twice = data.take(np.repeat(np.arange(data.n_rows), 2))
    found = diagnose(twice, random_state=0)
    assert found.colour == "red"
    assert found.bounds is None


def test_outcomes_without_a_largest_value_and_rows_in_pieces_are_refused():
    data = ALIKE.draw(100, random_state=0)
    real = SeparateLabels(data.X, 2.0 * data.y, data.treatment, data.population)
    with pytest.raises(InputError, match="bounds need outcomes of 0 and 1"):
        uplift_bounds(None, real)
    with pytest.raises(InputError, match="needs all rows in memory"):
        uplift_bounds(None, SeparateLabels(**data, stream=50))
