"""What a model file must be to be loaded: whole, small, of this version and of known types."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import chain
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.tree._tree import Tree
from sklearn.utils.validation import check_is_fitted

from unjoined.errors import InputError, TableError
from unjoined.estimators.base import UpliftEstimator
from unjoined.model.basis import GaussianBasis, StackedBasis
from unjoined.model.regressors import last_step
from unjoined.paper.density import ConditionalDensity

SCHEMA, CHECKSUM, RECORD = "schema.json", "unjoined.sha256", "unjoined.json"
VERSION = 1  # of the layout of files
# Models are stored as they are, not compressed, so that a file holds no more than its own size.
# Somebody may have compressed it since; up to here that can do no harm.
FEW_BYTES = 100_000_000


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
        if total > limit:
            raise TableError(
                f"would expand to {total:,} bytes; at most {limit:,} are allowed. If you know "
                "where the file comes from, raise load_model(max_bytes=...)."
            )
        members: dict[str, bytes] = {}
        for info in listed:
            with archive.open(info) as part:
                # Whatever the header says, no more than that is expanded.
                members[info.filename] = part.read(info.file_size + 1)
    return members


def check_members(members: dict[str, bytes]) -> None:
    """Refuse what is damaged, no model, or a model of another version."""
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
    said = json.loads(members[RECORD])
    if said["layout"] != VERSION:
        raise TableError(
            f"was written by another version, unjoined {str(said['unjoined'])[:20]}, whose files "
            "this one cannot read. Load it with that version, or fit the model again."
        )


def check_types(unknown: set[str]) -> None:
    """Refuse a file that holds types nobody has vouched for."""
    if unknown:
        raise TableError(
            f"holds types that are not trusted: {', '.join(sorted(unknown)[:5])}. If you know "
            "where the file comes from, pass them to load_model(trusted=...)."
        )


def record_of(model: Any, written_by: str) -> bytes:
    """Return what is said of a model beside it: who wrote it, and how many rows it holds."""
    held = rows_held(model)  # data about people
    parts = {"layout": VERSION, "unjoined": written_by, "rows_of_the_fit": held}
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


def check_model(whole: Any) -> None:
    """Refuse what is not a fitted model, records of another kind, and trees that would crash."""
    check_is_fitted(whole)
    last = last_step(whole)
    if not isinstance(last, UpliftEstimator):
        raise TableError(f"holds a {type(last).__name__}, not an uplift estimator.")
    check_is_fitted(last)
    for part in _parts(whole):
        if isinstance(part, BaseEstimator):
            _check_trees(part)
        elif check := getattr(
            part, "__post_init__", None
        ):  # no file makes records anew
            check()


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
            tree.children_left != -1,
            *children,
            tree.feature,
            model.n_features_in_,
            tree.value,
        )
    for tree in chain.from_iterable(vars(model).get("_predictors", ())):
        nodes, sets = tree.nodes, tree.raw_left_cat_bitsets
        if (nodes["bitset_idx"][nodes["is_categorical"] != 0] >= len(sets)).any():
            raise InputError("a tree asks for a category that does not exist")
        inner = nodes["is_leaf"] == 0
        feature = nodes["feature_idx"].astype(np.int64)
        children = (nodes["left"], nodes["right"])
        _check_children(inner, *children, feature, model.n_features_in_, nodes["value"])
    if type(model).__module__ in ("sklearn.ensemble._forest", "sklearn.ensemble._gb"):
        trees = vars(model).get(
            "estimators_", ()
        )  # none in a parameter, which is not fitted
        for inner_model in np.ravel(np.array(trees, dtype=object)):
            if inner_model.n_features_in_ != model.n_features_in_:
                raise InputError("a forest has trees of other features")


def _check_children(
    inner: Any, left: Any, right: Any, feature: Any, n_features: int, value: Any
) -> None:
    """Refuse branches that lead out of a tree or back, unknown features, and values not finite."""
    n = len(inner)
    here = np.arange(len(inner))[inner]
    for child in (left[inner].astype(np.int64), right[inner].astype(np.int64)):
        if not ((child > here) & (child < n)).all():
            raise InputError("a branch of a tree leads nowhere")
    used = feature[inner]
    if n == 0 or (used < 0).any() or (used >= n_features).any():
        raise InputError("a tree asks for a feature that does not exist")
    if not np.isfinite(value).all():
        raise InputError("a tree predicts something that is not a number")
