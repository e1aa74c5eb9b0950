"""What `MinMaxUplift` settles by a sample of the rows before it passes over all of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from unjoined._threads import n_threads
from unjoined._typing import Array, Basis, IntArray
from unjoined.basis import ScaledBasis, Scaling, auto_centers, draw_basis
from unjoined.data import LabelledRows
from unjoined.errors import UnjoinedWarning
from unjoined.estimators.minmax_search import MinMaxSearch, Spaces, candidates, search, some_rows
from unjoined.nuisance import cross_fit_centring, deal_folds, subtract_means
from unjoined.solve import RIDGES_F, RIDGES_G
from unjoined.sums import Centring, SumsPlan, cell_positions, means_basis, take_sample

SAMPLE_ROWS = 10_000  # of each cell


# Squares of the number of functions that are in memory while ridges are chosen: sums of every
# table and fold, the averages of each fold and of all others, factors. Counted by peak memory.
MATRICES, MATRICES_PER_THREAD = 62, 15


MUCH_MEMORY = 2.0  # gigabytes


FEW_ROWS = 1000  # in a cell: dealt evenly, since by chance a fold might get none of them


def is_centred(model: Any) -> bool:
    """Whether what features predict of the labels is subtracted."""
    return not isinstance(model.center, bool) or model.center


def ridge_grids(model: Any) -> tuple[Array, Array]:
    """Return the ridges to choose among, of the uplift and of the critic."""
    f, g = (
        grid if isinstance(ridge, str) else np.array([float(ridge)])
        for ridge, grid in ((model.ridge_f, RIDGES_F), (model.ridge_g, RIDGES_G))
    )
    return f, g


def plan_rows(
    model: Any, rows: LabelledRows, rng: np.random.RandomState
) -> tuple[SumsPlan, IntArray | None, MinMaxSearch | None]:
    """Fix basis, scaling and centring by a sample of many rows in memory.

    Returns
    -------
    SumsPlan, array of shape (n,) or None, MinMaxSearch or None
        The groups, if ridges are to be chosen by them, and the search over widths, if any.
    """
    cells = cell_positions(rows, n_jobs=model.n_jobs)
    sample = take_sample(rows, cells, SAMPLE_ROWS, rng)
    fold = _fold(model, sample, rng)
    n_groups = int(fold.max()) + 1 if model._chooses_ridges else 1
    group = _deal(cells, len(rows.X), n_groups, rng) if model._chooses_ridges else None
    names = getattr(model, "feature_names_in_", None)

    def centre(spaces: Spaces) -> list[tuple[Centring, IntArray]]:
        # Rows that the means have seen are too few to matter.
        seen = take_sample(rows, cells, SAMPLE_ROWS // 2, rng)
        everything = np.zeros(len(seen.X), dtype=np.int64)
        ((centring, _),) = fit_means(model, spaces, seen, everything, rng)
        return [(centring, np.arange(len(sample.X)))]

    plan, report = plan_sums(
        model,
        sample,
        fold,
        rng,
        n_rows=len(rows.X),
        feature_names=None if names is None else tuple(names.tolist()),
        n_groups=n_groups,
        centre=centre,
    )
    return plan, group, report


def _fold(model: Any, sample: LabelledRows, rng: np.random.RandomState) -> IntArray:
    """Return the folds of the sample, or zeros if nothing is held out."""
    if is_centred(model) or model._chooses_ridges or model.width == "auto":
        return deal_folds(sample, rng)
    return np.zeros(len(sample.X), dtype=np.int64)


def _deal(cells: list[IntArray], n: int, n_groups: int, rng: np.random.RandomState) -> IntArray:
    """Deal ``n`` rows into groups by chance, and the rows of small cells evenly."""
    # From bytes, at a quarter of the cost: groups differ by a percent in size, at the most.
    group: Any = np.frombuffer(rng.bytes(n), dtype=np.uint8) % np.uint8(n_groups)
    for at in cells:
        if len(at) < FEW_ROWS:
            group[at] = rng.permutation(np.resize(np.arange(n_groups), len(at)))
    return group  # type: ignore[no-any-return]


def plan_sums(
    model: Any,
    rows: LabelledRows,
    fold: IntArray,
    rng: np.random.RandomState,
    *,
    n_rows: int,
    feature_names: tuple[str, ...] | None,
    n_groups: int,
    centre: Callable[[Spaces], list[tuple[Centring, IntArray]]],
) -> tuple[SumsPlan, MinMaxSearch | None]:
    """Fix basis, scaling and centring by a sample.

    Parameters
    ----------
    model : MinMaxUplift
        Its parameters.
    rows : LabelledRows
        The sample, of all four cells.
    fold : array of shape (n,)
        Rows of the sample that are held out together when widths are compared.
    rng : RandomState
        Draws the centres.
    n_rows : int
        Of which the sample is one; the number of centres goes by them.
    feature_names : tuple of str or None
        For the plan.
    n_groups : int
        Groups that all rows are dealt into.
    centre : callable
        Fits what is subtracted from the labels: pairs (m, q), and the rows of the sample that
        each is for.
    """
    d = rows.X.shape[1]
    scaling = Scaling.of_rows(rows.X, rows.share) if model.standardize else Scaling.identity(d)
    tried = candidates(
        draw_spaces(model, scaling, rows, n_rows, rng),
        model.width if isinstance(model.basis, str) else "median",
        critic=model.critic_width is None and isinstance(model.critic_basis, str),
    )
    middle, report = tried[len(tried) // 2], None
    parts: list[tuple[Centring, IntArray]] = []
    if is_centred(model) or len(tried) > 1:
        parts = centre(middle)
    plan = SumsPlan(
        feature_names=feature_names,
        populations=(rows.names[0], rows.names[1]),
        coding=rows.coding,
        scaling=scaling,
        basis=middle.uplift,
        critic=middle.critic,
        centring=tuple(part for part, _ in parts) if is_centred(model) else (),
        n_groups=n_groups,
    )
    if len(tried) > 1:
        spaces, report = _search_width(model, tried, rows, fold, parts)
        if spaces is not middle:
            plan = replace(plan, basis=spaces.uplift, critic=spaces.critic)
            if is_centred(model) and _means_space(model, spaces) is not None:
                parts = centre(spaces)
                plan = replace(plan, centring=tuple(part for part, _ in parts))
    return plan, report


def _means_space(model: Any, spaces: Spaces) -> ScaledBasis | None:
    """Return the functions to centre on, if they can be those of the sums."""
    if spaces.critic is not spaces.uplift or not isinstance(model.center, bool):
        return None
    basis = means_basis(spaces.uplift)
    return None if basis is None else ScaledBasis(basis, spaces.scaling)


def fit_means(
    model: Any,
    spaces: Spaces,
    rows: LabelledRows,
    fold: IntArray,
    rng: np.random.RandomState,
) -> list[tuple[Centring, IntArray]]:
    """Fit what is subtracted from labels: for each fold without it, or with one fold to all."""
    return cross_fit_centring(
        rows,
        fold,
        rng,
        model=None if isinstance(model.center, bool) else model.center,
        space=_means_space(model, spaces),
        n_jobs=model.n_jobs,
    )


def _search_width(
    model: Any,
    tried: list[Spaces],
    rows: LabelledRows,
    fold: IntArray,
    parts: list[tuple[Centring, IntArray]],
) -> tuple[Spaces, MinMaxSearch]:
    """Choose among widths on the sample, by policy gaps at its rows."""
    label, gap = subtract_means(rows, parts, n_jobs=model.n_jobs)
    f, g = ridge_grids(model)
    spaces, _, report = search(
        tried,
        replace(rows, label=label) if is_centred(model) else rows,
        fold,
        gap,
        ridges_f=f,
        ridges_g=g,
        n_jobs=model.n_jobs,
    )
    return spaces, report


def draw_spaces(
    model: Any, scaling: Scaling, rows: LabelledRows, n_rows: int, rng: np.random.RandomState
) -> Spaces:
    """Draw the bases from some rows; the number of centres goes by ``n_rows``."""
    some = some_rows(len(rows.X), model.n_centers, rng)
    sample, weight = scaling(rows.X[some]), rows.relative[some]

    def draw(basis: str | Basis, width: float | str) -> Basis:
        smooth = isinstance(basis, str) and basis == "smooth" and model.n_centers == "auto"
        n_centers = min(auto_centers(n_rows), len(sample)) if smooth else model.n_centers
        return draw_basis(basis, sample, n_centers=n_centers, width=width, rng=rng, weight=weight)

    basis = draw(model.basis, model.width)
    critic, size = basis, basis.size
    if model.critic_basis is not None:
        width = model.width if model.critic_width is None else model.critic_width
        critic = draw(model.critic_basis, width)
        size += critic.size
    _warn_if_large(size, n_threads(model.n_jobs))
    return Spaces(scaling, basis, critic)


def _warn_if_large(size: int, threads: int) -> None:
    """Warn, before anything is computed, if the sums of all folds will fill much memory."""
    gigabytes = (MATRICES + MATRICES_PER_THREAD * threads) * 8.0 * size**2 / 1e9
    if gigabytes > MUCH_MEMORY:
        warnings.warn(
            f"this fit multiplies {size} functions with each other and will take about "
            f"{gigabytes:.1f} GB of memory, and time that grows with the cube of their number. "
            "Lower n_centers, pass fewer features, or take basis='smooth', which needs at most one "
            "linear function for twenty rows.",
            UnjoinedWarning,
            stacklevel=5,
        )
