"""`MinMaxUplift.fit` to more rows than it cross-fits: planned on a sample, summed in one pass."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LinearRegression
from trials import oracle_share

from unjoined import MinMaxUplift, identification_strength
from unjoined.data import campaign_problem, paper_problem
from unjoined.data.rows import label_rows
from unjoined.errors import InputError, WeakIdentificationWarning
from unjoined.model.basis import ScaledBasis

PROBLEM = paper_problem(b=5.0)
DATA = PROBLEM.draw(1500, random_state=0)
NEW = PROBLEM.draw_joint(2000, random_state=1).X
FIXED = {
    "n_centers": 15,
    "width": "median",
    "ridge_f": 1e-2,
    "ridge_g": 1e-2,
    "random_state": 0,
}


@pytest.fixture(autouse=True)
def few_are_many(limits):
    limits("estimators.minmax", CROSS_FIT_ROWS=1000, SAMPLE_ROWS=400)


def slow_system(model, data):
    """Return A, b and C of labels as they are, row by row, on the model's own basis."""
    rows = label_rows(**data)
    phi = ScaledBasis(model.basis_, model.scaling_)(rows.X)
    p = phi.shape[1]
    A, b, C = np.zeros((p, p)), np.zeros(p), np.zeros((p, p))
    for kind in ("outcome", "treatment"):
        for k, sign in enumerate((1.0, -1.0)):
            at = rows.at(kind, k)
            values, label, share = (
                phi[at],
                rows.label[at],
                rows.weight[at] / rows.weight[at].sum(),
            )
            half = 0.5 * share
            if kind == "treatment":
                A += sign * (values * (half * label)[:, None]).T @ values
            else:
                b += sign * values.T @ (half * label)
            C += 0.5 * (values * half[:, None]).T @ values
    return A, b, C


def test_without_centring_the_solution_meets_the_first_order_conditions():
    for basis in ("smooth", "gaussian", "fourier", "linear"):
        for weighted in (False, True):
            n = len(DATA.y)
            weight = np.random.default_rng(0).uniform(0.5, 2.0, n) if weighted else None
            model = MinMaxUplift(**FIXED, basis=basis, center=False)
            model.fit(**DATA, sample_weight=weight)
            A, b, C = slow_system(model, {**DATA, "sample_weight": weight})
            alpha, beta = model.coef_, model.critic_coef_
            # Gradients of 2 a'Ab - 4 b'b - b'Cb + r|a|^2 - r|b|^2 in both arguments.
            scale = np.abs(b).max()
            assert_allclose(A @ beta + 1e-2 * alpha, 0.0, atol=1e-11 * scale)
            assert_allclose(
                A.T @ alpha - 2.0 * b - C @ beta - 1e-2 * beta, 0.0, atol=1e-11 * scale
            )


def test_what_is_linear_in_the_features_is_centred_away():
    """Added to all outcomes it changes no prediction, as the means follow it exactly."""
    for basis in ("smooth", "gaussian", "fourier", "linear"):
        outcome = DATA.kind == "outcome"
        noise = np.random.default_rng(0).standard_normal(len(outcome))
        real = np.where(outcome, DATA.y + noise, DATA.y)
        moved = np.where(outcome, real + 40.0 - 3.0 * DATA.X[:, 0], DATA.y)
        fits = [
            MinMaxUplift(**FIXED, basis=basis).fit(**{**DATA, "y": y}).predict(NEW)
            for y in (real, moved)
        ]
        assert_allclose(fits[1], fits[0], atol=1e-8 * np.abs(fits[0]).max())


def test_what_bends_is_subtracted_though_the_uplift_is_linear():
    """Where features are distributed differently, a bend left in the means tilts the uplift."""
    outcome, bend = DATA.kind == "outcome", 3.0 * np.cos(DATA.X[:, 0] / 3.0)
    bent = {**DATA, "y": np.where(outcome, DATA.y + bend, DATA.y)}
    plan = MinMaxUplift(**FIXED, basis="linear").collect_sums(bent).plan
    m = plan.centring[0](DATA.X)[:, :2].mean(axis=1)
    assert np.corrcoef(m, bend)[0, 1] > 0.7  # the rest of m is the outcome's own mean


def test_threads_change_nothing():
    one, two = (
        MinMaxUplift(n_centers=15, random_state=0, n_jobs=n).fit(**DATA).predict(NEW)
        for n in (1, 2)
    )
    assert_array_equal(one, two)


