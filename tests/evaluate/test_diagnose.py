"""Laws of `diagnose`: what may be called identified, and what must be found."""

from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.stats import chi2

from unjoined.data import SeparateLabels, SimulatedProblem, paper_problem
from unjoined.data.rows import separate_labels
from unjoined.errors import LabelError, UnjoinedError
from unjoined.evaluate import diagnose

pytestmark = pytest.mark.usefixtures("two_folds")

KINDS = ("outcome", "treatment")


def trial(policies, n=300, seed=0, d=2, real=False):
    """Draw tables with constant policies; outcome chances of 0.3, and 0.5 with treatment."""

    def outcome(X, treated, rng):
        if real:
            return X[:, 0] + treated + rng.standard_normal(len(X))
        return (rng.random_sample(len(X)) < 0.3 + 0.2 * treated) * 1.0

    problem = SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, d)),
        policies={k: (lambda X, e=e: np.full(len(X), e)) for k, e in policies.items()},
        outcome=outcome,
        outcome_mean=lambda X, treated: 0.3 + 0.2 * treated,
    )
    return problem.draw(n, random_state=seed)


def changed(data, **columns):
    return SeparateLabels(**(dict(data) | columns))


@pytest.fixture(scope="module")
def strong():
    return trial({"A": 0.8, "B": 0.2})


@pytest.fixture(scope="module")
def found(strong):
    return diagnose(strong)


@pytest.fixture
def few_folds(limits):
    """Half of the time, for what does not depend on how many folds are left out in turn."""
    limits("model.crossfit", N_FOLDS=2)


@pytest.fixture(scope="module")
def equal():
    return diagnose(trial({"A": 0.5, "B": 0.5}))


def topics(result):
    return {
        finding.topic
        for finding in result.findings
        if finding.verdict == result.verdict
    }


def test_different_policies_identify(found):
    assert (found.verdict, found.colour) == ("identified", "green")
    assert found.headline.startswith(
        "Identified. The policies differ enough for all people."
    )
    assert found.gap.mean.value == pytest.approx(0.6, abs=0.1)


def test_constant_policies_have_the_gap_and_the_error_of_two_shares(strong, found):
    share = [np.mean(strong.treatment[strong.rows("treatment", name)]) for name in "AB"]
    error = np.sqrt(sum(e * (1.0 - e) / 300 for e in share))
    # Policies are fitted without a fold each, which moves the mean by a part of its error.
    assert found.gap.mean.value == pytest.approx(share[0] - share[1], abs=0.2 * error)
    assert found.gap.mean.standard_error == pytest.approx(error, rel=0.05)
    assert found.speaks_for.value == pytest.approx(1.0)
    assert "+0.6" in found.gap.words
    assert "100% of people (95% interval" in str(found)


@pytest.mark.slow
def test_intervals_of_gap_and_reach_hold_the_truth_over_draws():
    """Squares of draws over their errors add up to chi-square; the bounds hold in 9,999 of 10,000.

    Of root mean square and reach the error allows for more than the draw, so that only too many
    standard errors can be wrong.
    """

    def slope(sign):
        return lambda X: 0.5 + sign * 0.4 * X[:, 0]

    problem = SimulatedProblem(
        features=lambda n, rng: rng.uniform(-1.0, 1.0, (n, 1)),
        policies={"A": slope(1.0), "B": slope(-0.5)},
        outcome=lambda X, t, rng: 0.2 * t + rng.standard_normal(len(X)),
        outcome_mean=lambda X, t: 0.2 * t + 0.0 * X[:, 0],
    )
    # The gap is 0.6 x, which is below 0.2 for a third of people; they count by its square.
    truth = np.array([0.0, 0.6 / np.sqrt(3.0), 2.0 / 3.0 + 1.0 / 9.0])
    results = [diagnose(problem.draw(200, random_state=seed)) for seed in range(6)]
    found = [[d.gap.mean, d.gap.root_mean_square, d.speaks_for] for d in results]
    z = np.array(
        [[e.value - t for e, t in zip(of, truth, strict=True)] for of in found]
    )
    z /= [[e.standard_error for e in of] for of in found]
    squares, ends = (z**2).sum(axis=0), chi2.ppf([1e-4, 1.0 - 1e-4], len(z))
    assert ends[0] < squares[0]
    assert (squares < ends[1]).all()


def test_a_gap_has_its_interval_in_json_and_where_people_are_grouped(found):
    plain = found.to_dict()
    for part in (
        plain["gap"]["mean"],
        plain["gap"]["root_mean_square"],
        plain["speaks_for"],
    ):
        assert part["low"] <= part["value"] <= part["high"]
    assert plain["speaks_for"]["high"] <= 1.0
    for region in found.regions:  # of two populations the strength is the squared ratio
        ratio = region.gap / region.standard_error
        assert ratio**2 == pytest.approx(region.strength)
        assert f"{region.gap:+.2f} ± " in str(found)
    assert "standard_error" in found.regions_frame().columns


