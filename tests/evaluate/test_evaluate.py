"""Evaluations from separate tables: constructed truth, slow formulas, and clear errors."""

import json
import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from unjoined import WeightedUplift
from unjoined.data import SeparateLabels, campaign_problem, paper_problem
from unjoined.data.rows import label_rows
from unjoined.errors import InputError, LabelError, UnjoinedWarning
from unjoined.evaluate import (
    auuc,
    compare_uplift,
    cross_evaluate,
    effect_summary,
    evaluate_uplift,
    qini,
)
from unjoined.evaluate.terms import evaluation_rows
from unjoined.model.crossfit import CrossFit

pytestmark = pytest.mark.usefixtures("two_folds")

NAMES = ("age", "days", "orders", "spend", "member")


@pytest.fixture(scope="module")
def data():
    return campaign_problem().draw(150, random_state=1)


@pytest.fixture(scope="module")
def score(data):
    return campaign_problem().uplift(np.asarray(data.X))


@pytest.fixture(scope="module")
def found(data, score):
    return evaluate(score, data)


def evaluate(score, data, **options):
    return evaluate_uplift(score, data, n_jobs=1, random_state=0, **options)


@pytest.fixture(scope="module")
def terms(data):
    """What every row adds to the sums, by the policies and outcomes that an evaluation fits."""
    rows = label_rows(
        np.asarray(data.X),
        y=data.y,
        treatment=data.treatment,
        population=data.population,
    )
    rng = np.random.RandomState(0)
    made = evaluation_rows(
        rows, CrossFit.of_rows(rows, n_jobs=1, rng=rng), rng=rng, n_jobs=1
    )
    return made.terms(made.omega())


def test_numbers_are_the_ratios_of_the_row_terms(terms, score, found):
    """Slow formulas: ranks by counting pairs, sums over the rows."""
    people = terms.share * terms.aim / terms.speaks_for
    higher = score[None, :] > score[:, None]
    rank = 1.0 - higher @ people - 0.5 * (score[None, :] == score[:, None]) @ people
    n, D = terms.share * terms.numerator, float(terms.share @ terms.denominator)
    assert found.average.value == pytest.approx(n.sum() / D)
    assert found.auuc.value == pytest.approx(n @ rank / D)
    assert found.qini.value == pytest.approx(n @ (rank - 0.5) / D)
    top = (higher @ people + people <= 0.3) * 1.0  # all but the one at the cut-off
    assert found.rules["best 30%"].value == pytest.approx(n @ top / D, abs=0.01)
    assert found.rules["predicted to gain"].value == pytest.approx(
        n @ (score >= 0.0) / D
    )
    assert found.speaks_for == pytest.approx(terms.speaks_for)


def test_bins_are_averages_between_their_edges(terms, score, found):
    for bin_ in found.bins[1:]:
        inside = (score > bin_.low) & (score <= bin_.high)
        assert bin_.uplift.value == pytest.approx(terms.group(inside).value)
        assert bin_.low < bin_.predicted <= bin_.high
    assert sum(b.share for b in found.bins) == pytest.approx(1.0)
    assert_allclose([b.share for b in found.bins], 0.1, atol=0.01)


def test_the_curve_ends_at_the_average_inside_its_band(found):
    curve = found.curve
    assert curve.value[0] == 0.0
    assert curve.value[-1] == pytest.approx(found.average.value)
    low, high = found.average.interval()
    assert curve.low[-1] < low < high < curve.high[-1]
    assert ((curve.low <= curve.value) & (curve.value <= curve.high)).all()
    assert found.at_k[0.3].value == pytest.approx(found.rules["best 30%"].value / 0.3)


