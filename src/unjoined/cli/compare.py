"""The command compare: what changed from one model to the next, on the same tables."""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from unjoined._support import import_extra
from unjoined._typing import BoolArray, Frame
from unjoined._validation import OUTCOME
from unjoined.cli.inputs import (
    TABLE,
    Input,
    Tables,
    as_table,
    check_paths,
    written_columns,
)
from unjoined.cli.options import (
    AsJson,
    Budget,
    ChooseFrom,
    Details,
    Force,
    Keep,
    Seed,
    Share,
    Worth,
    select_columns,
    split_names,
)
from unjoined.cli.program import Config, command
from unjoined.cli.score import WRITTEN, Target
from unjoined.cli.show import Screen, noted, print_json, show_titled
from unjoined.data.files import table_ending
from unjoined.data.tables import read_table
from unjoined.data.write import write_table
from unjoined.errors import InputError
from unjoined.estimators.arms import ArmUplift
from unjoined.estimators.persist import load_model
from unjoined.evaluate.evaluate import compare_uplift
from unjoined.evaluate.tables import was_fitted_to
from unjoined.evaluate.verdict import AMBER, GREEN, RED
from unjoined.targeting import treatment_rank
from unjoined.words import Unit, interval, is_bounded

OLD, NEW, LIST = "the old list", "the new list", "list"
Old = Annotated[Path, typer.Argument(metavar="OLD", help="The model of before.")]
New = Annotated[Path, typer.Argument(metavar="NEW", help="The model of now.")]


