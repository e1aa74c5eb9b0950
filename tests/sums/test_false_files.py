"""Files of sums that were made to deceive: each has the right checksum, and each is refused."""

import hashlib
import json
import tracemalloc
import zipfile
from io import BytesIO

import numpy as np
import pytest

from unjoined import MinMaxUplift
from unjoined.data import paper_problem
from unjoined.errors import TableError
from unjoined.sums import aggregate_rows, fourier_plan, read_sums, write_sums

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
    text = header if isinstance(header, bytes) else json.dumps(header, sort_keys=True).encode()
    return sealed({MANIFEST: np.frombuffer(text, dtype=np.uint8), **arrays})


def sealed(members):
    digest = hashlib.sha256()
    for name in sorted(members):
        digest.update(f"{name} {members[name].shape}\n".encode() + members[name].tobytes())
    content = BytesIO()
    np.savez(content, **members, sha256=np.frombuffer(digest.digest(), dtype=np.uint8))
    return content.getvalue()


def packed(members, **options):
    """Return an archive of parts that are bytes, whatever they hold."""
    content = BytesIO()
    with zipfile.ZipFile(content, "w", **options) as archive:
        for name, raw in members:
            archive.writestr(name, raw)
    return content.getvalue()


def parts_of(content):
    with zipfile.ZipFile(BytesIO(content)) as archive:
        return [(info.filename, archive.read(info)) for info in archive.infolist()]


def digest_of(header, arrays):
    """Return the digest of a plan as the file is to have it, whatever the plan says."""
    names = [name for name in arrays if not name.startswith(("cell", "policy"))]
    found = hashlib.sha256(json.dumps(header["plan"], sort_keys=True).encode())
    for name in names:
        found.update(f"{name} {arrays[name].shape}".encode())
        found.update(arrays[name].tobytes())
    return found.hexdigest()


def put(array, value, *at):
    array[at] = value


