"""Samples, groups and sums of a source depend on its rows alone."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from unjoined import MinMaxUplift, Uplift
from unjoined.basis import GaussianBasis, LinearBasis, Scaling
from unjoined.data import (
    ArraySource,
    IterableSource,
    Rows,
    campaign_problem,
    label_rows,
    paper_problem,
)
from unjoined.errors import InputError, LabelError, TableError
from unjoined.nuisance import cross_fit_centring
from unjoined.sums import (
    SumsPlan,
    accumulate,
    aggregate_rows,
    fourier_plan,
    hash_features,
    hash_with,
    merge_sums,
    read_sums,
    sum_source,
    take_census,
)
from unjoined.sums.census import RowSketch
from unjoined.sums.passes import batches


def fit_centring(rows, rng, **options):
    """Fit one pair (m, q) to all rows: a single fold leaves nothing out."""
    fold = np.zeros(len(rows.label), dtype=np.int64)
    return cross_fit_centring(rows, fold, rng, **options)[0][0]


QUICK = settings(max_examples=20, deadline=None)
DATA = dict(paper_problem(b=5.0).draw(300, random_state=0))
NAMES = tuple(np.unique(DATA["population"]).tolist())


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
    return sum_source(source, plan, take_census(source, sample_rows=sample_rows), **options)


def assert_sums_close(found, expected, rtol=1e-12):
    assert set(found.cells) == set(expected.cells)
    for key, sums in expected.cells.items():
        assert found.cells[key].n_rows == sums.n_rows
        for name in ("weight", "label_cross", "label_basis", "gram", "weight_square"):
            got, want = np.asarray(getattr(found.cells[key], name)), getattr(sums, name)
            assert_allclose(got, want, rtol=0, atol=rtol * max(np.abs(want).max(), 1.0))


def assert_sums_equal(found, expected):
    assert set(found.cells) == set(expected.cells)
    for key, sums in expected.cells.items():
        for name in ("n_rows", "weight", "label_cross", "label_basis", "gram", "weight_square"):
            assert_array_equal(getattr(found.cells[key], name), getattr(sums, name))


def row_keys(X, label):
    return hash_with(hash_features(X), label)


def sketch(X, label, weight, size, known=None):
    """The sketch of rows of one cell."""
    rows = Rows(X, label, np.zeros(len(X), dtype=np.uint8), weight, ["A"])
    return RowSketch.of_rows(rows, np.arange(len(X)), row_keys(X, label), size, known)


@QUICK
@given(seed=st.integers(0, 2**32 - 1), cuts=st.lists(st.integers(0, 90), max_size=5))
def test_sketches_do_not_depend_on_order_or_cuts_and_count_exactly(seed, cuts):
    """Against counting all distinct rows, with many repeats and more of them than are kept."""
    rng = np.random.default_rng(seed)
    X, label = rng.integers(0, 4, (90, 2)) / 2.0, rng.integers(0, 2, 90) * 1.0
    weight = 1.0 + rng.integers(0, 2, 90)
    total = RowSketch.zero(10, 2)
    for i, j in pairwise([0, *sorted(cuts), 90]):
        total = total.merge(sketch(X[i:j], label[i:j], weight[i:j], 10, known=total))
    keys = row_keys(X, label)
    key, count = np.unique(keys, return_counts=True)
    assert_array_equal(total.key, key[:10])
    assert_array_equal(total.count, count[:10])
    assert_array_equal(row_keys(total.X, total.label), total.key)
    assert_array_equal(total.weight, [weight[keys == each].sum() for each in key[:10]])
    assert_array_equal(total.square, [(weight[keys == each] ** 2).sum() for each in key[:10]])
    assert total.n_rows == 90
    assert_allclose(total.total_weight, weight.sum())


def test_a_small_cell_is_its_own_sample_and_a_large_ones_weights_add_up():
    rng = np.random.default_rng(0)
    X, label, weight = rng.integers(0, 2, (400, 1)) * 1.0, np.zeros(400), np.ones(400)
    sample = sketch(X, label, weight, 1000).sample(5)
    assert_array_equal(np.sort(sample[0], axis=0), np.sort(X, axis=0))
    assert_array_equal(sample[2], 1.0)
    few, _, shares, _ = sketch(X, label, weight, 100).sample(5)
    assert len(few) == 100
    assert_allclose(shares.sum(), 400.0)
    assert_allclose(shares @ few[:, 0], X.sum(), rtol=1e-12)  # all distinct rows are in it
    distinct = rng.normal(size=(400, 1))
    some = sketch(distinct, label, weight, 100).sample(5)
    assert_allclose(some[2].sum(), 400.0)


@QUICK
@given(
    cuts=st.lists(st.integers(0, 1200), max_size=4), size=st.sampled_from([1, 7, 100, 1200, 5000])
)
def test_batches_are_the_same_however_a_source_is_cut(cuts, size):
    edges = [0, *sorted(cuts), 1200]
    source = IterableSource(lambda: (taken(DATA, slice(i, j)) for i, j in pairwise(edges)))
    found = list(batches(source, size))
    assert {len(batch) for batch in found[:-1]} <= {size}
    assert_array_equal(np.concatenate([batch.X for batch in found]), DATA["X"])
    assert_array_equal(np.concatenate([batch.label for batch in found]), DATA["y"])


@pytest.mark.parametrize("data", [DATA, weighted()], ids=["plain", "weighted"])
@pytest.mark.parametrize("centred", [False, True])
def test_sums_of_a_source_are_those_of_the_rows_in_memory(data, centred, limits):
    limits("sums.passes", BATCH_ROWS=256)
    rows = label_rows(**data)
    if data is not DATA:  # a source adds weights up as they come, whatever their units
        rows = replace(rows, weight=np.asarray(data["sample_weight"])[data["sample_weight"] > 0.0])
    centring = [fit_centring(rows, np.random.RandomState(0))] if centred else []
    plan = make_plan(centring=centring)
    found = add_up(ArraySource(**data, chunk_rows=101), plan)
    label = rows.label
    if centred:
        m, q = centring[0](rows.X)
        label = label - np.where(rows.kind == "outcome", m, q)
    keys = row_keys(rows.X, np.zeros(len(rows.X)))  # labels of two values
    groups = (keys % np.uint64(5)).astype(np.int64)
    expected = accumulate(plan.values, plan.size, replace(rows, label=label), groups=groups)
    assert_sums_close(found.sums, expected)


def test_sums_do_not_depend_on_chunks_or_threads_to_the_bit_nor_on_order_to_rounding(limits):
    limits("sums.passes", BATCH_ROWS=256)
    plan = make_plan(critic=LinearBasis(2))
    expected = add_up(ArraySource(**DATA), plan)
    for chunk_rows, n_jobs in ((1, 1), (97, 2), (600, 3)):
        source = ArraySource(**DATA, chunk_rows=chunk_rows)
        found = add_up(source, plan, n_jobs=n_jobs)
        assert_sums_equal(found.sums, expected.sums)
    order = np.random.default_rng(0).permutation(1200)
    assert_sums_close(add_up(ArraySource(**taken(DATA, order)), plan).sums, expected.sums)


def test_rows_that_repeat_fill_all_groups_whatever_their_order():
    """Eight kinds of rows in all: groups hashed from content would be empty."""
    rng = np.random.default_rng(1)
    data = DATA | {"X": rng.integers(0, 2, (1200, 1)) * 1.0, "y": rng.integers(0, 2, 1200) * 1.0}
    plan = replace(make_plan(data=data), basis=LinearBasis(1), critic=LinearBasis(1))
    expected = add_up(ArraySource(**data), plan).sums
    sizes = [sums.n_rows for sums in expected.cells.values()]
    assert len(sizes) == 20
    assert max(sizes) - min(sizes) <= 4  # four kinds of rows to a cell, dealt evenly
    order = rng.permutation(1200)
    assert_sums_close(add_up(ArraySource(**taken(data, order)), plan).sums, expected)


def test_target_rows_and_rows_of_weight_0_are_passed_over():
    data = weighted()
    extra = {
        "X": np.zeros((2, 2)),
        "y": np.array([np.nan, 1.0]),
        "kind": np.array(["target", "outcome"]),
        "population": np.array([NAMES[0], "nobody"]),
        "sample_weight": np.array([1.0, 0.0]),
    }
    more = {name: np.concatenate([values, extra[name]]) for name, values in data.items()}
    plan = make_plan()
    found, expected = (add_up(ArraySource(**rows), plan) for rows in (more, data))
    assert_sums_equal(found.sums, expected.sums)


def test_centring_by_group_uses_the_means_of_the_others():
    rows = label_rows(**DATA)
    centring = [fit_centring(rows, np.random.RandomState(seed)) for seed in range(5)]
    plan = make_plan(centring=centring)
    group = np.arange(len(rows.label)) % 4  # the fifth has no rows
    found = plan.centred(rows, group, n_jobs=1)
    for j in range(4):
        m, q = centring[j](rows.X)
        expected = rows.label - np.where(rows.kind == "outcome", m, q)
        assert_allclose(found[group == j], expected[group == j], rtol=1e-12)


class Interrupted:
    """A source that breaks off behind some chunks, as a power cut would."""

    feature_names = None

    def __init__(self, n_chunks):
        self.n_chunks = n_chunks

    def __iter__(self):
        for i, chunk in enumerate(ArraySource(**DATA, chunk_rows=90)):
            if i == self.n_chunks:
                raise KeyboardInterrupt
            yield chunk


@pytest.fixture
def checkpoint(tmp_path, limits):
    """Where a pass is kept that was interrupted behind 768 of 1,200 rows."""
    limits("sums.passes", BATCH_ROWS=256, CHECKPOINT_BATCHES=1)
    census, path = take_census(ArraySource(**DATA), sample_rows=500), tmp_path / "checkpoint"
    with pytest.raises(KeyboardInterrupt):
        sum_source(Interrupted(10), make_plan(), census, path)
    assert read_sums(path)[1].n_rows == 768
    return path


def test_a_pass_that_goes_on_from_a_checkpoint_gives_the_same_bits(checkpoint):
    plan, source = make_plan(), ArraySource(**DATA, chunk_rows=90)
    expected = add_up(source, plan)
    for _ in range(2):  # then from the end, where the first pass left it
        found = add_up(source, plan, checkpoint=checkpoint)
        assert_sums_equal(found.sums, expected.sums)
        assert_array_equal(found.policy.gram, expected.policy.gram)


def test_a_checkpoint_of_other_rows_is_refused(checkpoint, limits):
    plan, other = make_plan(), paper_problem(b=5.0).draw(300, random_state=1)
    with pytest.raises(TableError, match="first rows are not those the checkpoint has added up"):
        add_up(ArraySource(**other), plan, checkpoint=checkpoint)
    one_cell = [
        np.flatnonzero(np.asarray(DATA["kind"]) == k)[:300] for k in ("outcome", "treatment")
    ]
    some = taken(DATA, np.concatenate(one_cell))
    with pytest.raises(TableError, match="it has 600 rows, the checkpoint stands at 768"):
        add_up(ArraySource(**some), plan, checkpoint=checkpoint)
    limits("sums.passes", BATCH_ROWS=500)
    with pytest.raises(TableError, match="the checkpoint stands at row 768, amid a batch"):
        add_up(ArraySource(**DATA), plan, checkpoint=checkpoint)


def test_fewer_rows_than_in_the_first_pass_are_refused():
    census = take_census(ArraySource(**DATA), sample_rows=10)
    with pytest.raises(TableError, match=r"changed between the two passes: 1,200 .* then 1,100"):
        sum_source(ArraySource(**taken(DATA, slice(1100))), make_plan(), census)


def test_rows_that_were_not_in_the_first_pass_are_refused():
    plan = make_plan()
    outcomes = taken(DATA, np.asarray(DATA["kind"]) == "outcome")
    census = take_census(ArraySource(**outcomes), sample_rows=10)
    with pytest.raises(TableError, match=r"treatment rows of population .* are new"):
        sum_source(ArraySource(**DATA), plan, census)


def test_other_populations_and_outcomes_are_refused():
    plan = make_plan()
    third = DATA | {"population": np.where(np.arange(1200) == 5, "9", DATA["population"])}
    with pytest.raises(LabelError, match=r"has rows of population .*9.*the sums are for"):
        add_up(ArraySource(**third), plan)
    agreed = fourier_plan({"a": (0, 1), "b": (0, 1)}, ["1", "2"], outcome_values=(0, 1)).coding
    real = DATA | {"y": np.where(np.asarray(DATA["kind"]) == "outcome", 7.0, DATA["y"])}
    with pytest.raises(LabelError, match="the outcome is 7 in some rows, but is to be 0 or 1"):
        add_up(ArraySource(**real), make_plan(coding=agreed))


def test_census_finds_the_coding_of_all_rows():
    binary = take_census(ArraySource(**DATA, chunk_rows=50), sample_rows=20)
    assert binary.coding == label_rows(**DATA).coding
    assert binary.n_rows == 1200
    outcome = np.asarray(DATA["kind"]) == "outcome"
    real = DATA | {"y": np.where(outcome, np.arange(1200.0), DATA["y"])}
    census = take_census(ArraySource(**real, chunk_rows=50), sample_rows=20)
    assert not census.coding.is_binary
    assert len(census.outcomes) == 3
    signed = DATA | {"y": np.where(outcome, DATA["y"], 2.0 * (np.asarray(DATA["y"]) > 0) - 1.0)}
    again = take_census(ArraySource(**signed), sample_rows=2000)
    assert set(again.treatment(np.array([-1.0, 1.0]))) == {-1.0, 1.0}
    rows, group = again.sample(5)
    assert set(rows.label[rows.kind == "treatment"]) == {-1.0, 1.0}
    assert set(group) == set(range(5))


def look(data):
    census = take_census(ArraySource(**data, chunk_rows=100), sample_rows=10)
    census.check_complete()
    return census.coding


def refused(data, message):
    with pytest.raises(LabelError, match=message):
        look(data)


def test_every_census_message():
    outcome = np.asarray(DATA["kind"]) == "outcome"
    first = np.asarray(DATA["population"]) == NAMES[0]
    refused(taken(DATA, first), "two populations .* the source has 1")
    refused(taken(DATA, ~(first & outcome)), "has no outcome rows")
    refused(DATA | {"y": np.where(outcome, 1.0, DATA["y"])}, "the outcome is 1 in all outcome rows")
    codes = np.where(outcome, DATA["y"], 2.0)
    refused(DATA | {"y": codes}, "the arrays, from row .* on: treatment labels must be coded")
    empty = {"X": np.empty((0, 2)), "y": [], "kind": [], "population": []}
    with pytest.raises(TableError, match="the source has no rows"):
        take_census(IterableSource(lambda: [empty]), sample_rows=10)
    with pytest.raises(TableError, match="the source has no rows"):
        take_census(IterableSource(list), sample_rows=10)


class Ragged:
    """A source that changes its mind about the number of features."""

    feature_names = None

    def __iter__(self):
        yield from ArraySource(**DATA)
        yield from ArraySource(**(DATA | {"X": DATA["X"][:, :1]}))


def test_a_source_of_ones_own_with_other_features_is_refused():
    with pytest.raises(TableError, match="has 1 features, the rows before it have 2"):
        take_census(Ragged(), sample_rows=10)


def agreed(**options):
    return replace(
        fourier_plan({"a": (0.0, 1.0), "b": (0.0, 2.0)}, ["p", "q"], **options), populations=NAMES
    )


def test_sums_of_parties_add_up_to_those_of_all_rows():
    plan = agreed(n_functions=7, outcome_values=(-1.0, 1.0))
    data = dict(paper_problem(b=5.0).draw(1500, random_state=0))
    whole = aggregate_rows(data, plan)
    parts = [
        aggregate_rows(taken(data, np.asarray(data["kind"]) == kind), plan)
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
    with pytest.raises(InputError, match=r"fewer than the minimum of 1000: .* Nothing was written"):
        aggregate_rows(DATA, agreed(width=2.0), min_count=1000)


def test_a_source_is_asked_for_names_that_its_chunks_do_not_say():
    class Silent:
        feature_names = ("age", "spend")

        def __iter__(self):
            return (replace(chunk, feature_names=()) for chunk in ArraySource(**DATA))

    assert take_census(Silent(), sample_rows=100).feature_names == ("age", "spend")


@pytest.mark.filterwarnings("ignore::unjoined.errors.UnjoinedWarning")
@pytest.mark.parametrize("estimator", [MinMaxUplift(random_state=0), Uplift(random_state=0)])
@pytest.mark.parametrize("column", ["X", "y", "sample_weight"])
def test_a_source_that_gives_other_rows_when_read_again_is_refused(estimator, column):
    """One number of one row outside of most samples is enough; another order of rows is not."""
    data = {k: np.asarray(v) for k, v in dict(campaign_problem().draw(200, random_state=0)).items()}
    data["sample_weight"] = np.ones(len(data["y"]))
    reads = []

    def source():
        reads.append(0)
        rows = {name: values.copy() for name, values in data.items()}
        if column == "y":
            rows["y"][0] = (rows["y"][0] + len(reads) // 2) % 2
        else:
            rows[column][0] += 0.001 * len(reads)
        order = np.random.default_rng(len(reads)).permutation(len(rows["y"]))
        yield {name: values[order] for name, values in rows.items()}

    with pytest.raises(TableError, match="gave other rows when it was read again"):
        clone(estimator).fit_chunks(source, sample_rows=60)
    assert len(reads) > 1
