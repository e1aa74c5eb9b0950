"""What people read: tables, bars, one number per cell, and what it means."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from unjoined._typing import Array
from unjoined._validation import OUTCOME, TREATMENT, printable
from unjoined.data import SeparateLabels
from unjoined.estimators import Uplift, UpliftEstimator
from unjoined.metrics import IdentificationStrength
from unjoined.sums import PlannedSums


class _PlainConsole(Console):
    """A console that shows all text as it is: no markup, no control characters, no emoji codes."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Return text with what a terminal would obey, line breaks too, escaped."""
        return super().render_str(printable(text), **options)


def console(*, quiet: bool = False) -> Console:
    """Return where results go; made per command, so that it follows the current stdout."""
    return _PlainConsole(highlight=False, markup=False, emoji=False, quiet=quiet)


@contextmanager
def progress(out: Console) -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function that takes a job, how much of it is done and all, and draws a bar."""
    bars: dict[str, TaskID] = {}
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=out,
    ) as drawn:

        def draw(job: str, done: int, total: int) -> None:
            if job not in bars:
                bars[job] = drawn.add_task(job, total=total)
            drawn.update(bars[job], completed=done)

        yield draw


def print_json(result: dict[str, Any]) -> None:
    """Print one JSON object, for other programs."""
    print(json.dumps(_numbers_or_null(result), indent=2, default=float, allow_nan=False))


def _numbers_or_null(value: Any) -> Any:
    """Replace infinite and missing numbers, which JSON does not have, by null."""
    if isinstance(value, dict):
        return {key: _numbers_or_null(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_numbers_or_null(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def show_table(out: Console, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print a table, its first column on the left and numbers on the right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*row)
    out.print(table)


def show_pairs(out: Console, rows: Iterable[tuple[str, str]]) -> None:
    """Print names in bold and what they mean."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, meaning in rows:
        table.add_row(Text(printable(name), style="bold"), meaning)
    out.print(table)


def show_labels(out: Console, data: SeparateLabels) -> None:
    """Print one line per table: how many rows, and what their labels average."""
    rows = []
    for cell in data.summary():
        mean = cell.label_mean
        label = f"mean {mean:.4g}" if cell.kind == OUTCOME else f"{mean:.1%} treated"
        rows.append((cell.kind + "s", cell.population, f"{cell.n_rows:,}", label))
    show_table(out, ("table", "population", "rows", "label"), rows)


def cell_sizes(sums: PlannedSums) -> list[dict[str, Any]]:
    """Return how many rows each table had that the sums are of."""
    return [
        {"kind": kind, "population": name, "rows": sums.n_rows(kind, k)}
        for kind in (OUTCOME, TREATMENT)
        for k, name in enumerate(sums.plan.populations)
    ]


def show_cell_sizes(out: Console, sums: PlannedSums) -> None:
    """Print one line per table that the sums are of."""
    for cell in cell_sizes(sums):
        out.print(f"{cell['kind']} rows of {cell['population']}: {cell['rows']:,}")


def show_strength(out: Console, strength: IdentificationStrength) -> None:
    """Print whether the policies differ enough."""
    verdict = (
        "too alike: uplift is weakly identified, do not trust a ranking from these tables"
        if strength.is_weak
        else "different enough to identify uplift"
    )
    m = len(strength.populations)
    who, gap = ("two", "+.2f") if m <= 2 else (str(m), ".2f")
    out.print(
        f"The {who} policies are {verdict}: treatment probabilities differ by "
        f"{strength.rms_gap:.2f} (root mean square over people; {strength.mean_gap:{gap}} on "
        f"average; F = {strength.f_statistic:,.0f}, weak below 10)."
    )
    if m > 2:
        rows = [
            (
                ", ".join(map(str, pair.populations)),
                f"{pair.rms_gap:.2f}",
                f"{pair.mean_gap:+.2f}",
                f"{pair.f_statistic:,.0f}{' (weak)' if pair.is_weak else ''}",
            )
            for pair in strength.pairs
        ]
        show_table(out, ("populations", "root mean square", "on average", "F"), rows)


def show_choice(out: Console, model: UpliftEstimator) -> None:
    """Print how different the policies are and, of the default, what it found in words."""
    show_strength(out, model.identification_)
    if isinstance(model, Uplift):
        for line in model.summary().splitlines():  # the console would show line ends as such
            out.print(line, highlight=False)


def uplift_summary(uplift: Array) -> dict[str, float]:
    """Return a few numbers about predicted uplift, outcome units."""
    low, median, high = np.quantile(uplift, [0.05, 0.5, 0.95])
    return {
        "mean": float(uplift.mean()),
        "quantile_05": float(low),
        "median": float(median),
        "quantile_95": float(high),
        "share_not_harmed": float(np.mean(uplift >= 0.0)),
    }


def show_uplift(out: Console, uplift: Array) -> None:
    """Print how predicted uplift is spread."""
    s = uplift_summary(uplift)
    out.print(
        f"Predicted uplift, in units of the outcome: mean {s['mean']:+.4g}, nine in ten people "
        f"between {s['quantile_05']:+.4g} and {s['quantile_95']:+.4g}; "
        f"{s['share_not_harmed']:.0%} would not be harmed by treatment."
    )