LIES = {
    # the plan
    "names twice": lambda h, a: h["plan"].update(feature_names=["a", "a"]),
    "one name too few": lambda h, a: h["plan"].update(feature_names=["a"]),
    "names that are numbers": lambda h, a: h["plan"].update(feature_names=[1, 2]),
    "one population": lambda h, a: h["plan"].update(populations=["1"]),
    "the same population": lambda h, a: h["plan"].update(populations=["1", "1"]),
    "a list for a population": lambda h, a: h["plan"].update(populations=["1", ["2"]]),
    "a scale of outcomes of 0": lambda h, a: h["plan"].update(coding=[0.0, 0.0, True]),
    "an infinite offset": lambda h, a: h["plan"].update(coding=[float("inf"), 1.0, True]),
    "no coding": lambda h, a: h["plan"].update(coding=None),
    "no groups": lambda h, a: h["plan"].update(n_groups=0),
    "a billion groups": lambda h, a: h["plan"].update(n_groups=10**9),
    "groups by halves": lambda h, a: h["plan"].update(n_groups=5.5),
    "an unknown basis": lambda h, a: h["plan"]["basis"].update(type="wavelet"),
    "a basis of other features": lambda h, a: h["plan"]["basis"]["first"].update(n_features=3),
    "a basis without a second half": lambda h, a: h["plan"]["basis"].pop("second"),
    "a basis that is a number": lambda h, a: h["plan"].update(basis=3),
    "centring for two groups of five": lambda h, a: h["plan"].update(centring=[{}, {}]),
    "a centring that is none": lambda h, a: h["plan"].update(centring=[{"high": []}]),
    "one entry more": lambda h, a: h["plan"].update(note="hello"),
    "a scale of 0": lambda h, a: put(a["scaling.scale"], 0.0, 0),
    "a scale below 0": lambda h, a: put(a["scaling.scale"], -1.0, 0),
    "a mean that is not a number": lambda h, a: put(a["scaling.mean"], np.nan, 0),
    "an infinite frequency": lambda h, a: put(a["basis.second.frequencies"], np.inf, 0, 0),
    "a phase too few": lambda h, a: a.update({"basis.second.phases": np.zeros(2)}),
    "three scales for two features": lambda h, a: a.update({"scaling.scale": np.ones(3)}),
    "another plan's digest": lambda h, a: h.update(plan_digest="0" * 64),
    # the sums
    "no weight": lambda h, a: h["cells"][0].update(weight=0.0),
    "a weight below 0": lambda h, a: h["cells"][0].update(weight=-5.0),
    "a weight that is not a number": lambda h, a: h["cells"][0].update(weight=float("nan")),
    "another weight": lambda h, a: h["cells"][0].update(weight=h["cells"][0]["weight"] * 2),
    "no rows": lambda h, a: h["cells"][0].update(rows=0),
    "rows below 0": lambda h, a: h["cells"][0].update(rows=-3),
    "half a row": lambda h, a: h["cells"][0].update(rows=100.5),
    "fewer rows than effective ones": lambda h, a: h["cells"][0].update(rows=20),
    "squared weights too small": lambda h, a: h["cells"][0].update(weight_square=1e-3),
    "squared weights too large": lambda h, a: h["cells"][0].update(weight_square=1e9),
    "a third population": lambda h, a: h["cells"][0].update(population=2),
    "a population that is true": lambda h, a: h["cells"][0].update(population=True),
    "a group out of range": lambda h, a: h["cells"][0].update(group=5),
    "a group below 0": lambda h, a: h["cells"][0].update(group=-1),
    "the same cell twice": lambda h, a: h["cells"][1].update(group=h["cells"][0]["group"]),
    "a kind of its own": lambda h, a: h["cells"][0].update(kind="target"),
    "a cell less than there are arrays": lambda h, a: h["cells"].pop(),
    "cells that are no list": lambda h, a: h.update(cells={}),
    "a gram that is not symmetric": lambda h, a: put(a["cell0.gram"], 0.5, 0, 1),
    "a gram that is negative": lambda h, a: a["cell0.gram"].__imul__(-1.0),
    "a gram that is indefinite": lambda h, a: put(
        a["cell0.gram"], 2 * np.sqrt(a["cell0.gram"][1, 1] * a["cell0.gram"][2, 2]), [1, 2], [2, 1]
    ),
    "a gram with a hole": lambda h, a: put(a["cell0.gram"], np.nan, 1, 1),
    "a gram of another size": lambda h, a: a.update({"cell0.gram": np.eye(3)}),
    "labels beyond -1 and +1": lambda h, a: a["cell0.label_basis"].__imul__(1e6),
    "an infinite label": lambda h, a: put(a["cell0.label_basis"], np.inf, 0),
    "treated more than once": lambda h, a: a["cell10.label_cross"].__imul__(50.0),
    "a cross product that is not symmetric": lambda h, a: put(a["cell10.label_cross"], 9.0, 1, 2),
    "labels that contradict": lambda h, a: a["cell10.label_basis"].__imul__(0.5),
    # the policies
    "policies of other rows": lambda h, a: h.update(policy_rows=[1, 2]),
    "policies of rows below 0": lambda h, a: h.update(policy_rows=[-1, 2000]),
    "policies of one population": lambda h, a: h.update(policy_rows=[2000]),
    "policies of another weight": lambda h, a: a["policy.weight"].__imul__(2.0),
    "policies beyond -1 and +1": lambda h, a: a["policy.label"].__imul__(100.0),
    "policies that are negative": lambda h, a: put(a["policy.gram"], -1.0, 0, 1, 1),
    "policies that are not symmetric": lambda h, a: put(a["policy.square"], 9.0, 0, 1, 2),
    "policies of other squares": lambda h, a: put(a["policy.square"], 9.0, 0, 0, 0),
    # the rest
    "tables that are not listed": lambda h, a: h.update(tables=[]),
    "a table twice": lambda h, a: h["tables"].append(h["tables"][0]),
    "a table without an identity": lambda h, a: h["tables"][0].__setitem__(2, "x"),
    "a table of a third kind": lambda h, a: h["tables"][0].__setitem__(0, "target"),
    "an array that nothing asks for": lambda h, a: a.update(more=np.ones(3)),
    "an array too few": lambda h, a: a.pop("policy.square"),
    "a position that is a word": lambda h, a: h.update(position="here"),
    "a position below 0": lambda h, a: h.update(position=[-1, "0"]),
    "a position with a digest too large": lambda h, a: h.update(position=[5, str(2**64)]),
    "other contents": lambda h, a: h.update(contents="rows"),
    "no policies": lambda h, a: h.pop("policy_rows"),
    "bytes for numbers": lambda h, a: a.update({"policy.weight": np.ones(2, dtype=np.uint8)}),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_file_that_lies_is_refused_though_its_checksum_is_right(honest, tmp_path, lie):
    header, arrays = taken_apart(honest)
    LIES[lie](header, arrays)
    if lie != "another plan's digest":
        header["plan_digest"] = digest_of(header, arrays)
    path = tmp_path / "lie.sums"
    path.write_bytes(put_together(header, arrays))
    with pytest.raises(TableError, match=r"is not a sound file of sums: .*\. Get it again"):
        read_sums(path)


def test_what_was_taken_apart_and_put_together_is_read(honest, tmp_path):
    """Else the lies might be refused for what the test does and not for the lie."""
    header, arrays = taken_apart(honest)
    assert header["plan_digest"] == digest_of(header, arrays)
    path = tmp_path / "truth.sums"
    path.write_bytes(put_together(header, arrays))
    assert np.isfinite(MinMaxUplift().fit_moments(read_sums(path)[0]).coef_).all()


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("basis", ["smooth", "gaussian", "fourier", "linear"])
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
    rows = {"X": X, "y": y, "kind": kind, "population": np.resize(["1", "2"], n)}
    model = MinMaxUplift(basis=basis, center=center, width="median", random_state=0)
    sums = model.collect_sums(rows | {"sample_weight": weight})
    found, _ = read_sums(write_sums(sums, tmp_path / "all.sums"))
    np.testing.assert_array_equal(
        found.sums.total("treatment", 0).gram, sums.sums.total("treatment", 0).gram
    )


HEADERS = {
    "no JSON": b"hello",
    "no text": b"\xff\xfe\x00",
    "a list": b"[1, 2]",
    "nothing": b"",
    "a number of many digits": b'{"contents": ' + b"9" * 5000 + b"}",
    "a deep nest": b"[" * 100_000,
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_manifest_that_is_none_is_refused(honest, tmp_path, name):
    path = tmp_path / "lie.sums"
    path.write_bytes(put_together(HEADERS[name], taken_apart(honest)[1]))
    with pytest.raises(TableError, match=r"is not a sound file of sums: (its|the) manifest"):
        read_sums(path)


def test_a_basis_of_a_thousand_storeys_is_refused(honest, tmp_path):
    header, arrays = taken_apart(honest)
    for _ in range(200):
        basis = header["plan"]["basis"]
        header["plan"]["basis"] = {"type": "stacked", "first": basis, "second": basis["second"]}
    path = tmp_path / "lie.sums"
    path.write_bytes(put_together(header, arrays))
    with pytest.raises(TableError, match="is stacked too deeply"):
        read_sums(path)


def refused(path, content):
    """Read what must be refused, and return how many bytes that took at most."""
    path.write_bytes(content)
    tracemalloc.start()
    with pytest.raises(TableError, match=r"is not a sound file of sums|altered or cut off"):
        read_sums(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize("shape", [(2**40,), (2**62, 2**62), (10**30,), (-1, -8), (0, 2**60), (5,)])
@pytest.mark.parametrize("name", ["scaling.mean.npy", f"{MANIFEST}.npy"])
def test_an_array_that_claims_to_be_huge_allocates_nothing(honest, tmp_path, shape, name):
    kind = "|u1" if name.startswith(MANIFEST) else "<f8"
    head = BytesIO()
    description = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(head, description)
    lie = [(n, head.getvalue() + raw[128:] if n == name else raw) for n, raw in parts_of(honest)]
    assert refused(tmp_path / "lie.sums", packed(lie)) < 20 * len(honest) + 2**20


OBJECTS = np.array([{"a": 1}], dtype=object)
ARCHIVES = {
    "compressed": lambda h: packed(parts_of(h), compression=zipfile.ZIP_DEFLATED),
    "a bomb": lambda h: packed(
        [*parts_of(h), ("more.npy", bytes(2**26))], compression=zipfile.ZIP_DEFLATED
    ),
    "a part twice": lambda h: packed([*parts_of(h), parts_of(h)[1]]),
    "a part more": lambda h: packed([*parts_of(h), ("more.npy", parts_of(h)[1][1])]),
    "a part less": lambda h: packed(parts_of(h)[:-1]),
    "no manifest": lambda h: sealed({f"{MANIFEST}.more": np.ones(3)}),
    "a part that is no array": lambda h: packed([*parts_of(h), ("more", b"hello")]),
    "a pickle": lambda h: sealed({MANIFEST: np.load(BytesIO(h))[MANIFEST], "more": OBJECTS}),
    "numbers of another type": lambda h: sealed(
        {MANIFEST: np.load(BytesIO(h))[MANIFEST], "scaling.mean": np.ones(2, dtype=np.float32)}
    ),
    "bytes for numbers": lambda h: sealed(
        {MANIFEST: np.load(BytesIO(h))[MANIFEST], "scaling.mean": np.ones(2, dtype=np.uint8)}
    ),
    "Fortran order": lambda h: sealed(
        {MANIFEST: np.load(BytesIO(h))[MANIFEST], "scaling.mean": np.ones((2, 3), order="F")}
    ),
}


@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_archive_of_another_make_is_refused(honest, tmp_path, name):
    lie = ARCHIVES[name](honest)
    assert refused(tmp_path / "lie.sums", lie) < 20 * len(honest) + 2**20


def test_parts_that_overlap_do_not_expand(honest, tmp_path):
    """A directory may name the same bytes many times; together they must fit in the file."""
    once = packed([(f"{MANIFEST}.npy", bytes(2**20))])
    at = once.index(b"PK\x01\x02")
    end = once.index(b"PK\x05\x06")
    entry, last = once[at:end], bytearray(once[end:])
    last[8:12] = (1000).to_bytes(2, "little") * 2
    last[12:16] = (1000 * len(entry)).to_bytes(4, "little")
    lie = once[:at] + entry * 1000 + bytes(last)
    with zipfile.ZipFile(BytesIO(lie)) as archive:
        assert sum(info.file_size for info in archive.infolist()) == 1000 * 2**20
    assert refused(tmp_path / "lie.sums", lie) < 2**23


def test_arrays_with_their_names_exchanged_are_refused(honest, tmp_path):
    names = ["cell0.gram.npy", "cell1.gram.npy"]
    parts = dict(parts_of(honest))
    parts |= {names[0]: parts[names[1]], names[1]: parts[names[0]]}
    path = tmp_path / "lie.sums"
    path.write_bytes(packed(parts.items()))
    with pytest.raises(TableError, match="altered or cut off"):
        read_sums(path)
    header, arrays = taken_apart(honest)
    arrays["policy.gram"], arrays["policy.square"] = arrays["policy.square"], arrays["cell0.gram"]
    path.write_bytes(put_together(header, arrays))
    with pytest.raises(TableError, match="is not a sound file of sums"):
        read_sums(path)


def test_whatever_byte_is_altered_nothing_but_our_error_is_raised(honest, tmp_path):
    """With the checksum renewed after each change: an altered number may be read, or refused."""
    rng = np.random.default_rng(0)
    header, arrays = taken_apart(honest)
    text = json.dumps(header, sort_keys=True).encode()
    path, n_refused = tmp_path / "lie.sums", 0
    for i in range(300):
        altered = bytearray(text)
        others = {name: array.copy() for name, array in arrays.items()}
        for at in rng.integers(0, len(text), rng.integers(1, 4) if i % 3 else 0):
            altered[at] = rng.integers(0, 256)
        name = list(others)[rng.integers(len(others))]
        others[name].view(np.uint8).reshape(-1)[rng.integers(others[name].nbytes)] ^= 255
        path.write_bytes(put_together(bytes(altered), others))
        try:
            read_sums(path)
        except TableError:
            n_refused += 1
    assert n_refused > 200


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
            found, _ = read_sums(path)
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
    for stop in np.linspace(0, len(honest) - 1, 60).astype(int):
        path.write_bytes(honest[:stop])
        with pytest.raises(TableError, match=r"is not a file of sums|altered or cut off"):
            read_sums(path)
