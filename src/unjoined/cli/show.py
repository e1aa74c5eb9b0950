"""What people read: tables, one number per cell, and what it means."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from unjoined._typing import Array
from unjoined._validation import printable
from unjoined.data import SeparateLabels
from unjoined.estimators import Uplift
from unjoined.metrics import IdentificationStrength
from unjoined.reproduce import MethodResult


class _PlainConsole(Console):
    """A console that shows all text as it is: no markup, no control characters, no emoji codes."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Return text with what a terminal would obey, line breaks too, escaped."""
        return super().render_str(printable(text), **options)


def console() -> Console:
    """Return where results go; made per command, so that it follows the current stdout."""
    return _PlainConsole(highlight=False, markup=False, emoji=False)


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


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right")
    return table


def show_labels(out: Console, data: SeparateLabels) -> None:
    """Print one line per table: how many rows, and what their labels average."""
    table = _table("table", "population", "rows", "label")
    for cell in data.summary():
        label = (
            f"mean {cell.label_mean:.4g}"
            if cell.kind == "outcome"
            else f"{cell.label_mean:.1%} treated"
        )
        table.add_row(cell.kind + "s", cell.population, f"{cell.n_rows:,}", label)
    out.print(table)


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
    if m <= 2:
        return
    table = _table("populations", "root mean square", "on average", "F")
    for pair in strength.pairs:
        names = ", ".join(map(str, pair.populations))
        gaps = f"{pair.rms_gap:.2f}", f"{pair.mean_gap:+.2f}"
        table.add_row(names, *gaps, f"{pair.f_statistic:,.0f}{' (weak)' if pair.is_weak else ''}")
    out.print(table)


def strength_pairs(strength: IdentificationStrength) -> list[dict[str, Any]]:
    """Return how far apart each two populations are, one record for each pair."""
    columns = strength.to_dict()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def show_choice(out: Console, model: Uplift) -> None:
    """Print what the default estimator found, in words."""
    out.print(model.summary(), highlight=False)


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


def show_methods(out: Console, results: Sequence[MethodResult], *, at: float) -> None:
    """Print one line per method, compared with the simulated truth."""
    table = _table("method", "share of oracle", f"gain at {at:.0%}", "error", "seconds")
    for result in results:
        table.add_row(
            result.name,
            f"{result.oracle_share.value:.2f}",
            f"{1000 * float(result.curve.at(at)):+.1f}",
            f"{result.squared_error:,.2f}",
            f"{result.seconds:.1f}",
        )
    out.print(table)
