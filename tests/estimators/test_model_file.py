"""Model files that were damaged or made up: one clear error, or the same predictions to the bit."""

import hashlib
import io
import json
import subprocess
import sys
import zipfile
import zlib

import numpy as np
import pyarrow as pa
import pytest
import skops.io
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression

from unjoined import MinMaxUplift, PlugInUplift, TwoStageUplift, Uplift, load_model, save_model
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
    "mixture": Uplift(random_state=0),
    "stages": TwoStageUplift(),
    "forest": FOREST,
}
pytestmark = pytest.mark.filterwarnings("ignore::unjoined.errors.UnjoinedWarning")


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
    for trial in range(60):
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
    assert refused > 30


@pytest.mark.parametrize("raw", [b"", b"PK", b"PK\5\6" + bytes(18), b"{}", bytes(1000)])
def test_what_is_no_archive_is_refused(raw, tmp_path):
    assert outcome(raw, tmp_path / "model.skops") is None


# --- made up, with a checksum that is right -----------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_made_up_parts_with_a_right_checksum_never_crash_a_prediction(name, saved, tmp_path):
    raw, _ = saved[name]
    path = tmp_path / "model.skops"
    rng = np.random.default_rng(1)
    parts = members(raw)
    # By what they hold: their names differ from run to run.
    arrays = sorted((part for part in parts if part.endswith(".npy")), key=parts.__getitem__)
    for trial in range(15):
        lie = dict(parts)
        part = arrays[int(rng.integers(len(arrays)))]
        array = np.load(io.BytesIO(parts[part]))
        if trial % 3 == 0:
            array = array[..., :-1] if array.ndim and array.shape[-1] else np.zeros((3, 3))
        elif trial % 3 == 1:
            array = np.concatenate([np.atleast_1d(array)] * 2)
        else:  # any bytes, of the right shape and type
            array = np.frombuffer(rng.bytes(array.nbytes), dtype=array.dtype).reshape(array.shape)
        file = io.BytesIO()
        np.save(file, array)
        lie[part] = file.getvalue()
        found = outcome(sealed(lie), path)
        assert found is None or (found.shape == (len(DATA.X),) and np.isfinite(found).all())


@pytest.mark.parametrize("name", ["minmax", "stages", "mixture"])
def test_made_up_words_with_a_right_checksum_never_crash_a_prediction(name, saved, tmp_path):
    parts = members(saved[name][0])
    text = parts["schema.json"].decode()
    rng = np.random.default_rng(2)
    for _ in range(30):
        at, to = np.sort(rng.integers(len(text), size=2))
        to = min(to, at + int(rng.integers(1, 40)))
        word = rng.choice(["", "0", '"', "null", "-1", "[]", "true", "NaN", "1e400", "}"])
        lie = parts | {"schema.json": f"{text[:at]}{word}{text[to:]}".encode()}
        found = outcome(sealed(lie), tmp_path / "model.skops")
        assert found is None or found.shape == (len(DATA.X),)


def node(schema, name):
    return schema["content"]["content"][name]


def json_node(value):
    content = json.dumps(value)
    return {
        "__class__": "str",
        "__module__": "builtins",
        "__loader__": "JsonNode",
        "content": content,
        "is_json": True,
    }


def swap_type(schema):
    schema["content"]["content"]["coef_"] = json_node("coefficients")


def other_width(schema):
    schema["content"]["content"]["n_features_in_"] = json_node(3)


def huge_width(schema):
    schema["content"]["content"]["n_features_in_"] = json_node(10**12)


def no_scaling(schema):
    del schema["content"]["content"]["scaling_"]


def add(schema, name, value):
    schema["content"]["content"][name] = json_node(value)
    words = schema["content"]["key_types"]["content"]
    words.append(words[0])


def other_names(schema):
    add(schema, "feature_names_in_", ["a"])


def bad_parameter(schema):
    schema["content"]["content"]["ridge_f"] = json_node(-1.0)


def not_fitted(schema):
    del schema["content"]["content"]["identification_"]


def other_class(schema):
    schema["__class__"], schema["__module__"] = "GaussianBasis", "unjoined.basis"


def swapped_basis(schema):
    found = schema["content"]["content"]
    found["basis_"] = found["scaling_"]


def hidden_predict(schema):
    add(schema, "_predict_rows", "nothing")