def test_influence_of_ranks_is_that_of_a_trial_with_known_uplift():
    """All of A and none of B are treated and outcomes have little noise.

    Errors are then those of the people alone, whose uplift is known: those of `auuc` and `qini`.
    """
    rng = np.random.RandomState(0)
    X = rng.uniform(-1.0, 1.0, (4000, 1))
    kind = np.repeat(["outcome", "treatment"], 2000)
    population = np.tile(["A", "B"], 2000)
    t = population == "A"
    y = t * (1.0 + X[:, 0]) + 0.02 * rng.standard_normal(4000)
    y, t = (
        np.where(kind == "outcome", y, np.nan),
        np.where(kind == "treatment", t, np.nan),
    )
    data = SeparateLabels(X, y, t, population)
    found = evaluate(X[:, 0], data)
    u = 1.0 + X[:, 0]
    assert found.auuc.value == pytest.approx(auuc(X[:, 0], u).value, abs=0.01)
    assert found.auuc.standard_error == pytest.approx(
        auuc(X[:, 0], u).standard_error, rel=0.1
    )
    assert found.qini.standard_error == pytest.approx(
        qini(X[:, 0], u).standard_error, rel=0.1
    )


def test_a_constant_score_is_worth_a_random_order(data, found):
    flat = evaluate(np.full(data.n_rows, 0.2), data)
    assert agree(flat.average, found.average)
    assert flat.auuc.value == pytest.approx(found.average.value / 2.0)
    assert flat.qini.value == 0.0
    assert flat.rules["best 10%"].value == pytest.approx(0.1 * found.average.value)
    assert flat.rules["best 10%"].standard_error == pytest.approx(
        0.1 * found.average.standard_error
    )
    assert flat.calibration.slope is None
    assert flat.calibration.intercept == flat.average
    assert len(flat.bins) == 1
    assert "same for everyone" in str(flat)


def test_tied_scores_count_as_if_their_order_was_drawn(data, terms, score):
    """Slow: the mean over many orders of the tied rows."""
    rough = np.round(score, 1)
    values = evaluate(rough, data)
    rng = np.random.RandomState(0)
    people = terms.share * terms.aim / terms.speaks_for
    areas = []
    for _ in range(200):
        order = np.lexsort((rng.rand(len(rough)), rough))
        rank = np.empty(len(rough))
        rank[order] = np.cumsum(people[order]) - people[order] / 2.0
        areas.append(terms.value(rank).value)
    assert values.auuc.value == pytest.approx(
        np.mean(areas), abs=4.0 * np.std(areas) / 200**0.5
    )
    assert len(values.bins) <= len(np.unique(rough))


def agree(one, two):
    """Whether two estimates are equal but for rounding, which what stands beside them changes."""
    sizes = ("value", "standard_error")
    return all(
        getattr(one, size) == pytest.approx(getattr(two, size), rel=1e-12)
        for size in sizes
    )


def test_rules_of_all_kinds(data, score):
    age = np.asarray(data.X)[:, 0]
    found = evaluate(
        score,
        data,
        rules={
            "all": ("share", 1.0),
            "none": ("share", 0.0),
            "above": ("threshold", 0.1),
            "own": (score >= 0.1) * 1.0,
            "old": lambda X: X[:, 0] > 60.0,
            "same": age > 60.0,
            "rich": ("budget", 1e9),
            "helped": score > 0.0,
            "tenth": ("budget", 0.2, 2.0),
            "best tenth": ("share", 0.1),
            "dear": ("budget", 0.1, lambda X: 1.0 + X[:, 4]),
        },
    )
    rules = found.rules
    assert rules["all"].value == pytest.approx(found.average.value)
    assert rules["none"].value == 0.0
    assert agree(rules["above"], rules["own"])
    assert agree(rules["old"], rules["same"])
    assert agree(rules["rich"], rules["helped"])
    assert rules["tenth"].value == pytest.approx(rules["best tenth"].value)
    assert rules["tenth"].standard_error == pytest.approx(
        rules["best tenth"].standard_error
    )
    assert np.isfinite(rules["dear"].value)


