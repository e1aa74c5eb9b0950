"""Files of sums: the same bits back, and a refusal for whatever is not what it should be."""

import json
import zipfile
from copy import deepcopy
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.linear_model import LinearRegression

from tests.helpers import fit_centring
from unjoined import MinMaxUplift, SeparateLabels
from unjoined.data import paper_problem
from unjoined.data.rows import label_rows
from unjoined.errors import DisclosureWarning, InputError, TableError
from unjoined.federated import (
    PlannedSums,
    SumsPlan,
    aggregate_rows,
    fourier_plan,
    merge_sums,
    plan_digest,
    read_sums,
    write_sums,
)
from unjoined.model import FourierBasis, GaussianBasis, LinearBasis
from unjoined.model.basis import Scaling, StackedBasis
from unjoined.model.census import take_census
from unjoined.model.draw import PrincipalBasis
from unjoined.model.passes import sum_source

DATA = dict(paper_problem(b=5.0).draw(200, random_state=0))
ROWS = label_rows(**DATA)
GAUSSIAN = GaussianBasis(ROWS.X[:4], 1.5)
FOURIER = FourierBasis(np.array([[1.0, 2.0], [0.5, 0.1]]), np.array([0.1, 0.2]))


def make_plan(basis=GAUSSIAN, critic=None, *, centring=(), names=("a", "b")):
    return SumsPlan(
        names,
        tuple(ROWS.names),
        ROWS.coding,
        Scaling.of_rows(ROWS.X, ROWS.weight),
        basis,
        basis if critic is None else critic,
        centring,
        3,
    )


def add_up(plan):
    """Return sums by any plan; `aggregate_rows` takes only those that single out no row."""
    source = SeparateLabels(**DATA, stream=True).chunks()
    return sum_source(source, plan, take_census(source, sample_rows=10_000))


@pytest.fixture
def sums():
    return add_up(make_plan())


