"""How far apart the policies of three populations or more are."""

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import chi2, kstest

from unjoined import MinMaxUplift, MixtureUplift, Uplift, identification_strength
from unjoined.data import SimulatedProblem
from unjoined.errors import WeakIdentificationWarning

NUMBERS = ("mean_gap", "rms_gap", "f_statistic", "degrees")


def problem(policies, d=2):
    return SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, d)),
        policies=policies,
        outcome=lambda X, treated, rng: rng.standard_normal(len(X)),
        outcome_mean=lambda X, treated: np.zeros(len(X)),
    )


def constant(p):
    return lambda X: np.full(len(X), p)


def shares(*values):
    return problem({name: constant(p) for name, p in zip("ABCDE", values, strict=False)})


def sizes(**rows):
    kinds = ("outcome", "treatment")
    return {(kind, name): n for name, n in rows.items() for kind in kinds}


def numbers(strength):
    return [getattr(strength, name) for name in NUMBERS]


@pytest.mark.statistical
def test_the_statistic_is_chi_square_when_three_policies_are_equal():
    """200 draws: the Kolmogorov-Smirnov test rejects a right law once in a thousand seeds."""
    equal, rows = shares(0.5, 0.5, 0.5), sizes(A=150, B=400, C=250)
    found = [identification_strength(**equal.draw(rows, random_state=s)) for s in range(200)]
    assert {s.degrees for s in found} == {2 * 5}  # two contrasts of five functions
    assert kstest([s.f_statistic * 10 for s in found], chi2(10).cdf).pvalue > 1e-3
    assert np.mean([s.is_weak for s in found]) == 1.0


def test_gaps_of_three_populations_are_twice_the_spread_of_their_policies():
    """Within four standard errors, by the delta method from the variance of each share."""
    n, e = np.array([3000, 6000, 1500]), np.array([0.7, 0.4, 0.5])
    data = shares(*e).draw(sizes(**dict(zip("ABC", n.tolist(), strict=True))), random_state=0)
    found = identification_strength(**data)
    p = n / n.sum()
    apart = e - p @ e
    spread = np.sqrt(p @ apart**2)
    error = np.sqrt(np.sum((2.0 * p * apart / spread) ** 2 * e * (1 - e) / n))
    assert abs(found.mean_gap - 2.0 * spread) < 4 * error
    assert abs(found.rms_gap - 2.0 * spread) < 4 * error
    assert not found.is_weak


def test_a_population_cut_in_two_leaves_the_gap_as_it_was():
    """Halves with the same share treated: the spread of three is the difference of two."""
    half = [1] * 8 + [0] * 12
    rows = {
        "X": np.random.default_rng(0).standard_normal((86, 2)),
        "y": [1] * 28 + [0] * 12 + half + half + [0, 1, 2, 3, 4, 5],
        "kind": ["treatment"] * 80 + ["outcome"] * 6,
    }
    two = np.repeat(["A", "B", "A", "B"], [40, 40, 2, 4])
    three = np.repeat(["A", "B", "C", "A", "B", "C"], [40, 20, 20, 2, 2, 2])
    of_two, of_three = (identification_strength(**rows, population=p) for p in (two, three))
    assert of_two.mean_gap == pytest.approx(0.3, abs=1e-12)
    assert of_three.mean_gap == pytest.approx(0.3, abs=1e-12)


def test_the_statistic_does_not_depend_on_what_populations_are_called():
    data = shares(0.5, 0.55, 0.7, 0.35).draw(sizes(A=300, B=200, C=400, D=250), random_state=0)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, data.n_rows)
    given = identification_strength(**data, sample_weight=weight)
    names = dict(zip("ABCD", "DACB", strict=True))
    other = np.array([names[name] for name in data.population])
    renamed = identification_strength(**{**data, "population": other}, sample_weight=weight)
    assert numbers(renamed) == pytest.approx(numbers(given), rel=1e-9)
    assert given.degrees == 3 * 5


def test_two_of_three_populations_are_compared_in_the_pairs():
    """Two policies that hardly differ beside a third that does: the table shows which is which."""
    data = shares(0.5, 0.52, 0.9).draw(400, random_state=0)
    found = identification_strength(**data)
    assert found.populations == ("A", "B", "C")
    assert [pair.populations for pair in found.pairs] == list(combinations("ABC", 2))
    for pair in found.pairs:
        only = data.take(np.isin(data.population, pair.populations))
        alone = identification_strength(**only)
        assert numbers(pair) == pytest.approx(numbers(alone), rel=1e-9)
        assert alone.pairs == ()
    assert [pair.is_weak for pair in found.pairs] == [True, False, False]
    assert not found.is_weak
    table = found.to_dict()
    assert table["first"], table["second"] == (["A", "A", "B"], ["B", "C", "C"])
    assert table["f_statistic"] == [pair.f_statistic for pair in found.pairs]


def test_estimators_of_three_populations_measure_the_same_strength():
    data = shares(0.5, 0.2, 0.8).draw(200, random_state=0)
    expected = identification_strength(**data)
    assert Uplift(random_state=0).fit(**data).identification_ == expected
    assert MixtureUplift(n_folds=2, random_state=0).fit(**data).identification_ == expected


def test_equal_policies_of_three_populations_warn_of_all_three():
    data = shares(0.5, 0.5, 0.5).draw(100, random_state=0)
    with pytest.warns(WeakIdentificationWarning, match="the 3 populations' policies"):
        MixtureUplift(n_folds=2, random_state=0).fit(**data)


def test_the_strength_of_two_populations_names_them_from_rows_and_from_chunks():
    data = shares(0.3, 0.8).draw(200, random_state=0)
    assert identification_strength(**data).populations == ("A", "B")
    model = MinMaxUplift(random_state=0)
    assert model.fit_chunks(data).identification_.populations == ("A", "B")
