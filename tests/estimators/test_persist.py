"""Models on disk: what comes back predicts the same, and foreign files are refused."""

import json
import pickle
import re
import zipfile

import numpy as np
import pytest
import sklearn
import skops.io
from numpy.testing import assert_array_equal
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from unjoined import (
    DensityUplift,
    EMUplift,
    FourLogistic,
    FourNNC,
    FourNNR,
    FourRidge,
    MinMaxUplift,
    NeuralMinMaxUplift,
    PlugInUplift,
    TwoStageUplift,
    Uplift,
    WeightedUplift,
    load_model,
    save_model,
)
from unjoined.data import campaign_problem, paper_problem
from unjoined.data.rows import separate_labels
from unjoined.errors import InputError, TableError
from unjoined.estimators.persist import LIVES_AT
from unjoined.paper import HuberLoss, SmoothLoss

pytestmark = pytest.mark.usefixtures("two_folds")

# What files of earlier versions call our types. Names may be added, none may go.
STORED = """
AbsoluteLoss AdditiveAverage AdditiveBasis AdditiveFit AdditiveMean BernoulliFamily BoundsReport
CellShift ConditionalDensity ConditionalMean Curve DensitySearch DensityUplift EMFit Estimate
FourierBasis GaussianBasis GaussianFamily HuberLoss IdentificationStrength LinearBasis LossReport
MeanFamily Member MinMaxSearch MinMaxUplift NeuralMinMaxUplift OutcomeCoding Parts PinballLoss
PlugInUplift PrincipalBasis RiskPath Scales Scaling ShiftReport SpecificationTable SquaredLoss
StackedBasis TwoStageCoefficients TwoStageUplift Uplift WeightedUplift
"""


def test_names_in_files_stay():
    assert {f"unjoined.{name}" for name in STORED.split()} <= LIVES_AT.keys()


# Networks that stop after a few steps are written as others are.
BRIEF = {"outcome_model__max_iter": 5, "treatment_model__max_iter": 5}


@pytest.fixture(scope="module")
def data():
    return paper_problem().draw(200, random_state=0)


@pytest.mark.filterwarnings("ignore::unjoined.errors.RatioGuardWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "model",
    [
        MinMaxUplift(random_state=0),
        MinMaxUplift(basis="fourier", random_state=0),
        MinMaxUplift(basis="linear"),
        PlugInUplift(),
        FourLogistic(),
        FourNNC(random_state=0).set_params(**BRIEF),
        FourRidge(),
        FourNNR(random_state=0).set_params(**BRIEF),
        TwoStageUplift(),
        DensityUplift(random_state=0),
        NeuralMinMaxUplift(max_epochs=2, random_state=0),
        Uplift(random_state=0),
        WeightedUplift(random_state=0),
        EMUplift(outcome_model=LogisticRegression(), random_state=0),
        MinMaxUplift(bounds="auto", random_state=0),
        MinMaxUplift(loss=HuberLoss(0.5), shift="classifier", random_state=0),
    ],
    ids=repr,
)
def test_a_loaded_model_predicts_the_same_bits_and_its_file_says_no_private_name(
    model, data, tmp_path
):
    fitted = model.fit(**data)
    path = save_model(fitted, tmp_path / "model.skops")
    schema = zipfile.ZipFile(path).read("schema.json").decode()
    ours = set(re.findall(r'"__module__": "(unjoined[^"]*)"', schema))
    assert json.loads(schema)["__module__"] == "unjoined"
    assert ours == {"unjoined"}
    assert not re.search(r"unjoined\.\w+\.[a-z]", schema)
    loaded = load_model(path)
    assert_array_equal(loaded.predict(data.X), fitted.predict(data.X))
    assert loaded.identification_ == fitted.identification_
    assert loaded.populations_ == fitted.populations_


def test_a_model_of_very_many_features_is_written(tmp_path):
    """Its linear part is made of their principal components."""
    rng = np.random.default_rng(0)
    X, population = rng.standard_normal((640, 120)), np.arange(640) % 2
    kind = np.repeat(["outcome", "treatment"], 320)
    treated = rng.random(640) < np.where(population == 0, 0.9, 0.1)
    y = np.where(kind == "outcome", X[:, 0] + treated, treated)
    model = MinMaxUplift(random_state=0).fit(
        X, **separate_labels(y, kind), population=population
    )
    loaded = load_model(save_model(model, tmp_path / "model.skops"))
    assert_array_equal(loaded.predict(X), model.predict(X))


def test_an_unfitted_model_is_not_written(tmp_path):
    with pytest.raises(NotFittedError):
        save_model(MinMaxUplift(), tmp_path / "model.skops")
    assert list(tmp_path.iterdir()) == []


def test_functions_that_nobody_could_load_are_not_written(data, tmp_path):
    loss = SmoothLoss(
        rho=np.square,
        conjugate=lambda g: g**2 / 4,
        slope=lambda g: g / 2,
        curve=lambda g: 0 * g + 0.5,
    )
    model = MinMaxUplift(basis="linear", loss=loss).fit(**data)
    with pytest.raises(
        TableError, match=r"the parameter loss holds a function .*<lambda>"
    ):
        save_model(model, tmp_path / "model.skops")
    assert list(tmp_path.iterdir()) == []


