"""Numbers too large, too small or constant: a right answer, or an error naming the column."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from unjoined import DensityUplift, MinMaxUplift, PlugInUplift, Uplift, WeightedUplift
from unjoined.cli.entry import main
from unjoined.data.rows import separate_labels
from unjoined.errors import ColumnWarning, InputError

MODELS = {
    "uplift": Uplift(random_state=0),
    "smooth": MinMaxUplift(random_state=0),
    "fourier": MinMaxUplift(basis="fourier", random_state=0),
    "weighted": WeightedUplift(random_state=0),
    "ratio": PlugInUplift(random_state=0),
    "density": DensityUplift(random_state=0),
}
pytestmark = [
    pytest.mark.usefixtures("two_folds"),
    pytest.mark.filterwarnings("ignore::unjoined.errors.UnjoinedWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


def draw(n=40, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((4 * n, 2))
    kind = np.repeat(["outcome", "treatment"], 2 * n)
    population = np.tile(np.repeat([0, 1], n), 2)
    treated = (rng.random(4 * n) < np.where(population == 0, 0.85, 0.15)).astype(float)
    y = X[:, 0] + treated * (1.0 + X[:, 1]) + 0.3 * rng.standard_normal(4 * n)
    label = np.where(kind == "outcome", y, treated)
    return {"X": X, **separate_labels(label, kind), "population": population}


FITTED = {}


def fitted(name):
    if name not in FITTED:
        FITTED[name] = clone(MODELS[name]).fit(**draw())
    return FITTED[name]


def test_predictions_are_finite_however_far_away_the_rows_are():
    for name in MODELS:
        far = np.array([1.79e308, 1e308, 1e200, 1e150, 1e40, 5e-324, -5e-324])
        far = np.concatenate([far, -far])
        zero = np.zeros_like(far)
        X = np.vstack(
            [np.column_stack(pair) for pair in ((far, far), (far, -far), (zero, far))]
        )
        model = fitted(name)
        assert np.isfinite(model.predict(X)).all()
        if hasattr(model, "predict_outcomes"):
            assert np.isfinite(model.predict_outcomes(X)).all()
        if hasattr(model, "predict_policies"):
            propensity = model.predict_policies(X)
            assert ((propensity >= 0.0) & (propensity <= 1.0)).all()
        if hasattr(model, "critic"):
            assert np.isfinite(model.critic(X)).all()


def test_units_of_the_features_change_nothing_as_far_as_numbers_go():
    for name in ("smooth", "weighted"):
        for unit in (2.0**-996, 2.0**96):
            data = draw()
            model = clone(MODELS[name]).fit(**data | {"X": unit * data["X"]})
            # Powers of two round as one does, but where logarithms or sums of squares come in.
            assert_allclose(
                model.predict(unit * data["X"]),
                fitted(name).predict(data["X"]),
                atol=1e-9,
            )


def test_a_value_far_beyond_those_of_the_fit_is_told():
    """A straight line would go on for ever: 1e25 is a mistake, and so is what it predicts."""
    rng = np.random.default_rng(0)
    X, t = rng.uniform(-1.0, 1.0, (400, 2)), np.arange(400) % 5 < np.repeat([4, 1], 200)
    y, kind = X[:, 0] + t, np.tile(["outcome", "treatment"], 200)
    label = np.where(kind == "outcome", y, t)
    people = np.repeat(["A", "B"], 200)
    model = WeightedUplift(basis="linear", random_state=0).fit(
        X, **separate_labels(label, kind), population=people
    )
    with pytest.warns(
        ColumnWarning, match=r"1 of 3 rows have a value far .* 1e\+25 in column 1"
    ):
        model.predict([[0.0, 0.0], [0.0, 1e25], [1.2, -1.2]])
    model.predict([[0.0, 150.0]])  # beyond, but not absurd


@pytest.mark.parametrize("name", ["uplift", "ratio"])
def test_a_fit_refuses_features_beyond_arithmetic_and_names_the_column(name):
    data = draw()
    frame = pd.DataFrame(data["X"], columns=["age", "spend"])
    frame.loc[5, "spend"] = -1e308
    with pytest.raises(
        InputError, match=r"beyond 1e\+30 in 1 of 160 rows, in 'spend', such as -1"
    ):
        clone(MODELS[name]).fit(**data | {"X": frame})
    with pytest.raises(
        InputError, match=r"beyond 1e\+30 in 1 of 160 rows, in 'column 1'"
    ):
        clone(MODELS[name]).fit(**data | {"X": frame.to_numpy()})


def test_a_fit_refuses_outcomes_beyond_arithmetic_and_names_the_row():
    for name in ("uplift", "ratio"):
        for columns in (np.asarray, list):
            data = draw()
            data["y"][7] = 1e308
            with pytest.raises(
                InputError, match=r"y holds outcomes beyond 1e\+30 .*first at row 7"
            ):
                clone(MODELS[name]).fit(**data | {"y": columns(data["y"])})


@pytest.mark.parametrize(
    "values", [lambda y: y, np.sign], ids=["many values", "two values"]
)
def test_outcomes_whose_squares_vanish_are_refused(values):
    data = draw()
    small = np.where(~np.isnan(data["y"]), 1e-100 * values(data["y"]), data["y"])
    for columns in (np.asarray, list):
        with pytest.raises(InputError, match="Multiply it by a power of ten"):
            MinMaxUplift().fit(**data | {"y": columns(small)})


def test_a_feature_that_varies_by_less_than_can_be_divided_by_is_refused():
    data = draw()
    data["X"][:, 1] *= 1e-310
    with pytest.raises(
        InputError, match=r"feature 1 .* Multiply the column by a power of ten"
    ):
        MinMaxUplift().fit(**data)


def test_of_constant_features_alone_the_uplift_is_constant():
    for name in MODELS:
        data = draw()
        data["X"] = np.full((160, 2), 3.7)
        uplift = clone(MODELS[name]).fit(**data).predict(data["X"])
        assert np.isfinite(uplift).all()
        # Rows that are the same come out the same, but for what a product rounds by its place.
        assert np.ptp(uplift) <= 1e-12 * np.abs(uplift).max()


def test_of_a_constant_feature_the_constant_does_not_matter():
    for name in ("smooth", "weighted", "ratio", "density"):
        data = draw()
        found = []
        for constant in (0.0, 0.1):
            data["X"] = np.column_stack([draw()["X"], np.full(160, constant)])
            found.append(clone(MODELS[name]).fit(**data).predict(data["X"]))
        assert_array_equal(*found)


@pytest.mark.parametrize("column", ["spend", "bought"])
def test_the_command_line_names_the_column_of_a_number_beyond_arithmetic(
    column, tmp_path, capsys
):
    data = draw()
    words = [
        "--outcome",
        "bought",
        "--treatment",
        "mailed",
        "--model",
        str(tmp_path / "m.skops"),
    ]
    for kind, own, label in (
        ("outcome", "y", "bought"),
        ("treatment", "treatment", "mailed"),
    ):
        for k, name in enumerate(("north", "south")):
            at = ~np.isnan(data[own]) & (data["population"] == k)
            frame = pd.DataFrame({"age": data["X"][at, 0], "spend": data["X"][at, 1]})
            frame[label] = data[own][at]
            if column in frame:
                frame.loc[3, column] = 1e308
            path = tmp_path / f"{kind}_{name}.csv"
            frame.to_csv(path, index=False)
            words += [f"--{kind}s", f"{name}={path}"]
    with pytest.raises(SystemExit) as stop:
        main(["fit", *words])
    printed = capsys.readouterr()
    assert stop.value.code == 2
    assert f"'{column}'" in printed.err
    assert "Traceback" not in printed.err
