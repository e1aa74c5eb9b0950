"""Dates, amounts and codes as people write them: read as meant, or asked about by name."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from unjoined import MinMaxUplift, SeparateLabels, Uplift, load_model, read_table
from unjoined.cli.entry import main
from unjoined.data import TableEncoder
from unjoined.errors import ColumnWarning, LabelError, TableError

pytestmark = pytest.mark.usefixtures("two_folds")

N = 400
KINDS = (("y", "N"), ("y", "S"), ("t", "N"), ("t", "S"))


def encoded(*cells, match=None):
    """Return a fitted encoder of one column and its numbers, and that it said what it did."""
    frame = pd.DataFrame({"x": list(cells)})
    encoder = TableEncoder()
    if match is None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return encoder, encoder.fit_transform(frame)[:, 0].tolist()
    with pytest.warns(ColumnWarning, match=match):
        encoder.fit(frame)
    return encoder, encoder.transform(frame)[:, :1].ravel().tolist()


def tables(column):
    """Return four tables with a column, whose cells a function makes of a random generator."""
    rng = np.random.default_rng(0)
    found = {"y": {}, "t": {}}
    for kind, name in KINDS:
        share = 0.5 if kind == "y" else {"N": 0.8, "S": 0.2}[name]
        found[kind][name] = pd.DataFrame(
            {
                "age": rng.normal(40.0, 10.0, N),
                "x": column(rng, kind, name),
                kind: (rng.random(N) < share).astype(int),
            }
        )
    return found["y"], found["t"]


def labels(column, **options):
    return SeparateLabels.from_tables(
        *tables(column), outcome="y", treatment="t", **options
    )


def days(*dates):
    return [
        float(np.datetime64(day).astype("datetime64[D]").astype(int)) for day in dates
    ]


def test_dates_with_one_order_are_dates():
    cases = (
        (["31.12.2024", "01.02.2023"], "day first", ["2024-12-31", "2023-02-01"]),
        (["01.02.2023", "3.2.2023"], "day first", ["2023-02-01", "2023-02-03"]),
        (["31/12/2024", "01/02/2023"], "day first", ["2024-12-31", "2023-02-01"]),
        (["12/31/2024", "01/02/2023"], "month first", ["2024-12-31", "2023-01-02"]),
        (["12-31-2024", "2023-02-01"], "month first", ["2024-12-31", "2023-02-01"]),
    )
    for cells, words, dates in cases:
        encoder, numbers = encoded(*cells, match=f"dates with the {words}")
        assert numbers == days(*dates)
        again = encoder.transform(pd.DataFrame({"x": ["02/03/2024", "2024-03-02"]}))[
            :, 0
        ].tolist()
        second = "2024-03-02" if words == "day first" else "2024-02-03"
        assert again == days(
            second, "2024-03-02"
        )  # as in the fit, though these alone do not tell


def test_the_hour_of_a_date_counts():
    _, numbers = encoded("31.12.2024 06:00", "31.12.2024 18:00:00", match="day first")
    assert np.diff(numbers).tolist() == [0.5]


def test_one_table_tells_how_dates_of_all_tables_are_written():
    def column(rng, kind, name):
        most = 28 if (kind, name) == ("t", "S") else 12
        return [
            f"{rng.integers(1, most + 1):02}/{rng.integers(1, 13):02}/2024"
            for _ in range(N)
        ]

    data = labels(column)
    with pytest.warns(ColumnWarning, match="dates with the day first"):
        encoder = TableEncoder().fit(data.X)
    assert encoder.columns_[1].holds == "times"


@pytest.mark.parametrize(
    "words", ["whether the day or the month comes first", "some the month"]
)
def test_dates_of_no_or_two_orders_are_left_out_by_name(words):
    def column(rng, kind, name):
        most = 12 if words.startswith("whether") else 28
        pairs = zip(rng.integers(1, 13, N), rng.integers(1, most + 1, N), strict=True)
        swapped = most > 12 and name == "N"
        return [
            f"{b:02}/{a:02}/2024" if swapped else f"{a:02}/{b:02}/2024"
            for a, b in pairs
        ]

    with pytest.warns(
        ColumnWarning, match=f"'x' holds dates such as .*{words}.*2024-03-31"
    ):
        data = labels(column)
    assert data.feature_names == ["age"]


def test_amounts_with_marks_and_units_are_numbers():
    cases = (
        (["$1,234.00", "$950.50", "-$12"], "a comma separates", [1234.0, 950.5, -12.0]),
        (["1.234,56 EUR", "950,00 EUR"], "a point separates", [1234.56, 950.0]),
        (["1.234 €", "950 €"], "a point separates", [1234.0, 950.0]),
        (["$1,234", "$950"], "a comma separates", [1234.0, 950.0]),
        (["1'234.50", "950"], "a comma separates", [1234.5, 950.0]),
        (["1 234,50", "950"], "a point separates", [1234.5, 950.0]),
        (["1,234,567", "950"], "a comma separates", [1234567.0, 950.0]),
        (["1.234.567", "950"], "a point separates", [1234567.0, 950.0]),
        (["12,5", "1.234"], "a point separates", [12.5, 1234.0]),
        (["12%", "7.5%"], "a comma separates", [12.0, 7.5]),
    )
    for cells, words, numbers in cases:
        encoder, found = encoded(*cells, match=words)
        assert found == numbers
        assert (
            encoder.transform(pd.DataFrame({"x": cells[::-1]}))[:, 0].tolist()
            == numbers[::-1]
        )


@pytest.mark.parametrize("mark", [".", ","])
def test_a_mark_before_three_digits_beside_shorter_numbers_separates_thousands(mark):
    amounts = [*range(900, 1100, 5)]
    cells = [f"{n:,}".replace(",", mark) for n in amounts]
    _, numbers = encoded(*cells, match="separates thousands")
    assert numbers == amounts


def test_a_mark_that_may_mean_both_is_asked_about():
    cases = (
        ["1.234", "950"],  # too few to tell
        ["1,234", "2,345"],
        [f"{n / 1000:.3f}" for n in range(1001, 1100)] + ["1500"],
    )
    for cells in cases:
        encoder, _ = encoded(
            *cells, match="whether the mark separates thousands or decimals"
        )
        assert encoder.columns_[0].holds == "categories"


def test_amounts_in_two_currencies_are_no_numbers():
    encoder, _ = encoded(
        *(f"{unit}{n}.50" for unit in "$€" for n in range(30)), match="not read"
    )
    assert encoder.columns_[0].holds == "categories"


def test_three_decimals_in_every_row_are_decimals():
    _, numbers = encoded("71.500", "68.250", "80.000", match="read as a decimal point")
    assert numbers == [71.5, 68.25, 80.0]


def test_zips_with_a_zero_in_front_are_categories():
    zips = ["01234", "54321", "60311"] * 40 + ["80331"] * 2000
    encoder, _ = encoded(*zips)
    assert encoder.columns_[0].levels == ("01234", "54321", "60311", "80331")


def test_levels_are_as_they_are_written():
    for levels in (
        ("1.1", "1.10", "b"),
        ("1E5", "100000", "b"),
        ("01", "1", "b"),
        ("x", "x ", "b"),
    ):
        for kind in ("category", "object"):
            frame = pd.DataFrame({"x": pd.Series(list(levels) * 20).astype(kind)})
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ColumnWarning)
                encoder = TableEncoder().fit(frame)
            assert encoder.columns_[0].levels == tuple(sorted(levels))


def test_a_csv_with_thousands_is_read_alike_in_memory_and_in_pieces(tmp_path):
    def column(rng, kind, name):
        return [f"{n:,}".replace(",", ".") for n in rng.integers(1, 3000, N)]

    files, read = [], []
    for part in tables(column):
        files.append(
            {
                name: tmp_path / f"{[*frame][-1]}_{name}.csv"
                for name, frame in part.items()
            }
        )
        for name, frame in part.items():
            frame.to_csv(files[-1][name], index=False, sep=";")
        read.append({name: read_table(file) for name, file in files[-1].items()})
    data = SeparateLabels.from_tables(*read, outcome="y", treatment="t")
    with pytest.warns(ColumnWarning, match="a point separates thousands"):
        whole = TableEncoder().fit_transform(data.X)[:, 1]
    source = SeparateLabels.from_tables(*files, outcome="y", treatment="t", stream=64)
    with pytest.warns(ColumnWarning, match="a point separates thousands"):
        pieces = np.concatenate(
            [chunk.X[:, 1] for chunk in source.chunks().encoded(TableEncoder())]
        )
    assert sorted(whole) == sorted(pieces)
    assert whole.min() >= 1.0
    assert (whole % 1.0 == 0.0).all()


def test_an_outcome_with_thousands_is_read_or_asked_about():
    n, amounts = 200, np.arange(800, 1200, 2)
    frames = {
        name: pd.DataFrame({"age": np.arange(n) % 50, "y": [f"{a:,}" for a in amounts]})
        for name in "NS"
    }
    treated = {
        name: pd.DataFrame({"age": np.arange(n), "t": np.arange(n) % 2})
        for name in "NS"
    }
    data = SeparateLabels.from_tables(
        frames, treated, outcome="y", treatment="t", features=["age"]
    )
    assert data.y[:n].tolist() == amounts.tolist()
    frames["N"]["y"] = [
        f"{a / 1000:.3f}" if a >= 1000 else str(a + 1000) for a in amounts
    ]
    with pytest.raises(
        LabelError, match=r"'y'.*separates thousands or decimals\. Write"
    ):
        SeparateLabels.from_tables(
            frames, treated, outcome="y", treatment="t", features=["age"]
        )


def pairs(rng, n, truth):
    """Return four tables of a feature z and a column x; truth gives both and the uplift."""
    found = {"y": {}, "t": {}}
    for kind, name in KINDS:
        frame, uplift = truth(rng, n)
        treated = rng.random(n) < {"N": 0.8, "S": 0.2}[name]
        y = 0.5 * frame["z"] + uplift * treated + 0.3 * rng.normal(size=n)
        found[kind][name] = frame.assign(
            **{kind: y if kind == "y" else treated.astype(int)}
        )
    return found["y"], found["t"]


def with_gaps(value):
    def truth(rng, n):
        z, x = rng.normal(size=n), rng.normal(50.0, 10.0, n)
        gone = rng.random(n) < 0.1
        uplift = np.where(gone, 0.0, (x - 50.0) / 10.0)
        return pd.DataFrame({"z": z, "x": np.where(gone, value, x)}), uplift

    return truth


def test_a_number_that_stands_for_missing_is_missing():
    cases = (
        (-999.0, MinMaxUplift(basis="linear")),
        (-99.0, MinMaxUplift(basis="linear")),
        (9999.0, Uplift()),
    )
    for value, model in cases:
        rng = np.random.default_rng(0)
        data = SeparateLabels.from_tables(
            *pairs(rng, 1500, with_gaps(value)), outcome="y", treatment="t"
        )
        with pytest.warns(
            ColumnWarning, match=f"'x' is {value:g} in .*taken for missing values"
        ):
            model.set_params(random_state=0).fit(data)
        people, uplift = with_gaps(value)(rng, 2000)
        assert np.corrcoef(model.predict(people), uplift)[0, 1] > 0.9
        empty = people.assign(x=people["x"].where(people["x"] != value))
        np.testing.assert_array_equal(model.predict(people), model.predict(empty))


@pytest.mark.parametrize("value", ["1900-01-01", "9999-12-31"])
def test_a_date_that_stands_for_missing_is_missing(value):
    dates = [f"20{10 + i % 10}-0{1 + i % 9}-15" for i in range(100)]
    with pytest.warns(
        ColumnWarning, match=f"'x' is {value} in 8 of 108 rows.*taken for missing"
    ):
        encoder = TableEncoder().fit(pd.DataFrame({"x": [*dates, *[value] * 8]}))
    found = encoder.transform(pd.DataFrame({"x": [value]})).tolist()
    assert found[0][0] == pytest.approx(np.mean(days(*dates)), rel=1e-6)


def test_numbers_that_are_near_others_or_single_are_numbers():
    cases = (
        [*range(100), 99] * 3,  # an end of an even range
        [*range(200), -999],  # once
        [*range(0, 90, 3), 99, 99, 99, 99, 99],  # the top of a scale
        [*range(-2000, 2000, 9), *[-999] * 9],  # amid others
    )
    for numbers in cases:
        frame = pd.DataFrame({"x": np.array(numbers, dtype=float)})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ColumnWarning)
            assert TableEncoder().fit_transform(frame)[:, 0].tolist() == numbers


def test_a_number_that_may_stand_for_missing_is_named():
    rng = np.random.default_rng(0)
    spend = np.concatenate([rng.uniform(0.0, 8000.0, 900), np.full(100, 9999.0)])
    with pytest.warns(
        ColumnWarning, match=r"is 9999 in 100 of 1,000 rows.*used as it is; leave"
    ):
        TableEncoder().fit(pd.DataFrame({"x": spend}))


def by_store(name, n_stores):
    effect = np.random.default_rng(1).normal(size=n_stores)

    def truth(rng, n):
        store = rng.integers(0, n_stores, n)
        frame = pd.DataFrame({"z": rng.normal(size=n), name: 101 + store})
        return frame, effect[store]

    return truth


def test_whole_numbers_are_categories_if_they_are_called_as_codes():
    codes = ("store", "store_id", "regionCode", "PLZ", "filial_nr", "ward", "sex")
    for name in codes:
        with pytest.warns(
            ColumnWarning, match=f"'{name}' holds 20 different whole.*for categories"
        ):
            encoder = TableEncoder().fit(pd.DataFrame({name: list(range(20)) * 20}))
        assert encoder.columns_[0].holds == "categories", name
    for name in ("n_stores", "age", "store_size", "days_since_store", "visits"):
        encoder = TableEncoder().fit(pd.DataFrame({name: list(range(20)) * 20}))
        assert encoder.columns_[0].holds == "numbers", name


def test_an_effect_that_differs_by_code_is_found():
    rng = np.random.default_rng(0)
    truth = by_store("store", 20)
    data = SeparateLabels.from_tables(
        *pairs(rng, 2000, truth), outcome="y", treatment="t"
    )
    with pytest.warns(ColumnWarning, match="'store' holds 20 different whole"):
        model = Uplift(random_state=0).fit(data)
    people, uplift = truth(rng, 3000)
    assert np.corrcoef(model.predict(people), uplift)[0, 1] > 0.95


def test_codes_and_stand_ins_are_found_in_pieces_as_in_memory(tmp_path):
    rng = np.random.default_rng(0)

    def truth(rng, n):
        frame, uplift = by_store("store", 12)(rng, n)
        return frame.assign(
            x=np.where(rng.random(n) < 0.1, -999.0, rng.uniform(size=n))
        ), uplift

    parts = pairs(rng, 600, truth)
    files = []
    for part in parts:
        files.append(
            {
                name: tmp_path / f"{[*frame][-1]}{name}.csv"
                for name, frame in part.items()
            }
        )
        for name, frame in part.items():
            frame[[*frame][:]].to_csv(files[-1][name], index=False)
    model = MinMaxUplift(basis="linear", random_state=0)
    with pytest.warns(ColumnWarning):
        whole = model.fit(
            SeparateLabels.from_tables(*parts, outcome="y", treatment="t")
        ).encoder_
    source = SeparateLabels.from_tables(*files, outcome="y", treatment="t", stream=100)
    with pytest.warns(ColumnWarning):
        pieces = model.fit(source).encoder_
    for one, two in zip(whole.columns_, pieces.columns_, strict=True):
        assert (one.name, one.holds, one.levels, one.stand_ins, one.has_missing) == (
            *(two.name, two.holds, two.levels, two.stand_ins, two.has_missing),
        )
        assert one.fill == pytest.approx(two.fill)


def test_text_of_thousands_of_levels_is_left_out():
    def column(levels):
        return lambda rng, kind, name: [f"item {i}" for i in rng.integers(0, levels, N)]

    with pytest.warns(
        ColumnWarning, match=r"'x' has 4\d\d different values, of which the \d+ that"
    ):
        data = labels(column(500))
    assert data.feature_names == ["age"]
    assert labels(column(150)).feature_names == ["age", "x"]


def of_kind(n_kinds):
    effect = np.random.default_rng(1).normal(size=n_kinds)

    def truth(rng, n):
        kind = rng.integers(0, n_kinds, n)
        return pd.DataFrame({"z": rng.normal(size=n), "filter": kind}), effect[kind]

    return truth


def test_a_column_is_a_category_if_the_user_says_so():
    """In every kind of frame, in memory and in pieces, the same rows get the same numbers."""
    rng, truth = np.random.default_rng(0), of_kind(20)
    parts = pairs(rng, 2000, truth)
    people, uplift = truth(rng, 3000)
    options = {"outcome": "y", "treatment": "t", "categories": ["filter"]}
    data = SeparateLabels.from_tables(*parts, **options)
    model = Uplift(random_state=0).fit(data)
    expected = model.predict(people)
    assert np.corrcoef(expected, uplift)[0, 1] > 0.95
    levels = model.encoder_.columns_[1].levels
    assert len(levels) == 20
    matrix = TableEncoder().fit_transform(data.X)
    for convert in (lambda frame: frame, pl.from_pandas, as_arrow):
        tables = [
            {name: convert(frame) for name, frame in part.items()} for part in parts
        ]
        whole, in_pieces = TableEncoder(), TableEncoder()
        same = SeparateLabels.from_tables(*tables, **options)
        np.testing.assert_array_equal(whole.fit_transform(same.X), matrix)
        np.testing.assert_array_equal(model.predict(convert(people)), expected)
        stream = SeparateLabels.from_tables(*tables, **options, stream=500)
        stream.chunks().encoded(in_pieces)
        assert in_pieces.columns_[1].levels == levels


def as_arrow(frame):
    return pa.Table.from_pandas(frame, preserve_index=False)


@pytest.mark.parametrize(
    ("categories", "message"),
    [
        ("x", r"Write \['x'\]"),
        (["y"], "which is the outcome"),
        (["w"], "'w', a column that no table has"),
    ],
)
def test_categories_that_are_no_features_are_refused(categories, message):
    with pytest.raises(TableError, match=message):
        labels(lambda rng, kind, name: rng.integers(0, 9, N), categories=categories)


def run(capsys, *arguments, code=None):
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    out = capsys.readouterr()
    assert (stop.value.code or None) == code, out.err
    return out.out + out.err


def saved(folder, parts, **options):
    """Write four tables and return the options of a command that name them."""
    named = ["--outcome", "y", "--treatment", "t"]
    for option, part in zip(("--outcomes", "--treatments"), parts, strict=True):
        for name, frame in part.items():
            frame.to_csv(
                file := folder / f"{[*frame][-1]}_{name}.csv", index=False, **options
            )
            named += [option, f"{name}={file}"]
    return named


@pytest.mark.slow
def test_a_list_is_scored_as_the_model_was_fitted(tmp_path, capsys):
    """Dates, thousands and codes: in a file of three people that do not tell by themselves."""
    rng = np.random.default_rng(0)

    def truth(rng, n):
        amount, day, version = (
            rng.integers(1, 3000, n),
            rng.integers(1, 29, n),
            rng.integers(0, 3, n),
        )
        frame = pd.DataFrame(
            {
                "amount": [f"{a:,}".replace(",", ".") for a in amount],
                "since": [f"{d:02}.{1 + d % 12:02}.{2000 + d % 20}" for d in day],
                "version": np.array(["1.1", "1.10", "beta"])[version],
                "z": rng.normal(size=n).round(3),
            }
        )
        return frame, amount / 3000.0 + (version == 1) - (version == 0)

    parts = pairs(rng, 800, truth)
    model = tmp_path / "model.skops"
    said = run(
        capsys,
        "fit",
        *saved(tmp_path, parts, sep=";"),
        "--model",
        model,
        "--estimator",
        "minmax",
    )
    assert "a point separates thousands" in said
    assert "dates with the day first" in said
    people = pd.DataFrame(
        {
            "amount": ["1.234", "2.345", "1.999"],
            "since": ["01.02.2003", "02.03.2003", "04.05.2006"],
            "version": ["1.1", "1.10", "1.10"],
            "z": [0.1, 0.2, 0.3],
        }
    )
    people.to_csv(tmp_path / "people.csv", sep=";", index=False)
    out = tmp_path / "list.csv"
    run(
        capsys,
        "score",
        "--model",
        model,
        "--table",
        tmp_path / "people.csv",
        "--out",
        out,
    )
    found = sorted(read_table(out)["uplift"].to_pylist())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = people.assign(amount=[1234, 2345, 1999])
        expected = sorted(load_model(model).predict(plain).tolist())
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert len({*found}) == 3


@pytest.mark.slow
def test_versions_that_are_numbers_in_one_table_only_keep_their_zeros(tmp_path, capsys):
    rng = np.random.default_rng(0)

    def truth(rng, n):
        version = rng.integers(0, 2, n)
        frame = pd.DataFrame(
            {"v": np.array(["1.1", "1.10"])[version], "z": rng.normal(size=n)}
        )
        return frame, version * 1.0

    parts = pairs(rng, 500, truth)
    parts[0]["N"].loc[:50, "v"] = "beta"
    tables = saved(tmp_path, parts)
    model = tmp_path / "model.skops"
    for how in ((), ("--chunks",)):
        options = ("--model", model, "--estimator", "minmax", "--force", *how)
        run(capsys, "fit", *tables, *options, code=3)  # red: other people
        code = next(c for c in load_model(model).encoder_.columns_ if c.name == "v")
        assert code.levels == ("1.1", "1.10", "beta")


def test_the_command_line_takes_categories(tmp_path, capsys):
    parts = pairs(np.random.default_rng(0), 200, of_kind(12))
    model, tables = tmp_path / "model.skops", saved(tmp_path, parts)
    for how in ((), ("--chunks",)):
        options = (
            "--categories",
            "filter",
            "--model",
            model,
            "--estimator",
            "minmax",
            "--force",
        )
        run(capsys, "fit", *tables, *options, *how)
        assert len(load_model(model).encoder_.columns_[1].levels) == 12


def test_whole_numbers_without_order_are_named():
    parts = pairs(np.random.default_rng(0), 1000, of_kind(20))
    with pytest.warns(
        ColumnWarning, match=r"'filter' holds 20 .*'y' goes up and down.*categories"
    ):
        SeparateLabels.from_tables(*parts, outcome="y", treatment="t")


def test_whole_numbers_with_an_order_are_not_named():
    """Among them steps and many rows, which a curve does not meet exactly."""

    def truth(rng, n):
        age, visits = rng.integers(18, 90, n), rng.poisson(4.0, n)
        frame = pd.DataFrame({"z": rng.normal(size=n), "age": age, "visits": visits})
        frame["idle"] = rng.integers(0, 30, n)
        return frame, (age > 40) - np.sin(age / 9.0) + 1.0 * (visits == 0)

    for seed in range(5):
        parts = pairs(np.random.default_rng(seed), 10_000, truth)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            SeparateLabels.from_tables(*parts, outcome="y", treatment="t")


def test_an_outcome_that_may_stand_for_missing_is_named():
    outcomes, treatments = tables(lambda rng, kind, name: rng.normal(size=N))
    outcomes["N"].loc[:9, "y"] = -999
    with pytest.warns(
        ColumnWarning, match="outcome 'y' is -999 in 10 of 800 rows.*from 0 to 1. If"
    ):
        SeparateLabels.from_tables(outcomes, treatments, outcome="y", treatment="t")


def test_codes_as_text_are_categories_too():
    frame = pd.DataFrame({"store": [str(100 + i % 12) for i in range(240)]})
    with pytest.warns(ColumnWarning, match="'store' holds 12 different whole numbers"):
        assert TableEncoder().fit(frame).columns_[0].holds == "categories"


def german(folder, *cells, other="12,5"):
    """Write a file with a column of cells, beside one that may have decimal commas."""
    path = folder / "t.csv"
    path.write_text("x;w\n" + "".join(f"{cell};{other}\n" for cell in cells))
    return path


def test_points_in_a_file_with_decimal_commas_separate_thousands(tmp_path):
    assert read_table(german(tmp_path, "1.234", "9.876"))["x"].to_pylist() == [
        1234,
        9876,
    ]
    assert read_table(german(tmp_path, "1.234", "950"))["x"].to_pylist() == [1234, 950]
    mixed = read_table(german(tmp_path, "1.234", "9.876,5"))["x"].to_pylist()
    assert mixed == [1234.0, 9876.5]
    assert read_table(german(tmp_path, "1.234", "0.5"))["x"].to_pylist() == [1.234, 0.5]


def test_three_decimals_beside_semicolons_are_named(tmp_path):
    table = read_table(german(tmp_path, "71.500", "68.250", other="1"))
    with pytest.warns(
        ColumnWarning, match=r"'68.250', '71.500', with three digits behind"
    ):
        encoder = TableEncoder().fit(table)
    assert encoder.transform(table)[:, 0].tolist() == [71.5, 68.25]
    (path := tmp_path / "plain.csv").write_text("x,w\n71.500,1\n68.250,1\n")
    assert read_table(path)["x"].to_pylist() == [71.5, 68.25]
