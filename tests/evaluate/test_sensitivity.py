"""By how much equal people may respond unalike: worst cases, slow formulas, known truths."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit

from unjoined import SeparateLabels, Uplift, load_model, save_model
from unjoined.data import campaign_problem
from unjoined.errors import InputError
from unjoined.evaluate import diagnose, effect_summary, evaluate_uplift, sensitivity
from unjoined.evaluate.checks import find_pooled
from unjoined.evaluate.regions import NamedFeatures
from unjoined.evaluate.sensitivity import average_claim, benchmarks_of, without_each
from unjoined.evaluate.terms import linear_evaluation
from unjoined.report import Terms, report_with_numbers
from unjoined.report.advice import hidden_reasons
from unjoined.words import robustness_in_words

pytestmark = pytest.mark.usefixtures("two_folds")

CHANCES = {
    "two": (lambda X: expit(1.0 + X[:, 0]), lambda X: expit(-0.5 + 0.5 * X[:, 0])),
    "crossing": (lambda X: expit(2.0 * X[:, 0]), lambda X: expit(-2.0 * X[:, 0])),
    "apart": (lambda X: np.full(len(X), 0.75), lambda X: np.full(len(X), 0.25)),
    "alike": (lambda X: np.full(len(X), 0.5), lambda X: np.full(len(X), 0.5)),
    "three": (
        lambda X: expit(1.0 + X[:, 0]),
        lambda X: expit(0.2 * X[:, 1]),
        lambda X: expit(-1.0 - 0.5 * X[:, 1]),
    ),
}


def drawn(chances="two", n=400, *, hidden=0.0, shift=0.0, effect=0.8, seed=0, **extra):
    """Tables of populations A, B and perhaps C; A has more of the third column."""
    rng = np.random.default_rng(seed)
    parts = []
    for k, chance in enumerate(CHANCES[chances]):
        for kind in ("outcome", "treatment"):
            X = rng.normal(size=(n, 3))
            X[:, 2] += hidden * (k == 0)
            t = (rng.random(n) < chance(X)) * 1.0
            y = X[:, 1] + 0.6 * X[:, 2] + t * (effect + 0.4 * X[:, 1])
            y = y + shift * (k == 0) + rng.normal(size=n)
            gone = np.full(n, np.nan)
            labels = (y, gone) if kind == "outcome" else (gone, t)
            parts.append((X, *labels, np.repeat("ABC"[k], n), t))
    X, y, treatment, population, t = map(np.concatenate, zip(*parts, strict=True))
    columns = {"X": X, "y": y, "treatment": treatment, "population": population}
    if extra.pop("panel", False):  # every third outcome row has its treatment as well
        both = ~np.isnan(y) & (np.arange(len(y)) % 3 == 0)
        columns["treatment"] = np.where(both, t, treatment)
    return SeparateLabels(**columns, **extra)


def evaluated(data):
    """Rows of an evaluation by nuisances that take milliseconds."""
    return linear_evaluation(data.labelled(np.asarray(data.X)))


SITUATIONS = {
    "two populations": {},
    "policies that cross": {"chances": "crossing"},
    "three populations": {"chances": "three"},
    "some treatments known": {"panel": True},
    "clusters": {"cluster": np.arange(1600) // 4},
    "people counted": {"count": 1.0 + np.arange(1600) % 3},
    "weights": {"sample_weight": 1.0 + np.arange(1600) % 2},
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_no_difference_of_equal_people_moves_the_average_by_more(situation):
    """And the worst one moves it by as much: the bound is sharp."""
    rows = evaluated(drawn(**SITUATIONS[situation]))
    claim = average_claim(rows)
    reach = rows.terms(rows.omega()).reach
    outcome = rows.cell < rows.n_populations
    rng = np.random.default_rng(0)

    def moved(apart):
        off = np.where(outcome, 0.3 * apart, 0.0)
        other = average_claim(replace(rows, residual=rows.residual + off))
        return other.gain.value - claim.gain.value

    most = 0.3 * claim.sway
    worst = 0.5 * np.sign(reach)
    assert moved(worst) == pytest.approx(most)
    assert moved(-worst) == pytest.approx(-most)
    for _ in range(20):
        assert abs(moved(rng.uniform(-0.5, 0.5, len(worst)))) < most


def test_of_two_populations_the_sway_is_the_mean_inverse_gap():
    rows = evaluated(drawn("two"))
    e = rows.policies
    omega = np.minimum(1.0, ((e[:, 0] - e[:, 1]) / 0.2) ** 2)
    outcome = rows.cell < 2
    inverse = omega[outcome] / np.abs(e[outcome, 0] - e[outcome, 1])
    D = average_claim(rows).gain.ratio.denominator
    assert average_claim(rows).sway == pytest.approx(inverse.mean() / D)
    own = e[np.arange(len(e)), rows.cell % 2][outcome]
    assert average_claim(rows).picked == pytest.approx(2.0 * (inverse * own).mean() / D)


def test_a_claim_turns_where_its_robust_interval_reaches_0():
    claim = average_claim(evaluated(drawn(n=1000, effect=1.5)))
    assert claim.gains
    sure = claim.breakdown(0.95)
    assert 0.0 < sure < claim.breakdown()
    assert claim.interval(sure, 0.95)[0] == pytest.approx(0.0, abs=1e-9)
    assert claim.interval(0.0, 0.95) == claim.gain.interval(0.95)
    narrow = claim.interval(0.05, 0.95)
    wide = claim.interval(0.1, 0.95)
    assert wide[0] < narrow[0] < claim.gain.interval(0.95)[0]
    assert wide[1] > narrow[1] > claim.gain.interval(0.95)[1]


def test_nothing_is_sure_where_the_policies_cannot_be_told_apart():
    """Not even of a large effect: the tables do not say which population treats more."""
    for seed in range(20):
        claim = average_claim(evaluated(drawn("alike", n=200, effect=5.0, seed=seed)))
        bounded = np.isfinite(claim.interval(0.0, 0.95)).all()
        differ = bounded and claim.gain.ratio.denominator > 0.0
        sure = (claim.breakdown(0.95), claim.breakdown_picked(0.95))
        assert differ or sure == (0.0, 0.0)
        assert claim.breakdown() > 0.0
        said = robustness_in_words(claim, ("A", "B"), is_rate=False, level=0.95)
        assert ("since the policies may not differ" in said) == (not differ)


def test_costs_are_taken_off_before_a_claim_is_judged():
    """What is left of the gain turns at a difference that is smaller by as much."""
    claim = average_claim(evaluated(drawn()))
    value = claim.gain.value
    dear = replace(claim, cost=0.4 * value)
    assert dear.net.value == pytest.approx(0.6 * value)
    assert dear.breakdown() == pytest.approx(0.6 * claim.breakdown())
    assert dear.net.standard_error == pytest.approx(claim.gain.standard_error)
    lost = replace(claim, cost=1.4 * value)
    assert not lost.gains
    assert lost.breakdown() == pytest.approx(0.4 * claim.breakdown())
    assert replace(claim, cost=value).breakdown(0.95) == 0.0


def test_what_three_populations_bound_is_less_than_each_pair_of_them():
    """Of least variance if outcomes vary alike, the contrast of all moves least as well."""
    data = drawn("three", n=1500)
    all_three = average_claim(evaluated(data)).sway
    for left_out in "ABC":
        pair = data.take(np.asarray(data.population) != left_out)
        assert all_three < average_claim(evaluated(pair)).sway


def test_one_population_of_known_treatments_rests_on_how_people_were_picked():
    data = drawn(panel=True, n=2000)
    population = np.asarray(data.population)
    known = ~np.isnan(data.y) & ~np.isnan(data.treatment)
    rows = evaluated(data.take(known & (population == "A")))
    claim = average_claim(rows)
    assert claim.sway == pytest.approx(1.0, abs=0.15)  # of treated and others alone
    assert benchmarks_of(rows, NamedFeatures.of(np.asarray(data.X))[1]) == ()


def test_benchmarks_are_those_of_regressions_without_the_column():
    """Slow: regress the outcome, then what the column adds to it, one after the other."""
    data = drawn("three", hidden=0.4, n=600)
    rows = evaluated(data)
    features = NamedFeatures.of(np.asarray(data.X))[1]
    found = {each.column: each for each in benchmarks_of(rows, features)}
    at = rows.cell < 3
    Z = (rows.X[at] - rows.X[at].mean(axis=0)) / rows.X[at].std(axis=0)
    Z = np.clip(Z, -3.0, 3.0)
    member = (rows.cell[at, None] == np.arange(3)) * 1.0
    y = rows.untreated[at] + rows.residual[at]
    sigma = np.sqrt(np.mean(rows.residual[at] ** 2))
    for j in range(3):
        others = np.column_stack([np.delete(Z, j, 1), np.delete(Z**2, j, 1), member])
        own = np.column_stack([Z[:, j], Z[:, j] ** 2])
        beta = np.linalg.lstsq(np.column_stack([others, own]), y, rcond=None)[0][-2:]
        added = own @ beta
        coef = np.linalg.lstsq(others, added, rcond=None)[0]
        spread = np.std(added - others @ coef)
        one = found[f"x{j + 1}"]
        assert one.outcome == pytest.approx(min(spread / sigma, 1.0), rel=1e-4)
        squared = (np.ptp(coef[-3:]) / spread) ** 2 - 2.0 / 600  # two means of 600 rows
        assert one.population == pytest.approx(np.sqrt(max(squared, 0.0)), rel=1e-4)
        assert one.delta == pytest.approx(sigma * one.outcome * one.population)
    assert next(iter(found)) == "x3"  # the worst first


def test_a_benchmark_says_how_the_average_moves_without_the_column():
    """The same rows without it: both moves share their noise, so that they nearly agree.

    A has 0.3 more of a column that adds 0.6 of the outcome: 0.18, over the gap.
    """
    for seed in range(3):
        data = drawn(hidden=0.3, n=2000, seed=seed)
        full, X = evaluated(data), np.asarray(data.X)
        less = SeparateLabels(
            X[:, :2], data.y, data.treatment, data.population
        )  # the same people
        benchmark = next(
            each
            for each in benchmarks_of(full, NamedFeatures.of(X)[1])
            if each.column == "x3"
        )
        moved = average_claim(evaluated(less)).gain.value
        moved -= average_claim(full).gain.value
        assert benchmark.delta == pytest.approx(0.18, abs=4 * 0.6 * np.sqrt(2 / 2000))
        assert benchmark.moves == pytest.approx(moved, rel=1 / 3)


def test_the_robust_interval_holds_the_truth_that_the_plain_one_misses():
    """Everybody in A responds by 0.3 more: at a gap of about 0.3 the average is off by about 1."""
    data = drawn(shift=0.3, n=2000)
    rows = evaluated(data)
    omega = rows.omega()
    truth = np.average(0.8 + 0.4 * rows.X[:, 1], weights=rows.share * omega)
    claim = average_claim(rows)
    assert claim.gain.interval(0.95)[0] > truth
    low, high = claim.interval(0.3, 0.95)
    assert low < truth < high


def test_the_public_function_is_the_section_of_an_evaluation():
    data = campaign_problem().draw(300, random_state=0)
    score = campaign_problem().uplift(np.asarray(data.X))
    rules = {"best half": ("share", 0.5), "members": lambda X: X[:, 4] == 1}
    evaluation = evaluate_uplift(score, data, rules=rules, n_jobs=1, random_state=0)
    found = sensitivity(
        score, data, rules=rules, cost=0.02, delta=0.01, n_jobs=1, random_state=0
    )
    names = ["everyone", "best half", "members"]
    assert [claim.name for claim in found.claims] == names
    own = evaluation.sensitivity
    assert own.average.gain.value == evaluation.average.value
    assert own.benchmarks == found.benchmarks
    members = np.average(np.asarray(data.X)[:, 4] == 1)
    assert found.claims[2].treated == pytest.approx(members, abs=0.05)
    for one, other in zip(own.claims, found.claims, strict=True):
        assert replace(one, cost=0.02) == other
    assert found.at(cost=0.0, delta=None).claims == own.claims
    said = json.loads(json.dumps(evaluation.to_dict()))["sensitivity"]
    assert said["claims"][1]["breakdown"] == own.claims[1].breakdown()
    robust = found.to_frame("pandas")[["robust_low", "robust_high"]].to_numpy()
    assert_allclose(robust[0], found.average.interval(0.01, 0.95))


def test_tables_in_pieces_have_the_same_sums():
    data = campaign_problem().draw(400, random_state=0)
    score = campaign_problem().uplift
    whole, parts = (
        evaluate_uplift(score, each, n_jobs=1, random_state=0).sensitivity
        for each in (data, SeparateLabels(**data, stream=150))
    )
    for one, other in zip(whole.claims, parts.claims, strict=True):
        assert other.sway == pytest.approx(one.sway, rel=0.1)  # other folds
        assert other.treated == pytest.approx(one.treated, abs=0.02)
        apart = one.gain.value - other.gain.value
        assert abs(apart) < one.gain.standard_error


def test_a_model_judges_its_own_rows_by_fits_that_have_not_seen_them(tmp_path):
    data = campaign_problem().draw(300, random_state=0)
    model = Uplift(n_jobs=1, random_state=0).fit(data)
    found = sensitivity(model, data, n_jobs=1, random_state=0)
    assert found.average.gain.value == pytest.approx(
        sensitivity(None, data, crossfit=model.crossfit_).average.gain.value
    )
    said = model.summary()
    assert said == load_model(save_model(model, tmp_path / "m.skops")).summary()
    claim = model.gain_.claim()
    assert claim.gain == model.average_effect_
    assert claim.sway == pytest.approx(found.average.sway, rel=0.1)
    assert f"{100 * claim.breakdown():.2g} in 100 more" in said
    # A list of all people is everyone, and the best gain more than they would have to.
    uplift = model.predict(data.X)
    everyone = model.gain_.claim(uplift, np.ones(len(uplift)))
    assert everyone.sway == pytest.approx(claim.sway, rel=0.05)
    best = model.gain_.claim(uplift, uplift > np.quantile(uplift, 0.7), cost=0.01)
    assert best.breakdown() > claim.breakdown()


def test_who_would_have_to_respond_more_is_named():
    """Who is treated more, for a gain; the other population, for a harm; nobody if they cross."""
    options = {"n_jobs": 1, "random_state": 0}
    for effect, helps, more, less in (
        (2.0, "helps", "A", "B"),
        (-2.0, "harms", "B", "A"),
    ):
        said = str(sensitivity(None, drawn(effect=effect, n=300), **options))
        amount = r"[\d.]+ units of the outcome"
        pattern = (
            rf"Treating everyone {helps} unless people in {more} respond by {amount}"
        )
        assert re.search(
            rf"{pattern} more than equal people in {less} for other reasons \(95% sure",
            said,
        )
    said = str(sensitivity(None, drawn("crossing", effect=2.0, n=300), **options))
    assert "more where they are treated more, for other reasons" in said
    said = str(sensitivity(None, drawn(effect=0.0, n=300), cost=5.0, **options))
    assert "Treating everyone does not pay unless people in B" in said


def test_negative_costs_and_differences_are_refused():
    found = sensitivity(None, drawn(n=100), n_jobs=1, random_state=0)
    with pytest.raises(InputError, match=r"cost must be .*-1"):
        found.at(cost=-1.0)
    with pytest.raises(InputError, match=r"delta must be .*-0\.1"):
        found.at(delta=-0.1)


def test_the_contour_holds_the_columns_that_are_usual():
    found = sensitivity(None, drawn(hidden=0.4, n=300), n_jobs=1, random_state=0)
    ax = found.plot()
    curve = ax.get_lines()[0].get_xydata()
    assert_allclose(
        curve[:, 0] * curve[:, 1] * found.sigma, found.average.breakdown(), rtol=1e-6
    )
    worst = found.benchmarks[0]
    drawn_at = [
        line.get_xydata()[0] for line in ax.get_lines() if len(line.get_xydata()) == 1
    ]
    assert_allclose(drawn_at[0], [worst.outcome, worst.population])


def test_a_row_that_counts_double_is_two_rows():
    rows = evaluated(drawn(hidden=0.3, sample_weight=1.0 + np.arange(1600) % 2))
    features = NamedFeatures.of(rows.X)[1]
    twice = rows.take(np.repeat(np.arange(1600), 2))
    twice = replace(twice, share=twice.share / 2.0)
    for one, other in zip(
        benchmarks_of(rows, features), benchmarks_of(twice, features), strict=True
    ):
        assert_allclose([one.outcome, one.moves], [other.outcome, other.moves])
    assert average_claim(twice).sway == pytest.approx(average_claim(rows).sway)


@pytest.mark.parametrize("hidden", [0.0, 1.0])
def test_a_verdict_is_amber_where_a_trait_like_an_ordinary_column_would_turn_it(hidden):
    """A has a standard deviation more of a column that adds 0.6: more than half of the effect.

    Half of 0.5 is what turns the average, the policies being 0.5 apart.
    """
    found = diagnose(drawn("apart", n=800, hidden=hidden, effect=0.5), random_state=0)
    topics = [finding.topic for finding in found.findings]
    assert ("sensitivity" in topics) == (hidden > 0.0)
    assert found.colour == ("amber" if hidden else "green")
    assert found.without("sensitivity").colour == "green"
    if hidden:
        assert "telling as 'x3', as 1 of 3 columns is, would" in found.headline
        turns = found.sensitivity
        assert turns.ordinary.delta > turns.average.breakdown() > 0.0
        assert found.to_dict()["sensitivity"]["ordinary"] == "x3"


def in_periods(base, policy=0.0, shared=False):
    """The tables with a column of periods, two of each population or the same two of both.

    In the second of them responses are higher by ``base``, and ``policy`` more are treated.
    """
    data, rng = drawn("apart", n=300), np.random.default_rng(1)
    later = rng.integers(0, 2, data.n_rows)
    X = np.asarray(data.X).copy()
    X[:, 2] = later if shared else later + 2.0 * (np.asarray(data.population) == "B")
    more = (rng.random(data.n_rows) < policy) & (later == 1)
    t = np.where(np.isnan(data.treatment), np.nan, np.maximum(data.treatment, more))
    y = data.y - 0.6 * np.asarray(data.X)[:, 2] + base * later
    return SeparateLabels(X, y, t, data.population)


def test_a_population_of_several_periods_with_other_bases_is_told_of():
    """If it alone has them; people are treated unalike in them, which by itself is no harm."""

    def pooled(**changes):
        rows = evaluated(in_periods(**changes))
        return find_pooled(rows, NamedFeatures.of(rows.X)[1], "AB")

    found = pooled(base=0.8)
    assert [(each.column, each.population) for each in found] == [
        ("x3", "A"),
        ("x3", "B"),
    ]
    for each in found:
        assert each.difference == pytest.approx(0.8, abs=4 * 1.2 * np.sqrt(2 / 150))
        assert each.p_value < 0.001
    assert all(each.p_value > 0.05 for each in pooled(base=0.0, policy=0.2))
    assert pooled(base=0.8, shared=True) == ()
    verdict = diagnose(in_periods(0.8), random_state=0)
    first = verdict.findings[0]
    assert (verdict.colour, first.code) == ("red", "populations.pooled")
    assert "several values of 'x3' that no other population has" in verdict.headline
    assert "its own name" in first.remedy
    codes = [each.code for each in verdict.findings]
    assert "populations.apart" not in codes  # which would say to leave the column out


def test_where_chance_decided_on_the_population_nothing_hidden_differs():
    data = drawn("apart", n=300, hidden=1.0, effect=0.5)
    found = diagnose(data, randomised=True, random_state=0)
    assert found.sensitivity is None
    assert "sensitivity" not in [finding.topic for finding in found.findings]


@pytest.mark.parametrize("hidden", [0.0, 1.0])
def test_a_report_says_what_turns_its_advice_beside_the_interval(hidden, tmp_path):
    data = drawn("apart", n=800, hidden=hidden, effect=0.5)
    model = Uplift(n_jobs=1, random_state=0).fit(data)
    terms = Terms(unit="euros", value=1.0, cost=0.02)
    path, numbers = report_with_numbers(
        model, data, tmp_path / "r.html", terms=terms, random_state=0
    )
    uplift = model.predict(data.X)
    claim = model.gain_.claim(uplift, uplift >= 0.02, cost=0.02)
    assert numbers["breakdown"]["value"] == pytest.approx(claim.breakdown())
    assert numbers["breakdown"]["sure"] == pytest.approx(claim.breakdown(0.95))
    html = path.read_text()
    first = html[html.index('id="verdict"') : html.index('id="tables"')]
    amount = f"{claim.breakdown():.2g} euros"
    sentence = (
        rf"pays unless people in A respond by {amount} more than equal people in B"
    )
    assert re.search(sentence, first)
    assert first.index("interval") < re.search(sentence, first).start()
    assert "Which hidden traits would turn it" in html
    colours = [
        reason["colour"]
        for reason in numbers["reasons"]
        if "turn this advice" in reason["words"]
    ]
    assert colours == ["amber" if hidden else "green"]


def test_columns_reassure_only_where_they_tell_and_leave_the_advice_sure():
    """Ordinary is one that does nothing, little, more than is sure, or more than turns it."""
    found = sensitivity(
        None, drawn("apart", n=300, effect=2.0), n_jobs=1, random_state=0
    )
    claim = found.average
    point, sure = claim.breakdown(), claim.breakdown(0.95)
    assert 0.0 < sure < point
    deltas = {"note": 0.0, "green": 0.9 * sure, "amber": 1.1 * sure}
    for colour, delta in (*deltas.items(), ("amber", 1.1 * point)):
        (one, *_) = found.benchmarks
        turns = replace(found, benchmarks=(replace(one, delta=delta),))
        facts = SimpleNamespace(
            claim=claim,
            sensitivity=turns,
            terms=Terms(unit="euros"),
            is_told=True,
            level=0.95,
        )
        (reason,) = hidden_reasons(facts)
        assert reason["colour"] == colour
        assert "turn this advice" in reason["sentence"]
        assert ("beyond" in reason["sentence"]) == (sure < delta < point)


def test_without_one_of_three_populations_the_other_two_are_compared():
    """Slow: the ratio of two populations, by the same nuisances."""
    rows = evaluated(drawn("three"))
    found = without_each(rows, "ABC")
    assert list(found) == ["A", "B", "C"]
    for k, name in enumerate("ABC"):
        i, j = (other for other in range(3) if other != k)
        d = rows.policies[:, i] - rows.policies[:, j]
        omega = np.minimum(1.0, (d / 0.2) ** 2)
        sign = np.select([rows.cell % 3 == i, rows.cell % 3 == j], [1.0, -1.0], 0.0)
        people = np.isin(rows.cell % 3, (i, j)) / np.isin(rows.cell % 3, (i, j)).sum()
        corrected = rows.share * sign * omega / d * rows.residual
        N = corrected[rows.cell < 3].sum() + (people * omega) @ rows.effect
        D = corrected[rows.cell >= 3].sum() + (people * omega).sum()
        assert found[name].value == pytest.approx(N / D)
    assert without_each(evaluated(drawn("two")), "AB") == {}


def test_many_populations_may_be_draws_themselves():
    """Nine bases that differ: the error of the average is that of nine numbers, not of rows."""
    rng = np.random.default_rng(0)
    bases, chances = rng.normal(0.0, 0.5, 9), np.linspace(0.1, 0.9, 9)
    parts = []
    for k in range(9):
        for kind in (0, 1):
            X = rng.normal(size=(150, 1))
            t = (rng.random(150) < chances[k]) * 1.0
            y = bases[k] + t + rng.normal(size=150)
            gone = np.full(150, np.nan)
            labels = (gone, t) if kind else (y, gone)
            parts.append((X, *labels, np.repeat(f"region {k}", 150)))
    data = SeparateLabels(*map(np.concatenate, zip(*parts, strict=True)))
    found = sensitivity(None, data, n_jobs=1, random_state=0)
    values = [each.value for each in found.without.values()]
    jackknife = np.sqrt(8 / 9 * np.sum((values - np.mean(values)) ** 2))
    wider = 2.306 / 1.960  # Student's t of eight degrees over the normal
    assert found.jackknife.standard_error == pytest.approx(wider * jackknife, rel=1e-3)
    assert found.jackknife.standard_error > 2.0 * found.average.gain.standard_error
    assert "If populations are draws of many" in str(found)


def test_bases_of_groups_that_differ_change_nothing():
    """Populations are compared within their groups: what these differ by drops out."""
    rows = evaluated(drawn("three"))
    grouped = replace(rows, base=np.array([0, 0, 1]))
    claim = average_claim(grouped)
    off = np.where((rows.cell < 3) & (rows.cell % 3 == 2), 7.0, 0.0)
    other = average_claim(replace(grouped, residual=rows.residual + off))
    assert other.gain.value == pytest.approx(claim.gain.value)
    one = average_claim(replace(rows, base=np.zeros(3, dtype=np.int64)))
    assert one.gain.value == pytest.approx(average_claim(rows).gain.value)
    assert one.sway == pytest.approx(average_claim(rows).sway)


def test_the_same_base_is_asked_for_by_name():
    data = drawn("three", n=150)
    options = {"n_jobs": 1, "random_state": 0}
    found = sensitivity(None, data, same=[["A", "B"]], **options)
    assert list(found.without) == ["C"]  # without A or B nothing is left to compare
    assert "Without one population" not in str(found)
    assert found.average.sway > sensitivity(None, data, **options).average.sway
    for same, message in (
        ([["A"]], "two populations or more that have the same base"),
        ([["A", "D"]], "'D', and the tables are of 'A', 'B', 'C'"),
        ([["A", "B"], ["B", "C"]], "'B' twice"),
    ):
        with pytest.raises(InputError, match=message):
            sensitivity(None, data, same=same, **options)
    with pytest.raises(InputError, match="same needs all rows in memory"):
        evaluate_uplift(
            lambda X: X[:, 0], SeparateLabels(**data, stream=100), same=[["A", "B"]]
        )


def test_a_group_turns_where_the_rule_that_treats_it_does():
    data = campaign_problem().draw(300, random_state=0)
    options = {"n_jobs": 1, "random_state": 0}
    groups = effect_summary(None, data, by=[4], **options).groups
    rules = {each.where: lambda X, v=v: X[:, 4] == v for v, each in enumerate(groups)}
    found = sensitivity(lambda X: X[:, 0], data, rules=rules, **options)
    for claim, group in zip(found.claims[1:], groups, strict=True):
        assert group.breakdown == pytest.approx(claim.breakdown())
        assert group.breakdown_sure == pytest.approx(claim.breakdown(0.95))