@pytest.mark.slow
@pytest.mark.parametrize("problem", [paper_problem(b=5.0), campaign_problem()])
def test_it_is_as_accurate_as_the_fit_to_few_rows(problem, limits):
    """Within what two draws differ by."""
    shares = []
    for many in (1000, 10**9):
        limits("estimators.minmax", CROSS_FIT_ROWS=many)
        found = []
        for seed in range(3):
            model = MinMaxUplift(random_state=0).fit(
                **problem.draw(2000, random_state=seed)
            )
            X = problem.draw_joint(5000, random_state=9).X
            found.append(oracle_share(model.predict(X), problem.uplift(X)))
        shares.append(found)
    spread = np.std(shares[1], ddof=1)
    assert np.mean(shares[0]) > np.mean(shares[1]) - 2.0 * spread


def test_identification_is_that_of_all_rows():
    found = MinMaxUplift(**FIXED).fit(**DATA).identification_
    expected = identification_strength(**DATA)
    for name in ("mean_gap", "rms_gap", "f_statistic", "degrees"):
        assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9)


def test_weak_policies_are_warned_of_where_fit_was_called():
    same = paper_problem(b=0.0).draw(500, random_state=0)
    with pytest.warns(
        WeakIdentificationWarning, match="can hardly be told apart"
    ) as caught:
        MinMaxUplift(**FIXED).fit(**same)
    assert caught[0].filename == __file__


def test_ridges_and_width_are_chosen_and_reported():
    model = MinMaxUplift(n_centers=15, random_state=0).fit(**DATA)
    assert model.search_.score.shape == (3, 4, 15)
    assert model.ridge_f_ == model.search_.ridge_f
    assert model.basis_.second.width == model.search_.width
    # The chosen width's scores are those of all rows.
    again = MinMaxUplift(n_centers=15, width=model.search_.width, random_state=0)
    assert np.isfinite(again.fit(**DATA).search_.score).all()


def test_features_keep_their_names_and_a_given_regressor_centres():
    frame = pd.DataFrame(DATA.X, columns=["age", "income"])
    model = MinMaxUplift(**FIXED, center=LinearRegression()).fit(**{**DATA, "X": frame})
    assert model.feature_names_in_.tolist() == ["age", "income"]
    assert model.predict(frame).shape == (len(frame),)


def test_a_critic_of_its_own_is_centred_before_the_pass():
    model = MinMaxUplift(**FIXED, critic_basis="smooth", basis="linear").fit(**DATA)
    assert model.critic_basis_.size > model.basis_.size
    assert oracle_share(model.predict(NEW), PROBLEM.uplift(NEW)) > 0.8


def test_shift_weights_enter_the_pass_and_identification_stays_that_of_the_rows():
    model = MinMaxUplift(**FIXED, shift="classifier").fit(**DATA)
    assert model.shift_ is not None
    expected = identification_strength(**DATA)
    assert_allclose(model.identification_.f_statistic, expected.f_statistic, rtol=1e-9)


def draw_with_few(few, seed):
    names = list(PROBLEM.policies)
    sizes = {(kind, name): 600 for kind in ("outcome", "treatment") for name in names}
    return PROBLEM.draw({**sizes, ("outcome", names[0]): few}, random_state=seed)


@pytest.mark.parametrize("few", [2, 7])
def test_a_small_table_among_large_ones_is_dealt_evenly_over_the_folds(few):
    """By chance one of five folds would have none of seven rows one time in five."""
    for seed in range(6):
        data = draw_with_few(few, seed)
        model = MinMaxUplift(n_centers=10, width="median", random_state=seed).fit(
            **data
        )
        assert np.isfinite(model.predict(NEW)).all()


def test_a_table_of_one_row_is_refused_unless_nothing_is_held_out():
    data = draw_with_few(1, 0)
    with pytest.raises(InputError, match="hold rows out in turn and need two rows"):
        MinMaxUplift(n_centers=10, random_state=0).fit(**data)
    MinMaxUplift(**FIXED, center=False).fit(**data)


def test_bounds_and_other_losses_keep_to_the_rows():
    model = MinMaxUplift(**FIXED, bounds=(-1.0, 1.0)).fit(**DATA)
    assert model.bounds_ is not None
