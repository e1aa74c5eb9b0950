"""What a model file must hold to be loaded: whole, small, of known types, and consistent."""

from __future__ import annotations

import hashlib
import io
import json
import re
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from itertools import chain
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.tree._tree import Tree
from sklearn.utils.validation import check_is_fitted

from unjoined._validation import check_count
from unjoined.basis import GaussianBasis, Scaling, StackedBasis
from unjoined.data import TableEncoder
from unjoined.errors import InputError, MissingExtraError, TableError
from unjoined.estimators.base import UpliftEstimator
from unjoined.estimators.density import ConditionalDensity
from unjoined.estimators.inputs import QUANTILES
from unjoined.metrics import GainByScore, Ratio
from unjoined.nuisance import last_step

SCHEMA, CHECKSUM, RECORD = "schema.json", "unjoined.sha256", "unjoined.json"
VERSION = 1  # of the layout of files
TRIALS = 403  # rows whose predictions are kept, to be compared
MOST_MEMBERS = 100_000
# Models are stored as they are, not compressed, so that a file holds no more than its own size.
# Somebody may have compressed it since; up to here that can do no harm.
FEW_BYTES = 100_000_000
PREDICTIONS = ("predict", "predict_outcomes", "predict_policies", "critic")
# How skops builds what a file holds, as far as that runs none of it. Methods, operators and
# partial functions are not among them.
LOADERS = frozenset(
    f"{name}Node"
    for name in (
        *("Bytes", "Cached", "DType", "Dict", "Function", "Json", "List", "Loss", "MaskedArray"),
        *("NdArray", "Object", "RandomGenerator", "RandomState", "Set", "Slice", "Tree", "Tuple"),
        "Type",
    )
)
BUILTINS = frozenset(
    f"builtins.{name}"
    for name in ("bool", "bytes", "dict", "float", "int", "list", "set", "slice", "str", "tuple")
)
NUMPY = frozenset(
    {
        *("numpy.dtype", "numpy.ndarray", "numpy.ma.MaskedArray", "numpy.ma.core.MaskedArray"),
        *("numpy.random._generator.Generator", "numpy.random.mtrand.RandomState"),
        *(f"numpy.{scalar.__name__}" for scalar in np.sctypeDict.values()),
        *(f"numpy.{name}" for name in dir(np) if isinstance(getattr(np, name), np.ufunc)),
    }
)


def checksum(members: dict[str, bytes]) -> str:
    """Return a SHA-256 of all members but itself: it tells of damage, not of malice."""
    total = hashlib.sha256()
    for name in sorted(members.keys() - {CHECKSUM}):
        total.update(f"{name} {len(members[name])}\n".encode())
        total.update(members[name])
    return total.hexdigest()


def pack(members: dict[str, bytes]) -> bytes:
    """Return an archive of the members, not compressed."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def with_names(schema: bytes, names: Mapping[str, str]) -> bytes:
    """Return a schema in which types have other names."""
    parsed = json.loads(schema)
    for node in _nodes(parsed):
        name = f"{node.get('__module__')}.{node.get('__class__')}"
        if name in names:
            node["__module__"], _, node["__class__"] = names[name].rpartition(".")
    return json.dumps(parsed).encode()


def _nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects of a parsed schema."""
    stack = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            stack.extend(node)
        elif isinstance(node, dict):
            stack.extend(node.values())
            yield node


