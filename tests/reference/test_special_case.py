r"""One population treats everyone, the other no one: the paper's remark on its problem setting.

Then population and treatment are the same thing, outcomes come with their treatment after all,
and the usual estimator is the T-learner: a regression per arm, and the difference. Estimators
that model the policies know them to be 1 and 0 and *are* the T-learner. The min-max estimator
does not model them. Here :math:`w = +1` at every row, so with :math:`\tilde G` the mean over
treatment tables of :math:`\phi\phi^\top`, :math:`A = \tilde G` and :math:`C = (\tilde G + G) / 2`.
For vanishing ridges

.. math::

    \alpha = 2 (A C^{-1} A)^{-1} A C^{-1} b = 2 A^{-1} b = \tilde G^{-1} (G_1 a_1 - G_2 a_2),

where :math:`G_k` and :math:`a_k` are the Gram matrix and the least-squares coefficients of the
outcome table of population k, as :math:`2 b = G_1 a_1 - G_2 a_2`; C cancels. If the treatment
tables hold the same people as the outcome tables, :math:`\tilde G = G = (G_1 + G_2) / 2`, this is
the least-squares regression of 2z (outcomes, with a minus in the second population), and

.. math::

    \alpha - (a_1 - a_2) = \tfrac12 G^{-1} (G_1 - G_2) (a_1 + a_2),

which is 0 if both populations have the same features, and :math:`O(n^{-1/2})` if they only have
the same law of features.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LinearRegression, LogisticRegression

from unjoined import (
    DensityUplift,
    MinMaxUplift,
    PlugInUplift,
    SeparateLabels,
    TwoStageUplift,
)
from unjoined.data import SimulatedProblem
from unjoined.model import GaussianBasis, LinearBasis

NEW = np.random.default_rng(9).standard_normal((50, 2))
BASES = [
    LinearBasis(2),
    GaussianBasis(np.array([[-1.0, 0.0], [1.0, 0.5], [0.0, -1.0]]), 2.0),
]


def problem(*, binary=False):
    def mean(X, treated):
        score = 1.0 + X[:, 1] + treated * (0.5 + X[:, 0])
        return 1.0 / (1.0 + np.exp(-score)) if binary else score

    def outcome(X, treated, rng):
        noise = rng.random_sample(len(X)) if binary else rng.standard_normal(len(X))
        return (
            (noise < mean(X, treated)).astype(float)
            if binary
            else mean(X, treated) + noise
        )

    return SimulatedProblem(
        features=lambda n, rng: rng.standard_normal((n, 2)),
        policies={"all": lambda X: np.ones(len(X)), "none": lambda X: np.zeros(len(X))},
        outcome=outcome,
        outcome_mean=mean,
    )


def cell(data, kind, population):
    at = data.rows(kind, population)
    return np.asarray(data.X)[at], data.checked.label[at]


def scaled_by(model, data):
    """Return the tables, and `NEW`, with features as the models inside saw them."""
    scaled = SeparateLabels(**{**dict(data), "X": model.scaling_(np.asarray(data.X))})
    return scaled, model.scaling_(NEW)


def t_learner(model, data, X):
    """One regression per arm; probabilities if the model is a classifier."""
    arms = []
    for k in ("all", "none"):
        fitted = model.fit(*cell(data, "outcome", k))
        probability = hasattr(fitted, "predict_proba")
        arms.append(fitted.predict_proba(X)[:, 1] if probability else fitted.predict(X))
    return arms[0] - arms[1]


@pytest.fixture(scope="module")
def real():
    return problem().draw(300, random_state=0)


@pytest.fixture(scope="module")
def binary():
    return problem(binary=True).draw(300, random_state=0)


# --- estimators that model the policies ------------------------------------------------------


def test_plug_in_is_the_t_learner(real, binary):
    model = PlugInUplift(outcome_model=LinearRegression()).fit(**real)
    assert_allclose(
        model.predict(NEW), t_learner(LinearRegression(), real, NEW), rtol=1e-9
    )
    model = PlugInUplift().fit(**binary)
    scaled, new = scaled_by(model, binary)
    assert_allclose(
        model.predict(NEW), t_learner(LogisticRegression(), scaled, new), rtol=1e-12
    )


@pytest.mark.parametrize("first_stage", [None, LogisticRegression()])
def test_two_stage_is_the_t_learner_of_linear_regressions(real, first_stage):
    """The first stage finds T phi = s phi exactly, and the second is saturated in s."""
    model = TwoStageUplift(first_stage=first_stage).fit(**real)
    assert_allclose(
        model.predict(NEW), t_learner(LinearRegression(), real, NEW), rtol=1e-9
    )
    treated, untreated = model.predict_outcomes(NEW)
    for found, k in ((treated, "all"), (untreated, "none")):
        arm = LinearRegression().fit(*cell(real, "outcome", k))
        assert_allclose(found, arm.predict(NEW), rtol=1e-9)


def test_two_stage_errors_are_those_of_two_separate_regressions(real):
    """A first stage without error leaves the usual robust errors of each arm; arms add up."""
    found = TwoStageUplift().fit(**real).coefficients_.covariance
    parts = []
    for k in ("all", "none"):
        X, y = cell(real, "outcome", k)
        D = np.column_stack([np.ones(len(X)), X])
        a, *_ = np.linalg.lstsq(D, y, rcond=None)
        inverse, score = np.linalg.inv(D.T @ D), D * (y - D @ a)[:, None]
        parts.append(inverse @ score.T @ score @ inverse)
    assert_allclose(found[:3, :3], parts[1], rtol=1e-8, atol=1e-14)  # without treatment
    assert_allclose(found[3:, 3:], parts[0] + parts[1], rtol=1e-8, atol=1e-14)


def test_density_of_two_values_is_the_t_learner_of_the_classifier(binary):
    model = DensityUplift().fit(**binary)
    scaled, new = scaled_by(model, binary)
    assert_allclose(
        model.predict(NEW), t_learner(LogisticRegression(), scaled, new), rtol=1e-12
    )
    laws = model.predict_density(NEW)
    for law, k in ((laws.treated, "all"), (laws.untreated, "none")):
        arm = LogisticRegression().fit(*cell(scaled, "outcome", k))
        assert_allclose(law, arm.predict_proba(new), rtol=1e-12)


def test_density_of_a_real_outcome_is_the_t_learner_of_the_density_estimator(real):
    """Each arm's law is its population's; the grid's ends cut off 1e-5 of a range of 15."""
    model = DensityUplift(
        n_centers=30, width_x=1.0, width_y=0.5, ridge=0.01, random_state=0
    ).fit(**real)
    Z = model.scaling_(NEW)
    first, second = (law.mean(Z) for law in model.outcome_densities_)
    assert_allclose(
        model.predict(NEW),
        model.outcome_scaling_.scale[0] * (first - second),
        atol=1e-3,
    )
    assert (model.predict_density(NEW).treated >= 0.0).all()  # nothing was subtracted