PLANS = {
    "gaussian": make_plan(),
    "principal": make_plan(
        StackedBasis(PrincipalBasis(np.array([[0.6], [0.8]])), GAUSSIAN)
    ),
    "stacked": make_plan(StackedBasis(LinearBasis(2), FOURIER), GAUSSIAN, names=None),
    "centred": make_plan(centring=(fit_centring(ROWS, np.random.RandomState(0)),)),
    "by group": make_plan(
        centring=tuple(fit_centring(ROWS, np.random.RandomState(j)) for j in range(3))
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_what_is_read_is_what_was_written(name, tmp_path):
    written = add_up(PLANS[name])
    found = read_sums(write_sums(written, tmp_path / "all.sums"))
    assert plan_digest(found.plan) == plan_digest(written.plan)
    assert_array_equal(found.plan.values(ROWS.X), written.plan.values(ROWS.X))
    for plan in (found.plan, written.plan):
        assert (plan.critic is plan.basis) == (PLANS[name].critic is PLANS[name].basis)
    for again, means in zip(found.plan.centring, written.plan.centring, strict=True):
        assert_array_equal(again(ROWS.X), means(ROWS.X))
    for one, other in ((found.sums, written.sums), (found.policy, written.policy)):
        for field in fields(other):
            assert_array_equal(getattr(one, field.name), getattr(other, field.name))


def test_means_of_real_outcomes_stay_without_bounds(tmp_path):
    rng = np.random.default_rng(0)
    y = np.where(ROWS.kind == "outcome", 10.0 * rng.normal(size=800), np.nan)
    rows = label_rows(**DATA | {"y": y})
    centring = fit_centring(rows, np.random.RandomState(0))
    plan = replace(make_plan(centring=(centring,)), coding=rows.coding)
    found = read_sums(write_sums(PlannedSums.of_no_rows(plan), tmp_path / "plan.sums"))
    assert np.abs(centring(5.0 * ROWS.X)).max() > 1.0
    assert_array_equal(found.plan.centring[0](5.0 * ROWS.X), centring(5.0 * ROWS.X))


def test_the_same_sums_give_the_same_bytes(sums, tmp_path):
    first, second = (write_sums(sums, tmp_path / name) for name in ("one", "two"))
    assert first.read_bytes() == second.read_bytes()


def test_a_file_says_what_it_holds_and_is_no_pickle(sums, tmp_path):
    path = write_sums(sums, tmp_path / "all.sums")
    with np.load(path, allow_pickle=False) as file:
        manifest = json.loads(file["unjoined-sums-1"].tobytes())
        assert manifest["plan"]["populations"] == list(sums.plan.populations)
        assert_array_equal(
            file[f"array{manifest['policy']['gram']['array']}"], sums.policy.gram
        )


def test_a_change_of_any_byte_of_an_array_is_noticed(sums, tmp_path):
    path = write_sums(sums, tmp_path / "all.sums")
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        middles = [
            info.header_offset + info.file_size // 2 for info in archive.infolist()
        ]
    for at in middles:
        changed = bytearray(whole)
        changed[at] ^= 1
        path.write_bytes(bytes(changed))
        with pytest.raises(TableError, match="altered or cut off"):
            read_sums(path)
    path.write_bytes(whole[:-8])
    with pytest.raises(TableError, match="altered or cut off"):
        read_sums(path)


def test_other_files_and_versions_are_refused(sums, tmp_path):
    with pytest.raises(TableError, match="there is no file of sums"):
        read_sums(tmp_path / "none")
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    (tmp_path / "text").write_text("hello\n")
    for name in ("text", "other.npz"):
        with pytest.raises(TableError, match="is not a file of sums"):
            read_sums(tmp_path / name)
    content = write_sums(sums, tmp_path / "new").read_bytes()
    (tmp_path / "new").write_bytes(
        content.replace(b"unjoined-sums-1", b"unjoined-sums-2")
    )
    with pytest.raises(TableError, match="was written by another version"):
        read_sums(tmp_path / "new")


def test_a_full_disk_leaves_the_earlier_file_whole(sums, tmp_path, monkeypatch):
    path = write_sums(sums, tmp_path / "all.sums")
    before = path.read_bytes()

    def full(self, data):
        with self.open("wb") as file:
            file.write(data[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(TableError, match=r"could not be written.*No space left"):
        write_sums(merge_sums([sums]), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "other",
    [
        replace(make_plan(), basis=GaussianBasis(ROWS.X[:4], 1.6)),
        make_plan(names=("a", "c")),
        replace(make_plan(), n_groups=4),
        replace(make_plan(), scaling=Scaling.identity(2)),
        PLANS["centred"],
    ],
    ids=["width", "features", "groups", "scaling", "centring"],
)
def test_sums_of_other_plans_do_not_merge(sums, other):
    with pytest.raises(InputError, match="sums 2 were made with another basis"):
        merge_sums([sums, replace(sums, plan=other)])


def test_every_remaining_message(sums):
    with pytest.raises(InputError, match="there is nothing to merge"):
        merge_sums([])
    with pytest.raises(InputError, match="populations need names of text or numbers"):
        plan_digest(replace(make_plan(), populations=(None, "a")))
    model = fit_centring(ROWS, np.random.RandomState(0), model=LinearRegression())
    with pytest.raises(InputError, match="cannot hold the regressor given as center"):
        plan_digest(make_plan(centring=(model,)))

    class Strange:
        size, n_features = 1, 2

        def __call__(self, X):
            return X[:, :1]

    with pytest.raises(InputError, match="not Strange"):
        plan_digest(make_plan(Strange()))


@pytest.mark.filterwarnings("ignore::unjoined.errors.WeakIdentificationWarning")
def test_sums_without_a_cell_or_group_are_refused(sums):
    model = MinMaxUplift()
    outcomes, thin = deepcopy(sums), deepcopy(sums)
    outcomes.sums.n_rows[1] = 0
    with pytest.raises(InputError, match="hold no treatment rows of population"):
        model.fit_moments(outcomes)
    for field in fields(thin.sums):
        getattr(thin.sums, field.name)[:, :, 1] = 0
    with pytest.raises(
        InputError, match=r"ridges are chosen by 3 groups .* fill 2 of them"
    ):
        model.fit_moments(thin)
    fitted = MinMaxUplift(ridge_f=0.1, ridge_g=0.1).fit_moments(thin)
    assert np.isfinite(fitted.coef_).all()


def share_of_the_outcomes(seed, fewer=0, changed=0):
    """Return sums over outcome rows, some of each table left out and some moved."""
    data = paper_problem(b=5.0).draw(2000, random_state=seed)
    at = np.concatenate([data.rows("outcome", k)[fewer:] for k in data.populations])
    rows = {name: np.array(values[at]) for name, values in data.items()}
    rows["X"] = np.clip(rows["X"], -6.0, 6.0)
    rows["X"][:changed] *= 0.9
    rows["X"][len(at) // 2 :][:changed] *= 0.9
    plan = fourier_plan(
        {"a": (0.0, 3.0), "b": (0.0, 3.0)}, data.populations, outcome_values=(-1, 1)
    )
    return aggregate_rows(rows, plan)


def test_tables_that_differ_in_few_rows_are_noticed():
    for fewer, changed in ((1, 0), (0, 1), (3, 2)):
        with pytest.warns(DisclosureWarning, match="who has both files can"):
            merge_sums(
                [share_of_the_outcomes(0), share_of_the_outcomes(0, fewer, changed)]
            )


def test_tables_of_different_people_merge_in_silence(recwarn):
    merge_sums([share_of_the_outcomes(seed) for seed in range(8)])
    merge_sums([share_of_the_outcomes(0), share_of_the_outcomes(0, fewer=200)])
    assert not [w for w in recwarn if issubclass(w.category, DisclosureWarning)]
