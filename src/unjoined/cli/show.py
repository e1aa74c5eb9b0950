"""What people read: tables, bars, one number per cell, and what it means."""

from __future__ import annotations

import json
import logging
import math
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import typer
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

from unjoined._support import PROGRESS
from unjoined._typing import Array
from unjoined._validation import OUTCOME, TREATMENT, printable
from unjoined.data.labels import JOINT, POLICY, CellSummary
from unjoined.errors import LeftOutWarning, UnjoinedWarning, mask_secrets
from unjoined.evaluate.estimate import Estimate, ResultTable
from unjoined.evaluate.verdict import AMBER, GREEN, RED, Verdict
from unjoined.model.plan import PlannedSums
from unjoined.words import UNNAMED, Unit

PATIENCE = 2.0  # seconds before a bar is drawn
LOG_EVERY = 60.0  # seconds between lines where there are no bars
STYLES = {GREEN: "bold green", AMBER: "bold yellow", RED: "bold red"}
STOPPED = 3  # exit code of a red verdict, unless somebody said that he knows


class _PlainConsole(Console):
    """A console that shows all text as it is: no markup, no control characters, no emoji codes."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Return text with what a terminal would obey, line breaks too, escaped."""
        return super().render_str(printable(text), **options)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print, with the bars out of the way."""
        for handler in PROGRESS.handlers:
            if isinstance(handler, _Bars):
                handler.hide()
        super().print(*objects, **options)


def console(*, quiet: bool = False) -> Console:
    """Return where results go; made per command, so that it follows the current stdout."""
    return _PlainConsole(highlight=False, markup=False, emoji=False, quiet=quiet)


class Screen:
    """What a command says: the answer first, then details if they are asked for, then what next."""

    def __init__(self, *, details: bool, quiet: bool) -> None:
        self.out = console(quiet=quiet)
        self.more = console(quiet=quiet or not details)  # kept until the answer is out
        self.more.begin_capture()
        self.has_details = details

    def answer(
        self, colour: str, headline: str, lines: Iterable[str], *, then: str = ""
    ) -> None:
        """Print the verdict in its colour, what to do and what it rests on, and what next."""
        self.out.print(headline, style=STYLES[colour])
        self.out.print()
        for line in lines:
            self.out.print(line)
        if said := self.more.end_capture():
            self.out.print()
            self.out.file.write(said)
        if then:
            self.out.print(then, soft_wrap=True)


def verdict_line(verdict: Verdict) -> str:
    """Return the verdict on the tables, its colour, and what it rests on.

    What to do about it is said on red, and by the command check.
    """
    said = verdict.ground
    if verdict.is_partial:
        said = f"{verdict.title}."
    elif verdict.colour == AMBER:
        what = verdict.findings[0].what
        said = f"{verdict.title}. {what[:1].upper()}{what[1:]}"
    elif verdict.strong is not None:
        said = f"{verdict.title}. {said}"
    return f"Verdict ({verdict.colour}): {said}"


class _Bars(logging.Handler):
    """Bars on a terminal, drawn once a command has taken two seconds."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        screen = Console(stderr=True)
        self.is_drawn = screen.is_terminal
        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._drawn = Progress(
            TextColumn("{task.description}", markup=False),
            *columns,
            console=screen,
            transient=True,
            redirect_stdout=False,  # which is for results
            redirect_stderr=False,
        )
        self._tasks: dict[str, TaskID] = {}
        self._begun = time.monotonic()

    def emit(self, record: logging.LogRecord) -> None:
        """Draw what the library says of its progress: a job, how much of it is done, and all."""
        job, done, total = (
            (*record.args,) if isinstance(record.args, tuple) else ("", 0, 1)
        )
        name = str(job)
        done = int(str(done))
        total = int(str(total))
        if name not in self._tasks:
            self._tasks[name] = self._drawn.add_task(printable(name), total=total)
        if done < self._drawn.tasks[self._tasks[name]].completed:  # the same once more
            self._drawn.reset(self._tasks[name], total=total)
        self._drawn.update(self._tasks[name], completed=done, total=total)
        if time.monotonic() - self._begun > PATIENCE:
            self._drawn.start()

    def hide(self) -> None:
        """Take the bars off the screen until there is news."""
        if self._drawn.live.is_started:
            self._drawn.stop()


