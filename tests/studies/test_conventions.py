"""Other packages' metrics: equal to the package, or to its definition written out slowly."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose

from studies.conventions import (
    causalml_auuc,
    causalml_qini,
    pylift_q,
    sklift_qini_auc,
    sklift_uplift_at_k,
    sklift_uplift_auc,
)
from unjoined.errors import InputError, LabelError
from unjoined.evaluate import auuc, joint_values, qini, rank_score, uplift_curve

SEEDS = range(2)


def trial(seed, n=60, *, tied=False):
    """Rows of a randomised trial: score, binary outcome, treatment, propensity."""
    rng = np.random.default_rng(seed)
    score = rng.integers(0, 6, n) / 5.0 if tied else rng.normal(size=n)
    e = rng.uniform(0.2, 0.8, n)
    treated = (rng.random(n) < e).astype(int)
    y = (rng.random(n) < 0.3 + 0.3 * treated).astype(int)
    return score, y, treated, e


@pytest.fixture
def sklift_metrics():
    return pytest.importorskip("sklift.metrics")


# It still calls a function that scikit-learn is about to remove.
ignore_stable_cumsum = pytest.mark.filterwarnings(
    "ignore:Function stable_cumsum:FutureWarning"
)


@ignore_stable_cumsum
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_scikit_uplift_areas_are_equal_to_the_package(sklift_metrics, seed, tied):
    score, y, t, _ = trial(seed, tied=tied)
    assert_allclose(
        sklift_uplift_auc(score, y, t),
        sklift_metrics.uplift_auc_score(y, score, t),
        atol=1e-12,
    )
    for negative in (True, False):
        assert_allclose(
            sklift_qini_auc(score, y, t, negative_effect=negative),
            sklift_metrics.qini_auc_score(y, score, t, negative_effect=negative),
            atol=1e-12,
        )


@ignore_stable_cumsum
def test_scikit_uplift_perfect_order_switches_its_second_key_as_in_the_package(
    sklift_metrics,
):
    """More untreated responders than silent treated, which few random draws have."""
    score, y, t, _ = trial(0)
    y = np.where(t == 0, np.arange(60) % 5 > 0, np.arange(60) % 7 > 0).astype(int)
    assert np.sum((y == 1) & (t == 0)) > np.sum((y == 0) & (t == 1))
    want = sklift_metrics.uplift_auc_score(y, score, t)
    assert_allclose(sklift_uplift_auc(score, y, t), want, atol=1e-12)


@ignore_stable_cumsum
def test_curves_end_at_the_difference_of_arm_means(sklift_metrics):
    score, y, t, _ = trial(1)
    effect = y[t == 1].mean() - y[t == 0].mean()
    assert_allclose(uplift_curve(score, joint_values(y, t)).gain[-1], effect)
    assert_allclose(sklift_metrics.uplift_curve(y, score, t)[1][-1], effect * 60)
    assert_allclose(sklift_metrics.qini_curve(y, score, t)[1][-1], effect * t.sum())
    assert_allclose(slow_causalml_gain(score, y, t)[-1], effect * 60)
    assert_allclose(slow_causalml_qini_curve(score, y, t)[-1], effect * t.sum())


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("strategy", ["overall", "by_group"])
@pytest.mark.parametrize("k", [0.29, 20])
def test_scikit_uplift_at_k_is_equal_to_the_package(sklift_metrics, strategy, k, tied):
    for seed in SEEDS:
        score, y, t, _ = trial(seed, tied=tied)
        want = sklift_metrics.uplift_at_k(y, score, t, strategy=strategy, k=k)
        got = sklift_uplift_at_k(score, y, t, strategy=strategy, k=k)
        assert_allclose(got, want, atol=1e-14)


def test_scikit_uplift_at_k_depends_on_the_row_order_with_ties():
    """Not a virtue: it documents what the definition does."""
    score, y, t = np.zeros(8), np.array([1, 0, 1, 0, 0, 1, 0, 0]), np.array([1, 0] * 4)
    forward = sklift_uplift_at_k(score, y, t, strategy="overall", k=0.5)
    backward = sklift_uplift_at_k(score, y[::-1], t[::-1], strategy="overall", k=0.5)
    assert (forward, backward) == (-0.5, 1.0)


def test_scikit_uplift_scores_above_one_exist():
    """The 'perfect' order is no bound: a score can earn more than it in a small sample."""
    rng = np.random.default_rng(0)
    best = 0.0
    for _ in range(1000):
        score, y, t = (
            rng.normal(size=10),
            rng.integers(0, 2, 10),
            rng.integers(0, 2, 10),
        )
        if 0 < t.sum() < 10 and 0 < y.sum() < 10:
            best = max(best, sklift_uplift_auc(score, y, t))
    assert best > 1.0


# causalml, from its definitions --------------------------------------------------------------


def best_rows(score, k):
    return np.argsort(-score, kind="stable")[:k]


def fill_from_zero(points):
    """Replace unknown (None) points by straight lines from (0, 0) and between known ones."""
    known = [(0, 0.0)] + [
        (k, p) for k, p in enumerate(points, start=1) if p is not None
    ]
    filled = []
    for (left, low), (right, high) in pairwise(known):
        filled += [
            low + (high - low) * (k - left) / (right - left) for k in range(left, right)
        ]
    return np.array([*filled, known[-1][1]])


def slow_causalml_gain(score, y, t):
    lifts = []
    for k in range(1, len(score) + 1):
        top = best_rows(score, k)
        arms = y[top][t[top] == 1], y[top][t[top] == 0]
        lifts.append(arms[0].mean() - arms[1].mean() if min(map(len, arms)) else None)
    return fill_from_zero(lifts) * np.arange(len(score) + 1)


def slow_causalml_qini_curve(score, y, t):
    points = []
    for k in range(1, len(score) + 1):
        top = best_rows(score, k)
        arms = y[top][t[top] == 1], y[top][t[top] == 0]
        points.append(
            arms[0].sum() - arms[1].mean() * len(arms[0]) if len(arms[1]) else None
        )
    return fill_from_zero(points)


def slow_causalml_qini_score(curve):
    line = np.linspace(0, curve[-1], len(curve))
    return (curve - line).sum() / len(curve)


def test_causalml_scores_follow_their_definitions_without_tau():
    for normalize in (False, True):
        for seed in SEEDS:
            score, _, t, _ = trial(seed)
            # A long run of one arm at the top, where the curves are interpolated.
            t[best_rows(score, 4)] = seed % 2
            y = np.random.default_rng(seed).normal(size=60) + t
            gain, curve = (
                slow_causalml_gain(score, y, t),
                slow_causalml_qini_curve(score, y, t),
            )
            if normalize:
                gain, curve = gain / abs(gain[-1]), curve / abs(curve[-1])
            got = causalml_auuc(score, y=y, treatment=t, normalize=normalize)
            assert_allclose(got, gain.sum() / 61, rtol=1e-11)
            got = causalml_qini(score, y=y, treatment=t, normalize=normalize)
            assert_allclose(got, slow_causalml_qini_score(curve), rtol=1e-10)


def test_causalml_scores_follow_their_definitions_with_tau():
    for normalize in (False, True):
        for seed in SEEDS:
            score, _, t, _ = trial(seed)
            tau = np.random.default_rng(seed).normal(0.3, size=60)
            gain = np.array([tau[best_rows(score, k)].sum() for k in range(61)])
            tops = [best_rows(score, k) for k in range(1, 61)]
            curve = np.array([0.0, *(tau[top].mean() * t[top].sum() for top in tops)])
            if normalize:
                gain, curve = gain / abs(gain[-1]), curve / abs(curve[-1])
            got = causalml_auuc(score, tau=tau, normalize=normalize)
            assert_allclose(got, gain.mean(), rtol=1e-11)
            got = causalml_qini(score, treatment=t, tau=tau, normalize=normalize)
            assert_allclose(got, slow_causalml_qini_score(curve), rtol=1e-10)


@pytest.mark.parametrize("seed", SEEDS)
def test_causalml_auuc_with_tau_is_the_papers_auuc_in_other_units(seed):
    score, tau = np.random.default_rng(seed).normal(size=(2, 37))
    scaled = causalml_auuc(score, tau=tau, normalize=False) * 38 / 37**2
    assert_allclose(scaled, auuc(score, tau, ties="paper").value, rtol=1e-12)


# pylift, from its definitions ------------------------------------------------------------------


def slow_pylift_q(score, y, t, e, curve):
    weight = [
        0.5 / p if treated else 0.5 / (1 - p) for p, treated in zip(e, t, strict=True)
    ]

    def sums(rows):
        n_t = sum(weight[i] for i in rows if t[i] == 1)
        n_c = sum(weight[i] for i in rows if t[i] == 0)
        y_t = sum(weight[i] * y[i] for i in rows if t[i] == 1)
        y_c = sum(weight[i] * y[i] for i in rows if t[i] == 0)
        return n_t, n_c, y_t, y_c

    N_t, N_c, Y_t, Y_c = sums(range(len(y)))
    heights = [0.0]
    for k in range(1, len(y) + 1):
        n_t, n_c, y_t, y_c = sums(best_rows(score, k))
        if curve == "qini":
            heights.append(y_t / N_t - y_c / N_c)
        elif curve == "cgains":
            lift = (y_t / n_t if n_t else 0.0) - (y_c / n_c if n_c else 0.0)
            heights.append(lift * (n_t + n_c) / (N_t + N_c))
        else:
            heights.append(y_t / N_t - (y_c * n_t / (n_c * N_t) if n_c else 0.0))
    area = sum((a + b) / 2 for a, b in pairwise(heights)) / (N_t + N_c)
    return area - (Y_t / N_t - Y_c / N_c) / 2


def test_pylift_q_follows_its_definition():
    for tied in (False, True):
        for curve in ("qini", "cgains", "aqini"):
            for constant in (None, 0.3, "rows"):
                for seed in SEEDS:
                    score, y, t, e = trial(seed, n=40, tied=tied)
                    propensity = e if constant == "rows" else constant
                    full = (
                        np.full(40, t.mean())
                        if propensity is None
                        else np.broadcast_to(propensity, 40)
                    )
                    got = pylift_q(score, y, t, propensity=propensity, curve=curve)
                    assert_allclose(
                        got, slow_pylift_q(score, y, t, full, curve), atol=1e-13
                    )


@pytest.mark.parametrize("seed", SEEDS)
def test_pylift_q_with_the_share_treated_is_our_qini(seed):
    """Exactly the half-tie Qini; in the paper's form the random line gains a factor 1 + 1/n."""
    score, y, t, _ = trial(seed)
    values = joint_values(y, t)
    effect = values.mean()
    q = pylift_q(score, y, t)
    assert_allclose(q, qini(score, values).value, atol=1e-14)
    assert_allclose(q, rank_score(score, values).value / 2, atol=1e-14)
    paper = auuc(score, values, ties="paper").value
    assert_allclose(q, paper - effect / 2 * (1 + 1 / 60), atol=1e-14)