@command(
    "unjoined compare may.skops june.skops --config shop/unjoined.toml --share 30%",
    "unjoined compare may.skops june.skops --config shop/unjoined.toml --out changes.csv",
)
def compare(
    old: Old,
    new: New,
    tables: Tables,
    worth: Worth,
    share: Share = None,
    budget: Budget = None,
    table: ChooseFrom = None,
    keep: Keep = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Where to write whose decision changes: .csv, .parquet or .xlsx.",
        ),
    ] = None,
    details: Details = False,
    force: Force = False,
    seed: Seed = 0,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Say what changed from one model to the next: gains on the same tables, and decisions."""
    tables.require("compare needs {}.")
    tables.refuse_arms("compare")
    _check_files([*tables.paths, ("OLD", old), ("NEW", new)], table, out, force=force)
    models = {OLD: load_model(old), NEW: load_model(new)}
    if any(isinstance(model, ArmUplift) for model in models.values()):
        raise InputError(
            "compare looks at models of one treatment; these are of several."
        )
    target = Target(share, None, None, budget, worth.costs()[""], worth.value)
    with noted() as notes:
        data = _tables_of(tables, models).read()
        names = {
            name: [str(n) for n in m.feature_names_in_] for name, m in models.items()
        }
        people: Any = data.X
        kept = None
        if table is not None:
            text = [c for model in models.values() for c in written_columns(model)]
            people = read_table(as_table(table), text=text)
            known = {n for each in names.values() for n in each}
            columns = split_names("--keep", keep) or [
                n for n in people.column_names if n not in known
            ]
            kept = select_columns(people, columns, title=repr(table))
        chosen, rank = {}, {}
        for name, model in models.items():
            mine = people
            if table is not None:
                mine = select_columns(people, names[name], title=repr(table))
            uplift = model.predict_gain(mine)
            rank[name] = treatment_rank(uplift)
            chosen[name] = rank[name] <= target.count(np.sort(uplift)[::-1])
        # One rule for both, so that they are held against each other row by row.
        rule: Any = ("threshold", target.least)
        if share is not None or budget is not None:
            rule = ("share", float(chosen[NEW].mean()))
        found = compare_uplift(models, data, rules={LIST: rule}, random_state=seed)
    gains = {name: found.rules[name][LIST] for name in models}
    pair = found.differences[0]
    screen = Screen(details=details, quiet=as_json)
    for line in found.sentences():
        screen.more.print(line)
    show_titled(screen.more, found.result_tables())
    outcomes = np.asarray(data.y)[data.rows(OUTCOME)]
    known_unit = worth.unit or getattr(models[NEW], "unit_", None)
    unit = Unit.of_outcome(
        tables.columns["--outcome"] or "",
        known_unit,
        is_rate=set(np.unique(outcomes)) <= {0.0, 1.0},
    )
    more = _difference(pair, found.level)
    is_own = was_fitted_to(models[NEW], data)
    colour, headline = _headline(more, is_own=is_own)
    lines = [
        f"{name[:1].upper()}{name[1:]} gains {unit.each(g)}."
        for name, g in gains.items()
    ]
    lines.append(_more_in_words(more, unit, found.level))
    treats = {name: float(each.mean()) for name, each in chosen.items()}
    if rule[0] == "share" and treats[OLD] != treats[NEW]:
        lines.append(
            f"Both orders are judged at the {treats[NEW]:.0%} that the new list treats; the old "
            f"one treats {treats[OLD]:.0%}."
        )
    lines.append(_changes_in_words(chosen))
    lines.append(f"Measured for {found.speaks_for:.0%} of people.")
    if out is not None:
        rows = _changed(kept, chosen, rank, len(chosen[NEW]))
        lines.append(f"Wrote {write_table(rows, out)}: whose decision changes.")
    screen.answer(colour, headline, lines + ["More with --details."] * (not details))
    if as_json:
        facts: dict[str, Any] = {
            "colour": colour,
            "difference": dict(zip(ENDS, more, strict=True)),
        }
        facts |= {"joined": int((chosen[NEW] & ~chosen[OLD]).sum())}
        facts |= {
            "left": int((chosen[OLD] & ~chosen[NEW]).sum()),
            "people": len(chosen[NEW]),
        }
        print_json(facts | {"comparison": found.to_dict(), "warnings": notes})


ENDS = ("value", "low", "high")
Ends = tuple[float, float, float]


def _check_files(
    inputs: list[Input], table: str | None, out: Path | None, *, force: bool
) -> None:
    """Refuse files that would be overwritten, and one of another kind."""
    people = [] if table is None else [("--table", as_table(table))]
    written = [] if out is None else [("--out", out, TABLE)]
    if out is not None and table_ending(out) not in WRITTEN:
        raise InputError(f"--out {str(out)!r} must end in {', '.join(WRITTEN)}.")
    check_paths([*inputs, *people], written, force=force)


def _tables_of(tables: Tables, models: dict[str, Any]) -> Tables:
    """Return tables with the features of both models."""
    both = [tables.of_model(model) for model in models.values()]
    together = copy(both[-1])
    together.features = [
        *dict.fromkeys(name for each in both for name in each.features)
    ]
    together.text = tuple(dict.fromkeys(name for each in both for name in each.text))
    return together


def _difference(pair: Any, level: float) -> Ends:
    """Return how much more the new list gains, with its interval."""
    sign = 1.0 if pair.first == NEW else -1.0
    estimate = pair.rules[LIST]
    low, high = sorted(sign * end for end in estimate.interval(level))
    return sign * estimate.value, low, high


def _headline(more: Ends, *, is_own: bool) -> tuple[str, str]:
    """Return whether the new list brings more, and a colour for it.

    Rows that the new model was fitted to flatter it, so that they cannot show it.
    """
    _, low, high = more
    if high < 0.0:
        return RED, "Verdict (red): the new list brings less than the old one."
    if low > 0.0 and is_own:
        headline = (
            "the new list seems to bring more, on rows that its model was fitted to."
        )
        return AMBER, f"Verdict (amber): {headline}"
    if low > 0.0:
        return GREEN, "Verdict (green): the new list brings more than the old one."
    return AMBER, "Verdict (amber): these tables do not show which list brings more."


def _more_in_words(more: Ends, unit: Unit, level: float) -> str:
    """Say how much more the new list gains."""
    value, low, high = more
    if not is_bounded(low, high):
        return f"The difference is not known: {interval(low, high, level)}."
    if not (value or low or high):
        return "Both lists gain the same."
    ends = interval(low, high, level, unit.rate)
    return f"The difference is {unit.rate(value)} {unit.per} ({ends})."


def _changes_in_words(chosen: dict[str, BoolArray]) -> str:
    """Say whose decision changes."""
    joined = int((chosen[NEW] & ~chosen[OLD]).sum())
    left = int((chosen[OLD] & ~chosen[NEW]).sum())
    n = len(chosen[NEW])
    return (
        f"Of {n:,} people {joined:,} come onto the list and {left:,} leave it; "
        f"{n - joined - left:,} keep their decision."
    )


def _changed(
    kept: Frame | None, chosen: dict[str, BoolArray], rank: dict[str, Any], n: int
) -> Frame:
    """Return the people whose decision changes: those who join first, the best first."""
    arrow = import_extra("pyarrow", extra="cli")
    rows = (
        arrow.table({"row": np.arange(n)})
        if kept is None or not kept.num_columns
        else kept
    )
    rows = rows.append_column("treat_before", [chosen[OLD]])
    rows = rows.append_column("treat", [chosen[NEW]])
    rows = rows.append_column("rank_before", [rank[OLD]])
    rows = rows.append_column("rank", [rank[NEW]])
    at = np.flatnonzero(chosen[NEW] != chosen[OLD])
    return rows.take(at[np.lexsort((rank[NEW][at], ~chosen[NEW][at]))])
