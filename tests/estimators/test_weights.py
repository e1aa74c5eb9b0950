"""Weights say how much a row counts beside the other rows of its table, and nothing else."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge

import unjoined as uj
from unjoined import SeparateLabels
from unjoined.data.rows import separate_labels

pytestmark = pytest.mark.usefixtures("two_folds")

# Rounding, magnified by solvers that stop at a tolerance.
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
SEED = {"random_state": 0}
ONE = {"random_state": 0, "n_jobs": 1}


def _brief(model):
    """Return networks that stop after a few steps: the law holds at any of them."""
    return model.set_params(outcome_model__max_iter=5, treatment_model__max_iter=5)


REAL = {
    "minmax": uj.MinMaxUplift(**ONE),
    "minmax-huber": uj.MinMaxUplift(basis="linear", loss="huber", **ONE),
    "minmax-absolute": uj.MinMaxUplift(basis="linear", loss="absolute", **ONE),
    "minmax-bounds": uj.MinMaxUplift(bounds=(-1.0, 2.0), **ONE),
    "minmax-centred-by-a-model": uj.MinMaxUplift(center=Ridge(), **ONE),
    "minmax-classifier": uj.MinMaxUplift(shift="classifier", **ONE),
    "minmax-gau": uj.MinMaxGau(**SEED),
    "plugin": uj.PlugInUplift(**SEED),
    "four-ridge": uj.FourRidge(**SEED),
    "four-nnr": _brief(uj.FourNNR(**SEED)),
    "density": uj.DensityUplift(n_centers=20, **SEED),
    "two-stage": uj.TwoStageUplift(**SEED),
    "two-stage-constant": uj.TwoStageUplift(effect="constant", **SEED),
    "two-stage-penalised": uj.TwoStageUplift(
        basis="gaussian",
        first_stage=LogisticRegression(),
        second_stage=Ridge(0.1),
        **SEED,
    ),
    "weighted": uj.WeightedUplift(**SEED),
    "mixture-mean": uj.Uplift(**ONE),
    "mixture-gaussian": uj.Uplift(family="gaussian", **ONE),
    "em": uj.EMUplift(
        family="gaussian",
        outcome_model=Ridge(),
        policy_model=LogisticRegression(),
        random_state=0,
    ),
}
TWO_VALUES = {
    "plugin-classifiers": uj.PlugInUplift(**SEED),
    "four-logistic": uj.FourLogistic(**SEED),
    "four-nnc": _brief(uj.FourNNC(**SEED)),
    "density-two-values": uj.DensityUplift(**SEED),
    "weighted-two-values": uj.WeightedUplift(**SEED),
    "mixture-bernoulli": uj.Uplift(**ONE),
}
ESTIMATORS = {
    name: (model, binary)
    for models, binary in ((REAL, False), (TWO_VALUES, True))
    for name, model in models.items()
}


def tables(*, binary=False, n=120):
    """Return ``n`` labelled rows and a few target rows, and weights for them."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n + 20, 2))
    row = np.arange(len(X))
    kind = np.where(row // 2 % 2, "outcome", "treatment")
    population = row % 2
    treated = rng.random(len(X)) < np.where(population == 0, 0.85, 0.2)
    y = X[:, 0] + treated * (1.0 + X[:, 1]) + 0.5 * rng.standard_normal(len(X))
    if binary:
        y = (y > 0.5).astype(float)
    label = np.where(kind == "outcome", y, treated)
    kind[n:] = "target"
    named = np.where(kind == "target", np.nan, population)
    data = {"X": X, **separate_labels(label, kind), "population": named}
    return data, rng.uniform(0.5, 1.5, len(X))


def scales(data):
    """Return ways to rescale weights: all alike, and each table by another number."""
    n = len(data["y"])
    target = np.isnan(data["population"])
    cell = np.where(~np.isnan(data["y"]), 0, 2) + np.where(
        target, 0, data["population"]
    ).astype(int)
    each = np.where(target, 3e3, np.array([1e-6, 1.0 / n, 2.0, 1e6])[cell])
    return {"1e-6": 1e-6, "each table its own": each}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_equal_weights_are_none_weight_zero_is_no_row_and_units_do_not_matter(name):
    model, binary = ESTIMATORS[name]
    data, weight = tables(binary=binary)
    new = np.random.default_rng(4).standard_normal((20, 2))
    none = clone(model).fit(**data).predict(new)
    equal = (
        clone(model).fit(**data, sample_weight=np.full(len(weight), 0.3)).predict(new)
    )
    np.testing.assert_allclose(equal, none, **CLOSE)
    absent = np.arange(len(weight)) % 9 == 4
    scaled = scales(data)["each table its own"] * np.where(absent, 0.0, weight)
    zero = clone(model).fit(**data, sample_weight=scaled).predict(new)
    rest = {key: column[~absent] for key, column in data.items()}
    left_out = clone(model).fit(**rest, sample_weight=weight[~absent]).predict(new)
    np.testing.assert_allclose(zero, left_out, **CLOSE)


@pytest.mark.filterwarnings("ignore")
def test_networks_do_not_see_the_unit_of_the_weights():
    pytest.importorskip("torch")
    model = uj.NeuralMinMaxUplift(max_epochs=2, n_hidden=4, random_state=0)
    data, weight = tables()
    expected = clone(model).fit(**data, sample_weight=weight).predict(data["X"])
    for scale in (1e-6, scales(data)["each table its own"]):
        found = (
            clone(model).fit(**data, sample_weight=scale * weight).predict(data["X"])
        )
        np.testing.assert_allclose(found, expected, **CLOSE)


def _risks(data, weight, *, binary):
    """Return every score and measure that takes separate labels and weights."""
    labelled = {**data, "sample_weight": weight}
    f = data["X"][:, 0]
    held = uj.evaluate.HeldOutRows.from_data(**labelled, n_folds=2)
    scores = [
        held.score(f, name)
        for name in ("weighted_risk", "outcome_risk", "fixed_critic")
    ]
    if binary:
        return np.array(scores)
    linear = uj.MinMaxUplift(
        basis="linear", center=False, ridge_f=0.1, ridge_g=0.1, **ONE
    )
    linear.fit(**data)
    strength = uj.identification_strength(**labelled)
    return np.array(
        [
            *scores,
            uj.evaluate.minmax_objective(f, 0.5 * f, **labelled),
            held.difference(f, 0 * f, "outcome_risk").standard_error,
            uj.paper.error_bound(linear, labelled, min_gap=0.2).bound,
            strength.f_statistic,
            strength.rms_gap,
            strength.mean_gap,
        ]
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("binary", [False, True])
def test_the_unit_of_the_weights_changed_a_risk(binary):
    data, weight = tables(binary=binary)
    expected = _risks(data, weight, binary=binary)
    for scale in (1e-6, scales(data)["each table its own"]):
        found = _risks(data, scale * weight, binary=binary)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    none = _risks(data, None, binary=binary)
    equal = _risks(data, np.full(len(weight), 3.0), binary=binary)
    np.testing.assert_allclose(equal, none, rtol=1e-9)


@pytest.mark.filterwarnings("ignore")
def test_a_likelihood_does_not_see_the_unit_of_the_weights():
    data, weight = tables()
    models = {
        "outcome_model": Ridge(),
        "policy_model": LogisticRegression(),
        "n_starts": 1,
    }
    mixture = uj.EMUplift(family="gaussian", **models, random_state=0).fit(**data)
    expected = mixture.score(**data, sample_weight=weight)
    assert mixture.score(**data, sample_weight=1e-6 * weight) == pytest.approx(
        expected, rel=1e-9
    )


def test_weights_divided_by_their_number_reversed_the_order_of_four_logistic():
    problem = uj.data.campaign_problem()
    data = problem.draw(1000, random_state=0)
    new = problem.draw_joint(4000, random_state=1)
    weight = np.random.default_rng(0).uniform(0.5, 1.5, len(data.y))
    share = []
    for scale in (1.0, 1.0 / len(weight)):
        model = uj.FourLogistic(random_state=0).fit(
            **data, sample_weight=scale * weight
        )
        share.append(
            uj.evaluate.qini(model.predict(new.X), new.uplift, normalize=True).value
        )
    assert share[0] == pytest.approx(share[1], abs=1e-9)


@pytest.mark.filterwarnings("ignore::unjoined.errors.UnjoinedWarning")
def test_weights_whose_sum_is_no_number_any_more_are_still_weights():
    data, weight = tables()
    expected = uj.PlugInUplift(random_state=0).fit(**data, sample_weight=weight)
    found = uj.PlugInUplift(random_state=0).fit(
        **data, sample_weight=1e308 * weight / 1.5
    )
    np.testing.assert_allclose(
        found.predict(data["X"]), expected.predict(data["X"]), rtol=1e-9
    )


N = 800


def table(*, discrete=False):
    rng = np.random.default_rng(7)
    row = np.arange(N)
    kind = np.where(row // 2 % 2, "outcome", "treatment")
    population = row % 2
    X = rng.standard_normal((N, 2))
    if discrete:
        X = np.rint(X[:, :1]).clip(-1.0, 1.0)
    treated = rng.random(N) < np.where(population == 0, 0.9, 0.2)
    y = X[:, 0] + treated + 0.5 * rng.standard_normal(N)
    label = np.where(kind == "outcome", np.rint(y) if discrete else y, treated)
    data = {"X": X, **separate_labels(label, kind), "population": population}
    return data, rng.uniform(0.5, 1.5, N)


def fit(data, weight, *, dask=False, **settings):
    columns = {**data, "sample_weight": weight}
    model = uj.MinMaxUplift(random_state=0, n_jobs=1, **settings)
    if not dask:
        return model.fit(SeparateLabels(**columns, stream=170))
    da = pytest.importorskip("dask.array")
    lazy = {
        name: da.from_array(column, chunks=(250, *np.shape(column)[1:]))
        for name, column in columns.items()
        if column is not None
    }
    return model.fit(SeparateLabels(**lazy))


@pytest.mark.parametrize(
    ("sample_rows", "settings"),
    [(100, {}), (10_000, {"center": Ridge()})],
    ids=["smooth", "model"],
)
def test_weights_in_other_units_drew_another_sample(sample_rows, settings, limits):
    limits("estimators.minmax", SAMPLE_ROWS=sample_rows)
    data, weight = table()
    cell = np.where(~np.isnan(data["y"]), 0, 2) + data["population"]
    expected = fit(data, weight, **settings).predict(data["X"])
    for scale in (1e6, np.array([1e-6, 1.0 / N, 2.0, 1e6])[cell]):
        found = fit(data, scale * weight, **settings)
        np.testing.assert_allclose(
            found.predict(data["X"]), expected, rtol=1e-7, atol=1e-9
        )
    none = fit(data, None, **settings).predict(data["X"])
    equal = fit(data, np.full(N, 0.3), **settings).predict(data["X"])
    np.testing.assert_allclose(equal, none, rtol=1e-7, atol=1e-9)


def test_a_row_of_weight_zero_is_as_good_as_absent_in_chunks():
    data, weight = table()
    absent = np.arange(N) % 7 == 3
    found = fit(data, np.where(absent, 0.0, weight)).predict(data["X"])
    rest = {name: column[~absent] for name, column in data.items()}
    expected = fit(rest, weight[~absent]).predict(data["X"])
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


def test_copies_of_a_row_with_other_weights_do_not_depend_on_chunks_and_units():
    """A handful of distinct rows, every one with a weight of its own."""
    data, weight = table(discrete=True)
    model = fit(data, weight)
    expected = model.predict(data["X"])
    cut = SeparateLabels(**data, sample_weight=weight, stream=77)
    other = uj.MinMaxUplift(random_state=0, n_jobs=1).fit(cut)
    for found in (other, fit(data, 1e-6 * weight)):
        np.testing.assert_allclose(
            found.predict(data["X"]), expected, rtol=1e-6, atol=1e-8
        )
    strength = uj.identification_strength(**data, sample_weight=weight)
    assert model.identification_.f_statistic == pytest.approx(
        strength.f_statistic, rel=1e-9
    )
    assert model.identification_.rms_gap == pytest.approx(strength.rms_gap, rel=1e-9)


@pytest.mark.parametrize("discrete", [False, True])
def test_partitions_and_chunks_agree_whatever_the_weights(discrete):
    data, weight = table(discrete=discrete)
    chunks, parts = (fit(data, weight, dask=dask) for dask in (False, True))
    expected = chunks.predict(data["X"])
    np.testing.assert_allclose(parts.predict(data["X"]), expected, rtol=1e-6, atol=1e-8)
    f = chunks.identification_.f_statistic
    assert parts.identification_.f_statistic == pytest.approx(f, rel=1e-9)
    other = fit(data, 1e-6 * weight, dask=True).predict(data["X"])
    np.testing.assert_allclose(other, expected, rtol=1e-6, atol=1e-8)
