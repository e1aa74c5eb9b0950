"""The default estimator: the mixture with its defaults, what it says, and that it can rank."""

import re
from copy import copy
from dataclasses import replace
from html import unescape

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from problems import PROBLEMS
from scipy.special import expit
from sklearn.linear_model import PoissonRegressor
from trials import oracle_share

from unjoined import Uplift, identification_strength
from unjoined.data import SimulatedProblem, paper_problem
from unjoined.evaluate import Estimate, diagnose
from unjoined.model.specifications import SpecificationTable

CONSTANT = {"A": lambda X: np.full(len(X), 0.9), "B": lambda X: np.full(len(X), 0.1)}


def real_problem(effect, d=3):
    """Base x_0, an effect, and normal noise."""
    return SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, d)),
        policies=CONSTANT,
        outcome=lambda X, t, rng: X[:, 0] + t * effect(X) + rng.standard_normal(len(X)),
        outcome_mean=lambda X, t: X[:, 0] + t * effect(X),
    )


@pytest.fixture(scope="module")
def data():
    return PROBLEMS["rotated"].draw(500, 0)


@pytest.fixture(scope="module")
def model(data):
    return Uplift(random_state=0).fit(**data)


@pytest.fixture(scope="module")
def clear():
    """Return a fit whose effect is 1 + 2 x_1, of a table with names."""
    data = dict(real_problem(lambda X: 1.0 + 2.0 * X[:, 1]).draw(300, random_state=0))
    data["X"] = pd.DataFrame(data["X"], columns=["age", "income", "visits"])
    return Uplift(n_jobs=1, random_state=0).fit(**data)


def test_a_fit_says_how_strong_the_policies_are(data, model):
    strength = diagnose(data, random_state=0).strength
    assert model.identification_ == replace(
        identification_strength(**data), strength=pytest.approx(strength)
    )


def test_the_summary_says_what_was_found(clear):
    lines = clear.summary_lines()
    assert clear.summary().splitlines() == list(lines.values())
    names = ("average", "differences", "varies with", "policies", "features", "fit")
    average, differ, features, policies, used, fitted = (lines[name] for name in names)
    low, high = clear.average_effect_.interval(0.95)
    value = clear.average_effect_.value
    said = re.match(
        r"Average effect: (\S+) units of the outcome per person "
        r"\(95% interval (\S+) to (\S+)\)\. It speaks for ",
        average,
    )
    # With as many places as show two digits of the half width.
    step = 0.5 * 10.0 ** (np.floor(np.log10((high - low) / 2.0)) - 1.0)
    assert [float(each) for each in said.groups()] == pytest.approx(
        [value, low, high], abs=step
    )
    assert policies.startswith("The policies differ by about ")
    assert used == "It uses 3 features: age, income, visits."
    assert low < 1.0 < high
    low, high = clear.effect_range_
    assert differ.startswith(
        "People clearly respond differently. For nine people in ten"
    )
    assert differ.endswith(f"between {low:+.3g} and {high:+.3g}.")
    assert features.startswith("The effect varies with income (")
    assert fitted.startswith("In the likeliest form the base ")
    for words in (clear.summary(), clear.reason_):
        assert "nats" not in words
        assert "  " not in words


def test_the_reason_says_whether_people_differ_and_what_was_fitted(clear):
    first, second = clear.reason_.split(". ", 1)
    assert first == "People clearly respond differently"
    assert second == clear.summary().splitlines()[-1]
    others = len(clear.candidates_.kept) - 1
    assert (f"{others} other form" in second) == (others > 0)
    assert clear.heterogeneity_.value > 3.0 * clear.heterogeneity_.standard_error


def test_features_are_numbered_if_they_have_no_names(model):
    spread = model.effect_features_
    line = model.summary_lines()["varies with"]
    assert f"feature {np.argmax(spread)} (" in line
    shares = [int(word.strip("(%),.")) for word in line.split() if "%" in word]
    assert shares == sorted(shares, reverse=True)
    assert len(shares) <= 5
    assert sum(shares) <= 100 + len(shares)


@pytest.mark.statistical
def test_equal_effects_are_seldom_called_different():
    """With one effect for all, uplift seldom rises with the rank of unseen people."""
    law = real_problem(lambda X: np.full(len(X), 1.0), d=2)
    n_seeds, different = 6, 0
    for seed in range(n_seeds):
        model = Uplift(n_jobs=1, random_state=seed).fit(
            **law.draw(150, random_state=seed)
        )
        said = "The rows do not show that people respond differently" in model.reason_
        assert said == (
            model.summary_lines()["differences"].startswith("The rows do not show")
        )
        different += not said
        # 300 rows of variance below 2, exposures 0.4 away from their mean: 5 sqrt(2 / 300) / 0.4.
        assert model.average_effect_.value == pytest.approx(1.0, abs=1.0)
    assert different <= n_seeds // 3