def expand(raw: bytes, limit: int | None) -> dict[str, bytes]:
    """Return what an archive holds, refusing more than ``limit`` bytes before it expands."""
    limit = max(len(raw), FEW_BYTES) if limit is None else limit
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        listed = archive.infolist()
        total = sum(info.file_size for info in listed)
        if len(listed) > MOST_MEMBERS or total > limit:
            raise TableError(
                f"would expand to {total:,} bytes in {len(listed):,} parts; at most {limit:,} "
                f"bytes in {MOST_MEMBERS:,} parts are allowed. If you know where the file comes "
                "from, raise load_model(max_bytes=...)."
            )
        members: dict[str, bytes] = {}
        for info in listed:
            if not re.fullmatch(r"\w[\w.-]*", info.filename) or info.filename in members:
                raise TableError(f"holds a part twice or of a strange name, {info.filename!r}.")
            with archive.open(info) as part:
                # Whatever the header says, no more than that is expanded.
                members[info.filename] = part.read(info.file_size + 1)
            if len(members[info.filename]) != info.file_size:
                raise TableError(f"was cut off: its part {info.filename!r} is incomplete.")
    return members


def check_members(members: dict[str, bytes], allowed: Set[str]) -> None:
    """Refuse damage, arrays that are not as long as they say, and types that are not known."""
    if not {SCHEMA, CHECKSUM, RECORD} <= members.keys():
        raise TableError(
            "is not a model file of this program: it has no schema, no checksum or no record. "
            "Write one with `save_model` or `unjoined fit`."
        )
    if members[CHECKSUM] != checksum(members).encode():
        raise TableError(
            "was altered or damaged since it was written: its checksum is wrong. Copy it again "
            "from where it was written."
        )
    for name, content in members.items():
        if name.endswith(".npy"):
            _check_array(name, content)
    check_types(set(_unknown_types(json.loads(members[SCHEMA]), allowed)))


def check_types(unknown: set[str]) -> None:
    """Refuse a file that holds types nobody has vouched for."""
    if unknown:
        raise TableError(
            f"holds types that are not trusted: {', '.join(sorted(unknown)[:5])}. If you know "
            "where the file comes from, pass them to load_model(trusted=...)."
        )


def _unknown_types(schema: Any, allowed: Set[str]) -> Iterator[str]:
    """Yield types that are not on a list; those of scikit-learn and scipy are left to skops."""
    for node in _nodes(schema):
        if "__loader__" not in node:
            continue
        name, loader = f"{node['__module__']}.{node['__class__']}", node["__loader__"]
        known = name in allowed or name in BUILTINS or name in NUMPY
        known = known or name.partition(".")[0] in ("scipy", "sklearn")
        if not known or (loader not in LOADERS and name not in allowed):
            yield name if loader in LOADERS else f"{name} ({loader})"


def _check_array(name: str, content: bytes) -> None:
    """Refuse an array of objects, or one that is not as long as its header says."""
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0
    if version != (1, 0):
        read = np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    size = dtype.itemsize
    for length in shape:
        size *= length  # as a whole number of Python, which does not overflow
    if dtype.hasobject or min(shape, default=0) < 0 or size != len(content) - file.tell():
        raise TableError(f"holds a part {name!r} that is not an array of {dtype} of shape {shape}.")


def record_of(model: Any, written_by: str) -> bytes:
    """Return what is said of a model beside it: who wrote it, and what it predicts at some rows."""
    found = _predictions(model)
    parts = {"layout": VERSION, "unjoined": written_by, "predictions": found}
    parts["rows_of_the_fit"] = rows_held(model)  # data about people
    return json.dumps(parts, sort_keys=True).encode()


def rows_held(model: Any) -> int:
    """Return how many rows of the fit a model holds, as centres of its functions."""
    found = 0
    for part in _parts(model):
        if isinstance(part, UpliftEstimator):
            for name in ("basis", "critic_basis"):
                drawn = getattr(part, name, None)
                if isinstance(drawn, str) and drawn in ("smooth", "gaussian"):
                    found += _n_centers(getattr(part, f"{name}_", None))
        elif isinstance(part, ConditionalDensity):
            found += len(part.centers)
    return found


def _n_centers(basis: Any) -> int:
    """Return how many centres of Gaussians a basis has."""
    if isinstance(basis, StackedBasis):
        return _n_centers(basis.first) + _n_centers(basis.second)
    return len(basis.centers) if isinstance(basis, GaussianBasis) else 0