def missing_class(schema):
    schema["__class__"] = "NoSuchUplift"


LIES = [
    swap_type,
    other_width,
    huge_width,
    no_scaling,
    other_names,
    bad_parameter,
    not_fitted,
    other_class,
    swapped_basis,
    hidden_predict,
    missing_class,
]


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_a_made_up_model_is_refused_when_it_is_loaded(lie, saved, tmp_path):
    parts = members(saved["minmax"][0])
    schema = json.loads(parts["schema.json"])
    lie(schema)
    raw = sealed(parts | {"schema.json": json.dumps(schema).encode()})
    assert outcome(raw, tmp_path / "model.skops") is None


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_coefficients_that_are_no_numbers_are_refused(value, saved, tmp_path):
    parts = members(saved["minmax"][0])
    schema = json.loads(parts["schema.json"])
    file, name = io.BytesIO(), node(schema, "coef_")["file"]
    coef = np.load(io.BytesIO(parts[name]))
    coef[-1] = value
    np.save(file, coef)
    raw = sealed(parts | {name: file.getvalue()})
    assert outcome(raw, tmp_path / "model.skops") is None


def test_arrays_of_objects_and_arrays_that_lie_about_their_size_are_refused(saved, tmp_path):
    parts = members(saved["minmax"][0])
    name = node(json.loads(parts["schema.json"]), "coef_")["file"]
    objects = io.BytesIO()
    np.save(objects, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    huge = parts[name].replace(b"'shape': (", b"'shape': (9", 1)
    for content in (objects.getvalue(), huge, parts[name][:-8], b"", b"\x93NUMPY"):
        assert outcome(sealed(parts | {name: content}), tmp_path / "model.skops") is None


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
        for field, value in (("left_child", 10**6), ("left_child", 0), ("feature", 10**6)):
            lie, file = nodes.copy(), io.BytesIO()
            lie[field][0] = value
            np.save(file, lie)
            assert outcome(sealed(parts | {name: file.getvalue()}), tmp_path / "m.skops") is None
    assert n_trees == 8


def test_types_and_ways_to_build_them_that_are_not_listed_are_refused_by_name(saved, tmp_path):
    parts = members(saved["minmax"][0])
    path = tmp_path / "model.skops"
    for module, name, loader in (
        ("os", "system", "FunctionNode"),
        ("builtins", "exec", "FunctionNode"),
        ("unjoined.datasets.fetch", "Download", "ObjectNode"),
        ("sklearn.linear_model._base", "LinearRegression", "MethodNode"),
        ("operator", "methodcaller", "OperatorFuncNode"),
        ("functools", "partial", "PartialNode"),
    ):
        schema = json.loads(parts["schema.json"])
        schema["content"]["content"]["extra"] = {
            "__class__": name,
            "__module__": module,
            "__loader__": loader,
        }
        path.write_bytes(sealed(parts | {"schema.json": json.dumps(schema).encode()}))
        with pytest.raises(TableError, match=rf"not trusted: {module}\.{name}"):
            load_model(path)


def test_another_estimator_is_refused(tmp_path):
    other = tmp_path / "other.skops"
    skops.io.dump(LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0]), other)
    record = {"layout": 1, "unjoined": "0.1.0", "predictions": {}}
    parts = members(other.read_bytes()) | {"unjoined.json": json.dumps(record).encode()}
    other.write_bytes(sealed(parts))
    with pytest.raises(TableError, match="holds a LinearRegression, not an uplift estimator"):
        load_model(other)


@pytest.mark.parametrize(
    ("said", "match"),
    [
        ({"layout": 2}, "was written by another version, unjoined 0.1.0"),
        ({"layout": "1"}, "was written by another version"),
        ({"predictions": {}}, "its predictions are not those of its type"),
        ({"predictions": 5}, "is not a model file of this program"),
    ],
)
def test_a_file_of_another_version_and_a_strange_record_are_refused(said, match, saved, tmp_path):
    parts, path = members(saved["stages"][0]), tmp_path / "model.skops"
    record = json.loads(parts["unjoined.json"]) | said
    path.write_bytes(sealed(parts | {"unjoined.json": json.dumps(record).encode()}))
    with pytest.raises(TableError, match=match):
        load_model(path)