# --- the min-max estimator -------------------------------------------------------------------


def vanishing(basis, data):
    """Coefficients for ridges that have no say."""
    ridges = {"ridge_f": 1e-13, "ridge_g": 1e-13}
    model = MinMaxUplift(basis=basis, **ridges, center=False, standardize=False)
    return model.fit(**data).coef_


def gram(basis, X):
    phi = basis(X)
    return phi.T @ phi / len(X)


def arm(basis, data, k):
    """Least-squares coefficients of one outcome table, without a further intercept."""
    X, y = cell(data, "outcome", k)
    return np.linalg.lstsq(basis(X), y, rcond=None)[0]


def same_people(data, *, everywhere=False):
    """Let treatment tables hold the outcome tables' features, or all tables the first's."""
    X = np.array(data.X)
    source = {
        k: X[data.rows("outcome", "all" if everywhere else k)] for k in ("all", "none")
    }
    for kind in ("outcome", "treatment"):
        for k, features in source.items():
            X[data.rows(kind, k)] = features
    return {**dict(data), "X": X}


def test_min_max_without_ridges_is_the_closed_form():
    """alpha = Gt^-1 (G_1 a_1 - G_2 a_2), every cell divided by its own size."""
    for basis in BASES:
        for sizes in ("equal", "unequal"):
            n = 300
            if sizes == "unequal":
                n = {
                    ("outcome", "all"): 100,
                    ("outcome", "none"): 400,
                    ("treatment", "all"): 250,
                    ("treatment", "none"): 150,
                }
            data = problem().draw(n, random_state=0)
            Gt = (
                sum(gram(basis, cell(data, "treatment", k)[0]) for k in ("all", "none"))
                / 2.0
            )
            G_1, G_2 = (
                gram(basis, cell(data, "outcome", k)[0]) for k in ("all", "none")
            )
            a_1, a_2 = (arm(basis, data, k) for k in ("all", "none"))
            expected = np.linalg.solve(Gt, G_1 @ a_1 - G_2 @ a_2)
            assert_allclose(vanishing(basis, data), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("basis", BASES)
def test_on_the_same_people_it_is_the_regression_of_twice_z(real, basis):
    data = same_people(real)
    outcome = np.asarray(real.kind) == "outcome"
    sign = np.where(np.asarray(real.population) == "all", 1.0, -1.0)
    phi, z = basis(data["X"][outcome]), (sign * real.y)[outcome]
    expected = np.linalg.lstsq(phi, 2.0 * z, rcond=None)[0]
    found = vanishing(basis, data)
    assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    G_1, G_2 = (gram(basis, cell(real, "outcome", k)[0]) for k in ("all", "none"))
    a_1, a_2 = (arm(basis, real, k) for k in ("all", "none"))
    away = np.linalg.solve((G_1 + G_2) / 2.0, (G_1 - G_2) @ (a_1 + a_2)) / 2.0
    assert_allclose(found - (a_1 - a_2), away, rtol=1e-5, atol=1e-6)
    assert np.abs(away).max() > 0.01  # it is not the T-learner yet


@pytest.mark.parametrize("basis", BASES)
def test_with_the_same_features_in_both_populations_it_is_the_t_learner(real, basis):
    data = same_people(real, everywhere=True)
    X = data["X"][real.rows("outcome", "all")]
    a_1, a_2 = (
        np.linalg.lstsq(basis(X), cell(real, "outcome", k)[1], rcond=None)[0]
        for k in ("all", "none")
    )
    assert_allclose(vanishing(basis, data), a_1 - a_2, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.statistical
def test_min_max_comes_to_the_t_learner_as_rows_grow():
    """Gram matrices of n rows differ by O(1/sqrt(n)): 16 times the rows, a quarter of the way.

    Of 30 draws each, a mean distance is known to about 0.5 / sqrt(30) = 9 percent, the ratio of
    two to 13, so that 4 is found within three times that: between 2.4 and 5.6.
    """

    def distance(n, seed):
        data = problem().draw(n, random_state=seed)
        a_1, a_2 = (arm(BASES[0], data, k) for k in ("all", "none"))
        return np.linalg.norm(vanishing(BASES[0], data) - (a_1 - a_2))

    small, large = (np.mean([distance(n, s) for s in range(30)]) for n in (150, 2400))
    assert 2.4 < small / large < 5.6
