"""The gain of a list from what a model keeps of it, and average effects of any estimator."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator

from unjoined import (
    MinMaxUplift,
    SeparateLabels,
    Uplift,
    load_model,
    record_gain,
    save_model,
)
from unjoined.data import SimulatedProblem
from unjoined.data.rows import label_rows
from unjoined.errors import InputError
from unjoined.evaluate.strength import GainByScore, ranking_noise
from unjoined.evaluate.terms import average_effect

pytestmark = pytest.mark.usefixtures("two_folds")

Z95 = 1.959963984540054


def sigmoid(v):
    return 1.0 / (1.0 + np.exp(-v))


def rate(X, treated):
    return sigmoid(0.5 * X[:, 1] + treated * (0.3 + X[:, 0]))


def problem(slope=1.5):
    """Rates of purchase; the policies differ by 0.2 or more wherever people are."""
    return SimulatedProblem(
        features=lambda n, rng: rng.uniform(-1.0, 1.0, (n, 3)),
        policies={
            "A": lambda X: sigmoid(slope + 0.5 * X[:, 1]),
            "B": lambda X: sigmoid(-slope + 0.5 * X[:, 2]),
        },
        outcome=lambda X, treated, rng: (rng.random(len(X)) < rate(X, treated)).astype(
            float
        ),
        outcome_mean=rate,
    )


def truth(X):
    return rate(X, 1.0) - rate(X, 0.0)


@pytest.fixture(scope="module")
def model():
    return Uplift(n_jobs=1, random_state=0).fit(problem().draw(3000, random_state=1))


def record(seed=0, J=4):
    root = 0.02 * np.random.default_rng(seed).standard_normal((2, 3 * J, 3 * J))
    rng = np.random.default_rng([seed, 1])
    return GainByScore(
        np.arange(J + 1.0),
        np.arange(J) + 0.5,
        0.1 * rng.standard_normal(J),
        rng.uniform(0.05, 0.3, J),
        root @ root.swapaxes(1, 2),
        np.full(J, 1.0 / J),
        rng.uniform(0.05, 0.3, J),
        *rng.uniform(0.5, 1.0, (2, J)),
        0.9,
    )


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), level=st.sampled_from([0.8, 0.95]))
def test_the_interval_holds_what_a_grid_of_all_values_holds(seed, level):
    """Fieller's set is where N - theta D is within z standard errors of 0; here one by one.

    What a fit of the policies moves is the estimate itself times denominators less those counted.
    """
    kept, rng = record(seed), np.random.default_rng(seed)
    uplift, rule = rng.integers(0, 4, 50) + 0.5, rng.random(50)
    estimate = kept.average(uplift, rule)
    h = np.zeros(4)
    for person in range(50):
        h[int(np.floor(uplift[person]))] += rule[person] / 0.25
    grid = np.linspace(-3.0, 3.0, 601)
    z = {0.8: 1.2815515655446004, 0.95: Z95}[level]
    at = (h @ kept.numerator) / (h @ kept.denominator)
    there = np.concatenate([h, np.zeros(4), -at * h])
    wider = max(kept.covariance, key=lambda V: there @ V @ there)
    for theta in grid:
        weights = np.concatenate([h, (at - theta) * h, -at * h])
        distance = h @ (kept.numerator - theta * kept.denominator)
        error = np.sqrt(weights @ wider @ weights)
        if abs(abs(distance) - z * error) > 1e-9 * z * error:
            assert estimate.covers(theta, level) == (abs(distance) <= z * error)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000), start=st.floats(-1.0, 1.0), rise=st.floats(-1.0, 1.0)
)
def test_a_part_of_a_bin_gains_what_a_line_through_the_bins_says(seed, start, rise):
    """Averages of the bins lie on a line in the predictions: so does any list's."""
    kept, rng = record(seed), np.random.default_rng(seed)
    on_line = replace(kept, numerator=(start + rise * kept.center) * kept.denominator)
    uplift, rule = rng.uniform(0.0, 4.0, 30), rng.random(30)
    weight = rule * (kept.denominator / kept.share)[kept.bins(uplift)]
    expected = start + rise * (weight @ kept.center[kept.bins(uplift)]) / weight.sum()
    expected += rise * (rule @ (uplift - kept.center[kept.bins(uplift)])) / rule.sum()
    assert on_line.average(uplift, rule).value == pytest.approx(expected, abs=1e-9)
    beyond = on_line.average(np.append(uplift, 1e25), np.append(rule, 1.0))
    assert beyond == on_line.average(np.append(uplift, 4.0), np.append(rule, 1.0))


