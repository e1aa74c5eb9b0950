"""The default fitted to rows that come in chunks: the same whatever the chunks, and on Dask."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit

from unjoined import PlugInUplift, SeparateLabels, Uplift, load_model, save_model
from unjoined.data import SimulatedProblem
from unjoined.data.rows import separate_labels
from unjoined.errors import InputError, TableError
from unjoined.model.census import take_census

pytestmark = pytest.mark.usefixtures("two_folds")

SAMPLE = 300  # rows of a table that settle forms and scales, of 1,000
POLICIES = {
    "a": lambda X: expit(1.0 + 0.5 * X[:, 0]),
    "b": lambda X: expit(-1.0 + 0.5 * X[:, 1]),
    "c": lambda X: np.ones(len(X)),
}


LINKS = {
    "binary": expit,
    "real": np.asarray,
    "counts": lambda level: np.exp(0.5 * level),
}


def problem(kind, names=("a", "b")):
    def mean(X, treated):
        base = 0.5 * X[:, 0] - 0.3 * X[:, 1] ** 2
        return LINKS[kind](base + treated * (0.4 + 0.9 * X[:, 1]))

    def outcome(X, treated, rng):
        if kind == "binary":
            return 1.0 * (rng.random_sample(len(X)) < mean(X, treated))
        if kind == "counts":
            return 1.0 * rng.poisson(mean(X, treated))
        return mean(X, treated) + rng.standard_normal(len(X))

    policies = {name: POLICIES[name] for name in names}
    return SimulatedProblem(
        lambda n, rng: rng.standard_normal((n, 2)), policies, outcome, mean
    )


def rows(data, order=None):
    order = np.arange(len(data["y"])) if order is None else order
    return {name: np.asarray(data[name])[order] for name in data}


DATA = {kind: problem(kind).draw(1000, random_state=0) for kind in LINKS}
X_NEW = np.random.default_rng(1).standard_normal((200, 2))


@pytest.fixture(scope="module", autouse=True)
def small_sample():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unjoined.estimators.uplift.SAMPLE_ROWS", SAMPLE)
        yield


def fit(data, **options):
    return Uplift(n_jobs=1, random_state=0).fit(data, **options)


@pytest.fixture(scope="module", params=LINKS)
def known(request):
    data = DATA[request.param]
    return data, fit(SeparateLabels(**data, stream=True))


def test_chunks_and_which_table_comes_first_change_nothing_but_rounding(known):
    data, model = known
    order = np.argsort(np.asarray(data.kind) == "outcome", kind="stable")
    other = fit(SeparateLabels(**rows(data, order), stream=333))
    assert_allclose(other.predict(X_NEW), model.predict(X_NEW), rtol=0, atol=1e-8)


def test_dask_gives_the_same(known):
    da = pytest.importorskip("dask.array")
    data, model = known
    columns = {
        name: da.from_array(np.asarray(data[name]), chunks=700)
        for name in ("y", "treatment", "population")
    }
    source = SeparateLabels(
        da.from_array(np.asarray(data.X), chunks=(700, 2)), **columns
    )
    assert_allclose(fit(source).predict(X_NEW), model.predict(X_NEW), rtol=0, atol=1e-8)


def test_threads_change_nothing(known):
    data, model = known
    two = Uplift(n_jobs=2, random_state=0).fit(SeparateLabels(**data, stream=True))
    np.testing.assert_array_equal(two.predict(X_NEW), model.predict(X_NEW))


def test_all_rows_have_a_say_and_not_only_the_sample(known):
    """At the end the penalised likelihood of all rows is flat: another pass promises nothing."""
    data, model = known
    assert model.fit_.converged
    assert sum(member.weight for member in model.fit_.members) == pytest.approx(1.0)
    census = take_census(
        SeparateLabels(**data, stream=True).chunks(), sample_rows=SAMPLE
    )
    sampled = census.cells["outcome", "a"].number
    place = data.rows("outcome", "a")[np.setdiff1d(np.arange(1000), sampled)[:50]]
    y = np.array(data.y)
    y[place] = y[place].max()
    assert (
        np.ptp(
            fit(SeparateLabels(**dict(data) | {"y": y}, stream=True)).predict(X_NEW)
            - model.predict(X_NEW)
        )
        > 1e-4
    )


def test_a_sample_that_holds_all_rows_is_fitted_as_in_memory():
    data = problem("binary").draw(200, random_state=3)
    model = fit(SeparateLabels(**data, stream=True))
    assert len(model.fit_.members) == 2 * len(
        model.candidates_.kept
    )  # every form and fold
    assert model.sampled_rows_ is None
    in_memory = Uplift(n_jobs=1, random_state=0).fit(**data)
    np.testing.assert_array_equal(model.predict(X_NEW), in_memory.predict(X_NEW))


def test_what_was_measured_on_a_sample_is_said_so(known):
    _, model = known
    assert model.sampled_rows_ == 4 * SAMPLE
    assert f"measured on a sample of {4 * SAMPLE:,} rows" in model.summary()


def test_populations_may_be_three_and_one_of_them_treated_throughout():
    data = problem("real", names="abc").draw(500, random_state=0)
    model = fit(SeparateLabels(**data, stream=400))
    assert model.populations_ == ["a", "b", "c"]
    np.testing.assert_array_equal(model.predict_policies(X_NEW)[:, 2], 1.0)
    assert np.corrcoef(model.predict(X_NEW), X_NEW[:, 1])[0, 1] > 0.8


def test_weights_in_other_units_change_nothing(known):
    data, model = known
    weight = np.where(np.asarray(data.kind) == "outcome", 7.0, 0.5)
    weighted = fit(SeparateLabels(**data, sample_weight=weight, stream=True))
    assert_allclose(weighted.predict(X_NEW), model.predict(X_NEW), rtol=0, atol=1e-8)


class Breaks:
    """A function that makes chunks, and fails in one of the passes."""

    def __init__(self, data, in_pass):
        self.data, self.in_pass, self.n_passes = rows(data), in_pass, 0

    def __call__(self):
        self.n_passes += 1
        if self.n_passes == self.in_pass:
            raise OSError("the disk is gone")
        return [self.data]


def test_a_checkpoint_goes_on_where_the_fit_stopped(known, tmp_path):
    data, model = known
    file = tmp_path / "passes"
    with pytest.raises(OSError, match="the disk is gone"):
        fit(SeparateLabels.from_chunks(Breaks(data, 5)), checkpoint=file)
    assert file.exists()
    whole, rest = Breaks(data, 0), Breaks(data, 0)
    fit(SeparateLabels.from_chunks(whole))
    again = fit(SeparateLabels.from_chunks(rest), checkpoint=file)
    assert (
        rest.n_passes == whole.n_passes - 3
    )  # the census is taken again, three passes are not
    np.testing.assert_array_equal(again.predict(X_NEW), model.predict(X_NEW))
    assert not file.exists()


def test_a_checkpoint_of_another_fit_is_refused(tmp_path):
    file = tmp_path / "passes"
    with pytest.raises(OSError, match="disk"):
        fit(SeparateLabels.from_chunks(Breaks(DATA["binary"], 4)), checkpoint=file)
    with pytest.raises(TableError, match="belongs to another fit"):
        fit(SeparateLabels(**DATA["real"], stream=True), checkpoint=file)
    file.write_bytes(b"nothing of ours")
    with pytest.raises(TableError, match="is not a checkpoint of this fit"):
        fit(SeparateLabels(**DATA["binary"], stream=True), checkpoint=file)


@pytest.mark.parametrize("change", ["X", "y", "sample_weight"])
def test_a_checkpoint_notices_a_changed_row_outside_of_the_sample(tmp_path, change):
    """One row of 4,000; of each table 300 are in the sample, and few changes enter it."""
    data, file = rows(DATA["real"]), tmp_path / "passes"
    data["sample_weight"] = np.ones(len(data["y"]))
    with pytest.raises(OSError, match="disk"):
        fit(SeparateLabels.from_chunks(Breaks(data, 4)), checkpoint=file)
    at = np.flatnonzero(~np.isnan(data["y"]))[-2:]
    data[change] = data[change].copy()
    data[change][at] = 1.5 if change != "sample_weight" else [0.5, 1.5]
    with pytest.raises(TableError, match="the source has changed"):
        fit(SeparateLabels(**data, stream=True), checkpoint=file)


def test_a_source_that_empties_is_refused():
    sources = iter([[rows(DATA["binary"])], []])
    with pytest.raises(TableError, match="had rows before and has none now"):
        fit(SeparateLabels.from_chunks(lambda: next(sources)))


def test_what_needs_all_rows_in_memory_is_refused(tmp_path):
    data = SeparateLabels(**DATA["binary"], stream=True)
    with pytest.raises(InputError, match="shift='classifier' needs all rows in memory"):
        Uplift(shift="classifier").fit(data)
    with pytest.raises(
        InputError, match=r"PlugInUplift needs all rows in memory, .* streamed"
    ):
        PlugInUplift().fit(data)
    for model in (Uplift(), PlugInUplift()):  # by likelihood, and by risk
        with pytest.raises(
            InputError, match="score needs all rows in memory, and these are stre"
        ):
            model.score(data)
    with pytest.raises(InputError, match="checkpoint is for streamed rows"):
        fit(DATA["binary"], checkpoint=tmp_path / "c")


def test_a_checkpoint_needs_a_seed(tmp_path):
    with pytest.raises(InputError, match="needs an integer random_state"):
        Uplift().fit(
            SeparateLabels(**DATA["binary"], stream=True), checkpoint=tmp_path / "c"
        )


def test_pairs_that_were_screened_on_the_sample_are_fitted_to_all_rows(tmp_path):
    """Sixteen features have more pairs than are used; chunks and files must agree on which."""
    rng = np.random.RandomState(0)
    n = 400
    kind = np.repeat(["outcome", "treatment"], 2 * n)
    population = np.tile(np.repeat(["A", "B"], n), 2)
    X = rng.standard_normal((4 * n, 16))
    treated = rng.random_sample(4 * n) < np.where(population == "A", 0.9, 0.1)
    y = 3.0 * treated * np.sign(X[:, 3] * X[:, 8]) + rng.standard_normal(4 * n)
    labels = separate_labels(np.where(kind == "outcome", y, treated), kind)
    model = fit(SeparateLabels(X, **labels, population=population, stream=True))
    assert model.sampled_rows_ == 4 * SAMPLE
    assert model.candidates_.name[0] == "pairs"
    assert set(np.argsort(-model.effect_features_)[:2]) == {3, 8}
    save_model(model, tmp_path / "wide.unjoined")
    np.testing.assert_array_equal(
        load_model(tmp_path / "wide.unjoined").predict(X), model.predict(X)
    )