@pytest.mark.parametrize("seed", SEEDS)
def test_pylift_q_with_another_constant_only_stretches_the_axis(seed):
    """Its weights cancel inside the curve; its N, and with it the area, does not stay n."""
    score, y, t, _ = trial(seed)
    values = joint_values(y, t)
    stretched = 60 / (t.sum() / 0.6 + (1 - t).sum() / 1.4)  # n / N at propensity 0.3
    want = stretched * auuc(score, values).value - values.mean() / 2
    assert_allclose(pylift_q(score, y, t, propensity=0.3), want, atol=1e-14)


def test_conventions_that_break_ties_by_position_depend_on_the_row_order():
    """A constant score knows nothing, yet earns what the file's order happens to give."""
    score, y, t = np.zeros(8), np.array([1, 1, 0, 0, 0, 1, 0, 0]), np.repeat([1, 0], 4)
    assert pylift_q(score, y, t) > 0.2 > -0.2 > pylift_q(score, y[::-1], t[::-1])
    assert causalml_auuc(score, y=y, treatment=t, normalize=False) > causalml_auuc(
        score, y=y[::-1], treatment=t[::-1], normalize=False
    )
    values = joint_values(y, t)
    assert abs(qini(score, values).value) < 1e-15


# Messages --------------------------------------------------------------------------------------


