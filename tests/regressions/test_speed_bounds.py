"""Range constraints: few steps however tight they are, and no solver beyond the core."""

import sys

import numpy as np
import pytest

from unjoined import MinMaxUplift
from unjoined.data import campaign_problem
from unjoined.errors import InputError

SETTINGS = {"n_centers": 40, "width": "median", "ridge_f": 1e-3, "ridge_g": 1e-3}


@pytest.fixture(scope="module")
def data():
    return campaign_problem().draw(500, random_state=0)


@pytest.mark.parametrize("bounds", [(0.0, 0.05), (0.2, 0.21), (0.0, np.inf), (-np.inf, -0.1)])
def test_tight_bounds_take_few_steps_and_hold_at_every_row(data, bounds):
    """A step costs p^2, so that the programme is cheap if steps are far fewer than rows.

    It used to cost the cube of the rows that entered: minutes where the fit takes a second.
    """
    model = MinMaxUplift(**SETTINGS, bounds=bounds, random_state=0).fit(**data)
    report, p = model.bounds_, len(model.coef_)
    assert report.n_binding <= p
    assert report.n_binding <= report.steps < data.n_rows / 4
    largest = max(abs(bound) for bound in bounds if np.isfinite(bound)) or 1.0
    uplift = model.predict(data.X)
    assert uplift.min() >= bounds[0] - 1e-7 * largest
    assert uplift.max() <= bounds[1] + 1e-7 * largest


def test_a_single_bound_of_zero_has_a_tolerance(data):
    """It was relative to the wider bound, that is 0: rows entered for rounding errors alone."""
    model = MinMaxUplift(**SETTINGS, bounds=(0.0, np.inf), random_state=0).fit(**data)
    free = MinMaxUplift(**SETTINGS, random_state=0).fit(**data)
    beyond = -free.predict(data.X).min()
    assert beyond > 0.01
    assert model.bounds_.worst <= 1e-7 * beyond


def test_bounds_that_no_double_can_keep_are_refused_in_plain_words(data):
    model = MinMaxUplift(**SETTINGS, bounds=(0.0, 1e-18), random_state=0)
    with pytest.raises(InputError, match="too narrow to be kept in double precision"):
        model.fit(**data)
    with pytest.raises(InputError, match="a lower and a larger upper number"):
        MinMaxUplift(bounds=(0, 0)).fit(**data)


def test_bounds_and_robust_losses_need_no_extra(data, monkeypatch):
    """The quadratic programmes were handed to a package that only an extra brings."""
    monkeypatch.setitem(sys.modules, "clarabel", None)  # as if it were not installed
    bounded = MinMaxUplift(**SETTINGS, bounds=(0.0, 0.05), random_state=0).fit(**data)
    assert bounded.bounds_.rounds > 0
    robust = MinMaxUplift(**SETTINGS, loss="absolute", random_state=0).fit(**data)
    assert robust.loss_.rounds > 0
