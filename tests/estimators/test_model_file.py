"""Model files that were damaged or made up: one clear error, or the same predictions to the bit."""

import hashlib
import io
import json
import subprocess
import sys
import zipfile
import zlib

import numpy as np
import pytest
import skops.io
from numpy.testing import assert_array_equal
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression

from unjoined import MinMaxUplift, PlugInUplift, load_model, save_model
from unjoined.data import paper_problem
from unjoined.errors import TableError

TREES = ["sklearn.tree._tree.Tree"]
DATA = paper_problem().draw(60, random_state=0)
FOREST = PlugInUplift(
    outcome_model=RandomForestRegressor(2, max_depth=3, random_state=0),
    treatment_model=RandomForestClassifier(2, max_depth=3, random_state=0),
    random_state=0,
)
MODELS = {
    "minmax": MinMaxUplift(random_state=0),
    "forest": FOREST,
}
pytestmark = [
    pytest.mark.usefixtures("two_folds"),
    pytest.mark.filterwarnings("ignore::unjoined.errors.UnjoinedWarning"),
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    found = {}
    for name, model in MODELS.items():
        fitted = model.fit(**DATA)
        path = save_model(fitted, folder / f"{name}.skops", trusted=TREES)
        found[name] = (path.read_bytes(), fitted.predict(DATA.X))
    return found


def members(raw):
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def sealed(parts):
    """Return a file with these members and the checksum that belongs to them."""
    total = hashlib.sha256()
    for name in sorted(parts.keys() - {"unjoined.sha256"}):
        total.update(f"{name} {len(parts[name])}\n".encode() + parts[name])
    return packed(parts | {"unjoined.sha256": total.hexdigest().encode()})


def packed(parts):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return file.getvalue()


def outcome(raw, path):
    """Load and predict; return predictions, or None if the file was refused by name."""
    path.write_bytes(raw)
    try:
        return load_model(path, trusted=TREES).predict(DATA.X)
    except TableError as error:
        message = str(error)
    assert path.name in message
    return None


# --- damage -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["minmax", "forest"])
def test_a_damaged_model_is_refused_or_predicts_the_same_bits(name, saved, tmp_path):
    raw, wanted = saved[name]
    rng = np.random.default_rng(0)
    path = tmp_path / "model.skops"
    refused = 0
    for trial in range(20):
        damaged = bytearray(raw)
        at = int(rng.integers(len(raw)))
        if trial % 4 == 0:
            damaged = damaged[:at]
        elif trial % 4 == 1:
            damaged[at] ^= 1 << int(rng.integers(8))
        elif trial % 4 == 2:
            damaged[at : at + 50] = rng.bytes(50)
        else:  # the directory at the end is where an archive is most easily led astray
            damaged[-1 - at % 1500] ^= 1 << int(rng.integers(8))
        found = outcome(bytes(damaged), path)
        refused += found is None
        if found is not None:
            assert_array_equal(found, wanted)
    assert refused > 10


@pytest.mark.parametrize("raw", [b"", b"PK\5\6" + bytes(18), bytes(1000)])
def test_what_is_no_archive_is_refused(raw, tmp_path):
    assert outcome(raw, tmp_path / "model.skops") is None


def test_branches_that_lead_out_of_a_tree_are_refused(saved, tmp_path):
    parts = members(saved["forest"][0])
    n_trees = 0
    for name, content in parts.items():
        if not name.endswith(".npy"):
            continue
        nodes = np.load(io.BytesIO(content))
        if nodes.dtype.names is None or len(nodes) < 2:
            continue
        n_trees += 1
        for field, value in (
            ("left_child", 10**6),
            ("left_child", 0),
            ("feature", 10**6),
        ):
            lie, file = nodes.copy(), io.BytesIO()
            lie[field][0] = value
            np.save(file, lie)
            assert (
                outcome(sealed(parts | {name: file.getvalue()}), tmp_path / "m.skops")
                is None
            )
    assert n_trees == 8


def test_a_function_that_nobody_trusts_is_refused_by_name(saved, tmp_path):
    parts, path = members(saved["minmax"][0]), tmp_path / "model.skops"
    schema = json.loads(parts["schema.json"])
    foreign = members(skops.io.dumps({"extra": subprocess.call}))["schema.json"]
    schema["content"]["content"]["extra"] = json.loads(foreign)["content"]["extra"]
    path.write_bytes(sealed(parts | {"schema.json": json.dumps(schema).encode()}))
    with pytest.raises(TableError, match=r"not trusted: subprocess\.call"):
        load_model(path)


def test_another_estimator_is_refused(tmp_path):
    other = tmp_path / "other.skops"
    skops.io.dump(LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0]), other)
    record = {"layout": 1, "unjoined": "0.1.0"}
    parts = members(other.read_bytes()) | {"unjoined.json": json.dumps(record).encode()}
    other.write_bytes(sealed(parts))
    with pytest.raises(
        TableError, match="holds a LinearRegression, not an uplift estimator"
    ):
        load_model(other)


