"""Ridges of `MinMaxGau` suit its width."""

import numpy as np
import pytest

from unjoined import MinMaxGau
from unjoined.data import paper_problem
from unjoined.metrics import qini

PROBLEM = paper_problem(5.0)


def share_of_oracle(model, seed):
    """Fit to 4 x 500 rows; return the area above random as a share of the true uplift's."""
    model.set_params(random_state=seed).fit(**PROBLEM.draw(500, random_state=seed))
    test = PROBLEM.draw_joint(5000, random_state=100 + seed)
    return qini(model.predict(test.X), test.uplift, normalize=True).value


def test_width_5_does_not_keep_the_ridges_of_width_25():
    """With those it had 0.63 ± 0.08 of the oracle here, where its own give 0.91 ± 0.01."""
    draws = range(4)
    own = [share_of_oracle(MinMaxGau(width=5.0), seed) for seed in draws]
    foreign = [
        share_of_oracle(MinMaxGau(width=5.0, ridge_f=1e-4, ridge_g=1e-2), seed) for seed in draws
    ]
    gain = np.subtract(own, foreign)
    assert gain.mean() > 2.0 * gain.std(ddof=1) / np.sqrt(len(gain))
    assert min(own) > 0.8  # what the study of the paper calls "relatively well"


def test_the_preset_of_the_paper_is_what_it_was():
    model = MinMaxGau()
    assert (model.width, model.ridge_f, model.ridge_g) == (25.0, 1e-4, 1e-2)


@pytest.mark.parametrize("width", [3.0, 10.0])
def test_a_width_without_ridges_of_its_own_gets_them_from_the_rows(width):
    model = MinMaxGau(width=width, random_state=0).fit(**PROBLEM.draw(300, random_state=0))
    assert model.search_ is not None
    assert model.width == width
    assert (model.ridge_f_, model.ridge_g_) == (model.search_.ridge_f, model.search_.ridge_g)


@pytest.mark.parametrize("width", [3.0, 5.0, 25.0])
def test_ridges_that_are_given_are_kept(width):
    model = MinMaxGau(width=width, ridge_f=0.3, ridge_g=0.7)
    assert (model.ridge_f, model.ridge_g) == (0.3, 0.7)
