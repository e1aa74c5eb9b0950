"""What a file of sums must be to be believed, and what a table's sums are known by."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unjoined._typing import Array
from unjoined._validation import OUTCOME, TREATMENT
from unjoined.errors import DisclosureWarning, InputError
from unjoined.sums.centring import has_constant
from unjoined.sums.moments import CellKey, MomentSums
from unjoined.sums.plan import PlannedSums, SumsPlan, TableId

LARGEST = 1e150  # of any number: its square is still one


TOLERANCE = 1e-9  # what sums may be off by, relative to their size


class UnsoundError(Exception):
    """Says what is wrong inside a file; `read_sums` adds which file."""


def need(ok: bool, what: str) -> None:
    """Refuse the file unless ``ok``."""
    if not ok:
        raise UnsoundError(what)


def whole(value: Any, what: str, low: int, high: int) -> int:
    """Return a whole number in a range, both ends included."""
    good = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    need(good, f"for {what} a whole number from {low} to {high} was expected")
    return int(value)


def number(value: Any, what: str, *, positive: bool = False) -> float:
    """Return a finite number, above 0 if asked."""
    good = isinstance(value, int | float) and not isinstance(value, bool)
    good = good and abs(value) <= LARGEST and (value > 0 or not positive)
    need(good, f"for {what} a finite number{' above 0' if positive else ''} was expected")
    return float(value)


def text(value: Any, what: str) -> str:
    """Return a text that is not empty."""
    need(isinstance(value, str) and value != "", f"for {what} a text was expected")
    return str(value)


def items(value: Any, what: str, length: int | None = None) -> list[Any]:
    """Return a list, of a given length if there is one."""
    good = isinstance(value, list) and length in (None, len(value))
    need(good, f"for {what} a list {'' if length is None else f'of {length} '}was expected")
    return list(value)


def fields(value: Any, what: str, *names: str) -> Mapping[str, Any]:
    """Return what has exactly these names."""
    good = isinstance(value, dict) and set(value) == set(names)
    need(good, f"{what} does not have the entries {', '.join(names)}")
    return dict(value)


class FileArrays:
    """The arrays of a file, each to be taken once."""

    def __init__(self, members: Mapping[str, NDArray[Any]]) -> None:
        """Refuse arrays that do not hold finite numbers."""
        self.left: dict[str, Array] = {}
        for name, array in members.items():
            good = array.dtype == np.dtype("<f8") and bool(np.all(np.abs(array) <= LARGEST))
            need(good, f"array {name!r} holds no finite numbers")
            self.left[name] = array.astype(np.float64)

    def take(self, name: str, *shape: int | None) -> Array:
        """Return an array of a shape in which None stands for any number above 0."""
        need(name in self.left, f"array {name!r} is missing")
        array = self.left.pop(name)
        good = array.ndim == len(shape) and all(
            have == want or (want is None and have > 0)
            for have, want in zip(array.shape, shape, strict=True)
        )
        need(good, f"array {name!r} has another shape than its plan and cells call for")
        return array

    def check_empty(self) -> None:
        """Refuse arrays that nothing has asked for."""
        need(not self.left, f"nothing calls for the array {next(iter(self.left), '')!r}")


def check_cell(key: CellKey, sums: MomentSums, plan: SumsPlan, *, noisy: bool) -> None:
    """Refuse sums that are those of no rows whatever; noise may hide more than that they fit."""
    what = f"the sums of group {key.group} of the {key.kind} rows of population {key.population}"
    _check_weights(sums.n_rows, sums.weight, sums.weight_square, what)
    if noisy:
        both = (sums.gram, sums.label_cross)
        need(all(np.array_equal(part, part.T) for part in both), f"{what} are not symmetric")
        need(_near(sums.gram[0, 0], sums.weight), f"{what} contradict their weight")
        return
    _check_gram(sums.gram, what)
    constant = has_constant(plan.basis)
    if constant:
        need(_near(sums.gram[0, 0], sums.weight), f"{what} contradict their weight")
    # Labels of two values are -1 and +1; less a mean between the two they are twice as large.
    bound = 2.0 if plan.centring else 1.0
    if key.kind == TREATMENT or plan.coding.is_binary:
        _check_label_sums(sums.label_basis, sums.weight, bound**2 * sums.gram, what)
    if key.kind == TREATMENT:
        need(_is_symmetric(sums.label_cross, sums.gram), f"{what} are not symmetric")
        for sign in (1.0, -1.0):
            part = sums.gram + sign / bound * sums.label_cross
            good = _is_positive(part, sums.gram, 2.0 * TOLERANCE)
            need(good, f"{what} are those of no labels between -1 and +1")
        if constant:
            room = TOLERANCE * bound * np.sqrt(sums.weight * np.diag(sums.gram))
            same = np.abs(sums.label_cross[0] - sums.label_basis) <= room
            need(bool(np.all(same)), f"{what} contradict each other")


def check_policy(found: PlannedSums) -> None:
    """Refuse sums of policies that are not those of the treatment rows."""
    policy = found.policy
    for k in range(len(found.plan.populations)):
        what = f"the sums of policies of population {k}"
        cells = [
            sums
            for key, sums in found.sums.cells.items()
            if (key.kind, key.population) == (TREATMENT, k)
        ]
        weight, gram, square = policy.weight[k], policy.gram[k], policy.square[k]
        squares = sum(sums.weight_square for sums in cells)
        agree = (
            int(policy.n_rows[k]) == sum(sums.n_rows for sums in cells)
            and _near(weight, sum(sums.weight for sums in cells))
            and _near(gram[0, 0], weight)
            and _near(square[0, 0], squares)
        )
        need(agree, f"{what} are not over as many treatment rows as there are")
        _check_gram(gram, what)
        _check_gram(square, what)
        _check_label_sums(policy.label[k], weight, gram, what)


def _check_weights(n: int, weight: float, square: float, what: str) -> None:
    """Refuse weights of which the squares add up to what they cannot."""
    room = 1.0 + TOLERANCE
    good = weight**2 <= n * square * room and square <= weight**2 * room
    need(good, f"{what} are over {n} rows whose weights and their squares contradict each other")


def _check_label_sums(label: Array, weight: float, gram: Array, what: str) -> None:
    """Refuse sums of labels times functions that are larger than Cauchy and Schwarz allow."""
    largest = (1.0 + TOLERANCE) * np.sqrt(weight * np.diag(gram))
    need(bool(np.all(np.abs(label) <= largest)), f"{what} have labels that are too large")


def _check_gram(gram: Array, what: str) -> None:
    """Refuse what is not a sum of products of functions with each other."""
    need(bool(np.all(np.diag(gram) >= 0.0)), f"{what} have a sum of squares below 0")
    need(_is_symmetric(gram, gram), f"{what} are not symmetric")
    need(_is_positive(gram, gram, TOLERANCE), f"{what} are not positive semidefinite")


def _near(a: Any, b: Any) -> bool:
    return bool(abs(float(a) - float(b)) <= TOLERANCE * abs(float(b)))


def _is_symmetric(matrix: Array, gram: Array) -> bool:
    size = np.sqrt(np.diag(gram))
    return bool(np.all(np.abs(matrix - matrix.T) <= TOLERANCE * np.outer(size, size)))


def _is_positive(matrix: Array, gram: Array, tolerance: float) -> bool:
    """Whether a symmetric matrix is positive semidefinite, each function being of size one."""
    size = np.sqrt(np.diag(gram))
    size[size == 0.0] = 1.0
    room = tolerance * len(size)
    try:
        factor = np.linalg.cholesky(matrix / np.outer(size, size) + room * np.eye(len(size)))
    except np.linalg.LinAlgError:
        return False
    return bool(np.isfinite(factor).all())


BITS = 16  # kept of every sum: rounding changes far smaller ones, another table far larger ones


SHIFT = 0.3183  # moves the edges of the grid away from round numbers, which many sums are


def tables_of(found: PlannedSums) -> tuple[TableId, ...]:
    """Return the identities of all tables that were added up, sorted."""
    if found.tables:
        return found.tables
    tables = sorted({key[:2] for key in found.sums.cells})
    return tuple(TableId(*table, _digest(found.sums.total(*table))) for table in tables)


def _digest(sums: MomentSums) -> str:
    """Return 128 bits that do not depend on the order in which rows were added up.

    They are made of the sums, rounded, which are in the file anyway, and not of rows: nothing can
    be found out from them that the sums do not tell.
    """
    squares = np.diag(sums.gram)
    size = np.linalg.norm(sums.label_basis)
    digest = hashlib.sha256(str(sums.n_rows).encode())
    for part in (_rounded(squares, squares), _rounded(sums.label_basis, np.array(size))):
        digest.update(part)
    return digest.hexdigest()[:32]


def _rounded(values: Array, size: Array) -> bytes:
    """Return numbers as multiples of a small part of their size, which is a power of two."""
    _, exponent = np.frexp(size * (1.0 + SHIFT))
    steps = np.floor(np.ldexp(values, BITS - exponent) + SHIFT)
    return bytes(steps.astype("<i8"))


def refuse_overlap(parts: Sequence[PlannedSums]) -> None:
    """Refuse sums of which two hold the same table."""
    first: dict[TableId, int] = {}
    for i, part in enumerate(parts):
        for table in tables_of(part):
            if table in first:
                name = part.plan.populations[table.population]
                raise InputError(
                    f"sums {i + 1} hold the same {table.kind} rows of population {name!r} as sums "
                    f"{first[table] + 1}, and each table is to be counted once. Leave out one of "
                    "the two. If these are different rows after all, aggregate them together."
                )
            first[table] = i


FEW_ROWS = 10.0  # by which two tables differ, so that their difference tells of few people


def warn_of_differences(parts: Sequence[PlannedSums], *, stacklevel: int) -> None:
    """Warn of two tables that differ in few rows, whose sums anyone could subtract."""
    for (i, one), (j, two) in combinations(enumerate(parts), 2):
        for kind in (OUTCOME, TREATMENT):
            for k, name in enumerate(one.plan.populations):
                cells = [
                    {key.group: c for key, c in part.sums.cells.items() if key[:2] == (kind, k)}
                    for part in (one, two)
                ]
                if not all(cells):
                    continue
                shared = cells[0].keys() & cells[1].keys()
                n = sum(_rows_apart(cells[0][g], cells[1][g]) for g in shared)
                n += sum(c[g].n_rows for c in cells for g in c.keys() - shared)
                if n < FEW_ROWS:
                    warnings.warn(
                        f"sums {i + 1} and {j + 1} differ in about {max(n, 1.0):.0f} of the {kind} "
                        f"rows of population {name!r}. Most rows would be counted twice, and who "
                        "has both files can subtract one from the other and learn about these few "
                        "people. Merge one of the two, and do not pass on both.",
                        DisclosureWarning,
                        stacklevel=stacklevel + 1,
                    )


def _rows_apart(one: MomentSums, two: MomentSums) -> float:
    """Return about how many rows must be added or left out to get from one group to the other."""
    larger = max(one.n_rows, two.n_rows)
    size = np.sqrt(np.maximum(np.diag(one.gram + two.gram), 1e-300) / (one.n_rows + two.n_rows))
    apart = np.linalg.eigvalsh((one.gram - two.gram) / np.outer(size, size))
    # A row adds about the number of functions to the trace; sums of many rows are known to 1e-12.
    rows = float(np.abs(apart).sum()) / len(size)
    return max(abs(one.n_rows - two.n_rows), rows if rows > 1e-9 * larger else 0.0)