def test_the_rise_with_the_rank_is_the_slope_of_a_line_through_the_bins():
    kept = replace(record(), share=np.array([0.1, 0.2, 0.3, 0.4]))
    rank = np.array([0.05, 0.2, 0.45, 0.8])
    straight = replace(kept, numerator=(0.3 + 0.7 * rank) * kept.denominator)
    assert straight.slope().value == pytest.approx(0.7)
    averages = kept.numerator / kept.denominator
    slope, _ = np.polyfit(rank, averages, 1, w=np.sqrt(kept.denominator))
    assert kept.slope().value == pytest.approx(slope)
    # The error is that of sum w_j (N_j - theta D_j), theta being known but for what cancels.
    step, moved = 1e-6, []
    for i in range(8):
        both = np.concatenate([kept.numerator, kept.denominator])
        both[i] += step
        other = replace(kept, numerator=both[:4], denominator=both[4:])
        flat = kept.numerator.sum() / kept.denominator.sum()
        moved.append((other.slope().value - kept.slope().value) / step)
        if (
            i >= 4
        ):  # as if the averages of all bins were the same, as the hypothesis has it
            level = replace(kept, numerator=flat * kept.denominator)
            changed = replace(level, denominator=both[4:])
            moved[-1] = (changed.slope().value - level.slope().value) / step
    moved = np.concatenate(
        [moved[:4], np.zeros(4), moved[4:]]
    )  # as policies were known
    expected = np.sqrt((moved @ kept.covariance @ moved).max())
    assert kept.slope().standard_error == pytest.approx(expected, rel=1e-4)


def test_fits_that_agree_rank_by_no_noise_and_fits_to_noise_by_nothing_else():
    """Of fits to all folds but one each, any two share three folds of four: agreement 3/4."""
    rng = np.random.default_rng(0)
    folds = rng.standard_normal((5, 20_000))
    noise = np.column_stack([folds.sum(axis=0) - folds[j] for j in range(5)])
    # Ranks of normal scores with correlation 3/4 agree by 6 / pi asin(3/8) = 0.734.
    expected = 4.0 * (1.0 - 6.0 / np.pi * np.arcsin(0.375))
    assert expected > 1.0
    assert ranking_noise(noise) == pytest.approx(1.0)
    assert ranking_noise(np.repeat(noise[:, :1], 5, axis=1)) == pytest.approx(
        0.0, abs=1e-12
    )
    mixed = noise + 20.0 * rng.standard_normal((20_000, 1))
    assert 0.0 < ranking_noise(mixed) < 0.1
    assert ranking_noise(np.zeros((10, 5))) == 1.0


@pytest.mark.slow
@pytest.mark.statistical
def test_gains_cover_if_people_are_ranked_by_noise_alone():
    """The effect is 0.3 for all. Of 60 draws, 95 % hold; fewer than 52 happen once in 200."""

    def mean(X, treated):
        return X[:, 0] * X[:, 1] + 0.3 * treated

    law = SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 8)),
        policies={
            "A": lambda X: sigmoid(1.0 + 0.3 * X[:, 2]),
            "B": lambda X: sigmoid(-1.0 + X[:, 0]),
        },
        outcome=lambda X, treated, rng: mean(X, treated) + rng.standard_normal(len(X)),
        outcome_mean=mean,
    )
    X = law.draw_joint(4000, random_state=1).X
    hits = dict.fromkeys((0.1, 0.5), 0)
    rises = []
    for seed in range(60):
        model = Uplift(n_jobs=1, random_state=seed).fit(
            law.draw(300, random_state=seed)
        )
        uplift = model.predict(X)
        for share in hits:
            rule = uplift >= np.quantile(uplift, 1.0 - share)
            hits[share] += model.gain_.average(uplift, rule).covers(0.3)
        rises.append("do not show" not in model.reason_)
    assert min(hits.values()) >= 52
    assert sum(rises) <= 6


