"""An offer made at random and taken up by choice: the effect on those who do because of it."""

import numpy as np
import pytest
from scipy.special import expit

from unjoined import SeparateLabels, Uplift
from unjoined.errors import InputError
from unjoined.evaluate import diagnose


def offered(n=3000, seed=0, arms=2):
    """Hidden ease decides who takes it up, and goes along with both outcome and effect."""
    rng = np.random.default_rng(seed)
    parts = {"X": [], "y": [], "treatment": [], "population": []}
    effects = []
    for kind in ("outcome", "treatment"):
        for k in range(arms):
            X = rng.normal(size=(n, 2))
            ease = rng.random(n)
            levels = np.linspace(-1.5, 1.5, arms)
            taken = ease < expit(levels[k] + 0.5 * X[:, 0])
            own = 0.15 + 0.3 * ease
            chance = 0.1 + 0.3 * ease + own * taken
            y = (rng.random(n) < chance) * 1.0
            gone = np.full(n, np.nan)
            parts["X"].append(X)
            parts["y"].append(y if kind == "outcome" else gone)
            parts["treatment"].append(gone if kind == "outcome" else taken * 1.0)
            parts["population"].append(np.repeat(f"arm {k}", n))
            ends = [ease < expit(level + 0.5 * X[:, 0]) for level in levels[[0, -1]]]
            effects.append((own[ends[1] & ~ends[0]], np.mean(ends[1] & ~ends[0])))
    truth = float(np.concatenate([each for each, _ in effects]).mean())
    share = float(np.mean([each for _, each in effects]))
    return (
        SeparateLabels(**{name: np.concatenate(v) for name, v in parts.items()}),
        truth,
        share,
    )


@pytest.fixture(scope="module")
def drawn():
    return offered()


@pytest.fixture(scope="module")
def model(drawn):
    return Uplift(randomised=True, random_state=0).fit(drawn[0])


def test_the_average_is_that_of_compliers(drawn, model):
    _, truth, share = drawn
    assert model.compliers_.covers(truth, 0.999)
    assert model.compliers_.standard_error < 0.1  # which tells it from 0
    found = model.complier_share_
    assert abs(found.value - share) < 4.0 * found.standard_error
    assert model.family_ == "mean"


def test_what_is_said_is_what_was_estimated(drawn, model):
    words = model.summary()
    assert words.startswith(
        "Effect on those who take it up because of the offer (about "
    )
    assert "Why people take it up does not matter" in model.verdict_.words
    verdict = diagnose(drawn[0], crossfit=model.crossfit_, randomised=True).as_verdict()
    assert "nobody takes it up only where it is not offered" in verdict.untested
    assert "respond alike" not in verdict.words


def test_tests_that_need_the_same_people_are_left_out():
    """Each pair of three arms has compliers of its own, so that their effects differ."""
    data = offered(n=4000, arms=3)[0]
    plain, chance = (diagnose(data, randomised=flag) for flag in (False, True))
    tested = {check.what for check in plain.checks} - {
        check.what for check in chance.checks
    }
    assert any("one law of outcomes" in what for what in tested)
    assert any("within the outcome's range" in what for what in tested)
    assert chance.verdict == "identified"


def test_families_that_take_the_treated_for_others_are_refused(drawn):
    with pytest.raises(
        InputError, match="takes the treated and the untreated for alike"
    ):
        Uplift(family="bernoulli", randomised=True).fit(drawn[0])
    with pytest.raises(InputError, match="randomised must be True or False"):
        Uplift(randomised="yes").fit(drawn[0])