def test_strength_of_constant_policies_is_the_two_sample_statistic(found):
    # z = gap / sqrt(sum of e (1 - e) / n), whose own standard deviation is about 1; folds add some.
    z = 0.6 / np.sqrt(2 * 0.8 * 0.2 / 300)
    assert np.sqrt(found.strength) == pytest.approx(z, abs=4.0)


def test_equal_policies_identify_nothing(equal):
    assert (equal.verdict, topics(equal)) == ("not identified", {"strength"})


def test_tables_where_everybody_is_treated_identify_nothing(few_folds):
    result = diagnose(trial({"A": 1.0, "B": 1.0}, n=100))
    assert result.verdict == "not identified"
    assert (result.effective_size, result.speaks_for.value) == (0.0, 0.0)


def alike_for(share, n=1500):
    """Draw tables whose policies are the same for a share of the people, and differ for others."""

    def policy(often):
        return lambda X: np.where(X[:, 0] < share, 0.5, often)

    problem = SimulatedProblem(
        features=lambda n, rng: rng.random_sample((n, 2)),
        policies={"A": policy(0.8), "B": policy(0.2)},
        outcome=lambda X, treated, rng: X[:, 1] + treated + rng.standard_normal(len(X)),
        outcome_mean=lambda X, treated: X[:, 1] + treated,
    )
    return problem.draw(n, random_state=0)


@pytest.mark.parametrize(("share", "colour"), [(0.12, "green"), (0.4, "amber")])
def test_a_verdict_is_amber_if_a_decision_rests_on_people_treated_alike(share, colour):
    result = diagnose(alike_for(share))
    assert result.colour == colour
    assert {finding.topic for finding in result.findings} == {"regions"}
    assert "Policies differ too little for those where x1 is" in str(result)


def test_people_who_differ_between_populations_are_a_note_while_both_have_their_like(
    strong,
):
    X = np.array(strong.X)
    X[np.asarray(strong.population) == "A"] += 0.7
    result = diagnose(changed(strong, X=X))
    assert result.colour == "green"
    assert "differ in their features" in str(result)
    X[np.asarray(strong.population) == "A"] += 1.5
    assert diagnose(changed(strong, X=X)).colour == "amber"


def test_a_verdict_on_two_populations_says_what_they_cannot_show(found, equal):
    said = "Not tested: that people with the same features respond alike in A and B"
    assert said in found.headline
    assert said in found.as_verdict().words
    three = diagnose(trial({"A": 0.9, "B": 0.1, "C": 0.5}, seed=1))
    assert "Not tested" not in three.headline
    assert "Not tested" not in equal.headline  # red says enough


def test_weak_policies_are_called_weak():
    result = diagnose(trial({"A": 0.58, "B": 0.42}, seed=3))
    assert result.verdict == "weakly identified"
    assert topics(result) <= {"strength", "regions"}


@pytest.mark.parametrize("n", [8, 49])
def test_few_rows_identify_nothing(n):
    result = diagnose(trial({"A": 0.9, "B": 0.1}, n=n, real=True))
    assert result.verdict == "not identified"
    assert "rows" in topics(result)
    assert "fewer than 50" in result.headline


@pytest.mark.parametrize("levels", [None, 3], ids=["numbers", "three values"])
def test_one_file_given_twice_identifies_nothing(strong, levels, few_folds):
    at = np.asarray(strong.population) == "A"
    X, y, kind = strong.X[at], strong.checked.label[at], strong.kind[at]
    if levels:
        X = np.clip(np.round(X), -1, 1)
    result = diagnose(
        {
            "X": np.concatenate([X, X]),
            **separate_labels(np.concatenate([y, y]), np.concatenate([kind, kind])),
            "population": np.repeat(["A", "B"], len(X)),
        }
    )
    assert result.verdict == "not identified"
    assert "sharing" in topics(result)
    assert "twice" in str(result)


def test_joined_rows_given_as_separate_tables_are_noticed(strong, few_folds):
    X = np.array(strong.X)
    for k in "AB":
        X[strong.rows("treatment", k)] = X[strong.rows("outcome", k)]
    result = diagnose(changed(strong, X=X))
    assert result.verdict == "not identified"
    assert "join the rows" in str(result)