def test_rules_that_are_none_are_refused(data, score):
    cases = (
        ({"x": ("share", 1.5)}, r"must lie in \[0, 1\]"),
        ({"x": ("part", 0.5)}, "kind of rule 'x'"),
        ({"x": ("share", 0.5, 1.0)}, "a kind and a number"),
        ({"x": lambda X: X[:, 0]}, r"probabilities in \[0, 1\]"),
        ({"x": [0.5]}, "each of the 600 rows"),
        ({"x": ("budget", -1.0)}, "rule 'x'"),
        ({"auuc": ("share", 0.5)}, "cannot be called"),
        (("share", 0.5), "mapping of names"),
    )
    for rules, message in cases:
        with pytest.raises(InputError, match=message):
            evaluate_uplift(score, data, rules=rules)


def test_scores_and_tables_that_do_not_fit_are_refused(data, score):
    with pytest.raises(InputError, match="each of the 600 rows of the data, got 3"):
        evaluate_uplift(score[:3], data)
    with pytest.raises(InputError, match="must be finite"):
        evaluate_uplift(np.where(score > 0, np.nan, score), data)
    with pytest.raises(InputError, match=r"beyond 1e\+30, .* Divide the score"):
        evaluate_uplift(score * 1e300, data)
    with pytest.raises(InputError, match="target asks about other people"):
        evaluate_uplift(score, data, target=data.X)
    with pytest.raises(InputError, match="level"):
        evaluate_uplift(score, data, level=95)
    one = {
        name: np.asarray(data[name])[np.asarray(data.population) == "north"]
        for name in data
    }
    with pytest.raises(LabelError, match="population"):
        evaluate_uplift(score[: len(one["y"])], one)
    cells = [
        data.rows(k, p)[:4] for k in ("outcome", "treatment") for p in data.populations
    ]
    at = np.concatenate(cells)
    with pytest.raises(InputError, match="5 rows or more; the smallest has 4"):
        evaluate_uplift(score[at], data.take(at))


def test_a_gap_near_zero_gives_intervals_without_bounds():
    data = paper_problem(b=0.0).draw(200, random_state=0)
    found = evaluate(np.asarray(data.X)[:, 1], data)
    assert found.average.interval() == (-np.inf, np.inf)
    assert "the tables cannot bound it" in str(found)
    json.dumps(found.to_dict())


def test_certain_outcomes_do_not_make_bins_certain():
    data = paper_problem(b=5.0).draw(300, random_state=0)
    found = evaluate(-np.asarray(data.X)[:, 1], data)
    assert min(b.uplift.standard_error for b in found.bins) > 0.005


def test_target_rows_and_weights_say_whom_the_answer_is_for(data):
    problem = campaign_problem()
    X = np.asarray(data.X)
    lapsed = X[X[:, 1] > 60.0]
    found = evaluate(problem.uplift, data, target=lapsed)
    n = len(lapsed)
    joined = SeparateLabels(
        np.concatenate([X, lapsed]),
        np.concatenate([np.asarray(data.y), np.full(n, np.nan)]),
        np.concatenate([data.treatment, np.full(n, np.nan)]),
        np.concatenate([np.asarray(data.population), np.full(n, "")]),
    )
    inside = evaluate(problem.uplift, joined)
    assert inside.average.value == pytest.approx(found.average.value)
    truth = problem.uplift(lapsed)
    assert found.average.covers(float(truth.mean()), 0.999)


def as_frames(data):
    X = pd.DataFrame(np.asarray(data.X), columns=NAMES)
    X["member"] = np.where(X["member"] > 0.0, "yes", "no")
    X.loc[::9, "age"] = np.nan
    return SeparateLabels(X, data.y, data.treatment, data.population)


@pytest.mark.filterwarnings("ignore:the two populations")
def test_data_frames_with_text_and_gaps_reach_the_model_as_they_are(data):
    framed = as_frames(data)

    class Model:
        def predict(self, X):
            assert set(X["member"]) == {"yes", "no"}
            return X["days"].to_numpy() / 100.0

    found = evaluate(Model(), framed, rules={"members": lambda X: X["member"] == "yes"})
    assert found.rules["members"].covers(0.05, 0.999)
    crossed = cross_evaluate(
        WeightedUplift(basis="linear", random_state=0),
        framed,
        3,
        n_jobs=1,
        random_state=0,
    )
    assert crossed.average.covers(0.07, 0.999)
    summary = effect_summary(
        Model(), framed, by=["member", "age"], n_jobs=1, random_state=0
    )
    where = [group.where for group in summary.groups]
    assert where[:2] == ["member is no", "member is yes"]
    assert where[-1] == "age is missing"
    assert sum(group.share for group in summary.groups[:2]) == pytest.approx(1.0)
    assert "member=yes" in str(summary)


