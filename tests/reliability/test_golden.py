"""Models that released versions wrote stay readable, and predict what they predicted."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose

import unjoined
from unjoined import MinMaxUplift, TwoStageUplift, Uplift, load_model, save_model
from unjoined.data import paper_problem

GOLDEN = Path(__file__).parent / "golden"
MODELS = {
    "minmax": lambda: MinMaxUplift(n_centers=5, random_state=0),
    "mixture": lambda: Uplift(random_state=0),
    "two-stage": lambda: TwoStageUplift(),
    "table": lambda: TwoStageUplift(),
}


def as_table(X):
    """Return a table with numbers, times and categories."""
    times = (1e6 * X[:, 0]).astype("datetime64[s]")
    words = np.array(["low", "middle", "high"])[np.digitize(X[:, 1], [-3.0, 3.0])]
    return pa.table({"sum": X.sum(axis=1), "time": times, "word": words})


def rows(name):
    X = np.random.default_rng(0).uniform(-10.0, 10.0, (20, 2))
    return as_table(X) if name == "table" else X


def fitted(name):
    data = paper_problem().draw(100, random_state=0)
    X = as_table(data.X) if name == "table" else data.X
    return MODELS[name]().fit(
        X, y=data.y, treatment=data.treatment, population=data.population
    )


@pytest.mark.parametrize("version", ["0.1.0"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_a_released_version_is_read_and_predicts_the_same(version, name):
    """`python tests/reliability/test_golden.py` writes those of the present version."""
    folder = GOLDEN / version
    model = load_model(folder / f"{name}.skops")
    wanted = json.loads((folder / "predictions.json").read_text())[name]
    assert_allclose(model.predict(rows(name)), wanted, rtol=1e-9, atol=1e-12)
    assert model.run_["versions"]["unjoined"] == version
    said = {name: repr(value) for name, value in model.get_params().items()}
    assert model.run_["settings"].items() <= said.items()
    assert model.summary()
    if name == "mixture":
        low, high = model.gain_.everyone().interval()
        assert low < model.average_effect_.value < high


def write():
    """Write the models of the present version, once, when it is released."""
    folder, predictions = GOLDEN / unjoined.__version__, {}
    folder.mkdir(parents=True)
    for name in MODELS:
        model = fitted(name)
        save_model(model, folder / f"{name}.skops")
        predictions[name] = model.predict(rows(name)).tolist()
    (folder / "predictions.json").write_text(json.dumps(predictions, indent=1) + "\n")


if __name__ == "__main__":
    write()
