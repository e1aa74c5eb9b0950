"""Sums as files: versioned, checksummed, written whole or not at all, and never a pickle."""

from __future__ import annotations

import hashlib
import json
import os
import re
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unjoined._typing import Array
from unjoined._validation import OUTCOME, TREATMENT
from unjoined.data.write import replace_file
from unjoined.errors import InputError, TableError
from unjoined.model.moments import CellKey, GroupedSums, MomentSums, PolicySums
from unjoined.model.plan import PlannedSums, Position, SumsPlan, TableId, tables_of
from unjoined.model.plan_file import (
    FileArrays,
    UnsoundError,
    fields,
    items,
    little,
    need,
    number,
    plan_digest,
    plan_from_parts,
    plan_parts,
    text,
    whole,
)

TOLERANCE = 1e-9  # by which symmetric entries may differ, relative to their size
MANIFEST, CHECKSUM = "unjoined-sums-1", "sha256"  # JSON as bytes, and a digest of all
FIRST = re.compile(rb"unjoined-sums-[0-9]+\b")  # near the beginning, in any version
CONTENTS = "sums over rows of products of basis functions and labels; no rows"
HEADER = (
    *("contents", "plan", "plan_digest", "cells", "tables"),
    *("policy_rows", "position"),
)
CELL = ("kind", "population", "group", "rows", "weight", "weight_square")
POLICY = ("weight", "label", "gram", "square")
MAX_ROWS = 2**53


def write_sums(
    found: PlannedSums, path: str | os.PathLike[str], *, position: Position | None = None
) -> Path:
    """Write sums and their plan to a file that `read_sums` reads.

    Parameters
    ----------
    found : PlannedSums
        Sums of some or all cells, or of none: then the file is the plan alone, to be agreed on.
    path : path
        The file; replaced as a whole if it exists, left as it was if anything goes wrong.
    position : Position, optional
        How far an unfinished pass has come, for a checkpoint.

    Returns
    -------
    Path
        The file written. The same sums give the same bytes.
    """
    plan, arrays = plan_parts(found.plan)
    cells = []
    for i, key in enumerate(sorted(found.sums.cells)):
        sums = found.sums.cells[key]
        entry = (*key, sums.n_rows, sums.weight, sums.weight_square)
        cells.append(dict(zip(CELL, entry, strict=True)))
        if key.kind == TREATMENT:  # those of outcomes are not needed and not added up
            arrays[f"cell{i}.label_cross"] = sums.label_cross
        arrays[f"cell{i}.label_basis"] = sums.label_basis
        arrays[f"cell{i}.gram"] = sums.gram
    policy = found.policy
    for name in POLICY:
        arrays[f"policy.{name}"] = getattr(policy, name)
    header = {
        "contents": CONTENTS,
        "plan": plan,
        "plan_digest": plan_digest(found.plan),
        "cells": cells,
        "tables": [list(table) for table in tables_of(found)],
        "policy_rows": policy.n_rows.tolist(),
        "position": None if position is None else [position.n_rows, str(position.digest)],
    }
    text = np.frombuffer(json.dumps(header, sort_keys=True).encode(), dtype=np.uint8)
    members: dict[str, Any] = {MANIFEST: text}
    members |= {name: little(array) for name, array in arrays.items()}
    content = BytesIO()
    np.savez(content, **members | {CHECKSUM: checksum(members)})
    return replace_file(path, lambda file: file.write_bytes(content.getvalue()))


def checksum(members: dict[str, NDArray[Any]]) -> NDArray[np.uint8]:
    """Return a SHA-256 of the names, shapes and bytes of arrays, in whatever order they come."""
    digest = hashlib.sha256()
    for name in sorted(members):
        digest.update(f"{name} {members[name].shape}\n".encode())
        digest.update(members[name].tobytes())
    return np.frombuffer(digest.digest(), dtype=np.uint8)


def read_sums(path: str | os.PathLike[str]) -> tuple[PlannedSums, Position | None]:
    """Read a file of sums; nothing in it is run.

    Returns
    -------
    PlannedSums, Position or None
        The position is that of an unfinished pass.

    Raises
    ------
    TableError
        The file does not exist, is not a file of sums, is of another version, was altered or cut
        off since it was written, or its parts do not belong together.
    """
    file = Path(path)
    members = _opened(file)
    try:
        return _checked(members)
    except (UnsoundError, InputError) as error:
        raise TableError(
            f"{str(file)!r} is not a sound file of sums: {str(error).rstrip('.')}. Get it again "
            "from who wrote it, and do not use it as it is."
        ) from error


def read_finished_sums(path: str | os.PathLike[str]) -> PlannedSums:
    """Read a file of sums, refusing the checkpoint of a pass that has not come to its end."""
    found, position = read_sums(path)
    if position is not None:
        raise TableError(
            f"{str(path)!r} is the checkpoint of a pass that stopped after {position.n_rows:,} "
            "rows. Run the same command again to finish it, and use the file it writes."
        )
    return found