class _Lines(logging.Handler):
    """A line a minute in place of bars, for logs: what is done, and about how long it takes."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._begun: dict[str, float] = {}
        self._said = time.monotonic()

    def emit(self, record: logging.LogRecord) -> None:
        """Say how far a job is, if the last line is a minute old."""
        if not isinstance(record.args, tuple):
            return
        now = time.monotonic()
        job, done, total = str(record.args[0]), *map(float, map(str, record.args[1:]))
        begun = self._begun.setdefault(job, now)
        if done >= total or now - self._said < LOG_EVERY:
            return
        self._said = now
        left = ""
        if done and now > begun:
            left = f", {_minutes((now - begun) * (total - done) / done)} left"
        said = f"{job}: {done:,.0f} of {total:,.0f}{left}"
        print(f"unjoined: {printable(said)}", file=sys.stderr, flush=True)

    def hide(self) -> None:
        """Do nothing: lines stay."""


def _minutes(seconds: float) -> str:
    """Return how long something takes, roughly."""
    if seconds < 90.0:
        return f"about {seconds:.0f} seconds"
    minutes = seconds / 60.0
    return (
        f"about {minutes:.0f} minutes"
        if minutes < 90.0
        else f"about {minutes / 60.0:.1f} hours"
    )


@contextmanager
def progress() -> Iterator[None]:
    """Say on stderr how far the library is: with bars on a terminal, else a line a minute."""
    bars: Any = _Bars()
    if not bars.is_drawn:
        bars = _Lines()
    before = PROGRESS.level
    PROGRESS.addHandler(bars)
    PROGRESS.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        PROGRESS.removeHandler(bars)
        PROGRESS.setLevel(before)
        bars.hide()


def tell_progress(job: str, done: int, total: int) -> None:
    """Say how much of a job is done."""
    PROGRESS.debug("%s: %d of %d", job, done, total)


@contextmanager
def noted(
    hide: Callable[[Warning], bool] | None = None, known: Iterable[str] = ()
) -> Iterator[list[Warning]]:
    """Collect what the library warns of, and pass it on at the end, unless hidden.

    What is ``known`` already is left out, and so is what was said before with other numbers, as
    fits without a fold do.
    """
    notes: list[Warning] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UnjoinedWarning)
        yield notes
    said = {_without_numbers(note) for note in known}
    for warning in (entry.message for entry in caught):
        same = _without_numbers(str(warning))
        if (
            not isinstance(warning, UnjoinedWarning)
            or same in said
            or (hide and hide(warning))
        ):
            continue
        said.add(same)
        notes.append(warning)
        if not isinstance(warning, LeftOutWarning):  # which is told among the results
            warnings.warn(warning, stacklevel=2)


def _without_numbers(note: str) -> str:
    return re.sub(r"\d[\d,.]*", "", note)


def print_json(result: dict[str, Any]) -> None:
    """Print one JSON object, for other programs."""
    print(
        json.dumps(_numbers_or_null(result), indent=2, default=float, allow_nan=False)
    )


def _numbers_or_null(value: Any) -> Any:
    """Replace infinite and missing numbers, which JSON does not have, by null; mask passwords."""
    if isinstance(value, str | Warning):
        return mask_secrets(str(value))
    if isinstance(value, dict):
        return {key: _numbers_or_null(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_numbers_or_null(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def show_table(
    out: Console, columns: Iterable[str], rows: Iterable[Iterable[str]]
) -> None:
    """Print a table, its first column on the left and numbers on the right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*row)
    out.print(table)


def show_titled(out: Console, tables: Iterable[ResultTable]) -> None:
    """Print tables, each with its title above."""
    for title, columns, rows in tables:
        out.print()
        out.print(title, style="bold")
        show_table(out, columns, rows)


def show_pairs(out: Console, rows: Iterable[tuple[str, str]]) -> None:
    """Print names in bold and what they mean."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, meaning in rows:
        table.add_row(Text(printable(name), style="bold"), meaning)
    out.print(table)


def show_labels(out: Console, cells: Iterable[CellSummary]) -> None:
    """Print one line per table: how many rows, and what their labels average."""
    called = {
        OUTCOME: "outcomes",
        TREATMENT: "treatments",
        JOINT: "  with both labels",
        POLICY: "  with a known policy",
    }
    rows = []
    for cell in cells:
        title = called.get(cell.kind, cell.kind)
        rows.append((title, cell.population, f"{cell.n_rows:,}", cell.words))
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


def show_uplift(out: Console, uplift: Array, whose: str, unit: Unit = UNNAMED) -> None:
    """Print how predicted uplift is spread."""
    s = uplift_summary(uplift)
    out.print(
        f"Predictions for {whose}: nine in ten lie between {unit.rate(s['quantile_05'])} and "
        f"{unit.rate(s['quantile_95'])} {unit.per}, "
        f"{s['share_not_harmed']:.0%} at 0 or above."
    )


def estimate_facts(estimate: Estimate, level: float = 0.95) -> dict[str, Any]:
    """Return a number with its interval, for JSON; null where the tables cannot bound it."""
    low, high = estimate.interval(level)
    return {"value": estimate.value, "low": low, "high": high, "level": level} | {
        "standard_error": estimate.standard_error
    }


def stop_if(is_red: bool) -> None:
    """End a command that did its work on tables that cannot tell, with an exit code of its own."""
    if is_red:
        raise typer.Exit(STOPPED)