@pytest.mark.parametrize("name", ["minmax", "mixture", "stages"])
def test_numbers_changed_under_a_right_checksum_are_noticed(name, saved, tmp_path):
    """One number of an array doubled: predictions stay, or the file is refused."""
    raw, wanted = saved[name]
    parts, path = members(raw), tmp_path / "model.skops"
    arrays = sorted((part for part in parts if part.endswith(".npy")), key=parts.__getitem__)
    for part in arrays[:: 1 + len(arrays) // 20]:  # twenty are tried, or all
        array = np.load(io.BytesIO(parts[part]))
        if array.dtype.kind != "f" or not array.size:
            continue
        array.flat[array.size // 2] = 2.0 * array.flat[array.size // 2] + 1.0
        np.save(file := io.BytesIO(), array)
        found = outcome(sealed(parts | {part: file.getvalue()}), path)
        if found is not None:
            assert_array_equal(found, wanted)


@pytest.fixture(scope="module")
def of_table(tmp_path_factory):
    """A model of a table whose numbers are far from 0: its file, its rows and what it predicts."""
    X = DATA.X
    words = np.array(["low", "middle", "high"])[np.digitize(X[:, 1], [-3.0, 3.0])]
    times = (1e6 * X[:, 0]).astype("datetime64[s]")
    table = pa.table({"income": 50_000.0 + 1_000.0 * X[:, 0], "word": words, "time": times})
    model = Uplift(random_state=0)
    model.fit(table, DATA.y, kind=DATA.kind, population=DATA.population)
    path = save_model(model, tmp_path_factory.mktemp("table") / "model.skops")
    return members(path.read_bytes()), table, model


def changed(parts, name, at):
    """Return a file in which one number of an array has grown by a third."""
    array = np.load(io.BytesIO(parts[name]))
    array.flat[at] *= 1.3
    np.save(file := io.BytesIO(), array)
    return sealed(parts | {name: file.getvalue()})


def test_numbers_of_a_model_of_a_table_are_noticed_where_its_rows_are(of_table, tmp_path):
    """A third of the arrays, each with a number changed: it is refused, or nothing moves."""
    parts, table, model = of_table
    wanted, path, n_refused = model.predict(table), tmp_path / "model.skops", 0
    arrays = {
        name: np.load(io.BytesIO(raw)) for name, raw in parts.items() if name.endswith(".npy")
    }
    # Names differ from run to run, contents do not: these come in the same order every time.
    numbers = sorted(
        (name for name, array in arrays.items() if array.dtype.kind == "f" and array.size),
        key=parts.__getitem__,
    )
    for name in numbers[::3]:
        path.write_bytes(changed(parts, name, arrays[name].size // 3))
        try:
            found = load_model(path).predict(table)
        except TableError:
            n_refused += 1
        else:
            assert_allclose(found, wanted, rtol=0.0, atol=1e-6 * np.abs(wanted).max())
    assert n_refused > 5


def test_numbers_behind_the_gain_of_a_list_are_noticed(of_table, tmp_path):
    """No prediction depends on them, and every interval of a gain does."""
    parts, _, model = of_table
    path, n_tried = tmp_path / "model.skops", 0
    for name in (part for part in parts if part.endswith(".npy")):
        array = np.load(io.BytesIO(parts[name]))
        if array.shape == model.gain_.covariance.shape:
            n_tried += 1
            path.write_bytes(changed(parts, name, 0))
            with pytest.raises(TableError, match="does not predict what it did"):
                load_model(path)
    assert n_tried > 0


# --- archives -----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_members_that_climb_out_repeat_or_are_missing_are_refused(saved, tmp_path):
    parts, path = members(saved["minmax"][0]), tmp_path / "model.skops"
    for name in ("../up.npy", "/root.npy", "a/b.npy", "..", "a\\b", ".hidden"):
        assert outcome(sealed(parts | {name: b""}), path) is None
    for name in ("schema.json", "unjoined.sha256", sorted(parts)[0]):
        assert outcome(packed({n: c for n, c in parts.items() if n != name}), path) is None
    file = io.BytesIO(saved["minmax"][0])
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("schema.json", parts["schema.json"])
    assert outcome(file.getvalue(), path) is None


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
def test_an_archive_that_would_fill_the_memory_is_refused_before_it_expands(saved, tmp_path):
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