@pytest.mark.filterwarnings("ignore:the two populations")
def test_cross_evaluation_scores_rows_by_fits_that_have_not_seen_them(data):
    """A model that knows its own rows again sees none of them: all people tie."""

    class Memory(WeightedUplift):
        def fit(self, X, y, **labels):
            super().fit(X, y, **labels)
            self.seen_ = {tuple(row) for row in np.asarray(X).tolist()}
            return self

        def predict(self, X):
            return np.array(
                [float(tuple(row) in self.seen_) for row in np.asarray(X).tolist()]
            )

    found = cross_evaluate(Memory(basis="linear"), data, 3, n_jobs=1, random_state=0)
    assert "3 folds" in found.how
    with pytest.raises(InputError, match="n_folds=1"):
        cross_evaluate(Memory(), data, 1)
    with pytest.raises(InputError, match=r"Write Memory\(\)"):
        cross_evaluate(Memory, data)
    assert found.average.covers(0.07, 0.999)
    assert [group.predicted for group in found.bins] == [0.0]


def test_evaluations_tell_of_one_table_given_twice_as_fits_do(data, score):
    first, second = np.unique(data.population)
    one, two = data.rows("outcome", first), data.rows("outcome", second)
    X, y = np.array(data.X), np.array(data.y)
    X[two], y[two] = X[one[: len(two)]], y[one[: len(two)]]
    copied = SeparateLabels(X, y, data.treatment, data.population)
    for evaluate in (
        lambda: evaluate_uplift(score, copied, random_state=0),
        lambda: compare_uplift(
            {"a": score, "b": lambda X: X[:, 0]}, copied, random_state=0
        ),
    ):
        with pytest.warns(UnjoinedWarning, match="as if one file was given twice"):
            evaluate()


@pytest.mark.filterwarnings("ignore::unjoined.errors.WeakIdentificationWarning")
def test_a_model_that_is_judged_by_its_own_rows_is_told_of(data, score):
    """In any order of the rows; other rows are taken without a word."""
    model = WeightedUplift(basis="linear", random_state=0).fit(**data)
    own = data.take(np.random.default_rng(0).permutation(data.n_rows))
    with pytest.warns(UnjoinedWarning, match="the very rows it was fitted to"):
        evaluate(model, own)
    with pytest.warns(UnjoinedWarning, match="the very rows it was fitted to"):
        compare_uplift({"model": model, "truth": score}, data, n_jobs=1, random_state=0)
    evaluate(model, campaign_problem().draw(150, random_state=2))


def test_models_are_compared_by_paired_differences(data, score, found):
    models = {"worse": -score, "truth": score, "same": 2.0 * score}
    result = compare_uplift(models, data, n_jobs=1, random_state=0)
    assert list(result.auuc)[-1] == "worse"
    assert agree(result.auuc["truth"], found.auuc)
    same, _, last = result.differences
    assert same.auuc.value == same.auuc.standard_error == 0.0  # a score in other units
    assert result.sentences()[0] == "truth and same order people alike."
    worth = result.auuc["truth"].value - result.auuc["worse"].value
    assert last.auuc.value == pytest.approx(worth)
    assert last.auuc.value == pytest.approx(2.0 * found.qini.value)
    json.dumps(result.to_dict())
    with pytest.raises(InputError, match="two names or more"):
        compare_uplift({"truth": score}, data)


