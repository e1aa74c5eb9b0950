"""Outcomes that treatment cannot have changed: exact differences, units, and clear errors."""

import numpy as np
import pytest

from unjoined import SeparateLabels
from unjoined.errors import InputError
from unjoined.evaluate import sensitivity

pytestmark = pytest.mark.usefixtures("two_folds")

OPTIONS = {"n_jobs": 1, "random_state": 0}


def drawn(shift=0.0, n=500, seed=0):
    """Tables of A and B, treated in 3 of 4 and in 1 of 4 cases; A has more by the shift."""
    rng = np.random.default_rng(seed)
    parts = []
    for k, chance in enumerate((0.75, 0.25)):
        for kind in (0, 1):
            X = rng.normal(size=(n, 2))
            t = (rng.random(n) < chance) * 1.0
            y = X[:, 0] + 0.5 * t + shift * (k == 0) + rng.normal(size=n)
            gone = np.full(n, np.nan)
            labels = (gone, t) if kind else (y, gone)
            parts.append((X, *labels, np.repeat("AB"[k], n)))
    return SeparateLabels(*map(np.concatenate, zip(*parts, strict=True)))


def earlier(shift, n=400, *, noise=0.0, names="AB"):
    """Outcomes of an earlier time: linear in the features, and the same shift."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2 * n, 2))
    population = np.repeat(list(names), n)
    y = 2.0 * X[:, 0] + X[:, 1] + shift * (population == names[0])
    y = y + noise * rng.normal(size=2 * n)
    return {"X": X, "y": y, "population": population}


def test_earlier_outcomes_without_a_difference_change_nothing():
    found = sensitivity(None, drawn(), before=earlier(0.0), **OPTIONS)
    (placebo,) = found.placebos
    assert placebo.gain.value == pytest.approx(0.0, abs=1e-3)
    plain, less = found.average.gain, found.differenced[0].gain
    assert less.value == pytest.approx(plain.value, abs=2e-3)
    assert less.standard_error == pytest.approx(plain.standard_error, rel=0.02)


def test_a_difference_that_stays_is_taken_off_and_named_by_its_size():
    """Policies are 0.5 apart: a shift of 0.3 passes for a gain of 0.6."""
    data = drawn(shift=0.3)
    rules = {"some": lambda X: (X[:, 1] > 0.0) * 1.0, "half": ("share", 0.5)}
    found = sensitivity(
        lambda X: X[:, 0], data, rules=rules, before=earlier(0.3), **OPTIONS
    )
    without = sensitivity(lambda X: X[:, 0], drawn(), rules=rules, **OPTIONS)
    (placebo,) = found.placebos
    assert placebo.is_rejected
    assert placebo.delta == pytest.approx(0.3, abs=0.02)
    assert placebo.gain.value == pytest.approx(0.3 * found.average.sway, rel=0.05)
    assert "equal people do differ, as if by 0.3" in str(found)
    for less, fair in zip(found.differenced, without.claims, strict=True):
        assert less.name == fair.name
        assert less.gain.value == pytest.approx(fair.gain.value, abs=0.04)
    assert found.average.gain.value > without.average.gain.value + 0.5


def test_noise_of_the_earlier_tables_is_paid_for():
    """As many rows of the same noise: twice the variance of outcomes."""
    data = drawn(n=800)
    found = sensitivity(None, data, before=earlier(0.0, 800, noise=1.0), **OPTIONS)
    ratio = found.differenced[0].gain.standard_error / found.average.gain.standard_error
    assert ratio == pytest.approx(np.sqrt(2.0), rel=0.1)
    assert not found.placebos[0].is_rejected
    frame = found.to_frame("pandas")
    assert frame["differenced"].tolist() == [False, True]
    costly = found.at(cost=0.2)
    gain = costly.differenced[0]
    assert gain.net.value == pytest.approx(gain.gain.value - 0.2)


def test_a_control_counts_in_its_own_spreads():
    data = drawn()
    rng = np.random.default_rng(2)
    noise, apart = rng.normal(size=data.n_rows), np.asarray(data.population) == "A"
    moved = noise + 0.5 * apart
    controls = {"moved": moved, "in cents": 100.0 * moved, "nothing": noise}
    found = sensitivity(None, data, controls=controls, **OPTIONS)
    moved, cents, nothing = found.placebos
    assert moved.is_rejected
    assert moved.delta == pytest.approx(0.5 * found.sigma, abs=0.2)
    assert cents.delta == pytest.approx(moved.delta, rel=0.05)  # other folds
    assert cents.gain.value == pytest.approx(100.0 * moved.gain.value, rel=0.05)
    assert nothing.delta < moved.delta < moved.largest
    said = found.to_dict()["placebos"]
    assert [each["name"] for each in said] == list(controls)


def test_a_placebo_of_too_wide_an_interval_is_no_good_news():
    """Of the same expected outcome: noise alone makes it say nothing; without, it is good news."""
    data = drawn()
    for noise, says in ((0.3, "too little to turn it"), (10.0, "nothing")):
        found = sensitivity(None, data, before=earlier(0.0, noise=noise), **OPTIONS)
        (placebo,) = found.placebos
        silent = noise > 1.0
        assert not placebo.is_rejected
        assert (placebo.largest > found.average.breakdown()) == silent
        assert found.is_silent(placebo) == silent
        assert found.to_dict()["placebos"][0]["says_nothing"] == silent
        assert ("That says nothing, good or bad" in str(found)) == silent
        assert found.beside_tables()[0][2][0][-1] == says


def test_what_cannot_be_earlier_outcomes_is_refused():
    data = drawn(n=60)
    before = earlier(0.0, 60)
    with pytest.raises(InputError, match="mapping of X, y and population"):
        sensitivity(None, data, before=[1.0], **OPTIONS)
    with pytest.raises(
        InputError, match="populations A, C, but the tables are of A, B"
    ):
        sensitivity(None, data, before=earlier(0.0, 60, names="AC"), **OPTIONS)
    with pytest.raises(InputError, match="before holds treatments"):
        sensitivity(None, data, before=data, **OPTIONS)
    thin = before | {"X": before["X"][:, :1]}
    with pytest.raises(InputError, match="before has 1 columns, but the tables have 2"):
        sensitivity(None, data, before=thin, **OPTIONS)
    score = np.asarray(data.X)[:, 0]
    with pytest.raises(InputError, match="must be a function of the features"):
        sensitivity(score, data, before=before, **OPTIONS)


def test_what_cannot_be_a_control_is_refused():
    data = drawn(n=60)
    with pytest.raises(InputError, match="a number for each of the 240 rows"):
        sensitivity(None, data, controls={"x": np.zeros(3)}, **OPTIONS)
    holes = np.where(np.arange(240) % 7 == 0, np.nan, 1.0 * np.arange(240))
    with pytest.raises(InputError, match="known of every row that has an outcome"):
        sensitivity(None, data, controls={"x": holes}, **OPTIONS)
