"""Sums as files: versioned, checksummed, written whole or not at all, and never a pickle.

The first line is ``unjoined-sums VERSION SHA256 HEADER_BYTES``. Then come a JSON header of that
many bytes, which says what the file holds, and the arrays it lists, little-endian float64 one
after another. The checksum is over everything behind the first line.
"""

from __future__ import annotations

import hashlib
import json
import os
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from unjoined._typing import Array
from unjoined.data._files import replace_file
from unjoined.errors import InputError, TableError
from unjoined.moments._grouped import CellKey, GroupedSums
from unjoined.moments._pass import Position
from unjoined.moments._plan import PlannedSums, SumsPlan
from unjoined.moments._plan_file import plan_from_parts, plan_parts
from unjoined.moments._policy_sums import PolicySums
from unjoined.moments._sums import MomentSums

__all__ = [
    "check_min_count",
    "merge_sums",
    "plan_digest",
    "read_finished_sums",
    "read_sums",
    "write_sums",
]

MAGIC, VERSION = "unjoined-sums", 1
MIN_COUNT = 10


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
        cells.append(
            {
                "kind": key.kind,
                "population": key.population,
                "group": key.group,
                "rows": sums.n_rows,
                "weight": sums.weight,
            }
        )
        arrays[f"cell{i}.label_cross"] = sums.label_cross
        arrays[f"cell{i}.label_basis"] = sums.label_basis
        arrays[f"cell{i}.gram"] = sums.gram
    policy = found.policy
    for name in ("weight", "label", "gram", "square"):
        arrays[f"policy.{name}"] = getattr(policy, name)
    header = {
        "contents": "sums over rows of products of basis functions and labels; no rows",
        "plan": plan,
        "plan_digest": plan_digest(found.plan),
        "cells": cells,
        "policy_rows": policy.n_rows.tolist(),
        "position": None if position is None else [position.n_rows, str(position.digest)],
        "arrays": [[name, list(array.shape)] for name, array in arrays.items()],
    }
    text = json.dumps(header, sort_keys=True).encode()
    body = text + b"".join(_raw(array) for array in arrays.values())
    first = f"{MAGIC} {VERSION} {hashlib.sha256(body).hexdigest()} {len(text)}\n".encode()
    return replace_file(path, lambda file: file.write_bytes(first + body))


def _raw(array: Array) -> bytes:
    return np.ascontiguousarray(array, dtype="<f8").tobytes()


def plan_digest(plan: SumsPlan) -> str:
    """Return a SHA-256 of everything in a plan: equal for equal plans only."""
    parts, arrays = plan_parts(plan)
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode())
    for name, array in arrays.items():
        digest.update(f"{name} {array.shape}".encode())
        digest.update(_raw(array))
    return digest.hexdigest()


def read_sums(path: str | os.PathLike[str]) -> tuple[PlannedSums, Position | None]:
    """Read a file of sums; nothing in it is run.

    Returns
    -------
    PlannedSums, Position or None
        The position is that of an unfinished pass.

    Raises
    ------
    TableError
        The file does not exist, is no file of sums, is of another version, or was altered or cut
        off since it was written.
    """
    file = Path(path)
    if not file.is_file():
        raise TableError(f"there is no file of sums {str(file)!r}. Check the path.")
    first, _, body = file.read_bytes().partition(b"\n")
    words = first.decode("ascii", errors="replace").split(" ")
    if len(words) != 4 or words[0] != MAGIC:
        raise TableError(f"{str(file)!r} is no file of sums. Write one with `unjoined aggregate`.")
    if words[1] != str(VERSION):
        raise TableError(
            f"{str(file)!r} is of version {words[1]}; this program reads version {VERSION}. Write "
            "it anew with the same version of unjoined at all parties."
        )
    if hashlib.sha256(body).hexdigest() != words[2]:
        raise TableError(
            f"{str(file)!r} was altered or cut off since it was written: its checksum is wrong. "
            "Get it again from who wrote it."
        )
    size = int(words[3])
    header = json.loads(body[:size])
    arrays = _arrays(header["arrays"], body[size:])
    plan = plan_from_parts(header["plan"], arrays)
    cells = {}
    for i, cell in enumerate(header["cells"]):
        parts = (arrays[f"cell{i}.{name}"] for name in ("label_cross", "label_basis", "gram"))
        key = CellKey(cell["kind"], cell["population"], cell["group"])
        cells[key] = MomentSums(cell["rows"], cell["weight"], *parts)
    rows = np.array(header["policy_rows"], dtype=np.int64)
    names = ("weight", "label", "gram", "square")
    policy = PolicySums(rows, *(arrays[f"policy.{name}"] for name in names))
    at = header["position"]
    position = None if at is None else Position(at[0], int(at[1]))
    return PlannedSums(plan, GroupedSums(plan.size, cells), policy), position


def read_finished_sums(path: str | os.PathLike[str]) -> PlannedSums:
    """Read a file of sums, refusing the checkpoint of a pass that has not come to its end."""
    found, position = read_sums(path)
    if position is not None:
        raise TableError(
            f"{str(path)!r} is the checkpoint of a pass that stopped after {position.n_rows:,} "
            "rows. Run the same command again to finish it, and use the file it writes."
        )
    return found


def _arrays(listed: list[Any], raw: bytes) -> dict[str, Array]:
    arrays, start = {}, 0
    for name, shape in listed:
        count = int(np.prod(shape, dtype=np.int64))
        array = np.frombuffer(raw, dtype="<f8", count=count, offset=start)
        arrays[name] = array.astype(np.float64).reshape(shape)
        start += 8 * count
    return arrays


def check_min_count(found: PlannedSums, min_count: int = MIN_COUNT) -> None:
    """Refuse to give away sums over few rows: of one row they are the row itself, nearly."""
    for key in sorted(found.sums.cells):
        n = found.sums.cells[key].n_rows
        if n < min_count:
            raise InputError(
                f"group {key.group} of the {key.kind} rows of population "
                f"{found.plan.populations[key.population]!r} has {n} rows, fewer than the minimum "
                f"of {min_count}. Nothing was written. Agree on fewer groups, or give more rows."
            )


def merge_sums(parts: list[PlannedSums]) -> PlannedSums:
    """Add up the sums of several parties.

    Raises
    ------
    InputError
        There is nothing to merge, or the plans differ.
    """
    if not parts:
        raise InputError("there is nothing to merge: give one file of sums or more.")
    digests = [plan_digest(part.plan) for part in parts]
    for i, digest in enumerate(digests):
        if digest != digests[0]:
            raise InputError(
                f"sums {i + 1} were made with another basis, scaling, coding, centring or other "
                f"features than sums 1 (plan {digest[:12]} against {digests[0][:12]}), so they "
                "cannot be added. All parties must use the same plan file."
            )
    plan = parts[0].plan
    return PlannedSums(
        plan,
        reduce(GroupedSums.merge, [part.sums for part in parts]),
        reduce(PolicySums.merge, [part.policy for part in parts]),
    )