def test_words_follow_how_far_uplift_rises_with_the_rank(clear):
    cases = (
        (3.1, "People clearly respond differently."),
        (2.3, "People probably respond differently."),
        (2.1, "The rows do not show that people respond differently."),
        (np.nan, "The rows do not show that people respond differently."),
    )
    for rise, words in cases:
        other = copy(clear)
        other.heterogeneity_ = Estimate(0.02 * rise, 0.02)
        assert other.reason_.startswith(words)
        assert words in other.summary()
        assert ("Rank by it with care." in other.summary()) == (not rise > 2.2)
        assert (
            f"The {'effect' if rise > 2.2 else 'estimate'} varies with income"
            in other.summary()
        )


def test_predictions_average_to_the_average_effect(data, model):
    """Of the rows of the fit, people counting as in every average: fully from a gap of 0.2 on.

    Predictions of real outcomes are brought to the average; of two values, they stay within its
    error.
    """
    real = real_problem(lambda X: 1.0 + 2.0 * X[:, 1]).draw(300, random_state=0)
    straight = Uplift(n_jobs=1, random_state=0).fit(real)
    for fitted, X, within in ((straight, real.X, 0.05), (model, data.X, 1.0)):
        gap = np.abs(np.diff(fitted.predict_policies(X), axis=1)[:, 0])
        counted = np.minimum(1.0, (gap / 0.2) ** 2)
        mean = np.average(fitted.predict(X), weights=counted)
        # Policies of the average are those without a row's fold, which moves who counts a little.
        average = fitted.average_effect_
        assert mean == pytest.approx(average.value, abs=within * average.standard_error)
        assert average == fitted.gain_.everyone()


def test_an_average_goes_to_the_surer_model_as_far_as_chance_explains():
    cases = (
        (
            Estimate(1.0, 0.5),
            Estimate(0.3, 0.3),
            0.3,
        ),  # closer than 2 sqrt(0.25 - 0.09) = 0.8
        (Estimate(3.0, 0.5), Estimate(1.0, 0.3), 3.0 - 0.64 / 2.0),
        (
            Estimate(1.0, 0.2),
            Estimate(0.0, 0.3),
            1.0 - 0.04,
        ),  # as if sqrt(3) / 2 as sure
        (Estimate(1.0, 0.2), Estimate(1.0, 0.1), 1.0),
    )
    for measured, model, expected in cases:
        assert measured.shrunk_towards(model) == pytest.approx(expected)


BASES = {
    "product": lambda X: X[:, 0] * X[:, 1],
    "xor": lambda X: np.sign(X[:, 0] * X[:, 1]),
    "steps": lambda X: np.sign(np.sin(3.0 * X[:, 0])),
}


@pytest.mark.statistical
@pytest.mark.parametrize(
    "base",
    [
        "product",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("xor", "steps")),
    ],
)
def test_what_a_base_lacks_does_not_pass_for_people_who_differ(base):
    """The effect is 0.4 for all; of six fits two are called different once in 200 times."""

    def mean(X, treated):
        return 0.7 * BASES[base](X) + 0.4 * treated

    law = SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 5)),
        policies={
            "A": lambda X: expit(1.0 + 0.3 * X[:, 0]),
            "B": lambda X: expit(-1.0 + 0.3 * X[:, 1]),
        },
        outcome=lambda X, treated, rng: mean(X, treated) + rng.standard_normal(len(X)),
        outcome_mean=mean,
    )
    said = [
        Uplift(n_jobs=1, random_state=seed)
        .fit(law.draw(400, random_state=seed))
        .reason_
        for seed in range(6)
    ]
    assert sum("do not show" not in words for words in said) <= 1


@pytest.mark.statistical
@pytest.mark.filterwarnings("ignore::unjoined.errors.WeakIdentificationWarning")
def test_features_that_say_nothing_do_not_gain_by_being_chosen():
    """Coin flips and 150 features: features are chosen without the rows that judge them."""
    law = SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 150)),
        policies={
            "A": lambda X: np.full(len(X), 0.8),
            "B": lambda X: np.full(len(X), 0.2),
        },
        outcome=lambda X, treated, rng: 1.0 * (rng.random_sample(len(X)) < 0.5),
        outcome_mean=lambda X, treated: np.full(len(X), 0.5),
    )
    X = law.draw_joint(2000, random_state=9).X
    model = Uplift(n_jobs=1, random_state=0).fit(law.draw(250, random_state=0))
    uplift = model.predict(X)
    assert "do not show" in model.reason_
    assert (
        model.gain_.gain(uplift, uplift >= np.quantile(uplift, 0.7)).interval()[0] < 0.0
    )


def test_one_effect_for_all_ranks_by_the_base_where_outcomes_have_two_values(clear):
    """The same in log-odds is more in the middle of chances; the same in euros is the same."""
    alone = copy(clear)
    alone.candidates_ = SpecificationTable.of_losses({"base alone": np.zeros(9)})
    assert alone.reason_.endswith("the effect is the same for all, which ranks nobody.")
    alone.family_ = "bernoulli"
    assert alone.reason_.endswith("so that people are ranked by their base alone.")


def test_an_effect_that_varies_with_nothing_is_said_so(clear):
    flat = copy(clear)
    flat.effect_features_ = np.zeros(3)
    said = flat.summary_lines()["varies with"]
    assert said == "The effect varies with no feature."