def test_projection_on_a_group_is_the_groups_average(data, terms):
    """On a constant and one 0/1 column the line goes through both averages."""
    found = effect_summary(lambda X: X[:, 4], data, by=[4], n_jobs=1, random_state=0)
    no, yes = found.groups
    slope = found.projection[1]
    assert slope.uplift.value == pytest.approx(yes.uplift.value - no.uplift.value)
    assert slope.predicted == pytest.approx(1.0)
    assert (no.predicted, yes.predicted) == pytest.approx((0.0, 1.0))
    member = np.asarray(data.X)[:, 4]
    apart = terms.totals(
        (terms.plain - yes.uplift.value * terms.aim)
        * member
        / float(terms.share @ (terms.denominator * member))
        - (terms.plain - no.uplift.value * terms.aim)
        * (1.0 - member)
        / float(terms.share @ (terms.denominator * (1.0 - member)))
    )
    assert slope.uplift.standard_error == pytest.approx(np.sqrt(apart.covariance[0, 0]))
    wide = np.column_stack([np.asarray(data.X), 2.0 * member])
    twice = SeparateLabels(wide, data.y, data.treatment, data.population)
    with pytest.raises(InputError, match="combinations"):
        effect_summary(None, twice, by=[4, 5])
    with pytest.raises(InputError, match="columns 0"):
        effect_summary(None, data, by=["age"])
    fixed = SeparateLabels(
        wide * [1, 1, 1, 1, 1, 0], data.y, data.treatment, data.population
    )
    with pytest.raises(InputError, match="'x6' is the same for everyone"):
        effect_summary(None, fixed, n_jobs=1, random_state=0)


def test_what_is_shown_is_what_was_found(found):
    text = str(found)
    assert text == repr(found)
    assert "speak for" in text
    assert "Uplift by score" in text
    assert "<table>" in found._repr_html_()
    frame = found.to_frame()
    assert frame["value"].iloc[0] == found.average.value
    plain = found.to_dict()
    assert plain["bins"][0]["uplift"]["value"] == found.bins[0].uplift.value
    assert plain["average"]["low"] == found.average.interval()[0]


def test_pictures_show_the_band_and_the_bins(data, found):
    import matplotlib

    matplotlib.use("Agg")
    ax = found.plot()
    assert ax.get_xlabel() == "share of people treated, best first"
    groups = effect_summary(None, data, by=[4], n_jobs=1, random_state=0).plot()
    assert [tick.get_text() for tick in groups.get_yticklabels()] == [
        "x5 = 0",
        "x5 = 1",
    ]
    other = found.plot(what="calibration")
    assert len(other.lines) >= 2
    with pytest.raises(InputError, match="what"):
        found.plot(what="roc")


DRAWS = 40


@pytest.mark.slow
def test_intervals_cover_in_as_many_draws_as_they_say():
    """Of 40 draws at 95 %, fewer than 33 cover by chance in 1 of 1,000 studies."""
    script = runpy.run_path(
        str(Path(__file__).parents[2] / "benchmarks" / "coverage.py")
    )
    found = script["study"](DRAWS, None, (400,), ["covariate shift"])
    (row,) = found.values()
    for what in ("average", "top share", "auuc", "qini", "uniform band"):
        assert row[what] >= 33 / DRAWS, what
    assert 0.90 <= row["deciles"] <= 0.99


def test_fits_that_rank_by_noise_are_less_sure_of_their_ranking(data):
    """Scores by chance of each fit agree with no other; the average does not depend on them."""

    class Chance(WeightedUplift):
        def fit(self, X, y, **labels):
            super().fit(X, y, **labels)
            seed = int(1e6 * np.sum(X)) % 2**32  # other rows, another direction
            self.direction_ = np.random.RandomState(seed).standard_normal(X.shape[1])
            return self

        def predict(self, X):
            return np.asarray(X) @ self.direction_

    def first(X):
        return np.asarray(X)[:, 0]

    own = cross_evaluate(Chance(basis="linear"), data, 5, n_jobs=1, random_state=0)
    given = evaluate(first, data)
    assert own.average.standard_error == pytest.approx(
        given.average.standard_error, rel=0.05
    )
    assert own.qini.standard_error > 1.2 * given.qini.standard_error