def test_a_file_of_another_version_is_refused(saved, tmp_path):
    parts, path = members(saved["minmax"][0]), tmp_path / "model.skops"
    record = json.loads(parts["unjoined.json"]) | {"layout": 2}
    path.write_bytes(sealed(parts | {"unjoined.json": json.dumps(record).encode()}))
    with pytest.raises(TableError, match="was written by another version"):
        load_model(path)


# --- archives -----------------------------------------------------------------------------------


def test_an_altered_member_is_called_altered(saved, tmp_path):
    parts, path = members(saved["minmax"][0]), tmp_path / "model.skops"
    path.write_bytes(packed(parts | {"schema.json": parts["schema.json"] + b" "}))
    with pytest.raises(TableError, match="altered or damaged since it was written"):
        load_model(path)


LOADED_IN_LITTLE_MEMORY = """
import resource, sys
import unjoined
unjoined.load_model(sys.argv[1])  # imports what it needs
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 400_000_000,) * 2)
for path in sys.argv[2:]:
    try:
        unjoined.load_model(path)
    except unjoined.errors.TableError as error:
        print(error)
"""


def bomb(parts, declared):
    """Return a small archive with a part that expands to 1.5 GB, and says it is ``declared``."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = deflate.compress(bytes(1_000_000)) + deflate.flush(zlib.Z_FULL_FLUSH)
    raw = bytearray(packed(parts | {"bomb.npy": 1500 * block + deflate.flush()}))
    local, listed = raw.rfind(b"PK\3\4"), raw.rfind(b"PK\1\2")
    for start in (local + 8, listed + 10):  # method, then times, checksum and sizes
        raw[start : start + 2] = (8).to_bytes(2, "little")
        raw[start + 14 : start + 18] = declared.to_bytes(4, "little")
    return bytes(raw)


@pytest.mark.skipif(sys.platform != "linux", reason="memory limits and /proc")
def test_an_archive_that_would_fill_the_memory_is_refused_before_it_expands(
    saved, tmp_path
):
    parts = members(saved["minmax"][0])
    paths, whole = [], tmp_path / "whole.skops"
    whole.write_bytes(saved["minmax"][0])
    for name, declared in (("honest", 1_500_000_000), ("lying", 1000)):
        paths.append(tmp_path / f"{name}.skops")
        paths[-1].write_bytes(bomb(parts, declared))
        assert paths[-1].stat().st_size < 3_000_000
    with zipfile.ZipFile(paths[0]) as archive, archive.open("bomb.npy") as part:
        assert part.read(5_000_000) == bytes(5_000_000)  # it is one
    done = subprocess.run(
        [sys.executable, "-c", LOADED_IN_LITTLE_MEMORY, whole, *map(str, paths)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    honest, lying = done.stdout.splitlines()
    assert "would expand to 1,5" in honest
    assert "lying.skops" in lying


def test_a_limit_can_be_raised_and_lowered(saved, tmp_path):
    raw, wanted = saved["minmax"]
    path = tmp_path / "model.skops"
    path.write_bytes(raw)
    with pytest.raises(TableError, match="would expand to"):
        load_model(path, max_bytes=1000)
    assert_array_equal(load_model(path, max_bytes=10**12).predict(DATA.X), wanted)
    # Compressed by somebody since: still the same model.
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members(raw).items():
            archive.writestr(name, content)
    path.write_bytes(file.getvalue())
    assert_array_equal(load_model(path).predict(DATA.X), wanted)