def test_scikit_uplift_and_pylift_need_binary_outcomes():
    for convention in (sklift_uplift_auc, sklift_qini_auc, pylift_q):
        with pytest.raises(LabelError, match=r"outcomes 0 and 1 only, got 0.0, 2.0"):
            convention([1, 2], [0, 2], [0, 1])


def test_one_arm_is_refused():
    with pytest.raises(
        LabelError, match="treated and untreated rows, got 2 treated of 2"
    ):
        causalml_auuc([1, 2], y=[0, 1], treatment=[1, 1])


def test_missing_columns_are_said():
    with pytest.raises(
        InputError, match="without tau, both y and treatment are needed"
    ):
        causalml_auuc([1, 2], y=[0, 1])
    with pytest.raises(
        InputError, match="without tau, both y and treatment are needed"
    ):
        causalml_qini([1, 2], treatment=[0, 1])


def test_nothing_to_normalize_by_is_said():
    with pytest.raises(InputError, match="gain of treating all rows is 0"):
        causalml_auuc([1, 2], tau=[1.0, -1.0])
    with pytest.raises(
        InputError, match="perfect curve of this convention is the diagonal"
    ):
        sklift_qini_auc([1, 2], [0, 0], [0, 1])


def test_plateau_needs_a_positive_effect():
    with pytest.raises(
        InputError, match="needs a positive overall effect, got -1 rows"
    ):
        sklift_qini_auc([1, 2], [1, 0], [0, 1], negative_effect=False)


def test_k_is_a_share_or_a_number_of_rows():
    for k in (0, 1.0, True):
        with pytest.raises(
            InputError, match="k must be a share strictly between 0 and 1"
        ):
            sklift_uplift_at_k([1, 2, 3], [1, 0, 1], [0, 1, 0], strategy="overall", k=k)


def test_top_rows_of_one_arm_are_refused():
    with pytest.raises(InputError, match="hold 1 treated and 0 untreated rows at k=1"):
        sklift_uplift_at_k([1, 2], [1, 0], [0, 1], strategy="overall", k=1)


def test_unknown_options_are_refused():
    with pytest.raises(
        InputError, match="strategy must be one of 'overall', 'by_group'"
    ):
        sklift_uplift_at_k([1, 2], [1, 0], [0, 1], strategy="both")
    with pytest.raises(
        InputError, match="curve must be one of 'qini', 'cgains', 'aqini'"
    ):
        pylift_q([1, 2], [1, 0], [0, 1], curve="cuplift")