def test_a_total_is_the_average_times_the_people_treated():
    kept, rng = record(), np.random.default_rng(1)
    uplift, rule = rng.uniform(0.0, 4.0, 30), rng.random(30)
    one, all_of_them = kept.average(uplift, rule), kept.gain(uplift, rule)
    assert all_of_them.value == pytest.approx(rule.sum() * one.value)
    assert_allclose(all_of_them.interval(0.9), rule.sum() * np.array(one.interval(0.9)))
    assert kept.average(uplift, rule / 2.0).value == pytest.approx(one.value)
    assert kept.gain(uplift, np.zeros(30)).interval(0.95) == (0.0, 0.0)


def test_the_share_told_of_a_list_goes_by_its_bins():
    """Of each bin a part is known, of the share of people it has."""
    kept, rng = record(), np.random.default_rng(2)
    uplift = np.repeat([0.5, 1.5, 2.5, 3.5], 5)
    assert kept.told(uplift, np.ones(20)) == pytest.approx(
        min(kept.denominator.sum(), 1.0)
    )
    each = [kept.told(uplift, uplift == u) for u in (0.5, 1.5, 2.5, 3.5)]
    expected = np.minimum(kept.denominator / kept.share, 1.0)
    assert_allclose(each, expected)
    rule = rng.random(20) * (expected < 1.0)[kept.bins(uplift)]
    assert kept.told(uplift, rule) == pytest.approx(
        rule @ expected[kept.bins(uplift)] / rule.sum()
    )
    assert np.isnan(kept.told(uplift, np.zeros(20)))


def test_the_part_of_a_gain_that_was_measured_is_what_those_told_of_gain():
    """Half of the people are treated alike and gain nothing, the others gain 1.

    The whole gain takes all to gain alike; the part that was measured is the truth of those told
    of, within 3.5 standard errors.
    """

    def policy(often):
        return lambda X: np.where(X[:, 0] > 0.0, often, 0.5)

    def mean(X, treated):
        return X[:, 1] + treated * (X[:, 0] > 0.0)

    half = SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 2)),
        policies={"A": policy(0.9), "B": policy(0.1)},
        outcome=lambda X, treated, rng: (
            mean(X, treated) + 0.3 * rng.standard_normal(len(X))
        ),
        outcome_mean=mean,
    )
    model = Uplift(n_jobs=1, random_state=0).fit(half.draw(1000, random_state=0))
    X = half.draw_joint(5000, random_state=1).X
    uplift, everyone = model.predict(X), np.ones(5000)
    gain, told = model.gain_.gain(uplift, everyone), model.gain_.told(uplift, everyone)
    true = float((X[:, 0] > 0.0).sum())
    assert abs(told * gain.value - true) < 3.5 * told * gain.standard_error
    assert told == pytest.approx(0.5, abs=0.1)


def test_wrong_lists_are_refused():
    kept = record()
    with pytest.raises(InputError, match="one entry per row"):
        kept.gain([1.0, 2.0], [1.0])
    with pytest.raises(InputError, match=r"probabilities in \[0, 1\]"):
        kept.gain([1.0, 2.0], [1.0, 2.0])


def test_lists_gain_what_they_truly_gain(model):
    """Within 3.5 standard errors: one list in 2,000 is further off."""
    for share in (0.1, 0.3, 1.0):
        X = problem().draw_joint(20_000, random_state=5).X
        uplift = model.predict(X)
        rule = uplift >= np.quantile(uplift, 1.0 - share)
        gain = model.gain_.gain(uplift, rule)
        assert abs(gain.value - truth(X)[rule].sum()) < 3.5 * gain.standard_error
        assert gain.standard_error < 0.5 * 20_000 * share * 0.2
        assert model.gain_.speaks_for == pytest.approx(1.0, abs=0.01)