def check_layout(record: bytes) -> dict[str, Any]:
    """Return what is said of a model, if this program knows how to read it."""
    said = json.loads(record)
    written_by = str(said["unjoined"])[:20]
    if said["layout"] != VERSION:
        raise TableError(
            f"was written by another version, unjoined {written_by}, whose files this one cannot "
            "read. Load it with that version, or fit the model again."
        )
    return {"unjoined": written_by, "predictions": dict(said["predictions"])}


def check_model(model: Any, n_bytes: int, said: dict[str, Any]) -> None:
    """Refuse what is not a fitted model, has parts that do not fit, or predicts other numbers.

    Whoever changes numbers in a file can change its checksum too. The predictions beside them
    then still tell, and so they do if another version of a package predicts otherwise.
    """
    check_is_fitted(whole := model)
    model = _last_step(model)
    parts = list(_parts(whole))
    model._check_parameters()
    for part in parts:
        # Files skip the checks that a class makes when it is called.
        if is_dataclass(part) and hasattr(part, "__post_init__"):
            part.__post_init__()
        if isinstance(part, BaseEstimator):
            _check_trees(part)
    d = check_count("n_features_in_", model.n_features_in_)
    names = getattr(model, "feature_names_in_", np.array(["x"] * min(d, n_bytes)))
    if 8 * d > n_bytes or np.shape(names) != (d,) or not all(isinstance(n, str) for n in names):
        raise InputError(f"its {d} features do not fit its other parts")
    found, wanted = _predictions(whole), said["predictions"]
    if found.keys() != wanted.keys() and found:  # none are found without an extra, such as torch
        raise InputError("its predictions are not those of its type")
    for method, rows in found.items():
        now, then = np.array(rows), np.array(wanted[method], dtype=np.float64)
        largest = np.max(np.abs(now), where=np.isfinite(now), initial=1e-300)
        far = now.shape != then.shape or not np.allclose(
            now, then, rtol=1e-6, atol=1e-8 * largest, equal_nan=True
        )
        if far:
            raise InputError(
                f"it does not predict what it did when unjoined {said['unjoined']} wrote it: its "
                "numbers were changed since, or another version of a package computes otherwise. "
                "Fit the model again"
            )