def test_tables_of_different_people_are_found_and_the_feature_is_named(
    strong, few_folds
):
    X = pd.DataFrame(strong.X, columns=["age", "<script>alert(1)</script>"])
    X.iloc[strong.rows("outcome", "A"), 1] += 0.8
    result = diagnose(changed(strong, X=X))
    assert (result.verdict, topics(result)) == ("not identified", {"balance"})
    assert "outcome and treatment table of A" in result.headline
    assert "<script>" in result.headline
    assert "<script>" not in result._repr_html_()
    assert result.headline in str(result)
    assert list(result.to_frame()["what"]) == [check.what for check in result.checks]
    assert list(result.regions_frame()["share"]) == [
        region.share for region in result.regions
    ]


def raw_people(n, rng):
    frame = pd.DataFrame(
        {
            "channel": rng.choice(["web", "phone", "shop"], n),
            "joined": pd.Timestamp("2021-03-01")
            + pd.to_timedelta(rng.integers(0, 500, n), "D"),
            "age": rng.integers(18, 80, n).astype(float),
            "member": rng.random(n) < 0.5,
        }
    )
    frame.loc[rng.random(n) < 0.2, "age"] = np.nan
    return frame


def raw_tables(treated_more, n=250, seed=0):
    """Draw raw tables whose policies differ where ``treated_more`` of the people is true."""
    rng = np.random.default_rng(seed)
    X = raw_people(4 * n, rng)
    kind, population = np.repeat(KINDS, 2 * n), np.tile(np.repeat(["A", "B"], n), 2)
    propensity = np.where(treated_more(X) & (population == "A"), 0.9, 0.3)
    label = np.where(kind == "outcome", 0.3 + 0.3 * propensity, propensity)
    y = (rng.random(4 * n) < label) * 1.0
    return {"X": X, **separate_labels(y, kind), "population": population}


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (
            lambda X: (X.channel == "web") & X.member,
            ("channel is web", "member is true"),
        ),
        (lambda X: X.age.isna(), ("age is missing",)),
    ],
)
def test_regions_are_told_in_the_users_columns_and_categories(rule, words, few_folds):
    data = raw_tables(rule)
    result = diagnose(SeparateLabels(**data))
    strong = [
        region.where for region in result.regions if region.verdict == "identified"
    ]
    assert strong
    assert all(word in where for where in strong for word in words)


def test_dates_are_told_as_dates(few_folds):
    data = raw_tables(lambda X: X.joined >= "2021-11-01")
    result = diagnose(data | {"X": pl.from_pandas(data["X"])})
    edges = [region.where for region in result.regions if "joined" in region.where]
    assert any("2021-10" in where or "2021-11" in where for where in edges)


def test_a_target_is_found_by_name_and_judged(few_folds):
    data = raw_tables(lambda X: X.member)
    people = raw_people(300, np.random.default_rng(1))
    far = people.assign(age=300.0, channel="mail")[
        ["member", "age", "joined", "channel"]
    ]
    away = diagnose(data, far)
    assert away.verdict == "not identified"
    assert "'mail'" in str(away)
    with pytest.raises(UnjoinedError, match="target lacks the column 'age'"):
        diagnose(data, people[["channel", "joined", "member"]])
    with pytest.raises(UnjoinedError, match="target has no rows"):
        diagnose(data, people[:0])


def test_a_small_target_does_not_make_the_gap_less_known(strong, found):
    result = diagnose(strong, np.random.default_rng(0).standard_normal((10, 2)))
    assert result.strength == pytest.approx(found.strength, rel=0.2)
    assert min(cell.coverage for cell in result.overlap) > 0.5


