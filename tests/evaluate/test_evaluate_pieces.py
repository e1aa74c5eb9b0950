"""Evaluations of tables that are read in pieces: the sums are those of rows in memory."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from unjoined.data import SeparateLabels, campaign_problem
from unjoined.errors import InputError, LabelError, TableError
from unjoined.evaluate import compare_uplift, effect_summary, evaluate_uplift
from unjoined.evaluate.terms import RELATIVE, evaluation_rows, relative_effect
from unjoined.model.census import take_census
from unjoined.model.crossfit import CrossFit

PROBLEM = campaign_problem()
RULES = {
    "top": ("share", 0.3),
    "above": ("threshold", 0.05),
    "old": lambda X: np.asarray(X)[:, 0] > 60.0,
    "tenth": ("budget", 0.2, 2.0),
    "dear": ("budget", 0.1, lambda X: 1.0 + np.asarray(X)[:, 4]),
}


@pytest.fixture(scope="module")
def data():
    return PROBLEM.draw(150, random_state=1)


def evaluate(source, **options):
    return evaluate_uplift(PROBLEM.uplift, source, n_jobs=1, random_state=0, **options)


def numbers(found):
    estimates = [found.average, found.auuc, found.qini, *found.rules.values()]
    estimates += [
        *found.plain.values(),
        *(b.uplift for b in found.bins),
        found.calibration.slope,
    ]
    if found.relative is not None:
        estimates.append(found.relative)
    ends = [
        *found.curve.low,
        *found.curve.high,
        found.speaks_for,
        found.calibration.p_value,
    ]
    return np.array(
        [*((e.value, e.standard_error) for e in estimates), ends], dtype=object
    )


def assert_same(one, two):
    for a, b in zip(numbers(one), numbers(two), strict=True):
        assert_allclose(
            np.asarray(a, dtype=float), np.asarray(b, dtype=float), rtol=1e-8
        )
    assert one.left_out == two.left_out


def test_sums_of_pieces_are_the_ratios_of_rows_in_memory(data, known):
    """The same folds and fits, on rows in memory, and slow formulas for ranks and errors."""
    source, X, ratio = known
    found = evaluate(source, rules=RULES)
    score = PROBLEM.uplift(X).astype(np.float32).astype(float)
    plain = replace(ratio, numerator=ratio.plain, denominator=ratio.aim)
    for terms, estimates in ((ratio, None), (plain, found.plain)):
        people = terms.share * terms.aim / terms.speaks_for
        higher = score[None, :] > score[:, None]
        rank = 1.0 - higher @ people - 0.5 * (score[None, :] == score[:, None]) @ people
        slow = {
            "average": terms.average(),
            "old": terms.value((X[:, 0] > 60.0) * 1.0),
            "above": terms.value((score >= 0.05) * 1.0),
            "auuc": terms.value(rank),
        }
        mine = estimates or {
            "average": found.average,
            "auuc": found.auuc,
            **found.rules,
        }
        for name, expected in slow.items():
            assert mine[name].value == pytest.approx(expected.value, rel=1e-8)
            if name != "auuc":  # whose ranks add to its error
                error = pytest.approx(expected.standard_error, rel=1e-8)
                assert mine[name].standard_error == error
    assert found.speaks_for == pytest.approx(terms.speaks_for)
    relative = relative_effect(ratio.totals(*(getattr(ratio, c) for c in RELATIVE)))
    assert_allclose(found.relative.interval(), relative.interval(), rtol=1e-8)
    in_memory = evaluate(data, rules=RULES)  # other folds
    for one, two in zip(numbers(found)[:8], numbers(in_memory)[:8], strict=True):
        assert one[1] == pytest.approx(two[1], rel=0.25)
        assert abs(one[0] - two[0]) < 1.5 * one[1]


def test_pieces_tables_and_partitions_change_nothing(data, limits):
    """Rows that repeat, a sample smaller than the tables, three populations, in whatever order."""
    X = np.round(np.asarray(data.X) / 20.0)
    population = np.asarray(data.population).astype(object)
    population[::3] = "west"
    weight = np.random.RandomState(0).uniform(0.5, 2.0, len(X))
    parts = {"X": X, "y": data.y, "treatment": data.treatment, "population": population}
    parts = {name: np.asarray(column) for name, column in parts.items()} | {
        "sample_weight": weight
    }
    limits("evaluate.pieces", SAMPLE_ROWS=60)

    def model(X):
        return 0.1 * np.asarray(X)[:, 1] - 0.05 * np.asarray(X)[:, 0]

    def run(source):
        return evaluate_uplift(model, source, rules=RULES, n_jobs=1, random_state=0)

    whole = run(SeparateLabels(**parts, stream=True))
    order = np.argsort(~np.isnan(parts["y"]), kind="stable")
    other = {name: column[order] for name, column in parts.items()}
    assert_same(whole, run(SeparateLabels(**other, stream=37)))
    dask = pytest.importorskip("dask.array")
    columns = {
        n: dask.from_array(c, chunks=(130, *c.shape[1:])) for n, c in parts.items()
    }
    assert_same(whole, run(SeparateLabels(**columns)))
    assert whole.n_rows == len(X)


def test_frames_reach_models_as_they_are_and_a_target_is_answered_for(data):
    X = pd.DataFrame(
        np.asarray(data.X), columns=["age", "days", "orders", "spend", "member"]
    )
    X["member"] = np.where(X["member"] > 0.0, "yes", "no")
    X.loc[::9, "age"] = np.nan
    framed = SeparateLabels(X, data.y, data.treatment, data.population)

    class Model:
        def predict(self, X):
            assert set(X["member"]) <= {"yes", "no"}
            return X["days"].to_numpy() / 100.0

    options = {"rules": {"members": lambda X: X["member"] == "yes"}, "n_jobs": 1}
    parts = {"target": X[X["days"] > 60.0], "random_state": 0, **options}
    found = evaluate_uplift(Model(), SeparateLabels(**framed, stream=150), **parts)
    known = evaluate_uplift(Model(), framed, **parts)
    for name in ("average", "auuc"):
        one, two = getattr(found, name), getattr(known, name)
        assert abs(one.value - two.value) < one.standard_error
        assert one.standard_error == pytest.approx(two.standard_error, rel=0.2)
    assert found.speaks_for == pytest.approx(known.speaks_for, abs=0.05)
    frame = pd.concat([X, pd.DataFrame({"label": data.checked.label})], axis=1)
    frame["region"] = np.asarray(data.population)
    tables = (frame[np.asarray(data.kind) == kind] for kind in ("outcome", "treatment"))
    columns = {"outcome": "label", "treatment": "label", "population": "region"}
    source = SeparateLabels.from_tables(*tables, **columns, stream=100)
    again = evaluate_uplift(Model(), source, **parts).average
    assert again.value == pytest.approx(found.average.value)


def test_a_model_that_never_says_the_same_twice_is_no_other_source(data):
    """Scores of other hardware differ in the last digit; the rows are the same for all that."""
    X = pd.DataFrame(
        np.asarray(data.X), columns=["age", "days", "orders", "spend", "member"]
    )
    source = SeparateLabels(X, data.y, data.treatment, data.population, stream=150)
    rng = np.random.default_rng(0)

    def model(X):
        return X["days"].to_numpy() / 100.0 + 1e-6 * rng.standard_normal(len(X))

    found = evaluate_uplift(model, source, n_jobs=1, random_state=0)
    assert np.isfinite(found.auuc.value)


@pytest.fixture(scope="module")
def known(data):
    """A source, its features in memory, and their terms by the folds and fits of its pieces."""
    source = SeparateLabels(**data, stream=101)
    sample, fold = take_census(source.chunks(), sample_rows=1000).sample(5)
    rng = np.random.RandomState(0)
    crossfit = CrossFit.of_rows(sample, fold=fold, n_jobs=1, rng=rng)
    rows = evaluation_rows(sample, crossfit, n_jobs=1, rng=rng)
    return source, sample.X, rows.terms(rows.omega())


def opposite(X):
    return -PROBLEM.uplift(X)


def test_differences_of_models_in_pieces_are_those_of_the_rows(known):
    source, X, terms = known
    models = {"true": PROBLEM.uplift, "opposite": opposite}
    rules = {"above": ("threshold", 0.05), "old": RULES["old"], "dear": RULES["dear"]}
    found = compare_uplift(models, source, rules=rules, n_jobs=1, random_state=0)
    score = PROBLEM.uplift(X).astype(np.float32).astype(float)
    (apart,) = found.differences
    assert (apart.first, apart.second) == ("true", "opposite")
    slow = terms.value((score >= np.float32(0.05)) * 1.0 - (-score >= np.float32(0.05)))
    assert apart.rules["above"].value == pytest.approx(slow.value, rel=1e-8)
    assert apart.rules["above"].standard_error == pytest.approx(
        slow.standard_error, rel=1e-8
    )
    assert apart.rules["old"].value == pytest.approx(0.0, abs=1e-12)
    one = evaluate(source, rules=rules)
    assert found.auuc["true"].value == pytest.approx(one.auuc.value, rel=1e-10)
    assert found.auuc["true"].standard_error == pytest.approx(
        one.auuc.standard_error, rel=1e-10
    )
    # The opposite order has minus the Qini, so that the difference is twice the Qini.
    assert apart.auuc.value == pytest.approx(2.0 * one.qini.value, rel=1e-8)
    assert apart.auuc.standard_error == pytest.approx(
        2.0 * one.qini.standard_error, rel=1e-8
    )
    dear = found.rules["true"]["dear"]
    assert dear.value == pytest.approx(one.rules["dear"].value, rel=1e-10)


def test_effects_in_pieces_are_those_of_the_rows(known):
    source, X, terms = known
    found = effect_summary(PROBLEM.uplift, source, by=[4, 0], n_jobs=1, random_state=0)
    people = terms.share * terms.aim / terms.speaks_for
    member = X[:, 4] == 1.0
    slow = terms.group(member)
    group = next(each for each in found.groups if each.where == "x5 = 1")
    assert group.uplift.value == pytest.approx(slow.value, rel=1e-8)
    assert group.uplift.standard_error == pytest.approx(slow.standard_error, rel=1e-8)
    assert group.share == pytest.approx(people @ member)
    score = PROBLEM.uplift(X)
    assert group.predicted == pytest.approx(
        np.average(score[member], weights=people[member])
    )
    b = np.column_stack([np.ones(len(X)), X[:, [4, 0]] - people @ X[:, [4, 0]]])
    A = (b * (terms.share * terms.denominator)[:, None]).T @ b
    beta = np.linalg.solve(A, b.T @ (terms.share * terms.numerator))
    left = terms.plain - terms.aim * (b @ beta)
    errors = terms.totals(*np.linalg.solve(A, (b * left[:, None]).T)).covariance
    for c, value, error in zip(
        found.projection, beta, np.sqrt(np.diag(errors)), strict=True
    ):
        assert c.uplift.value == pytest.approx(value, rel=1e-7)
        assert c.uplift.standard_error == pytest.approx(error, rel=1e-7)
    line = np.linalg.solve((b * people[:, None]).T @ b, b.T @ (people * score))
    assert_allclose([c.predicted for c in found.projection], line, rtol=1e-5)


@pytest.mark.slow
def test_comparisons_and_effects_are_the_same_from_chunks_and_partitions(data, limits):
    dask = pytest.importorskip("dask.array")
    parts = {name: np.asarray(data[name]) for name in data}
    columns = {
        n: dask.from_array(c, chunks=(130, *c.shape[1:])) for n, c in parts.items()
    }
    limits("evaluate.pieces", SAMPLE_ROWS=60)
    options = {"n_jobs": 1, "random_state": 0}
    models = {"true": PROBLEM.uplift, "opposite": opposite}
    sources = SeparateLabels(**parts, stream=37), SeparateLabels(**columns), columns
    compared = [compare_uplift(models, source, **options) for source in sources]
    effects = [effect_summary(opposite, source, **options) for source in sources]
    for found in (compared, effects):
        texts = [str(each) for each in found]
        assert texts[0] == texts[1] == texts[2]


def test_effects_of_frames_in_pieces_name_categories_and_missing_values(data):
    X = pd.DataFrame(
        np.asarray(data.X), columns=["age", "days", "orders", "spend", "member"]
    )
    X["member"] = np.where(X["member"] > 0.0, "yes", "no")
    X.loc[::9, "age"] = np.nan
    framed = SeparateLabels(X, data.y, data.treatment, data.population)
    options = {"by": ["member", "age"], "n_jobs": 1, "random_state": 0}
    known = effect_summary(None, framed, **options)
    found = effect_summary(None, SeparateLabels(**framed, stream=150), **options)
    words = [
        [
            [word for word in group.where.split() if not word[0].isdigit()]
            for group in each.groups
        ]
        for each in (found, known)  # other folds, and quarters of other people
    ]
    assert words[0] == words[1]
    assert words[0][:2] == [["member", "is", "no"], ["member", "is", "yes"]]
    for one, two in zip(found.groups, known.groups, strict=True):  # other folds
        assert one.share == pytest.approx(two.share, abs=0.02)
        assert abs(one.uplift.value - two.uplift.value) < one.uplift.standard_error
    with pytest.raises(
        TableError, match="by names the column 'agee', which the tables lack"
    ):
        effect_summary(None, framed, by=["agee"])


def test_what_pieces_cannot_do_is_refused(data):
    cases = (
        (
            {"model_or_scores": np.zeros(600)},
            "a model or a function of the features, got ndarray",
        ),
        (
            {"rules": {"x": np.zeros(600)}},
            "rule 'x' must be a function of the features",
        ),
        (
            {"rules": {"x": ("budget", 1.0, np.ones(600))}},
            "cost of rule 'x' must be a number",
        ),
        ({"rules": {"x": lambda X: X[:, 0]}}, r"probabilities in \[0, 1\]"),
        (
            {"model_or_scores": lambda X: np.full(len(X), np.nan)},
            "the score must be finite",
        ),
        ({"model_or_scores": lambda X: X[:3, 0]}, "one number per row"),
        ({"shift": "classifier"}, "shift needs all rows in memory"),
        ({"target": np.empty((0, 5))}, "target has no rows"),
    )
    for options, message in cases:
        with pytest.raises(InputError, match=message):
            evaluate_uplift(
                **{
                    "model_or_scores": PROBLEM.uplift,
                    "data": SeparateLabels(**data, stream=True),
                }
                | options
            )


def test_fewer_rows_than_folds_are_refused_in_pieces_as_in_memory(data):
    at = [
        data.rows(k, p)[:4] for k in ("outcome", "treatment") for p in data.populations
    ]
    with pytest.raises(InputError, match="5 rows or more; the smallest has 4"):
        evaluate(SeparateLabels(**data.take(np.concatenate(at)), stream=True))
    with pytest.raises(InputError, match="data must be a SeparateLabels"):
        evaluate(5)


def test_sources_that_change_or_hold_target_rows_are_refused(data):
    passes = iter([data, data, data.take(np.arange(len(data.y)) % 50 > 0)])
    with pytest.raises(
        TableError, match="gave other rows, or the same in another order"
    ):
        evaluate(SeparateLabels.from_chunks(lambda: [next(passes)]))
    target = PROBLEM.draw(30, random_state=0)
    nobody = np.arange(120) % 4 == 0
    columns = {"y": target.y, "treatment": target.treatment}
    columns = {
        name: np.where(nobody, np.nan, column) for name, column in columns.items()
    }
    more = [
        data,
        {**target, **columns, "population": np.where(nobody, "", target.population)},
    ]
    with pytest.raises(LabelError, match="give them as target to evaluate_uplift"):
        evaluate(SeparateLabels.from_chunks(lambda: more))
