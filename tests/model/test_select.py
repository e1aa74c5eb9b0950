"""The choice of ridges: the score against its definition, and what the rule picks."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize

from unjoined.errors import InputError
from unjoined.model.minmax import (
    RIDGES_F,
    RIDGES_G,
    MinMaxSystem,
    choose_ridges,
    score_ridges,
    solve_minmax,
)


def make_system(seed, p_f=4, p_g=5):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(p_g, p_g))
    return MinMaxSystem(
        rng.normal(size=(p_f, p_g)), rng.normal(size=p_g), root @ root.T
    )


def test_score_is_the_most_a_critic_can_object_on_the_held_out_sums():
    """Against a general optimiser over critics, for every fold and pair of ridges."""
    folds = [(make_system(2 * j), make_system(2 * j + 1)) for j in range(3)]
    C = make_system(9).C
    score, alphas = score_ridges(
        folds, C, ridges_f=[0.01, 1.0], ridges_g=[0.1, 0.5, 2.0]
    )
    assert score.shape == (3, 3, 2)
    for j, (rest, held) in enumerate(folds):
        for g, ridge_g in enumerate([0.1, 0.5, 2.0]):
            for f, ridge_f in enumerate([0.01, 1.0]):
                alpha = solve_minmax(rest, ridge_f=ridge_f, ridge_g=ridge_g).alpha
                assert_allclose(alphas[j, g, f], alpha, rtol=1e-10)

                def objection(beta, alpha=alpha, held=held):
                    return -(
                        2.0 * alpha @ held.A @ beta
                        - 4.0 * held.b @ beta
                        - beta @ C @ beta
                        - 1e-2 * beta @ beta
                    )

                best = -minimize(objection, np.zeros(5), tol=1e-12).fun
                assert score[j, g, f] == pytest.approx(best, rel=1e-5)


def test_scores_do_not_depend_on_threads_to_the_bit():
    folds = [
        (make_system(2 * j, 30, 30), make_system(2 * j + 1, 30, 30)) for j in range(3)
    ]
    options = {"ridges_f": RIDGES_F, "ridges_g": RIDGES_G}
    one, two = (
        score_ridges(folds, folds[0][0].C, **options, n_jobs=n) for n in (None, 2)
    )
    for with_one, with_two in zip(one, two, strict=True):
        assert_array_equal(with_two, with_one)


def test_score_is_zero_for_an_uplift_the_held_out_rows_agree_with():
    """A^T alpha = 2b on the fold leaves no critic anything; noise there raises all scores."""
    A = np.random.default_rng(0).normal(size=(3, 3))
    C, alpha = np.eye(3), np.array([1.0, -2.0, 0.5])
    exact = MinMaxSystem(A, A.T @ alpha / 2.0, C)
    score, _ = score_ridges([(exact, exact)], C, ridges_f=[1e-14, 1e4], ridges_g=[1e-6])
    assert score[0, 0, 0] < 1e-15 < 0.1 < score[0, 0, 1]


def test_the_middle_of_what_folds_cannot_tell_from_the_best_is_chosen():
    """Positions 3 to 7 of one ridge are equal to the best but for noise, others far worse."""
    rng = np.random.default_rng(0)
    behind = np.full((5, 1, 11), 10.0)
    behind[:, :, 3:8] = 0.01
    behind[:, :, 4] = 0.0
    noise = rng.normal(size=(5, 1, 11))
    noise -= noise.mean(axis=0)
    common = rng.normal(
        scale=100.0, size=(5, 1, 1)
    )  # which folds share, and pairing removes
    mean, error, chosen = choose_ridges(behind + 0.1 * noise + common)
    assert chosen == (0, 5)
    assert error[0, 4] == 0.0
    assert_allclose(mean, (behind + common).mean(axis=0), atol=1e-12)


def test_a_best_pair_beyond_noise_is_chosen_itself():
    score = np.add.outer((np.arange(4) - 2.0) ** 2, (np.arange(15) - 11.0) ** 2)
    assert choose_ridges(np.stack([score + 3.0 * j for j in range(5)]))[2] == (2, 11)


def test_standard_error_is_that_of_paired_differences():
    score = np.random.default_rng(1).normal(size=(5, 3, 4))
    _, error, _ = choose_ridges(score)
    g, f = np.unravel_index(np.argmin(score.mean(axis=0)), (3, 4))
    other = score[:, 1, 2] - score[:, g, f]
    assert error[1, 2] == pytest.approx(other.std(ddof=1) / np.sqrt(5))


def test_one_pair_is_chosen_without_further_ado():
    assert choose_ridges(np.array([[[1.0]], [[2.0]]]))[2] == (0, 0)


def test_grids_run_from_no_shrinkage_to_nothing_left():
    assert (RIDGES_F[0], RIDGES_F[-1]) == (pytest.approx(1e-6), pytest.approx(10.0))
    assert (np.diff(np.log(RIDGES_F)) > 0).all()
    assert (np.diff(np.log(RIDGES_G)) > 0).all()


def test_a_ridge_that_drowns_in_rounding_is_refused():
    """Nearly collinear functions of great size: rounding makes an eigenvalue of C negative."""
    C = np.diag([1e12, -1e-4])
    system = MinMaxSystem(np.eye(2), np.ones(2), C)
    whole = MinMaxSystem(np.eye(2), np.ones(2), np.eye(2))
    with pytest.raises(InputError, match="ridge_g=1e-06 is too small"):
        score_ridges([(system, whole)] * 2, whole.C, ridges_f=[1.0], ridges_g=[1e-6])


def test_rounding_does_not_turn_the_sign_of_what_is_divided_by():
    """Eigenvalues that should be zero come out as a little less; the ridge drowns in them."""
    v = np.random.default_rng(0).standard_normal(30) * 1e4
    system = MinMaxSystem(np.outer(v, v) / 1e4, v, np.eye(30))
    _, alphas = score_ridges(
        [(system, system)], np.eye(30), ridges_f=[1e-9], ridges_g=[1e-9]
    )
    alpha = alphas[0, 0, 0]
    assert np.isfinite(alpha).all()
    np.testing.assert_allclose(system.A.T @ alpha, 2.0 * v, rtol=1e-5)


def test_one_function_needs_no_reflection():
    system = MinMaxSystem(np.array([[2.0]]), np.array([3.0]), np.array([[4.0]]))
    _, alphas = score_ridges(
        [(system, system)], system.C, ridges_f=[0.5, 2.0], ridges_g=[1.0]
    )
    # min over a of (2 a - 6)^2 / (4 + 1) + f a^2
    expected = [(2.0 * 6.0 / 5.0) / (4.0 / 5.0 + f) for f in (0.5, 2.0)]
    np.testing.assert_allclose(alphas[0, 0, :, 0], expected, rtol=1e-12)
