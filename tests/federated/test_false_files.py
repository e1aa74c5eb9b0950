"""Files of sums that were made to deceive: each has the right checksum, and each is refused."""

import hashlib
import json
import zipfile
from io import BytesIO

import numpy as np
import pytest

from unjoined import MinMaxUplift
from unjoined.data import paper_problem
from unjoined.data.rows import separate_labels
from unjoined.errors import TableError
from unjoined.federated import aggregate_rows, fourier_plan, read_sums, write_sums

MANIFEST = "unjoined-sums-1"
NAMES = ["1", "2"]
DATA = dict(paper_problem(b=5.0).draw(2000, random_state=0))
PLAN = fourier_plan(
    {"a": (0.0, 5.0), "b": (0.0, 5.0)}, NAMES, outcome_values=(-1, 1), n_functions=3
)


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    path = tmp_path_factory.mktemp("sums") / "all.sums"
    return write_sums(aggregate_rows(DATA, PLAN), path).read_bytes()


def taken_apart(content):
    """Return the manifest and the arrays by name."""
    with np.load(BytesIO(content), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files if name != "sha256"}
    return json.loads(arrays.pop(MANIFEST).tobytes()), arrays


def put_together(header, arrays):
    """Return a file with the right checksum, whatever it says."""
    text = (
        header
        if isinstance(header, bytes)
        else json.dumps(header, sort_keys=True).encode()
    )
    return sealed({MANIFEST: np.frombuffer(text, dtype=np.uint8), **arrays})


def sealed(members):
    digest = hashlib.sha256()
    for name in sorted(members):
        digest.update(
            f"{name} {members[name].shape}\n".encode() + members[name].tobytes()
        )
    content = BytesIO()
    np.savez(content, **members, sha256=np.frombuffer(digest.digest(), dtype=np.uint8))
    return content.getvalue()


def array_of(header, arrays, *path):
    """Return the array that a part of the manifest refers to."""
    for name in path:
        header = header[name]
    return arrays[f"array{header['array']}"]


def put(header, arrays, path, value):
    array_of(header, arrays, *path)[...] = value


def cut(header, arrays, part, name):
    """Refer to an array of a single number."""
    arrays["array9999"] = np.zeros(1)
    header[part][name] = {"array": 9999}


LIES = {
    "names twice": lambda h, a: h["plan"].update(feature_names=["a", "a"]),
    "one population": lambda h, a: h["plan"].update(populations=["1"]),
    "no groups": lambda h, a: h["plan"].update(n_groups=0),
    "groups in words": lambda h, a: h["plan"].update(n_groups="five"),
    "groups that are not there": lambda h, a: h["plan"].update(n_groups=4),
    "an unknown basis": lambda h, a: h["plan"]["basis"].update(kind="Wavelet"),
    "a plan for a basis": lambda h, a: h["plan"].update(basis=h["plan"]["coding"]),
    "something else": lambda h, a: h.update(h.pop("plan"), kind="SumsPlan"),
    "an entry too many": lambda h, a: h.update(more=1),
    "a scale of 0": lambda h, a: put(h, a, ("plan", "scaling", "scale"), 0.0),
    "a gram with a hole": lambda h, a: put(h, a, ("sums", "gram"), np.nan),
    "a gram of another size": lambda h, a: cut(h, a, "sums", "gram"),
    "policies of another size": lambda h, a: cut(h, a, "policy", "label"),
    "half a row": lambda h, a: h["sums"].update(n_rows=h["sums"]["weight"]),
    "words for numbers": lambda h, a: a.update(array0=np.array(["a"])),
    "an array too few": lambda h, a: a.pop("array0"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_file_that_lies_is_refused_though_its_checksum_is_right(
    honest, tmp_path, lie
):
    header, arrays = taken_apart(honest)
    LIES[lie](header, arrays)
    path = tmp_path / "lie.sums"
    path.write_bytes(put_together(header, arrays))
    with pytest.raises(
        TableError, match=r"is not a sound file of sums: .*\. Get it again"
    ):
        read_sums(path)


def test_what_was_taken_apart_and_put_together_is_read(honest, tmp_path):
    """Else the lies might be refused for what the test does and not for the lie."""
    path = tmp_path / "truth.sums"
    path.write_bytes(put_together(*taken_apart(honest)))
    assert np.isfinite(MinMaxUplift().fit_moments(read_sums(path)).coef_).all()


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("basis", ["smooth", "fourier"])
def test_honest_sums_of_strange_tables_are_read(tmp_path, basis, center):
    """Weights over eight decades, features far from 0 or nearly constant, rows that repeat."""
    rng = np.random.default_rng(0)
    n = 2000
    X = rng.normal(size=(n, 4)) * [1.0, 1e-6, 1e5, 1.0] + [1e4, 1.0, 0.0, 0.0]
    X[:, 3] = rng.integers(0, 2, n)
    X[: n // 2] = X[rng.integers(0, 50, n // 2)]
    kind = np.resize(["outcome", "outcome", "treatment", "treatment"], n)
    y = np.where(kind == "outcome", 1e4 + rng.normal(size=n), rng.integers(0, 2, n))
    weight = 10.0 ** rng.uniform(-4, 4, n)
    rows = {"X": X, **separate_labels(y, kind), "population": np.resize(["1", "2"], n)}
    model = MinMaxUplift(basis=basis, center=center, width="median", random_state=0)
    sums = model.collect_sums(rows | {"sample_weight": weight})
    found = read_sums(write_sums(sums, tmp_path / "all.sums"))
    np.testing.assert_array_equal(
        found.sums.total("treatment", 0).gram, sums.sums.total("treatment", 0).gram
    )


def test_a_manifest_that_is_none_is_refused(honest, tmp_path):
    path = tmp_path / "lie.sums"
    path.write_bytes(put_together(b"hello", taken_apart(honest)[1]))
    with pytest.raises(TableError, match="is not a sound file of sums"):
        read_sums(path)


def test_an_archive_that_would_expand_is_refused(honest, tmp_path):
    path = tmp_path / "lie.sums"
    with zipfile.ZipFile(BytesIO(honest)) as archive:
        parts = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, raw in parts.items():
            archive.writestr(name, raw)
        archive.writestr("more.npy", bytes(2**26))
    with pytest.raises(TableError, match="altered or cut off"):
        read_sums(path)


@pytest.mark.slow
def test_whatever_byte_of_the_file_is_altered_it_is_refused_or_the_sums_are_the_same(
    honest, tmp_path
):
    """An archive has bytes that say nothing, such as the time of day."""
    rng = np.random.default_rng(1)
    path = tmp_path / "lie.sums"
    expected, kept = taken_apart(honest), 0
    for _ in range(600):
        altered = bytearray(honest)
        altered[rng.integers(len(honest))] ^= rng.integers(1, 256)
        path.write_bytes(altered)
        try:
            found = read_sums(path)
        except TableError:
            continue
        kept += 1
        header, arrays = taken_apart(write_sums(found, path).read_bytes())
        assert header == expected[0]
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, expected[1][name])
    assert kept < 300


def test_a_file_that_was_cut_off_anywhere_is_refused(honest, tmp_path):
    path = tmp_path / "cut.sums"
    for stop in np.linspace(0, len(honest) - 1, 20).astype(int):
        path.write_bytes(honest[:stop])
        with pytest.raises(
            TableError, match=r"is not a file of sums|altered or cut off"
        ):
            read_sums(path)