def _predictions(whole: Any) -> dict[str, Any]:
    """Return what a model predicts at rows that are the same whenever it is loaded."""
    model, trial, found = _last_step(whole), _trial(whole), {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for method in PREDICTIONS:
                if hasattr(type(model), method):
                    found[method] = _numbers(getattr(model, method)(trial))
    except MissingExtraError:  # such as torch, without which nothing is predicted anyway
        return {}
    gain = getattr(model, "gain_", None)
    return found | (_gains(gain) if isinstance(gain, GainByScore) else {})


def _gains(gain: GainByScore) -> dict[str, Any]:
    """Return what lists gain that treat one person in each bin from some bin on."""
    people = gain.center
    lists = [gain.gain(people, people >= lowest).ratio for lowest in people]
    found = {f.name: [getattr(each, f.name) for each in lists] for f in fields(Ratio)}
    return {f"gain_ {name}": found[name] for name in found} | {"gain_ edges": people.tolist()}


def _trial(whole: Any) -> Any:
    """Return rows to predict at: three of plain numbers, the others where the model has its own."""
    model, rng, n = _last_step(whole), np.random.default_rng(0), TRIALS
    d = int(model._n_columns)
    rows = np.vstack([np.zeros(d), np.ones(d), -np.ones(d), rng.normal(size=(n - 3, d))])
    ranges = np.array(getattr(model, "training_range_", ()))
    scales = (part for part in _parts(whole) if isinstance(part, Scaling))
    scaling = next((part for part in scales if np.shape(part.mean) == (d,)), None)
    if ranges.shape == (len(QUANTILES), d):
        for column, known in zip(rows[3:].T, ranges.T, strict=True):
            # Evenly over the range, so that no piece of a curve is left out.
            column[:] = np.interp((rng.permutation(n - 3) + 0.5) / (n - 3), QUANTILES, known)
    elif scaling is not None:
        rows[3:] = scaling.mean + scaling.scale * rows[3:]
    if not isinstance(encoder := getattr(model, "encoder_", None), TableEncoder):
        return rows
    return encoder.examples(rows)


def _last_step(model: Any) -> UpliftEstimator:
    """Return the estimator of a pipeline: what its columns may hold, only its own parts know."""
    last = last_step(model)
    if not isinstance(last, UpliftEstimator):
        raise TableError(f"holds a {type(last).__name__}, not an uplift estimator.")
    check_is_fitted(last)
    return last


def _numbers(predicted: Any) -> list[Any]:
    columns = predicted if isinstance(predicted, tuple) else (predicted,)
    for column in columns:
        if np.shape(column)[:1] != (TRIALS,) or not np.isfinite(column).all():
            raise InputError("it does not predict finite numbers")
    return [np.asarray(column).tolist() for column in columns]


def _parts(whole: Any) -> Iterator[Any]:
    """Yield all objects that a model is made of, parts before what they are part of."""
    seen: set[int] = set()

    def parts(value: Any) -> Iterator[Any]:
        if id(value) in seen or isinstance(value, str | bytes | type):
            return
        seen.add(id(value))
        inner: Iterable[Any] = ()
        if isinstance(value, dict):
            inner = value.values()
        elif isinstance(value, list | tuple):
            inner = value
        elif isinstance(value, np.ndarray) and value.dtype.hasobject:
            inner = value.ravel().tolist()
        elif is_dataclass(value):
            inner = [getattr(value, field.name) for field in fields(value)]
        elif isinstance(value, BaseEstimator):
            inner = vars(value).values()
        for part in inner:
            yield from parts(part)
        yield value

    yield from parts(whole)


def _check_trees(model: Any) -> None:
    """Refuse trees that compiled code of scikit-learn would read past their end."""
    if isinstance(tree := vars(model).get("tree_"), Tree):
        if tree.node_count > tree.capacity:
            raise InputError("a tree is shorter than it says")
        children = (tree.children_left, tree.children_right)
        _check_children(
            tree.children_left != -1, *children, tree.feature, model.n_features_in_, tree.value
        )
    for tree in chain.from_iterable(vars(model).get("_predictors", ())):
        nodes, sets = tree.nodes, tree.raw_left_cat_bitsets
        if (nodes["bitset_idx"][nodes["is_categorical"] != 0] >= len(sets)).any():
            raise InputError("a tree asks for a category that does not exist")
        inner, feature = nodes["is_leaf"] == 0, nodes["feature_idx"].astype(np.int64)
        children = (nodes["left"], nodes["right"])
        _check_children(inner, *children, feature, model.n_features_in_, nodes["value"])
    if type(model).__module__ in ("sklearn.ensemble._forest", "sklearn.ensemble._gb"):
        trees = vars(model).get("estimators_", ())  # none in a parameter, which is not fitted
        for inner_model in np.ravel(np.array(trees, dtype=object)):
            if inner_model.n_features_in_ != model.n_features_in_:
                raise InputError("a forest has trees of other features")


def _check_children(
    inner: Any, left: Any, right: Any, feature: Any, n_features: int, value: Any
) -> None:
    """Refuse branches that lead out of a tree or back, unknown features, and values not finite."""
    n, here = len(inner), np.arange(len(inner))[inner]
    for child in (left[inner].astype(np.int64), right[inner].astype(np.int64)):
        if not ((child > here) & (child < n)).all():
            raise InputError("a branch of a tree leads nowhere")
    used = feature[inner]
    if n == 0 or (used < 0).any() or (used >= n_features).any():
        raise InputError("a tree asks for a feature that does not exist")
    if not np.isfinite(value).all():
        raise InputError("a tree predicts something that is not a number")
