"""What a plan of a study says: rows, gaps and the precision they reach, and how it is shown."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unjoined._support import in_digits
from unjoined._typing import Frame
from unjoined.evaluate.estimate import STRONG, ResultTable, Shown, as_frame, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SCATTER, POWER = 0.25, 0.75  # of standard errors from single pilots of 125 rows, as a share
SMALL_PILOT = 500  # rows of a table, below which a plan says how rough it is
CAREFUL_PILOT = 250  # below, pilots ask for more than is needed, on average
CHEAP = 0.1  # share of the variance below which treatment rows are called cheap


@dataclass(frozen=True, slots=True)
class PlanPoint:
    """What a study of some size would reach.

    Attributes
    ----------
    gap : float
        Root mean square of the policy gap over people.
    rows, treatment_rows : int
        Rows of each population's outcome table, and of each treatment table.
    standard_error, half_width : float
        Of the quantity, and of its interval; outcome units.
    strength : float
        Of the gap: its square over its variance; below 17 intervals are wider than this, or
        unbounded.
    speaks_for : float
        Share of people the answer would speak for; nan if it is not known.
    """

    gap: float
    rows: int
    treatment_rows: int
    standard_error: float
    half_width: float
    strength: float
    speaks_for: float


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StudyPlan(Shown):
    """Rows and policy gaps, and the precision they reach. Printing it shows all of it.

    Attributes
    ----------
    quantity : str
        What is to be known, in words.
    level : float
        Level of the intervals.
    wanted : float or None
        Half width that was asked for, outcome units.
    gap : float
        Policy gap of the pilot or of the guess, root mean square.
    needs : tuple of PlanPoint
        The rows that the wanted precision needs, for several gaps; empty if none was asked for.
    table : tuple of PlanPoint
        What several sizes and gaps reach.
    shares : dict
        Shares of the variance at the present gap: "outcomes", "treatments", "people".
    is_rough : bool
        Whether it comes from a guess. The average is then within 15 percent or so, if the numbers
        are right; AUUC and Qini may be a third too small. How rough a pilot is says ``scatter``.
    pilot_rows : int or None
        Rows of the pilot's smallest table.
    pilot_strength : float or None
        Strength of the policy gap in the pilot.
    """

    quantity: str
    level: float
    wanted: float | None
    gap: float
    needs: tuple[PlanPoint, ...]
    table: tuple[PlanPoint, ...]
    shares: dict[str, float]
    is_rough: bool
    pilot_rows: int | None
    pilot_strength: float | None

    @property
    def scatter(self) -> float | None:
        """How far standard errors planned from single pilots of this size scatter, as a share.

        None for a guess. It was found by simulation (`benchmarks/planner.py`).
        """
        return None if self.pilot_rows is None else SCATTER * (125.0 / self.pilot_rows) ** POWER

    @property
    def needed(self) -> PlanPoint | None:
        """What the wanted precision needs at the present gap, None if none was asked for."""
        return next((need for need in self.needs if need.gap == self.gap), None)

    def sentences(self) -> list[str]:
        """Return the answer and what to make of it, a sentence or two each."""
        return list(_sentences(self))

    def result_tables(self) -> list[ResultTable]:
        """Return what is shown as tables, all of it text: each a title, columns and rows."""
        return _tables(self)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain words and numbers, ready for JSON."""
        return asdict(self) | {"scatter": self.scatter, "sentences": self.sentences()}

    def to_frame(self, library: str | None = None) -> Frame:
        """Return the table as a data frame: gap, rows, precision, a line for each size and gap.

        Parameters
        ----------
        library : {"pandas", "polars", "pyarrow"}, optional
            Of which library; by default the first of these that is installed.

        Returns
        -------
        data frame
        """
        return as_frame([asdict(point) for point in self.table], library)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the half width against the rows of a table, a line for each gap.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib Axes
        """
        ax = ax or new_axes(3.8)
        for gap in sorted({point.gap for point in self.table}):
            line = [point for point in self.table if point.gap == gap]
            ax.plot(
                [point.rows for point in line],
                [point.half_width for point in line],
                marker="o",
                markersize=3,
                lw=2.2 if gap == self.gap else 1.0,
                label=f"gap {gap:.2f}" + (" (now)" if gap == self.gap else ""),
            )
        if self.wanted is not None:
            ax.axhline(self.wanted, color="0.3", lw=0.8, ls="--", label="wanted")
        ax.set_xscale("log")
        ax.set_yscale("log")
        sizes = sorted({point.rows for point in self.table})
        ax.set_xticks(sizes, [f"{n:,}" for n in sizes])
        ax.minorticks_off()
        widths = [point.half_width for point in self.table]
        ticks = np.geomspace(min(widths), max(widths), 5)
        ax.set_yticks(ticks, [in_digits(width, 2) for width in ticks])
        ax.set_xlabel("rows of each outcome table")
        ax.set_ylabel(f"half width of the {self.level:.0%} interval")
        ax.set_title(self.quantity.capitalize(), loc="left")
        ax.legend(frameon=False, fontsize="small")
        ax.spines[["top", "right"]].set_visible(False)
        return ax


def _sentences(plan: StudyPlan) -> Iterator[str]:
    """Yield the answer and what to make of it."""
    where = "the guess" if plan.is_rough else "the pilot"
    need = plan.needed
    if need is not None:
        wanted = in_digits(plan.wanted or 0.0, 3)
        yield (
            f"To know {plan.quantity} within +-{wanted} ({plan.level:.0%} interval), "
            f"collect {need.rows:,} rows in each outcome table and {need.treatment_rows:,} in each "
            f"treatment table, with policies as far apart as in {where} ({plan.gap:.2f})."
        )
    else:
        some = next(p for p in plan.table if p.gap == plan.gap and p.rows >= (plan.pilot_rows or 0))
        yield (
            f"With {some.rows:,} rows in each table, and policies as far apart as in {where} "
            f"({plan.gap:.2f}), {plan.quantity} is known within +-{in_digits(some.half_width, 3)} "
            f"({plan.level:.0%} interval)."
        )
    noise, luck, people = (f"{share:.0%}" for share in plan.shares.values())
    parts = (
        f"Of its variance {noise} is noise of outcomes, {luck} chance of treatment, {people} who "
        "happens to be in the tables."
    )
    if plan.shares["treatments"] < CHEAP:
        fewer = math.sqrt(1.0 + plan.shares["treatments"]) - 1.0
        parts += (
            f" Treatment rows are cheap here: with half as many the interval would be {fewer:.1%} "
            "wider. Spend on outcome rows."
        )
    yield f"{parts} Twice the gap is worth about four times the rows."
    yield from _doubts(plan)


def _doubts(plan: StudyPlan) -> Iterator[str]:
    """Yield how rough the plan is."""
    if plan.is_rough:
        yield (
            "This is rough: it takes the gap as the same for everyone, uplift as normal and a "
            "ranking as perfect. Areas may come out a third too small. A pilot does better."
        )
    elif plan.pilot_strength is not None and plan.pilot_strength < STRONG:
        yield (
            "The pilot hardly shows a difference of policies "
            f"(strength {plan.pilot_strength:.1f}, below {STRONG:g}), so that this plan means "
            "little. Vary treatment more, then plan again."
        )
    elif plan.pilot_rows and plan.scatter and plan.pilot_rows < SMALL_PILOT:
        yield (
            f"This is rough, as the pilot is small ({plan.pilot_rows} rows in its smallest table): "
            f"standard errors from single pilots of this size scatter by about {plan.scatter:.0%}, "
            f"and the rows they ask for by {2.0 * plan.scatter:.0%}."
        )
        if plan.pilot_rows < CAREFUL_PILOT:
            yield "On average they ask for too much, by 5 to 15% of the standard error."


def _tables(plan: StudyPlan) -> list[ResultTable]:
    """Return rows needed by gap, and precision by rows and gap, as text."""
    tables: list[ResultTable] = []
    if plan.needs:
        rows: list[tuple[str, ...]] = [
            (f"{p.gap:.2f}", f"{p.rows:,}", f"{p.treatment_rows:,}", _share(p.speaks_for))
            for p in plan.needs
        ]
        names: tuple[str, ...] = ("gap", "outcome rows", "treatment rows", "speaks for")
        tables.append(("Rows of each table that it needs", names, rows))
    gaps = sorted({p.gap for p in plan.table})
    reached = {(p.rows, p.gap): in_digits(p.half_width, 3) for p in plan.table}
    sizes = sorted({p.rows for p in plan.table})
    lines = [(f"{n:,}", *(reached[n, gap] for gap in gaps)) for n in sizes]
    title = f"Half width of the {plan.level:.0%} interval, by rows of each table and gap"
    names = ("outcome rows", *(f"gap {gap:.2f}" for gap in gaps))
    return [*tables, (title, names, lines)]


def _share(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.0%}"
