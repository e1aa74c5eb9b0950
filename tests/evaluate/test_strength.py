"""Whether policies differ enough: a statistic with a known law when they do not."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import chi2, kstest

from unjoined import MinMaxUplift, SeparateLabels, Uplift, identification_strength
from unjoined.data import SimulatedProblem, paper_problem
from unjoined.data.rows import separate_labels
from unjoined.errors import WeakIdentificationWarning
from unjoined.evaluate import diagnose

pytestmark = pytest.mark.usefixtures("two_folds")


def problem(first, second, d=2):
    return SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, d)),
        policies={"A": first, "B": second},
        outcome=lambda X, treated, rng: rng.standard_normal(len(X)),
        outcome_mean=lambda X, treated: np.zeros(len(X)),
    )


def constant(p):
    return lambda X: np.full(len(X), p)


@pytest.mark.statistical
def test_statistic_is_chi_square_when_policies_are_equal():
    """200 draws: the Kolmogorov-Smirnov test rejects a right law once in a thousand seeds."""
    equal = problem(
        lambda X: 1 / (1 + np.exp(-X[:, 0])), lambda X: 1 / (1 + np.exp(-X[:, 0]))
    )
    found = [
        identification_strength(**equal.draw(300, random_state=s)) for s in range(200)
    ]
    assert {s.degrees for s in found} == {5}  # a constant, two features, two squares
    assert kstest([s.f_statistic * 5 for s in found], chi2(5).cdf).pvalue > 1e-3


@pytest.mark.statistical
def test_gap_of_constant_policies_is_measured_within_four_standard_errors():
    """Each share treated has variance p (1 - p) / n; the gap is constant, so rms and mean agree."""
    n, p, q = 4000, 0.7, 0.4
    s = identification_strength(
        **problem(constant(p), constant(q)).draw(n, random_state=0)
    )
    error = np.sqrt((p * (1 - p) + q * (1 - q)) / n)
    assert abs(s.mean_gap - (p - q)) < 4 * error
    assert abs(s.rms_gap - (p - q)) < 4 * error
    assert not s.is_weak


def test_opposed_policies_with_equal_shares_are_not_weak():
    """The mean gap is about zero, yet at almost every x the policies differ."""
    opposed = problem(
        lambda X: np.where(X[:, 0] > 0, 0.9, 0.1),
        lambda X: np.where(X[:, 0] > 0, 0.1, 0.9),
    )
    s = identification_strength(**opposed.draw(1000, random_state=0))
    assert abs(s.mean_gap) < 0.1
    assert s.rms_gap > 0.5
    assert not s.is_weak


@pytest.mark.parametrize("d", [1, 40])
def test_features_in_which_policies_do_not_differ_do_not_make_them_weak(d):
    """A gap of 42 points: 300 treatments of each tell it by 0.42^2 / (2 * 0.2 / 300) = 130."""
    data = problem(constant(0.71), constant(0.29), d).draw(300, random_state=0)
    assert identification_strength(**data).strength == pytest.approx(130.0, rel=0.5)
    model = Uplift(n_jobs=1, random_state=0).fit(data)  # a warning would be an error
    assert not model.identification_.is_weak
    said = diagnose(data, crossfit=model.crossfit_).strength
    assert model.identification_.strength == said
    assert "nothing here is reliable" not in model.summary()


def test_a_gap_in_the_square_of_a_feature_is_seen():
    middle = problem(
        lambda X: np.where(np.abs(X[:, 0]) < 0.67, 0.8, 0.2), constant(0.5)
    )
    s = identification_strength(**middle.draw(1000, random_state=0))
    assert not s.is_weak


def test_equal_policies_are_weak_and_the_rms_gap_is_not_inflated_by_noise():
    gaps = [
        identification_strength(**paper_problem(b=0.0).draw(500, random_state=s))
        for s in range(20)
    ]
    assert all(s.is_weak for s in gaps)
    assert np.median([s.rms_gap for s in gaps]) < np.sqrt(
        5 / 1000
    )  # what noise alone would show


def test_repeated_binary_features_do_not_inflate_the_degrees():
    """The square of a 0/1 feature is the feature: it must not count twice."""
    rng = np.random.default_rng(0)
    data = problem(constant(0.8), constant(0.3), d=1).draw(500, random_state=0)
    binary = SeparateLabels(**{**dict(data), "X": rng.integers(0, 2, (data.n_rows, 1))})
    assert identification_strength(**binary).degrees == 2


@pytest.mark.parametrize(("n", "degrees"), [(500, 41), (200, 21), (50, 1)])
def test_functions_are_left_out_when_rows_are_few(n, degrees):
    """Twenty features: squares need 410 treatment rows, slopes 210."""
    data = problem(constant(0.8), constant(0.3), d=20).draw(n, random_state=0)
    assert identification_strength(**data).degrees == degrees


def test_weights_act_like_repeated_rows_in_the_gap():
    data = problem(constant(0.8), constant(0.3)).draw(300, random_state=0)
    weight = np.random.default_rng(0).integers(1, 4, data.n_rows)
    weighted = identification_strength(**{**dict(data), "sample_weight": weight})
    repeated = identification_strength(
        **data.take(np.repeat(np.arange(data.n_rows), weight))
    )
    assert weighted.mean_gap == pytest.approx(repeated.mean_gap, abs=1e-12)
    # Copies carry no information: weights must not make the test more confident.
    assert weighted.f_statistic < repeated.f_statistic


NUMBERS = ("mean_gap", "rms_gap", "f_statistic", "degrees")


def several(policies, d=2):
    return SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, d)),
        policies=policies,
        outcome=lambda X, treated, rng: rng.standard_normal(len(X)),
        outcome_mean=lambda X, treated: np.zeros(len(X)),
    )


def shares(*values):
    return several(
        {name: constant(p) for name, p in zip("ABCDE", values, strict=False)}
    )


def sizes(**rows):
    kinds = ("outcome", "treatment")
    return {(kind, name): n for name, n in rows.items() for kind in kinds}


def numbers(strength):
    return [getattr(strength, name) for name in NUMBERS]


@pytest.mark.statistical
def test_the_statistic_is_chi_square_when_three_policies_are_equal():
    """200 draws: the Kolmogorov-Smirnov test rejects a right law once in a thousand seeds."""
    equal, rows = shares(0.5, 0.5, 0.5), sizes(A=150, B=400, C=250)
    found = [
        identification_strength(**equal.draw(rows, random_state=s)) for s in range(200)
    ]
    assert {s.degrees for s in found} == {2 * 5}  # two contrasts of five functions
    assert kstest([s.f_statistic * 10 for s in found], chi2(10).cdf).pvalue > 1e-3
    # Both a chi-square and a strength of 17 are reached by less than one in a hundred.
    assert np.mean([s.is_weak for s in found]) >= 0.98


def test_gaps_of_three_populations_are_twice_the_spread_of_their_policies():
    """Within four standard errors, by the delta method from the variance of each share."""
    n, e = np.array([3000, 6000, 1500]), np.array([0.7, 0.4, 0.5])
    data = shares(*e).draw(
        sizes(**dict(zip("ABC", n.tolist(), strict=True))), random_state=0
    )
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
        **separate_labels(
            [1] * 28 + [0] * 12 + half + half + [0, 1, 2, 3, 4, 5],
            ["treatment"] * 80 + ["outcome"] * 6,
        ),
    }
    two = np.repeat(["A", "B", "A", "B"], [40, 40, 2, 4])
    three = np.repeat(["A", "B", "C", "A", "B", "C"], [40, 20, 20, 2, 2, 2])
    of_two, of_three = (
        identification_strength(**rows, population=p) for p in (two, three)
    )
    assert of_two.mean_gap == pytest.approx(0.3, abs=1e-12)
    assert of_three.mean_gap == pytest.approx(0.3, abs=1e-12)


def test_the_statistic_does_not_depend_on_what_populations_are_called():
    data = shares(0.5, 0.55, 0.7, 0.35).draw(
        sizes(A=300, B=200, C=400, D=250), random_state=0
    )
    weight = np.random.default_rng(0).uniform(0.5, 2.0, data.n_rows)
    given = identification_strength(**data, sample_weight=weight)
    names = dict(zip("ABCD", "DACB", strict=True))
    other = np.array([names[name] for name in data.population])
    renamed = identification_strength(
        **{**data, "population": other}, sample_weight=weight
    )
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
    for model in (Uplift(random_state=0), Uplift(random_state=0)):
        found = model.fit(**data).identification_
        assert replace(found, strength=expected.strength) == expected
        assert found.strength == diagnose(data, crossfit=model.crossfit_).strength


def test_equal_policies_of_three_populations_warn_of_all_three():
    data = shares(0.5, 0.5, 0.5).draw(100, random_state=0)
    with pytest.warns(WeakIdentificationWarning, match="the 3 populations' policies"):
        Uplift(random_state=0).fit(**data)


def test_the_strength_of_two_populations_names_them_from_rows_and_from_chunks():
    data = shares(0.3, 0.8).draw(200, random_state=0)
    assert identification_strength(**data).populations == ("A", "B")
    model = MinMaxUplift(random_state=0)
    assert model.fit(data).identification_.populations == ("A", "B")