def test_the_record_keeps_to_the_average(model):
    """All people together are the average effect, but for the share of them in each bin."""
    X = problem().draw_joint(20_000, random_state=5).X
    uplift = model.predict(X)
    average = model.gain_.average(uplift, np.ones(len(X)))
    assert (
        abs(average.value - model.average_effect_.value) < 0.3 * average.standard_error
    )
    assert (
        abs(model.average_effect_.value - truth(X).mean())
        < 3.5 * average.standard_error
    )
    assert_allclose(model.gain_.share.sum(), 1.0)
    counts = np.bincount(model.gain_.bins(uplift), minlength=len(model.gain_.share))
    assert_allclose(counts / len(X), model.gain_.share, atol=0.03)


def test_a_saved_model_gains_the_same_to_the_last_bit(model, tmp_path):
    pytest.importorskip("skops")
    again = load_model(save_model(model, tmp_path / "m.skops"))
    X = problem().draw_joint(500, random_state=6).X
    uplift = model.predict(X)
    assert again.gain_.gain(uplift, uplift > 0.1) == model.gain_.gain(
        uplift, uplift > 0.1
    )
    assert again.average_effect_ == model.average_effect_
    assert_array_equal(again.predict_interval(X), model.predict_interval(X))


class Flat(BaseEstimator):
    """Predict the same for all."""

    def fit(self, X, y, *, treatment, population):
        self.uplift_ = 0.1
        return self

    def predict(self, X):
        return np.full(len(X), self.uplift_)


def test_people_who_are_all_alike_share_one_bin():
    data = problem().draw(200, random_state=2)
    model = Flat().fit(**data)
    kept = record_gain(model, data, n_folds=2, random_state=0)
    assert kept.share.tolist() == [1.0]
    everyone = kept.average(np.full(7, 0.1), np.ones(7))
    assert everyone.covers(truth(data.X).mean(), 0.999)
    assert model.gain_ is kept


def test_averages_cover_the_truth():
    """Of 60 seeded draws at least 52 intervals of 95 % cover; fewer happen once in 200 times."""
    law, X = problem(), problem().draw_joint(100_000, random_state=3).X
    hits = 0
    for seed in range(60):
        data = law.draw(250, random_state=seed)
        rows = label_rows(
            data.X, y=data.y, treatment=data.treatment, population=data.population
        )
        hits += average_effect(rows).covers(truth(X).mean())
    assert hits >= 52


def test_sums_and_rows_agree_on_the_average():
    """The effect is 0.3 for all, so that averages over any people are the same."""

    def mean(X, treated):
        return 0.5 * X[:, 0] + 0.3 * treated

    law = SimulatedProblem(
        features=lambda n, rng: rng.uniform(-1.0, 1.0, (n, 2)),
        policies={
            "A": lambda X: sigmoid(1.0 + X[:, 0]),
            "B": lambda X: sigmoid(X[:, 1] - 1.0),
        },
        outcome=lambda X, treated, rng: (
            mean(X, treated) + 0.5 * rng.standard_normal(len(X))
        ),
        outcome_mean=mean,
    )
    data = law.draw(3000, random_state=0)
    estimator = MinMaxUplift(basis="linear", n_jobs=1, random_state=0)
    by_sums = estimator.fit_moments(
        estimator.collect_sums(SeparateLabels(**data, stream=True))
    ).average_effect_
    by_rows = estimator.fit(data).average_effect_
    assert by_sums.covers(0.3, 0.999)
    assert by_rows.covers(0.3, 0.999)
    assert abs(by_sums.value - by_rows.value) < 2.0 * by_rows.standard_error
    assert 0.5 < by_sums.standard_error / by_rows.standard_error < 3.0
