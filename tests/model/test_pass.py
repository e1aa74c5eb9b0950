"""Samples, groups and sums of a source do not depend on how its rows are cut into chunks."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from tests.helpers import fit_centring
from unjoined import MinMaxUplift, SeparateLabels, Uplift
from unjoined.data import campaign_problem, paper_problem
from unjoined.data.rows import label_rows, number_rows, separate_labels
from unjoined.errors import InputError, LabelError, TableError
from unjoined.federated import SumsPlan, aggregate_rows, fourier_plan, merge_sums
from unjoined.model import GaussianBasis, LinearBasis
from unjoined.model.accumulate import accumulate
from unjoined.model.basis import Scaling
from unjoined.model.census import deal_groups, take_census
from unjoined.model.centring import subtract_means
from unjoined.model.passes import sum_source

QUICK = settings(max_examples=20, deadline=None)
DATA = dict(paper_problem(b=5.0).draw(300, random_state=0))
NAMES = tuple(np.unique(DATA["population"]).tolist())


def stream(data, rows=True):
    """Return what goes through some rows, so many at a time."""
    return SeparateLabels(**data, stream=rows).chunks()


def kinds(data):
    """Return which label each row has, in words."""
    return np.where(np.isnan(data["y"]), "treatment", "outcome")


def taken(data, at):
    return {name: np.asarray(values)[at] for name, values in data.items()}


def weighted(data=DATA):
    n = len(data["y"])
    return data | {"sample_weight": 0.5 + np.arange(n) % 3}


def make_plan(*, centring=(), critic=None, n_groups=5, coding=None, data=DATA):
    rows = label_rows(**data)
    basis = GaussianBasis(np.asarray(data["X"])[:9], 1.5)
    return SumsPlan(
        None,
        NAMES,
        rows.coding if coding is None else coding,
        Scaling.of_rows(rows.X, rows.weight),
        basis,
        basis if critic is None else critic,
        tuple(centring),
        n_groups,
    )


def add_up(source, plan, *, sample_rows=500, **options):
    return sum_source(
        source, plan, take_census(source, sample_rows=sample_rows), **options
    )


FIELDS = ("n_rows", "weight", "weight_square", "label_basis", "gram", "label_cross")


def assert_sums_close(found, expected, rtol=1e-12):
    for name in FIELDS:
        got, want = getattr(found, name), getattr(expected, name)
        assert_allclose(got, want, rtol=0, atol=rtol * max(np.abs(want).max(), 1.0))


def assert_sums_equal(found, expected):
    for name in FIELDS:
        assert_array_equal(getattr(found, name), getattr(expected, name))


CUTS = st.lists(st.integers(0, 1200), max_size=5)


def cut_at(data, cuts):
    """The source of rows that are cut at some places."""
    edges = [0, *sorted(cuts), len(data["y"])]
    return SeparateLabels.from_chunks(
        lambda: (taken(data, slice(i, j)) for i, j in pairwise(edges))
    ).chunks()


def numbers(data, cuts):
    return np.concatenate([rows.number for rows in number_rows(cut_at(data, cuts))])


@QUICK
@given(cuts=CUTS, seed=st.integers(0, 2**32 - 1))
def test_numbers_depend_neither_on_cuts_nor_on_which_table_comes_first(cuts, seed):
    """Against counting row by row: rows of weight 0 do not count."""
    rng = np.random.default_rng(seed)
    weight = 1.0 * (rng.random(1200) < 0.8)
    data = DATA | {"sample_weight": weight}
    table = np.unique(
        np.char.add(kinds(DATA), DATA["population"]), return_inverse=True
    )[1]
    expected, sizes = np.full(1200, -1), Counter()
    for i in np.flatnonzero(weight > 0.0):
        expected[i] = sizes[table[i]]
        sizes[table[i]] += 1
    assert_array_equal(numbers(data, cuts), expected)
    order = np.argsort(rng.permutation(table.max() + 1)[table], kind="stable")
    assert_array_equal(numbers(taken(data, order), cuts), expected[order])


@QUICK
@given(start=st.integers(0, 10**9), n=st.integers(1, 200), n_groups=st.integers(1, 40))
def test_groups_of_a_table_are_equal_in_size_to_a_row(start, n, n_groups):
    group = deal_groups(np.arange(n), n_groups)
    sizes = np.bincount(group, minlength=n_groups)
    assert sizes.max() - sizes.min() <= 1
    later = deal_groups(start + np.arange(n), n_groups)  # from anywhere on, to two
    sizes = np.bincount(later, minlength=n_groups)
    assert sizes.max() - sizes.min() <= 2
    assert_array_equal(deal_groups(np.arange(n)[::-1], n_groups), group[::-1])


@pytest.mark.statistical
def test_neighbours_fall_into_all_pairs_of_groups():
    """So that what comes in turns, such as days of a week, is dealt evenly all the same."""
    group = deal_groups(np.arange(70_000), 7)
    for period in (2, 7, 12):
        of_one = np.bincount(group[::period], minlength=7)
        assert_allclose(of_one / of_one.sum(), 1 / 7, atol=0.015)


@QUICK
@given(cuts=CUTS)
def test_samples_do_not_depend_on_cuts(cuts):
    expected, group = take_census(stream(weighted()), sample_rows=40).sample(5)
    found, again = take_census(cut_at(weighted(), cuts), sample_rows=40).sample(5)
    for name in ("X", "label", "cell", "weight"):
        assert_array_equal(getattr(found, name), getattr(expected, name))
    assert_array_equal(again, group)


def test_a_small_table_is_its_own_sample_and_a_large_ones_weights_add_up():
    data = weighted()
    rows, group = take_census(stream(data), sample_rows=300).sample(5)
    for at, (kind, name) in zip(rows.all_cells(), rows.tables, strict=True):
        own = np.flatnonzero((kinds(data) == kind) & (data["population"] == name))
        assert_array_equal(rows.X[at], data["X"][own])  # in order, too
        assert_array_equal(rows.weight[at], data["sample_weight"][own])
        assert_array_equal(group[at], deal_groups(np.arange(300), 5))
    few, _ = take_census(stream(data), sample_rows=100).sample(5)
    assert len(few) == 400
    for at, whole in zip(few.all_cells(), rows.all_cells(), strict=True):
        assert_allclose(few.weight[at].sum(), rows.weight[whole].sum())


@pytest.mark.statistical
def test_every_row_of_a_table_is_as_likely_in_the_sample():
    """Parts of a long table, in order, have their share of the sample."""
    n = 40_000
    table = {
        "X": np.arange(n)[:, None] * 1.0,
        **separate_labels(np.arange(n) % 2, ["outcome"] * n),
    }
    source = stream(table | {"population": ["A"] * n})
    chosen = take_census(source, sample_rows=4000).cells["outcome", "A"].X[:, 0]
    assert len(np.unique(chosen)) == 4000
    assert_allclose(np.histogram(chosen, 10)[0], 400.0, atol=4.0 * np.sqrt(360.0))


def test_sums_of_a_source_are_those_of_the_rows_in_memory():
    for data in (DATA, weighted()):
        for centred in (False, True):
            rows = label_rows(**data)
            if (
                data is not DATA
            ):  # a source adds weights up as they come, whatever their units
                rows = replace(
                    rows,
                    weight=np.asarray(data["sample_weight"])[
                        data["sample_weight"] > 0.0
                    ],
                )
            centring = [fit_centring(rows, np.random.RandomState(0))] if centred else []
            plan = make_plan(centring=centring)
            found = add_up(stream(data, 101), plan)
            label = subtract_means(rows, centring, None)[0] if centred else rows.label
            groups = deal_groups(numbers(data, []), 5)
            expected = accumulate(
                plan.values, plan.size, replace(rows, label=label), groups=groups
            )
            assert_sums_close(found.sums, expected)


def test_sums_do_not_depend_on_threads_to_the_bit_nor_on_chunks():
    plan = make_plan(critic=LinearBasis(2))
    expected = add_up(stream(DATA), plan)
    assert_sums_equal(add_up(stream(DATA), plan, n_jobs=3).sums, expected.sums)
    for chunk_rows, n_jobs in ((13, 1), (97, 2), (600, 3)):
        source = stream(DATA, chunk_rows)
        assert_sums_close(add_up(source, plan, n_jobs=n_jobs).sums, expected.sums)


def test_the_order_of_rows_moves_them_between_groups_and_changes_no_total():
    plan = make_plan()
    order = np.random.default_rng(0).permutation(1200)
    one, two = (add_up(stream(taken(DATA, at)), plan) for at in (slice(None), order))
    for kind, k in product(("outcome", "treatment"), range(2)):
        totals = [sums.sums.total(kind, k) for sums in (one, two)]
        assert_allclose(totals[0].gram, totals[1].gram, rtol=1e-12)
    assert_allclose(one.policy.square, two.policy.square, rtol=1e-12)


def test_copies_of_a_row_are_dealt_into_all_groups():
    """Eight kinds of rows in all, of which every group has its share."""
    rng = np.random.default_rng(1)
    label = rng.integers(0, 2, 1200) * 1.0
    X = rng.integers(0, 2, (1200, 1)) * 1.0
    data = DATA | {"X": X} | separate_labels(label, kinds(DATA))
    plan = replace(make_plan(data=data), basis=LinearBasis(1), critic=LinearBasis(1))
    expected = add_up(stream(data), plan).sums
    assert_array_equal(expected.n_rows, np.full((2, 2, 5), 60))
    means = expected.gram[..., 0, 1] / expected.weight
    assert_allclose(means, np.mean(means), atol=4.0 / np.sqrt(60.0))


def test_rows_of_weight_0_are_passed_over_and_people_to_be_scored_refused():
    data = weighted()
    extra = {
        "X": np.zeros((1, 2)),
        **separate_labels([1.0], ["outcome"]),
        "population": np.array(["nobody"]),
        "sample_weight": np.zeros(1),
    }
    more = {
        name: np.concatenate([values, extra[name]]) for name, values in data.items()
    }
    plan = make_plan()
    found, expected = (add_up(stream(rows), plan) for rows in (more, data))
    assert_sums_equal(found.sums, expected.sums)
    nobody = more | {
        "y": np.append(data["y"], np.nan),
        "population": np.append(data["population"], ""),
    }
    with pytest.raises(
        LabelError, match="1 of them have neither an outcome nor a treatment"
    ):
        add_up(stream(nobody), plan)


def test_centring_by_group_uses_the_means_of_the_others():
    rows = label_rows(**DATA)
    centring = [fit_centring(rows, np.random.RandomState(seed)) for seed in range(5)]
    group = np.arange(len(rows.label)) % 4  # the fifth has no rows
    found, _ = subtract_means(rows, centring, group)
    for j in range(4):
        expected, _ = subtract_means(rows, [centring[j]], None)
        assert_allclose(found[group == j], expected[group == j], rtol=1e-9)


class Interrupted:
    """A source that breaks off behind some chunks, as a power cut would."""

    feature_names = None

    def __init__(self, n_chunks):
        self.n_chunks = n_chunks

    def __iter__(self):
        for i, chunk in enumerate(stream(DATA, 90)):
            if i == self.n_chunks:
                raise KeyboardInterrupt
            yield chunk


@pytest.fixture
def checkpoint(tmp_path, limits):
    """Where a pass is kept that was interrupted behind 720 of 1,200 rows."""
    limits("data.fold", CHECKPOINT_ROWS=350)
    census, path = (
        take_census(stream(DATA), sample_rows=500),
        tmp_path / "checkpoint",
    )
    with pytest.raises(KeyboardInterrupt):
        sum_source(Interrupted(10), make_plan(), census, path)
    assert np.load(path)["000.position"][0] == 720
    return path


def test_a_pass_that_goes_on_from_a_checkpoint_gives_the_same_bits(checkpoint):
    plan, source = make_plan(), stream(DATA, 90)
    expected = add_up(source, plan)
    for _ in range(2):  # then from the end, where the first pass left it
        found = add_up(source, plan, checkpoint=checkpoint)
        assert_sums_equal(found.sums, expected.sums)
        assert_array_equal(found.policy.gram, expected.policy.gram)


def test_a_pass_goes_on_amid_a_chunk(checkpoint):
    plan = make_plan()
    found = add_up(stream(DATA, 500), plan, checkpoint=checkpoint)
    assert_sums_close(found.sums, add_up(stream(DATA), plan).sums)


def test_a_finished_pass_is_not_made_again(checkpoint):
    source = stream(DATA, 90)
    census = take_census(source, sample_rows=500)
    expected = sum_source(source, make_plan(), census, checkpoint)
    found = sum_source(Interrupted(0), make_plan(), census, checkpoint)
    assert_sums_equal(found.sums, expected.sums)


def test_a_checkpoint_of_other_rows_is_refused(checkpoint):
    plan, other = make_plan(), paper_problem(b=5.0).draw(300, random_state=1)
    with pytest.raises(
        TableError, match="belongs to another fit, or the source has changed"
    ):
        add_up(stream(other), plan, checkpoint=checkpoint)
    order = np.argsort(DATA["population"], kind="stable")[::-1]
    tables = taken(DATA, np.sort(order[:600]).tolist() + np.sort(order[600:]).tolist())
    with pytest.raises(
        TableError, match="first rows are not those the checkpoint has added up"
    ):
        add_up(stream(tables), plan, checkpoint=checkpoint)


def test_fewer_rows_than_in_the_first_pass_are_refused():
    census = take_census(stream(DATA), sample_rows=10)
    with pytest.raises(
        TableError, match="gave other rows, or the same in another order, when"
    ):
        sum_source(stream(taken(DATA, slice(1100))), make_plan(), census)


def test_rows_that_were_not_in_the_first_pass_are_refused():
    plan = make_plan()
    outcomes = taken(DATA, ~np.isnan(DATA["y"]))
    census = take_census(stream(outcomes), sample_rows=10)
    with pytest.raises(TableError, match=r"treatment rows of population .* are new"):
        sum_source(stream(DATA), plan, census)


def test_other_populations_and_outcomes_are_refused():
    plan = make_plan()
    third = DATA | {
        "population": np.where(np.arange(1200) == 5, "9", DATA["population"])
    }
    with pytest.raises(
        LabelError, match=r"has rows of population .*9.*the sums are for"
    ):
        add_up(stream(third), plan)
    agreed = fourier_plan(
        {"a": (0, 1), "b": (0, 1)}, ["1", "2"], outcome_values=(0, 1)
    ).coding
    real = DATA | {"y": np.where(~np.isnan(DATA["y"]), 7.0, DATA["y"])}
    with pytest.raises(
        LabelError, match="the outcome is 7 in some rows, but is to be 0 or 1"
    ):
        add_up(stream(real), make_plan(coding=agreed))


def test_census_finds_the_coding_of_all_rows():
    binary = take_census(stream(DATA, 50), sample_rows=20)
    assert binary.coding == label_rows(**DATA).coding
    assert binary.n_rows == 1200
    outcome = ~np.isnan(DATA["y"])
    real = DATA | {"y": np.where(outcome, np.arange(1200.0), DATA["y"])}
    census = take_census(stream(real, 50), sample_rows=20)
    assert not census.coding.is_binary
    assert len(census.outcomes) == 3
    signed = DATA | {"treatment": 2.0 * DATA["treatment"] - 1.0}
    again = take_census(stream(signed), sample_rows=2000)
    assert set(again.treatment(np.array([-1.0, 1.0]))) == {-1.0, 1.0}
    rows, group = again.sample(5)
    assert set(rows.label[rows.kind == "treatment"]) == {-1.0, 1.0}
    assert set(group) == set(range(5))


def look(data):
    census = take_census(stream(data, 100), sample_rows=10)
    census.check_complete()
    return census.coding


def refused(data, message):
    with pytest.raises(LabelError, match=message):
        look(data)


def test_every_census_message():
    outcome = ~np.isnan(DATA["y"])
    first = np.asarray(DATA["population"]) == NAMES[0]
    refused(taken(DATA, first), "two populations .* the source has 1")
    refused(taken(DATA, ~(first & outcome)), "has no outcome rows")
    refused(
        DATA | {"y": np.where(outcome, 1.0, DATA["y"])},
        "the outcome is 1 in all outcome rows",
    )
    codes = np.where(outcome, np.nan, 2.0)
    refused(
        DATA | {"treatment": codes},
        "the arrays, from row .* on: treatment labels must be coded",
    )
    empty = {"X": np.empty((0, 2)), **separate_labels([], []), "population": []}
    with pytest.raises(TableError, match="the source has no rows"):
        take_census(
            SeparateLabels.from_chunks(lambda: [empty]).chunks(), sample_rows=10
        )
    with pytest.raises(TableError, match="the source has no rows"):
        take_census(SeparateLabels.from_chunks(list).chunks(), sample_rows=10)


class Ragged:
    """A source that changes its mind about the number of features."""

    feature_names = None

    def __iter__(self):
        yield from stream(DATA)
        yield from stream(DATA | {"X": DATA["X"][:, :1]})


def test_a_source_of_ones_own_with_other_features_is_refused():
    with pytest.raises(TableError, match="has 1 features, the rows before it have 2"):
        take_census(Ragged(), sample_rows=10)


def agreed(**options):
    return replace(
        fourier_plan({"a": (0.0, 1.0), "b": (0.0, 2.0)}, ["p", "q"], **options),
        populations=NAMES,
    )


def test_sums_of_parties_add_up_to_those_of_all_rows():
    plan = agreed(n_functions=7, outcome_values=(-1.0, 1.0))
    data = dict(paper_problem(b=5.0).draw(1500, random_state=0))
    whole = aggregate_rows(data, plan)
    parts = [
        aggregate_rows(taken(data, kinds(data) == kind), plan)
        for kind in ("outcome", "treatment")
    ]
    merged = merge_sums(parts)
    assert_sums_close(merged.sums, whole.sums)
    assert_allclose(merged.policy.square, whole.policy.square)


def test_every_message_about_plans():
    for arguments, message in (
        (({}, ["p", "q"]), "one feature or more"),
        (({"a": (0, 1)}, ["p", "p"]), "two populations or more with different names"),
        (({"a": (0, 0)}, ["p", "q"]), "spread of a must be"),
        (({"a": (0, 1e-300)}, ["p", "q"]), "spread of a must be 1e-30 to"),
        (({"a": (1e300, 1)}, ["p", "q"]), "typical value of a must not be beyond"),
    ):
        with pytest.raises(InputError, match=message):
            fourier_plan(*arguments)
    for options, message in (
        ({"n_groups": 1}, "n_groups must be 2 to 1000"),
        ({"n_functions": 5001}, "n_functions must be 5,000 at most"),
        ({"outcome_values": (1, 1)}, "two different numbers"),
        ({"width": -1.0}, "width must be"),
    ):
        with pytest.raises(InputError, match=message):
            agreed(**options)
    with pytest.raises(InputError, match=r"the plan is for the features \('a', 'b'\)"):
        aggregate_rows(DATA | {"X": DATA["X"][:, :1]}, agreed())
    with pytest.raises(
        InputError, match=r"fewer than the minimum of 1000: .* Nothing was written"
    ):
        aggregate_rows(DATA, agreed(width=2.0), min_count=1000)


def test_a_source_is_asked_for_names_that_its_chunks_do_not_say():
    class Silent:
        feature_names = ("age", "spend")

        def __iter__(self):
            return (replace(chunk, feature_names=()) for chunk in stream(DATA))

    assert take_census(Silent(), sample_rows=100).feature_names == ("age", "spend")


@pytest.mark.filterwarnings("ignore::unjoined.errors.UnjoinedWarning")
@pytest.mark.parametrize(
    "estimator", [MinMaxUplift(random_state=0), Uplift(random_state=0)]
)
@pytest.mark.parametrize("column", ["X", "y", "sample_weight", "order"])
def test_a_source_that_gives_other_rows_when_read_again_is_refused(
    estimator, column, limits
):
    """One number of one row outside of most samples is enough, and so is another order of rows."""
    data = {
        k: np.asarray(v)
        for k, v in dict(campaign_problem().draw(200, random_state=0)).items()
    }
    data["sample_weight"] = np.ones(len(data["y"]))
    limits("estimators.uplift", SAMPLE_ROWS=100)
    reads = []

    def source():
        reads.append(0)
        rows = {name: values.copy() for name, values in data.items()}
        if column == "y":
            rows["y"][0] = (rows["y"][0] + len(reads) // 2) % 2
        elif column == "order":
            rows = {
                name: np.roll(values, len(reads), axis=0)
                for name, values in rows.items()
            }
        else:
            rows[column][0] += 0.001 * len(reads)
        yield rows

    with pytest.raises(
        TableError, match="gave other rows, or the same in another order, when"
    ):
        clone(estimator).fit(SeparateLabels.from_chunks(source))
    assert len(reads) > 1
