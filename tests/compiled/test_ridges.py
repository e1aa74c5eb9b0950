"""Compiled systems with many ridges: they are solved."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from unjoined._compiled import kernels as _ridges
from unjoined._compiled.kernels import ridge_paths
from unjoined._compiled.library import library

EPS = float(np.finfo(np.float64).eps)
LEVELS = list(range(1, 1 + (library().level if library() else 0)))
pytestmark = pytest.mark.skipif(not LEVELS, reason="no compiled arithmetic for this machine")


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 17),
    st.sampled_from(LEVELS or [0]),
)
def test_solutions_solve(seed, p, rank, n_f, level):
    """Orthogonal steps are off by p eps of the matrix, elimination by that of what it solves."""
    rng = np.random.default_rng(seed)
    M = rng.standard_normal((3, rank, p)) * np.logspace(0, -4, p)
    M[2] = 0.0
    G, h = M.swapaxes(1, 2) @ M, rng.standard_normal((3, p))
    ridges = np.logspace(-6, 1, n_f)
    before = G.copy(), h.copy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_ridges, "library", lambda: replace(library(), level=level))
        found = ridge_paths(G, h, ridges)
    assert found.shape == (3, p, n_f)
    left = G @ found + ridges * found - h[..., None]
    size = np.abs(G).sum(axis=(1, 2))[:, None, None] + ridges
    scale = size * np.abs(found).max(axis=1, keepdims=True) + np.abs(h).max()
    assert np.abs(left / scale).max() <= 20.0 * p * EPS
    assert_array_equal(G, before[0])
    assert_array_equal(h, before[1])


def test_a_diagonal_matrix_needs_no_reflection():
    values, ridges = np.array([3.0, 0.0, 2.0, 1.0]), np.array([0.5, 2.0])
    found = ridge_paths(np.diag(values)[None], np.ones((1, 4)), ridges)
    assert_allclose(found[0], 1.0 / (values[:, None] + ridges), rtol=4 * EPS)


def test_rounding_does_not_turn_the_sign_of_what_is_divided_by():
    """Eigenvalues that should be zero come out as a little less; the ridge drowns in them."""
    v = np.random.default_rng(0).standard_normal(30) * 1e8
    found = ridge_paths(np.outer(v, v)[None], v[None], np.array([1e-9]))
    assert np.isfinite(found).all()
    assert_allclose(found[0, :, 0] @ v, 1.0, rtol=1e-6)
