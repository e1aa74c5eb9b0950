"""However arrays lie in memory, and however many threads: the same bits."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone

from unjoined import (
    FourRidge,
    MinMaxUplift,
    PlugInUplift,
    TwoStageUplift,
    Uplift,
    WeightedUplift,
)
from unjoined.data import paper_problem
from unjoined.errors import InputError

MODELS = [
    MinMaxUplift(width="median", random_state=0),
    MinMaxUplift(basis="linear", random_state=0),
    Uplift(random_state=0),
    WeightedUplift(n_folds=2, random_state=0),
    PlugInUplift(random_state=0),
    FourRidge(),
    TwoStageUplift(),
]
models = pytest.mark.parametrize("model", MODELS, ids=repr)
pytestmark = [
    pytest.mark.usefixtures("two_folds"),
    pytest.mark.filterwarnings("ignore::unjoined.errors.UnjoinedWarning"),
]


def draw():
    return dict(paper_problem().draw(40, random_state=0))


def strided(array):
    return np.repeat(array, 2, axis=0)[::2]


def swapped(array):
    return array.astype(array.dtype.newbyteorder())


def frozen(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def unaligned(array):
    raw = np.frombuffer(b"." + array.tobytes(), dtype=np.uint8)[1:]
    return raw.view(array.dtype).reshape(array.shape)


@pytest.mark.parametrize("model", [*MODELS[:2], *MODELS[3:]], ids=repr)
def test_predictions_and_fits_do_not_depend_on_how_arrays_lie(model):
    data = draw()
    X = data["X"]
    fitted = clone(model).fit(**data)
    wanted = fitted.predict(X)
    for change in (np.asfortranarray, strided, swapped, frozen, unaligned):
        assert_array_equal(fitted.predict(change(X)), wanted)
        again = clone(model).fit(
            **{name: change(np.asarray(c)) for name, c in data.items()}
        )
        assert_array_equal(again.predict(X), wanted)
    single = X.astype(np.float32)
    assert_array_equal(
        fitted.predict(single), fitted.predict(single.astype(np.float64))
    )


def test_no_rows_have_no_predictions():
    for model in MODELS:
        data = draw()
        fitted = clone(model).fit(**data)
        empty = fitted.predict(data["X"][:0])
        assert (empty.shape, empty.dtype) == ((0,), np.float64)
        with pytest.raises(ValueError, match="2 features"):
            fitted.predict(np.empty((0, 3)))


@pytest.mark.parametrize("model", MODELS[:3], ids=repr)
def test_any_number_of_threads_gives_the_same_bits_and_no_number_is_refused(model):
    data = draw()
    wanted = clone(model).fit(**data).predict(data["X"])
    for n_jobs in (None, -(10**9), 10**9):
        again = clone(model).set_params(n_jobs=n_jobs).fit(**data)
        assert_array_equal(again.predict(data["X"]), wanted)
    for n_jobs in (0, 2.5, "all"):
        with pytest.raises(InputError, match="n_jobs must"):
            clone(model).set_params(n_jobs=n_jobs).fit(**data)