def test_another_law_of_outcomes_in_one_of_three_populations_is_found():
    data = trial({"A": 0.9, "B": 0.1, "C": 0.5}, seed=1)
    y = np.array(data.y)
    at = data.rows("outcome", "C")
    y[at[: len(at) // 2]] = 1.0  # another base
    result = diagnose(changed(data, y=y))
    assert (result.verdict, topics(result)) == ("not identified", {"law"})
    assert not result.gap.is_signed


def test_corrected_p_values_are_holms(found):
    p = [check.p_value for check in found.checks]
    ranked = sorted(range(len(p)), key=lambda j: p[j])
    slow = {
        j: min(1.0, max((len(p) - s) * p[ranked[s]] for s in range(r + 1)))
        for r, j in enumerate(ranked)
    }
    assert [check.corrected for check in found.checks] == pytest.approx(
        [*map(slow.get, range(len(p)))]
    )


def test_rows_of_weight_zero_count_for_nothing(strong, found):
    n = strong.n_rows
    doubled = {name: np.concatenate([np.asarray(strong[name])] * 2) for name in strong}
    doubled["X"][n:] += 100.0
    weighted = diagnose(doubled | {"sample_weight": np.repeat([2.0, 0.0], n)})
    assert weighted.strength == pytest.approx(found.strength, rel=1e-9)
    assert [c.p_value for c in weighted.checks] == pytest.approx(
        [c.p_value for c in found.checks]
    )


def test_awkward_features_give_finite_numbers(strong, few_folds):
    X = np.asarray(strong.X)
    far = 1e4 * X[:, 0] + 1e6
    awkward = np.column_stack([far, far, np.ones(len(X)), X[:, 1] > 0, X[:, 1] > 2.5])
    result = diagnose(changed(strong, X=awkward))
    assert result.verdict == "identified"
    assert np.isfinite([result.strength, result.effective_size, result.condition]).all()
    assert np.isfinite([region.strength for region in result.regions]).all()
    assert np.isfinite([check.p_value for check in result.checks]).all()


def test_policies_that_are_rules_identify_without_any_feature_that_varies():
    data = trial({"A": 1.0, "B": 0.0}, n=200)
    result = diagnose(changed(data, X=np.ones((data.n_rows, 1))))
    assert result.verdict == "identified"
    # As if one person of each treatment table had been treated against the rule.
    assert result.strength == pytest.approx(200**2 / 2, rel=0.05)


def test_a_feature_that_is_another_constant_in_one_table_is_found(strong):
    X = np.column_stack([np.asarray(strong.X)[:, 0], np.ones(strong.n_rows)])
    X[strong.rows("treatment", "B"), 1] = 2.0
    result = diagnose(changed(strong, X=X))
    assert result.verdict == "not identified"
    assert "outcome and treatment table of B describe different people (x2" in str(
        result
    )


@pytest.mark.parametrize("population", ["A", "B"])
def test_a_mailing_list_is_not_taken_for_everyone(population, few_folds):
    """Rows of those treated alone, as in a list of whom a letter went to."""
    rng = np.random.default_rng(0)
    tables = {}
    for name, sign in (("A", -1.0), ("B", 1.0)):
        for kind in ("outcome", "treatment"):
            x = rng.normal(size=2000)
            treated = rng.random(2000) < 1.0 / (1.0 + np.exp(-sign * x))
            y = rng.random(2000) < 0.2 + 0.2 * treated
            label = y if kind == "outcome" else treated
            frame = pd.DataFrame({"x": x, kind: label.astype(int)})
            is_list = kind == "treatment" and name <= population
            tables[kind, name] = frame[treated] if is_list else frame
    parts = ({n: tables[kind, n] for n in "AB"} for kind in ("outcome", "treatment"))
    result = diagnose(
        SeparateLabels.from_tables(*parts, outcome="outcome", treatment="treatment")
    )
    assert result.verdict == "not identified"
    assert "describe different people" not in str(result)
    if population == "A":  # only that one is a list
        assert (
            "Every row of the treatment table of A is treated, and the outcome"
            in str(result)
        )
        assert "Give everyone of A, or a random sample, with 1 for those" in str(result)
    else:
        assert "Every row of every treatment table is treated" in result.headline
        assert "Give everyone of each population" in result.headline


def test_quantiles_of_the_gap_rise_and_regions_cover_everyone(found):
    assert all(a <= b for a, b in pairwise(found.gap.quantiles))
    assert sum(region.share for region in found.regions) == pytest.approx(1.0)


def test_plot_has_a_bar_for_each_region(found):
    ax = found.plot()
    assert len(ax.patches) == len(found.regions)
    assert ax.get_title(loc="left") == "Identified"


def test_wrong_calls_say_what_is_missing(strong):
    with pytest.raises(UnjoinedError, match="must be a SeparateLabels"):
        diagnose(np.zeros((4, 2)))
    with pytest.raises(UnjoinedError, match="population is missing"):
        diagnose({"X": strong.X, "y": strong.y})
    one = np.asarray(strong.population) == "A"
    with pytest.raises(LabelError, match="population"):
        diagnose({name: np.asarray(strong[name])[one] for name in strong})
    no_treatments = np.asarray(strong.kind) == "outcome"
    with pytest.raises(LabelError, match="treatment"):
        diagnose({name: np.asarray(strong[name])[no_treatments] for name in strong})


def test_a_source_is_judged_by_a_sample_of_its_rows(few_folds):
    data = paper_problem(b=4.0).draw(300, random_state=0)
    whole, pieces = diagnose(data), diagnose(SeparateLabels(**data, stream=200))
    assert pieces.verdict == whole.verdict
    assert [t.n_rows for t in pieces.tables] == [t.n_rows for t in whole.tables]
    means = [t.label_mean for t in whole.tables]
    assert [t.label_mean for t in pieces.tables] == pytest.approx(means)
    assert pieces.identification.f_statistic == pytest.approx(
        whole.identification.f_statistic
    )
    assert pieces.strength == pytest.approx(whole.strength, rel=0.2)  # other folds
    assert diagnose(SeparateLabels(**data, stream=True), target=data.X[:50]).overlap