def test_a_record_whose_numbers_do_not_belong_together_is_refused(data, tmp_path):
    """As it comes from a file of another version, which makes records without their checks."""
    model = Uplift(random_state=0).fit(data)
    object.__setattr__(model.gain_, "covariance", model.gain_.covariance[0])
    with pytest.raises(TableError, match=r"not \(2, \d+, \d+\). Fit the model again"):
        save_model(model, tmp_path / "model.skops")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(TableError, match=r"there is no model file '.*none.skops'"):
        load_model(tmp_path / "none.skops")


def test_a_pickle_is_refused_and_not_run(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    path = tmp_path / "model.skops"
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(TableError, match="is not a model file of this program"):
        load_model(path)
    assert not (tmp_path / "sprung").exists()


def test_another_zip_file_and_another_estimator_are_refused(tmp_path):
    other = tmp_path / "other.skops"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("a.txt", "hello")
    with pytest.raises(TableError, match="is not a model file"):
        load_model(other)
    skops.io.dump(LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0]), other)
    with pytest.raises(TableError, match="it has no schema, no checksum or no record"):
        load_model(other)


class Unknown(LinearRegression):
    """A model of somebody else's, which skops does not know."""


def test_unknown_types_need_to_be_trusted_by_name(data, tmp_path):
    model = PlugInUplift(
        outcome_model=Unknown(), treatment_model=LinearRegression(), min_gap=0.0
    )
    name, path = f"{Unknown.__module__}.Unknown", tmp_path / "model.skops"
    with pytest.raises(
        TableError, match="not saved, because load_model would refuse its file"
    ):
        save_model(model.fit(**data), path)
    assert not path.exists()
    save_model(model, path, trusted=[name])
    with pytest.raises(TableError, match="types that are not trusted"):
        load_model(path)
    again = load_model(path, trusted=[name])
    assert_array_equal(again.predict(data["X"]), model.predict(data["X"]))


def test_pipelines_of_scikit_learn_are_saved(data, tmp_path):
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(StandardScaler(), TwoStageUplift()).fit(**data)
        again = load_model(save_model(pipeline, tmp_path / "pipeline.skops"))
        assert_array_equal(again.predict(data["X"]), pipeline.predict(data["X"]))
    other = make_pipeline(StandardScaler(), LinearRegression()).fit(
        data["X"], data.checked.label
    )
    with pytest.raises(
        TableError, match="holds a LinearRegression, not an uplift estimator"
    ):
        save_model(other, tmp_path / "other.skops")


def test_failing_to_write_leaves_the_old_file(data, tmp_path, monkeypatch):
    model = MinMaxUplift(random_state=0).fit(**data)
    path = save_model(model, tmp_path / "model.skops")
    before = path.read_bytes()

    def full_disk(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(skops.io, "dump", full_disk)
    with pytest.raises(TableError, match=r"could not be written.*No space left"):
        save_model(model, path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model.skops"]
    assert np.isfinite(load_model(path).predict(data.X)).all()


def centers_of(model):
    basis = model.basis_
    return (
        model.scaling_.mean
        + model.scaling_.scale * getattr(basis, "second", basis).centers
    )


@pytest.mark.parametrize("estimator", [MinMaxUplift, WeightedUplift])
def test_a_file_says_how_many_peoples_rows_it_holds(tmp_path, estimator):
    data = campaign_problem().draw(200, random_state=0)
    X = np.asarray(data.X)
    model = estimator(random_state=0).fit(**data)
    centers = centers_of(model)
    near = np.abs(centers[:, None] - X).max(axis=2).min(axis=1)
    np.testing.assert_allclose(near, 0.0, atol=1e-9)  # each of them is somebody
    for fitted, n in (
        (model, len(centers)),
        (estimator(basis="means", random_state=0).fit(**data), 0),
        (estimator(basis="linear", random_state=0).fit(**data), 0),
        (Uplift(random_state=0).fit(**data), 0),
    ):
        with zipfile.ZipFile(save_model(fitted, tmp_path / "m.skops")) as archive:
            assert json.loads(archive.read("unjoined.json"))["rows_of_the_fit"] == n


@pytest.mark.parametrize("estimator", [MinMaxUplift, WeightedUplift])
def test_centres_that_are_means_are_nobody_and_fit_as_well(estimator):
    """On average over draws: in single ones either is better by up to 0.16."""
    problem = paper_problem(b=5.0)
    found = {"smooth": [], "means": []}
    for seed in range(4):
        data = problem.draw(2000, random_state=seed)
        new = problem.draw_joint(5000, random_state=100 + seed)
        for basis, shares in found.items():
            model = estimator(basis=basis, random_state=0).fit(**data)
            shares.append(np.corrcoef(model.predict(new.X), new.uplift)[0, 1])
    assert np.mean(found["means"]) > np.mean(found["smooth"]) - 0.02
    X, centers = np.asarray(data.X), centers_of(model)
    assert len(centers) > 50
    assert np.abs(centers[:, None] - X).max(axis=2).min() > 1e-9
    # Each is the mean of 20 rows or more, so that no two are nearer than such means can be.
    assert len(centers) <= len(X) // 20


def test_means_need_twenty_rows():
    with pytest.raises(InputError, match="means of 20 rows or more, got 16"):
        MinMaxUplift(basis="means").fit(**paper_problem(b=5.0).draw(4, random_state=0))