def _opened(file: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file of this version whose checksum is right."""
    if not file.is_file():
        raise TableError(f"there is no file of sums {str(file)!r}. Check the path.")
    raw = file.read_bytes()
    named = FIRST.search(raw[:80])
    if named is None:
        raise TableError(
            f"{str(file)!r} is not a file of sums. Write one with `unjoined aggregate`."
        )
    if named[0].decode() != MANIFEST:
        raise TableError(
            f"{str(file)!r} was written by another version, whose files this one cannot read. "
            "Write it anew with the same version of unjoined at all parties."
        )
    try:
        return _members(raw)
    except Exception as error:  # zipfile and numpy know a dozen errors for bytes that are amiss
        raise TableError(
            f"{str(file)!r} was altered or cut off since it was written. Get it again from who "
            "wrote it."
        ) from error


def _members(raw: bytes) -> dict[str, NDArray[Any]]:
    """Return the arrays of an archive that takes no more room than its file."""
    with zipfile.ZipFile(BytesIO(raw)) as archive:
        size = sum(info.file_size for info in archive.infolist())
    need(size <= len(raw), "it would expand")
    with np.load(BytesIO(raw), allow_pickle=False) as file:
        members = {name: file[name] for name in file.files}
    given = members.pop(CHECKSUM)
    need(np.array_equal(given, checksum(members)), "its checksum is wrong")
    return members


def _checked(members: dict[str, NDArray[Any]]) -> tuple[PlannedSums, Position | None]:
    """Return what a file holds, once all of it was looked at."""
    need(MANIFEST in members, "it has no manifest")
    try:
        header = fields(json.loads(members.pop(MANIFEST).tobytes()), "the manifest", *HEADER)
    except (ValueError, RecursionError):  # not JSON, not text, or a number with too many digits
        raise UnsoundError("its manifest cannot be read") from None
    need(header["contents"] == CONTENTS, "it says that it holds something else")
    arrays = FileArrays(members)
    plan = plan_from_parts(header["plan"], arrays)
    need(header["plan_digest"] == plan_digest(plan), "its plan is not the one it names")
    cells = {}
    for i, cell in enumerate(items(header["cells"], "the list of cells")):
        key, sums = _read_cell(cell, f"cell{i}", plan, arrays)
        check_gram(sums.gram, f"those of group {key.group} of the {key.kind} rows")
        need(key not in cells, "the same cell comes twice")
        cells[key] = sums
    K = len(plan.populations)
    rows = items(header["policy_rows"], "the rows of the policies", K)
    counts = np.array([whole(n, "a number of rows", 0, MAX_ROWS) for n in rows], dtype=np.int64)
    q = 2 * plan.n_features + 1
    shapes = ((K,), (K, q), (K, q, q), (K, q, q))
    parts = [arrays.take(f"policy.{name}", *s) for name, s in zip(POLICY, shapes, strict=True)]
    arrays.check_empty()
    tables = _read_tables(header["tables"], {key[:2] for key in cells})
    found = PlannedSums(plan, GroupedSums(plan.size, cells), PolicySums(counts, *parts), tables)
    check_counts(found)
    return found, _read_position(header["position"])


def _read_cell(
    cell: Any, name: str, plan: SumsPlan, arrays: FileArrays
) -> tuple[CellKey, MomentSums]:
    """Return the sums of one kind, population and group."""
    given = fields(cell, "a cell", *CELL)
    key = CellKey(
        _kind(given["kind"]),
        whole(given["population"], "the population of a cell", 0, len(plan.populations) - 1),
        whole(given["group"], "the group of a cell", 0, plan.n_groups - 1),
    )
    p, square = plan.size, (plan.size, plan.size)
    treatment = key.kind == TREATMENT
    sums = MomentSums(
        whole(given["rows"], "the number of rows of a cell", 1, MAX_ROWS),
        number(given["weight"], "the weight of a cell", positive=True),
        arrays.take(f"{name}.label_cross", *square) if treatment else np.zeros(square),
        arrays.take(f"{name}.label_basis", p),
        arrays.take(f"{name}.gram", *square),
        number(given["weight_square"], "the squared weight of a cell", positive=True),
    )
    return key, sums


def _kind(value: Any) -> str:
    """Return a kind of rows that sums are kept of."""
    need(value in (OUTCOME, TREATMENT), f"{value!r} is neither outcome nor treatment")
    return str(value)


def _read_tables(listed: Any, cells: set[tuple[str, int]]) -> tuple[TableId, ...]:
    """Return the identities of the tables added up; every cell comes from one or more."""
    found = []
    for entry in items(listed, "the list of tables"):
        kind, population, digest = items(entry, "a table", 3)
        good = re.fullmatch("[0-9a-f]{32}", text(digest, "the identity of a table")) is not None
        need(good, "the identity of a table is not 32 hexadecimal digits")
        found.append(TableId(_kind(kind), whole(population, "a population", 0, MAX_ROWS), digest))
    need(len(set(found)) == len(found), "the same table comes twice")
    need({(table.kind, table.population) for table in found} == cells, "its tables are not listed")
    return tuple(sorted(found))


def _read_position(at: Any) -> Position | None:
    """Return how far an unfinished pass has come."""
    if at is None:
        return None
    n_rows, digest = items(at, "the position of a checkpoint", 2)
    good = re.fullmatch("[0-9]{1,20}", text(digest, "the digest of a checkpoint")) is not None
    need(good and int(digest) < 2**64, "the digest of a checkpoint is not a number")
    return Position(whole(n_rows, "the position of a checkpoint", 1, MAX_ROWS), int(digest))


def check_counts(found: PlannedSums) -> None:
    """Refuse sums of policies that are not over the treatment rows."""
    for k, n_rows in enumerate(found.policy.n_rows):
        cells = [
            sums
            for key, sums in found.sums.cells.items()
            if (key.kind, key.population) == (TREATMENT, k)
        ]
        agree = int(n_rows) == sum(sums.n_rows for sums in cells)
        need(agree, f"the policies of population {k} are not over as many rows as there are")


def check_gram(gram: Array, what: str) -> None:
    """Refuse what is not a sum of products of functions with each other."""
    size = np.sqrt(np.maximum(np.diag(gram), 0.0))
    symmetric = np.abs(gram - gram.T) <= TOLERANCE * np.outer(size, size)
    good = bool(np.all(np.diag(gram) >= 0.0) and np.all(symmetric))
    need(good, f"{what} are not sums of products of functions")
