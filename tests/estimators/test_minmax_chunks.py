"""Streamed rows and `fit_moments`: the same fit however rows come, close to that in memory."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

from unjoined import (
    MinMaxUplift,
    SeparateLabels,
    identification_strength,
    load_model,
    save_model,
)
from unjoined.data import paper_problem
from unjoined.errors import (
    InputError,
    LabelError,
    TableError,
    WeakIdentificationWarning,
)
from unjoined.federated import PlannedSums, read_sums, write_sums
from unjoined.model import LinearBasis

PROBLEM = paper_problem(b=5.0)
DATA = dict(PROBLEM.draw(400, random_state=0))
NEW = PROBLEM.draw_joint(300, random_state=1)
QUICK = {"n_centers": 20, "width": "median", "n_jobs": 1, "random_state": 0}
STREAM = SeparateLabels(**DATA, stream=True)


@pytest.fixture(scope="module")
def fitted():
    return MinMaxUplift(**QUICK).fit(STREAM)


def test_chunks_and_threads_change_nothing(fitted):
    expected = fitted.predict(NEW.X)
    cut = SeparateLabels(**DATA, stream=77)
    again = MinMaxUplift(**(QUICK | {"n_jobs": 2})).fit(cut)
    assert_allclose(again.predict(NEW.X), expected, rtol=0, atol=1e-9)


def test_with_everything_given_it_is_fit(fitted):
    """Without centring, search or scaling nothing depends on the sample: `fit` to rounding."""
    given = {"basis": LinearBasis(2), "ridge_f": 0.1, "ridge_g": 0.1, "center": False}
    model = MinMaxUplift(**given, standardize=False, critic_basis="linear", n_jobs=1)
    expected = model.fit(**DATA)
    wanted = {name: getattr(expected, name) for name in ("coef_", "critic_coef_")}
    found = MinMaxUplift(**model.get_params()).fit(SeparateLabels(**DATA, stream=99))
    for name, value in wanted.items():
        assert_allclose(getattr(found, name), value, rtol=1e-12, atol=1e-13)
    assert found.search_ is None


def test_it_finds_what_fit_finds():
    """Both miss the truth by about the same, and differ from each other by less."""
    data, new = PROBLEM.draw(3000, random_state=3), NEW
    both = [
        MinMaxUplift(n_jobs=1, random_state=0).fit(rows).predict(new.X)
        for rows in (data, SeparateLabels(**data, stream=True))
    ]
    errors = [np.mean((each - new.uplift) ** 2) for each in both]
    assert errors[1] < 2.0 * errors[0]
    assert np.mean((both[0] - both[1]) ** 2) < errors[0]


def test_width_is_chosen_on_the_sample_and_ridges_on_all_rows(limits):
    limits("estimators.minmax", SAMPLE_ROWS=100)
    model = MinMaxUplift(n_centers=15, n_jobs=1, random_state=0)
    model.fit(STREAM)
    assert model.search_.widths.shape == (3,)
    assert np.isfinite(model.search_.risk).all()
    assert model.ridge_f_ == model.search_.ridge_f
    fixed = MinMaxUplift(
        n_centers=15, ridge_f=0.1, ridge_g=0.2, n_jobs=1, random_state=0
    )
    fixed.fit(STREAM)
    assert (fixed.ridge_f_, fixed.ridge_g_) == (0.1, 0.2)
    plain = MinMaxUplift(n_centers=15, center=False, n_jobs=1, random_state=0)
    assert len(plain.collect_sums(DATA).plan.centring) == 0


def test_identification_is_that_of_all_rows(fitted):
    expected = identification_strength(**DATA)
    for name in ("mean_gap", "rms_gap", "f_statistic", "degrees"):
        assert_allclose(
            getattr(fitted.identification_, name), getattr(expected, name), rtol=1e-8
        )


def test_equal_policies_are_warned_of():
    same = paper_problem(b=0.0).draw(300, random_state=0)
    with pytest.warns(
        WeakIdentificationWarning, match="can hardly be told apart"
    ) as caught:
        MinMaxUplift(**QUICK).fit(SeparateLabels(**same, stream=True))
    assert caught[0].filename == __file__


def test_sums_in_a_file_give_the_same_fit(fitted, tmp_path):
    model = MinMaxUplift(**QUICK)
    path = write_sums(model.collect_sums(DATA), tmp_path / "all.sums")
    again = MinMaxUplift().fit_moments(read_sums(path))
    assert_array_equal(again.predict(NEW.X), fitted.predict(NEW.X))
    assert_array_equal(again.search_.score, fitted.search_.score)


def test_a_fitted_model_is_like_any_other(fitted, tmp_path):
    pytest.importorskip("skops")
    loaded = load_model(save_model(fitted, tmp_path / "model.skops"))
    assert_array_equal(loaded.predict(NEW.X), fitted.predict(NEW.X))
    assert fitted.populations_ == sorted(set(np.asarray(DATA["population"]).tolist()))
    assert np.isfinite(fitted.score(**DATA))


def test_feature_names_are_those_of_the_last_fit():
    frame = pd.DataFrame(DATA["X"], columns=["age", "days"])
    model = MinMaxUplift(**QUICK).fit(
        SeparateLabels(**DATA | {"X": frame}, stream=True)
    )
    assert model.feature_names_in_.tolist() == ["age", "days"]
    assert_array_equal(model.predict(frame[["days", "age"]]), model.predict(frame))
    with pytest.raises(ValueError, match="X lacks the column 'age'"):
        model.predict(frame[["days"]])
    assert not hasattr(model.fit(STREAM), "feature_names_in_")


def test_a_failed_fit_leaves_no_half_of_another(fitted):
    model = MinMaxUplift(**QUICK).fit(STREAM)
    sums = model.collect_sums(DATA)
    broken = PlannedSums.of_no_rows(sums.plan)
    with pytest.raises(InputError, match="the sums hold no outcome rows"):
        model.fit_moments(broken)
    with pytest.raises(NotFittedError):
        model.predict(NEW.X)


@pytest.fixture
def often(limits):
    limits("data.fold", CHECKPOINT_ROWS=500)


def broken_rows(at):
    """Rows in chunks that end with an error at some row of the second pass."""
    passes = []

    def chunks():
        passes.append(at)
        for start in range(0, len(DATA["y"]), 100):
            if len(passes) == 2 and start >= at:
                raise TableError("the disk went away")
            yield {name: column[start : start + 100] for name, column in DATA.items()}

    return SeparateLabels.from_chunks(chunks)


@pytest.mark.parametrize("at", [200, 600, 1500])
def test_an_interrupted_pass_resumes_to_the_same_bits(at, often, tmp_path):
    file = tmp_path / "pass.sums"
    source = SeparateLabels(**DATA, stream=100)
    expected = MinMaxUplift(**QUICK).fit(source, checkpoint=file)
    assert not file.exists()
    with pytest.raises(TableError, match="the disk went away"):
        MinMaxUplift(**QUICK).fit(broken_rows(at), checkpoint=file)
    assert file.exists() == (at > 500)
    model = MinMaxUplift(**QUICK).fit(source, checkpoint=file)
    assert_array_equal(model.coef_, expected.coef_)
    assert not file.exists()


def test_checkpoints_of_other_fits_are_refused(tmp_path):
    file = tmp_path / "pass.sums"
    model = MinMaxUplift(**QUICK)
    sums = model.collect_sums(DATA, checkpoint=file)
    assert Path(file).exists()
    with pytest.raises(TableError, match="belongs to another fit"):
        MinMaxUplift(**(QUICK | {"random_state": 1})).fit(STREAM, checkpoint=file)
    write_sums(sums, file)
    with pytest.raises(TableError, match="is not a checkpoint of this fit"):
        model.fit(STREAM, checkpoint=file)
    given = MinMaxUplift(**QUICK, center=LinearRegression())
    with pytest.raises(InputError, match="cannot hold the regressor given as center"):
        given.fit(STREAM, checkpoint=tmp_path / "other.sums")
    assert np.isfinite(given.fit(STREAM).coef_).all()


def test_what_needs_rows_is_refused():
    cases = (
        ({"bounds": "auto"}, "bounds needs all rows in memory"),
        ({"shift": "classifier"}, "shift needs all rows in memory"),
        ({"loss": "huber"}, "losses other than 'squared' need all rows"),
        ({"ridge_f": -1.0}, "ridge_f must be"),
    )
    for parameters, message in cases:
        with pytest.raises(InputError, match=message):
            MinMaxUplift(**parameters).fit(STREAM)


def test_a_checkpoint_of_rows_in_memory_is_refused(tmp_path):
    with pytest.raises(
        InputError, match="checkpoint is for streamed rows, and these are in mem"
    ):
        MinMaxUplift(**QUICK).fit(DATA, checkpoint=tmp_path / "pass.sums")


def test_tables_too_small_for_groups_are_refused():
    few = PROBLEM.draw(3, random_state=0)
    with pytest.raises(InputError, match="do not fill them"):
        MinMaxUplift().fit(SeparateLabels(**few, stream=True))


def test_one_population_is_refused():
    one = {**DATA, "population": np.full(1600, "only")}
    with pytest.raises(
        LabelError, match=r"the source has 1.*cannot be identified from one"
    ):
        MinMaxUplift(**QUICK).fit(SeparateLabels(**one, stream=True))
