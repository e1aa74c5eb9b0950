"""One encoding, whether rows come in memory, in pieces, from files or from Dask."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose

from unjoined import MinMaxUplift, SeparateLabels, Uplift, read_table
from unjoined.data import SqlQuery, TableEncoder
from unjoined.errors import ColumnWarning

pytestmark = pytest.mark.usefixtures("two_folds")

LABELS = {"outcome": "bought", "treatment": "mailed"}
SIZES = {("outcome", "N"): 210, ("outcome", "S"): 190, ("treatment", "N"): 170}
CELLS = [*SIZES, ("treatment", "S")]


@pytest.fixture(scope="module")
def tables():
    """Four tables of numbers with gaps, words, flags, dates and stray words."""
    rng = np.random.default_rng(5)
    found = {}
    for cell in CELLS:
        n = SIZES.get(cell, 160)
        age = rng.integers(18, 90, n).astype(float)
        treated = rng.random(n) < (0.9 if cell[1] == "N" else 0.2)
        region = rng.choice(["city", "town", "Ürzig, Mosel", None], n)
        chance = 0.3 + 0.3 * treated * (region == "town")
        label = rng.random(n) < chance if cell[0] == "outcome" else treated
        found[cell] = pd.DataFrame(
            {
                "age": np.where(rng.random(n) < 0.2, np.nan, age),
                "region": region,
                "member": rng.choice(["true", "false"], n),
                "joined": rng.choice(
                    [f"2024-0{m}-1{d}" for m in range(1, 9) for d in range(9)], n
                ),
                "size": rng.choice(["1", "2", "10", "XL"], n),
                "visits": rng.integers(0, 9, n),
                LABELS[cell[0]]: label.astype(int),
            }
        )
    return found


def given(tables, **options):
    parts = ({k: tables[kind, k] for k in "NS"} for kind in ("outcome", "treatment"))
    return SeparateLabels.from_tables(*parts, **LABELS, **options)


def written(tables, folder, ending):
    paths = {cell: folder / f"{'-'.join(cell)}{ending}" for cell in tables}
    for cell, frame in tables.items():
        if ending == ".parquet":
            frame.to_parquet(paths[cell])
        else:
            frame.to_csv(paths[cell], index=False)
    return paths


@pytest.fixture(scope="module")
def in_memory(tables, tmp_path_factory):
    """A fit to tables that were read whole from CSV."""
    paths = written(tables, tmp_path_factory.mktemp("csv"), ".csv")
    data = given({cell: read_table(path) for cell, path in paths.items()})
    return data, MinMaxUplift(random_state=0).fit(**data)


FORMS = {
    "pandas": lambda tables, folder: tables,
    "polars": lambda tables, folder: {c: pl.from_pandas(f) for c, f in tables.items()},
    "pyarrow": lambda tables, folder: {c: pa.table(f) for c, f in tables.items()},
    "csv": lambda tables, folder: written(tables, folder, ".csv"),
    "parquet": lambda tables, folder: written(tables, folder, ".parquet"),
    "query": lambda tables, folder: {
        cell: SqlQuery(f"FROM '{path}'")
        for cell, path in written(tables, folder, ".parquet").items()
    },
}


def assert_same_encoding(encoder, other):
    assert encoder.categories == other.categories
    for one, two in zip(encoder.columns_, other.columns_, strict=True):
        for field in ("name", "holds", "indicator", "levels", "rare", "has_missing"):
            assert getattr(one, field) == getattr(two, field)
        assert one.fill == two.fill
        assert_allclose(one.shares, two.shares)


@pytest.mark.parametrize("form", FORMS)
def test_pieces_get_the_encoding_that_all_rows_get(tables, in_memory, tmp_path, form):
    _, whole = in_memory
    if form != "csv":  # where true and false are words
        tables = {
            cell: frame.assign(member=frame["member"] == "true")
            for cell, frame in tables.items()
        }
    encoder = TableEncoder(categories=whole.encoder_.categories)
    given(FORMS[form](tables, tmp_path), stream=64).chunks().encoded(encoder)
    assert_same_encoding(encoder, whole.encoder_)


def test_a_fit_to_pieces_predicts_by_the_names_of_columns(tables, in_memory, tmp_path):
    data, whole = in_memory
    source = given(FORMS["csv"](tables, tmp_path), stream=64)
    model = MinMaxUplift(random_state=0).fit(source)
    assert_same_encoding(model.encoder_, whole.encoder_)
    assert model.feature_names_in_.tolist() == data.feature_names
    there = model.predict(data.X)
    turned = pa.table(data.X).select(data.feature_names[::-1])
    assert_allclose(model.predict(turned.append_column("more", turned["age"])), there)


def test_dask_gets_the_same_encoding(tables, in_memory):
    tables = {
        cell: frame.assign(member=frame["member"] == "true")
        for cell, frame in tables.items()
    }
    ids = {
        cell: frame.assign(id=np.random.default_rng(1).permutation(len(frame)))
        for cell, frame in tables.items()
    }
    lazy = {cell: dd.from_pandas(frame, npartitions=3) for cell, frame in ids.items()}
    with pytest.warns(ColumnWarning, match="a column is left out: 'id'"):
        model = MinMaxUplift(random_state=0).fit(given(lazy))
    assert_same_encoding(model.encoder_, in_memory[1].encoder_)
    pieces = MinMaxUplift(random_state=0).fit(given(tables, stream=True))
    assert_allclose(
        model.predict(in_memory[0].X), pieces.predict(in_memory[0].X), atol=1e-8
    )


def test_the_default_fits_pieces_as_it_fits_rows(tables, in_memory, tmp_path):
    data = in_memory[0]
    whole = Uplift(random_state=0).fit(**data)
    source = given(written(tables, tmp_path, ".csv"), stream=100)
    model = Uplift(random_state=0).fit(source)
    assert_same_encoding(model.encoder_, whole.encoder_)
    assert np.corrcoef(model.predict(data.X), whole.predict(data.X))[0, 1] > 0.9
    again = Uplift(random_state=0).fit(data)
    assert_same_encoding(again.encoder_, whole.encoder_)