def test_the_interval_of_a_rate_stays_where_rates_are(data, model):
    """The outcomes -1 and 1 differ by 2, so no effect is larger, whatever its standard error."""
    vague = copy(model)
    vague.average_effect_ = Estimate(0.5, 3.0)
    distance = np.ptp(data.y[data.kind == "outcome"])
    end = f"95% interval {-distance:+.1f} to {distance:+.1f})"
    assert end in vague.summary()


def _rows(table):
    """Return the words of a table as a notebook shows it, row by row."""
    rows = re.findall("<tr>(.*?)</tr>", table._repr_html_())
    return [
        [unescape(word) for word in re.findall("<t[hd]>([^<]*)</t[hd]>", row)]
        for row in rows
    ]


def test_the_table_of_forms_reads_well_as_text_in_a_notebook_and_as_a_frame(model):
    table = model.candidates_
    frame = pd.DataFrame(table.to_dict())
    assert frame["name"].tolist() == list(table.name)
    assert frame["weight"].sum() == pytest.approx(1.0)
    assert (frame["loss"] - frame["loss"][0]).to_numpy() == pytest.approx(
        frame["difference"]
    )
    heading, *lines = repr(table).splitlines()
    assert heading.split()[:2] == ["form", "weight"]
    assert (
        len({len(line) for line in (heading, *lines)}) == 1
    )  # columns stay below their headings
    for line, name, weight in zip(lines, table.name, table.weight, strict=True):
        assert line.startswith(name)
        assert f"{weight:.1%}" in line
    assert [name for name, *_ in _rows(table)] == ["form", *table.name]
    hostile = replace(table, name=("<b>&</b>", *table.name[1:]))
    assert _rows(hostile)[1][0] == "<b>&</b>"
    for whole in (model.fit_, model.policies_, model.fit_.best, model.fit_.members[0]):
        assert "array" not in repr(whole)


def visits(n, seed):
    """Counts that treatment raises by a factor that grows with x_0."""

    def mean(X, treated):
        return np.exp(0.6 * X[:, 1] + treated * (0.3 + 0.3 * X[:, 0]))

    sides = {"A": 1.0, "B": -1.0}
    problem = SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 3)),
        policies={k: lambda X, v=v: expit(v + 0.3 * X[:, 2]) for k, v in sides.items()},
        outcome=lambda X, t, rng: 1.0 * rng.poisson(mean(X, t)),
        outcome_mean=mean,
    )
    return problem, problem.draw(n, random_state=seed)


def test_counts_have_logarithms_and_rank_as_joint_labels_would():
    """The oracle is a Poisson regression that knows the treatment of as many outcome rows."""
    problem, data = visits(2000, 0)
    model = Uplift(n_jobs=1, random_state=0).fit(data)
    assert model.family_ == "poisson"
    test = problem.draw_joint(4000, random_state=1)
    rows = problem.draw_joint(4000, random_state=2)

    def design(X, t):
        return np.column_stack([X, t, X * np.expand_dims(t, -1)])

    joint = PoissonRegressor(alpha=1e-3).fit(design(rows.X, rows.treatment), rows.y)
    ones = np.ones(4000)
    best = joint.predict(design(test.X, ones)) - joint.predict(design(test.X, 0 * ones))
    shares = [oracle_share(u, test.uplift) for u in (model.predict(test.X), best)]
    assert shares[0] > 0.9 * shares[1]
    assert shares[1] > 0.95
    plain = Uplift(family="mean", n_jobs=1, random_state=0).fit(data)
    error, other = (
        np.mean((fit.predict(test.X) - test.uplift) ** 2) for fit in (model, plain)
    )
    assert error < other
    treated, untreated = model.predict_outcomes(test.X)
    assert_allclose(treated - untreated, model.predict(test.X), atol=1e-12)
    assert (untreated > 0.0).all()


@pytest.mark.parametrize("change", [lambda y: y + 0.5, lambda y: y - 1.0])
def test_other_numbers_than_counts_have_means(change):
    data = dict(visits(100, 0)[1])
    model = Uplift(n_jobs=1, random_state=0).fit(**data | {"y": change(data["y"])})
    assert model.family_ == "mean"


@pytest.mark.filterwarnings("ignore::unjoined.errors.WeakIdentificationWarning")
def test_tiny_tables_are_fitted():
    data = PROBLEMS["rotated"].draw(25, 0)
    model = Uplift(random_state=0).fit(**data)
    assert np.isfinite(model.predict(data.X)).all()
    assert model.summary().startswith("Average effect: ")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::unjoined.errors.WeakIdentificationWarning")
@pytest.mark.parametrize("b", [0.4, 5.0])
def test_it_ranks_the_papers_data_almost_as_the_truth_does(b):
    problem = paper_problem(b)
    model = Uplift(random_state=0).fit(**problem.draw(1000, random_state=0))
    test = problem.draw_joint(20_000, random_state=1)
    estimate = model.predict(test.X)
    assert oracle_share(estimate, test.uplift) > 0.97
    assert np.mean((estimate - test.uplift) ** 2) < 0.1 * np.var(test.uplift)
