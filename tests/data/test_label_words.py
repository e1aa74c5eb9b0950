"""Labels in words count as 0 and 1, alike in frames, arrays, pieces and on the command line."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from unjoined import MinMaxUplift, SeparateLabels
from unjoined.errors import InputError, LabelError, TableError, UnjoinedWarning
from unjoined.evaluate import joint_values

pytestmark = pytest.mark.usefixtures("two_folds")

CODES = np.array([1, 0, 0, 1, 1, 0, 1, 0])
WAYS = [
    (1, 0),
    ("1", "0"),
    ("1.0", "0.0"),
    (1.0, 0.0),
    (True, False),
    ("True", "FALSE"),
    ("yes", "No"),
    (" Y ", "n"),
    ("t", "F"),
    ("Treated", "control"),
    ("treated", "Untreated"),
]
LIBRARIES = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "pyarrow": pa.table,
    "category": lambda columns: pd.DataFrame(columns).astype({"mailed": "category"}),
}
NAMES = {"outcome": "bought", "treatment": "mailed", "population": "region"}


def frames(make, words):
    base = {"age": np.arange(8.0), "region": ["N", "S"] * 4}
    return pd.DataFrame(base | {"bought": CODES}), make(base | {"mailed": words})


def test_every_way_to_write_a_label_counts_the_same():
    for library in LIBRARIES:
        for way in WAYS:
            words = [way[1 - code] for code in CODES]
            make = LIBRARIES[library]
            o, t = frames(make, words)
            data = SeparateLabels.from_tables(o, t, **NAMES)
            assert (
                sorted(data.treatment[data.kind == "treatment"])
                == [0.0] * 4 + [1.0] * 4
            )
            chunk = list(
                SeparateLabels.from_tables(o, t, **NAMES, stream=True).chunks()
            )[1]
            np.testing.assert_array_equal(chunk.label, CODES)
            names = {"outcome": "mailed", "treatment": "bought", "population": "region"}
            swapped = SeparateLabels.from_tables(t, o, **names)
            assert sorted(swapped.y[swapped.kind == "outcome"]) == [0.0] * 4 + [1.0] * 4


def test_arrays_take_the_same_words():
    for way in WAYS:
        words = [way[1 - code] for code in CODES]
        rows = {"X": np.arange(8.0)[:, None], "population": ["a", "b", "b", "a"] * 2}
        for missing in (None, float("nan")):
            rows["y"] = [missing if i % 2 else word for i, word in enumerate(words)]
            rows["treatment"] = np.array(
                [word if i % 2 else missing for i, word in enumerate(words)],
                dtype=object,
            )
            np.testing.assert_array_equal(SeparateLabels(**rows).checked.label, CODES)
            chunk = next(iter(SeparateLabels(**rows, stream=True).chunks()))
            np.testing.assert_array_equal(chunk.label, CODES)
        outcome = np.arange(8.0)
        np.testing.assert_array_equal(
            joint_values(outcome, words), joint_values(outcome, CODES)
        )


def test_the_user_says_which_value_means_treated():
    cases = (
        (["mail", "none"], "mail"),
        (["mail", "none"], " MAIL"),
        ([2, 1], 2),
        ([2, 1], "2"),
    )
    for words, treated in cases:
        _, t = frames(pd.DataFrame, [words[1 - code] for code in CODES])
        o, _ = frames(pd.DataFrame, CODES)
        with pytest.raises(
            InputError, match="Say which value means treated, with treated=VALUE"
        ):
            SeparateLabels.from_tables(o, t, **NAMES)
        chunk = list(
            SeparateLabels.from_tables(
                o, t, **NAMES, treated=treated, stream=True
            ).chunks()
        )[1]
        np.testing.assert_array_equal(chunk.label, CODES)
        data = SeparateLabels.from_tables(o, t, **NAMES, treated=treated)
        assert [cell.label_mean for cell in data.summary()[2:]] == [0.75, 0.25]


def test_a_treated_value_that_no_table_holds_gets_the_nearest():
    o, t = frames(pd.DataFrame, ["mail", "none"] * 4)
    with pytest.raises(
        LabelError, match=r"'mial' is in no treatment table: .*mean 'mail'\?"
    ):
        SeparateLabels.from_tables(o, t, **NAMES, treated="mial")
    with pytest.raises(
        LabelError, match=r"'mial' is in no treatment table: .*mean 'mail'\?"
    ):
        list(
            SeparateLabels.from_tables(
                o, t, **NAMES, treated="mial", stream=True
            ).chunks()
        )


@pytest.mark.parametrize("way", ["memory", "chunks", "dask"])
@pytest.mark.parametrize(
    ("treated", "other", "message"),
    [
        ("mial", ["mail", "none"], r"'mial' is in no treatment table: .*mean 'mail'\?"),
        (
            "mail",
            ["e-mail", "nothing"],
            r"of population 'S' holds 'e-mail', 'nothing', where other",
        ),
        (
            "mail",
            [1, 0],
            r"of population 'S' holds 0, 1, where other tables hold 'mail', 'none'",
        ),
        (["mail", "letter"], ["mail", "none"], "'letter' is in no treatment table"),
    ],
    ids=str,
)
def test_treatments_in_two_spellings_are_refused_however_rows_come(
    way, treated, other, message
):
    o = {
        name: pd.DataFrame({"age": np.linspace(0, 1, 80), "bought": [*CODES] * 10})
        for name in "NS"
    }
    t = {
        name: pd.DataFrame({"age": np.linspace(0, 1, 80), "mailed": words * 40})
        for name, words in {"N": ["mail", "none"], "S": other}.items()
    }
    names = {"outcome": "bought", "treatment": "mailed", "treated": treated}
    if way == "dask":
        dd = pytest.importorskip("dask.dataframe")
        o, t = (
            {name: dd.from_pandas(f, npartitions=2) for name, f in of.items()}
            for of in (o, t)
        )
    with pytest.raises(LabelError, match=message):
        MinMaxUplift().fit(
            SeparateLabels.from_tables(o, t, **names, stream=way == "chunks")
        )


def test_a_third_value_is_counted_as_untreated_with_a_word():
    o, t = frames(pd.DataFrame, ["mail", "none", "letter", "mail"] * 2)
    with pytest.warns(
        UnjoinedWarning, match="more than two values; all but 'mail' count as untr"
    ):
        data = SeparateLabels.from_tables(o, t, **NAMES, treated="mail")
    assert data.treatment[data.kind == "treatment"].sum() == 4


def test_a_missing_word_is_refused_by_its_row():
    o, t = frames(pd.DataFrame, ["yes", "no", None, "yes"] * 2)
    with pytest.raises(LabelError, match="row 2 of the treatment table"):
        SeparateLabels.from_tables(o, t, **NAMES)
    o["bought"] = "gold"
    with pytest.raises(
        TableError, match=r"outcomes must be numbers, or words .*got 'gold'"
    ):
        SeparateLabels.from_tables(o, t.assign(mailed=1), **NAMES)


def test_several_values_may_mean_treated():
    o, t = frames(
        pd.DataFrame, ["mens", "none", "womens", "mens", "none", "none", "mens", "none"]
    )
    data = SeparateLabels.from_tables(o, t, **NAMES, treated=["Mens", "womens"])
    assert data.treatment[data.kind == "treatment"].sum() == 4.0


def test_a_population_without_anybody_treated_is_no_mistake():
    o, t = frames(pd.DataFrame, ["none"] * 8)
    t.loc[t["region"] == t["region"][0], "mailed"] = ["mail", "none", "mail", "none"]
    data = SeparateLabels.from_tables(o, t, **NAMES, treated="mail")
    assert sorted(cell.label_mean for cell in data.summary()[2:]) == [0.0, 0.5]
