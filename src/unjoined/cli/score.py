"""The command score: whom to treat, what that is expected to bring, and what is odd."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from unjoined._support import import_extra
from unjoined._typing import Array, BoolArray, Frame, IntArray
from unjoined._validation import check_finite, check_not_negative, shown
from unjoined.cli.inputs import TABLE, Named, as_table, check_paths, written_columns
from unjoined.cli.options import (
    AsJson,
    Budget,
    Costs,
    DespiteRed,
    Force,
    Keep,
    Model,
    People,
    Share,
    Value,
    as_costs,
    as_share,
    select_columns,
    split_names,
)
from unjoined.cli.program import Config, command
from unjoined.cli.show import (
    console,
    estimate_facts,
    noted,
    print_json,
    show_uplift,
    show_verdict,
    stop_if,
    tell_progress,
    uplift_summary,
)
from unjoined.data.files import table_ending
from unjoined.data.tables import estimate_rows, scan_table
from unjoined.data.write import write_table
from unjoined.errors import InputError, TableError
from unjoined.estimators.arms import ArmUplift
from unjoined.estimators.base import UpliftEstimator
from unjoined.estimators.persist import load_model
from unjoined.evaluate.estimate import NEARLY_ALL, Estimate
from unjoined.evaluate.verdict import RED
from unjoined.targeting import assign_arms, treatment_rank
from unjoined.words import (
    interval,
    is_bounded,
    reach_in_words,
    signed,
    span,
    with_interval,
)

PIECE_ROWS = 200_000  # people scored together
INTERVAL = ("uplift_low", "uplift_high")
LIST_COLUMNS = (
    "row",
    "uplift",
    *INTERVAL,
    "rank",
    "treat",
    "flags",
)  # that the list itself writes
WRITTEN = (".csv", ".parquet", ".pq", ".xlsx")
ODD = {  # what is said of so many people
    "tied": "people are tied where the list ends; those first in the table are on it.",
    "harmed": "people on the list are predicted to be harmed; treat fewer.",
    "missing_values": "people lack a value; they are scored with a usual one.",
    "outside_training": "people are unlike all rows that the model was fitted to; see the column "
    "flags.",
}
SAME = 1e-9  # of the largest uplift: people who differ by less are tied


@dataclass(frozen=True, slots=True)
class Target:
    """How many people to treat, and what that costs and is worth."""

    share: str | None = None
    top: int | None = None
    threshold: float | None = None
    budget: float | None = None
    cost: float = 0.0
    value: float | None = None

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing, and two ways to say how many."""
        ways = {
            f"--{name}": getattr(self, name)
            for name in ("share", "top", "threshold", "budget")
        }
        given = [option for option, value in ways.items() if value is not None]
        if len(given) > 1:
            raise InputError(
                f"{given[0]} and {given[1]} both say how many people to treat. Leave out one."
            )
        for option, value in (
            ("--cost", self.cost),
            ("--budget", self.budget),
            ("--value", self.value),
        ):
            if value is not None:
                check_not_negative(option, value)
        if self.threshold is not None:
            check_finite("--threshold", self.threshold)
        if self.budget is not None and not self.cost:
            raise InputError(
                "--budget needs --cost above 0, what treating one person costs."
            )
        if self.cost and self.budget is None and self.value is None:
            raise InputError(
                "--cost needs --value, what one unit of the outcome is worth, or --budget."
            )
        if self.share is not None:
            as_share(self.share)

    def count(self, uplift: Array) -> int:
        """Return how many to treat of people in order of their uplift, the best first."""
        if self.share is not None:
            return int(as_share(self.share) * len(uplift) + 1e-9)
        if self.top is not None:
            return min(self.top, len(uplift))
        least = 0.0 if self.threshold is None else self.threshold
        if self.value is not None and self.threshold is None:
            least = self.cost / self.value if self.value else np.inf
        n = int(np.count_nonzero(uplift >= least))
        if self.budget is not None:
            n = int(min(n, self.budget / self.cost + 1e-9))
        return n


@command(
    "unjoined score --model model.skops --table customers.csv --keep customer_id \\\n"
    "    --budget 500 --cost 0.5 --value 20 --out list.csv",
    "unjoined score --model model.skops --table customers.csv --share 30% --out list.xlsx",
)
def score(
    model: Model,
    table: People,
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="FILE", help="Where to write: .csv, .parquet or .xlsx."
        ),
    ],
    share: Share = None,
    top: Annotated[
        int | None,
        typer.Option("--top", min=0, metavar="N", help="Treat this many people."),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            "--threshold",
            metavar="UPLIFT",
            help="Treat everybody with this uplift or more.",
        ),
    ] = None,
    budget: Budget = None,
    cost: Costs = "0",
    value: Value = None,
    keep: Keep = None,
    despite_red: DespiteRed = False,
    force: Force = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Write whom to treat: uplift, rank and decision for each person."""
    people = as_table(table)
    check_paths(
        [("--model", model), ("--table", people)], [("--out", out, TABLE)], force=force
    )
    if table_ending(out) not in WRITTEN:
        raise TableError(f"--out {str(out)!r} must end in {', '.join(WRITTEN)}.")
    kept = split_names("--keep", keep)
    if taken := [name for name in kept if name in LIST_COLUMNS]:
        raise InputError(
            f"--keep cannot copy the column {taken[0]!r}, because the list has its own column of "
            "that name. Rename yours in the table."
        )
    fitted = load_model(model)
    screen = console(quiet=as_json)
    if isinstance(fitted, ArmUplift):
        if share is not None or top is not None or threshold is not None:
            raise InputError(
                "--share, --top and --threshold say how many get one treatment, and this model is "
                "of several. Say --budget with --cost NAME=MONEY,... and --value, or neither."
            )
        paid = ArmCosts.of(fitted, as_costs(cost, fitted.arms_), value, budget)
        with noted() as notes:
            facts = write_arms(screen, paid, people, kept, out, despite_red=despite_red)
        if as_json:
            print_json(facts | {"warnings": notes})
        stop_if(fitted.verdict_.colour == RED and not despite_red)
        return
    target = Target(share, top, threshold, budget, as_costs(cost)[""], value)
    with noted() as notes:
        scored = Scored.of_table(fitted, people, kept)
    for note in getattr(fitted, "notes_", ()):
        screen.print(f"When the model was fitted: {note}")
    stops = fitted.verdict_.colour == RED and not despite_red
    facts = show_list(screen, fitted, scored, None if stops else target)
    written = write_table(scored.listed(None if stops else target), out)
    screen.print(f"Wrote {written}.")
    if as_json:
        print_json({"out": str(written)} | facts | {"warnings": notes})
    stop_if(stops)


@dataclass(frozen=True, slots=True)
class ArmCosts:
    """Several treatments, what each costs, and what may be spent."""

    model: ArmUplift
    costs: Array  # (J,) money
    value: float  # of one unit of the outcome
    budget: float | None

    @classmethod
    def of(
        cls,
        model: ArmUplift,
        costs: dict[str, float],
        value: float | None,
        budget: float | None,
    ) -> ArmCosts:
        """Refuse costs that nothing is held against."""
        if any(costs.values()) and value is None:
            raise InputError(
                "--cost needs --value, what one unit of the outcome is worth, so that treatments "
                "can be held against what they cost."
            )
        if budget is not None and not any(costs.values()):
            raise InputError("--budget needs --cost, what each treatment costs.")
        return cls(
            model,
            np.array([costs[arm] for arm in model.arms_]),
            1.0 if value is None else value,
            budget,
        )


def write_arms(
    out: Console,
    paid: ArmCosts,
    table: Named,
    keep: list[str],
    file: Path,
    *,
    despite_red: bool,
) -> dict[str, Any]:
    """Write each person's uplift by every treatment and which to give; say what that brings."""
    arrow = import_extra("pyarrow", extra="cli")
    model = paid.model
    pieces = list(_score_pieces(model, table, keep))
    if not pieces:
        raise InputError(f"{str(table)!r} is empty: there is nobody to score.")
    kept, uplift, _, _, missing, outside, ignored = zip(*pieces, strict=True)
    found = np.concatenate(uplift)
    n = len(found)
    rows = arrow.concat_tables(kept, promote_options="permissive")
    rows = rows if keep else arrow.table({"row": np.arange(n)})
    for arm, column in zip(model.arms_, found.T, strict=True):
        rows = rows.append_column(f"uplift_{arm}", [column])
    chosen = np.zeros(n, dtype=np.int64)
    stops = model.verdict_.colour == RED and not despite_red
    if not stops:
        chosen = assign_arms(
            found, value=paid.value, cost=paid.costs, budget=paid.budget
        )
        names = np.array([model.control_, *model.arms_])
        rows = rows.append_column("treatment", [names[chosen]])
    flagged = _flags(np.concatenate(missing), np.concatenate(outside))
    written = write_table(rows.append_column("flags", [flagged]), file)
    facts: dict[str, Any] = {"out": str(written), "rows": n}
    facts["treatments"] = {} if stops else _show_arms(out, paid, found, chosen)
    for line in dict.fromkeys(chain.from_iterable(ignored)):
        out.print(f"Ignored, because the model does not use it: {line!r}.")
    facts["verdict"] = show_verdict(out, model.verdict_)
    if stops:
        out.print(
            "The list has no column treatment, because the verdict is red. If you know better, "
            "--despite-red writes the column."
        )
    out.print(f"Wrote {written}.")
    return facts


def _show_arms(
    out: Console, paid: ArmCosts, uplift: Array, chosen: IntArray
) -> dict[str, Any]:
    """Print how many get which treatment, and what that is expected to bring."""
    facts: dict[str, Any] = {}
    for j, (arm, model) in enumerate(paid.model.models_.items()):
        mine = chosen == j + 1
        spent = float(paid.costs[j] * mine.sum())
        gain = model.gain_.gain(uplift[:, j], mine)
        facts[arm] = {"people": int(mine.sum()), "cost": spent}
        facts[arm]["gain"] = estimate_facts(gain)
        cost = f" It costs {spent:,.2f}." if spent else ""
        out.print(
            f"{arm}: {mine.sum():,} of {len(chosen):,} people, expected to add "
            f"{with_interval(gain)} in units of the outcome.{cost}"
        )
    values = paid.model.values_["the best for each"]
    out.print(
        f"Free of charge, giving each the best one or none gains {with_interval(values)} a person "
        "in the tables of the fit."
    )
    return facts


def _flags(missing: BoolArray, outside: BoolArray) -> Any:
    """Return what is odd about each person, in words."""
    flags = np.array(["", "missing_values", "outside_training"])
    flags = np.append(flags, "; ".join(flags[1:]))
    return flags[missing + 2 * outside]


@dataclass(frozen=True, slots=True)
class Scored:
    """People with their predicted uplift, the best first."""

    kept: Frame  # columns of the table to copy, or the number of the row
    uplift: Array  # (n,)
    missing: BoolArray  # people without a value of some feature
    outside: BoolArray  # people unlike all rows of the fit
    interval: list[
        Array
    ]  # both ends by model uncertainty; empty if the estimator offers none
    ignored: list[str]  # columns of the table that are neither features nor copied

    @classmethod
    def of_table(cls, model: UpliftEstimator, table: Named, keep: list[str]) -> Scored:
        """Score a table piece by piece; what is held of it are the columns to copy."""
        arrow = import_extra("pyarrow", extra="cli")
        if not hasattr(model, "feature_names_in_"):
            raise InputError(
                "the model was fitted to plain arrays, so it does not know the names of its "
                "features. Fit it to tables, or call its predict with an array."
            )
        pieces = list(_score_pieces(model, table, keep))
        if not pieces:
            raise InputError(f"{str(table)!r} is empty: there is nobody to score.")
        kept, uplift, low, high, missing, outside, ignored = zip(*pieces, strict=True)
        order = np.argsort(treatment_rank(np.concatenate(uplift)))
        best, lacks, far = (
            np.concatenate(part)[order] for part in (uplift, missing, outside)
        )
        ends = [np.concatenate(end)[order] for end in (low, high) if end[0] is not None]
        if keep:
            rows = arrow.concat_tables(kept, promote_options="permissive").take(order)
        else:
            rows = arrow.table({"row": order})
        extra = list(dict.fromkeys(chain.from_iterable(ignored)))
        return cls(rows, best, lacks, far, ends, extra)

    def listed(self, target: Target | None) -> Frame:
        """Return the list as a table, with decisions if there is a target."""
        n = len(self.uplift)
        table = self.kept.append_column("uplift", [self.uplift])
        for name, end in zip(INTERVAL, self.interval, strict=False):
            table = table.append_column(name, [end])
        table = table.append_column("rank", [np.arange(1, n + 1)])
        if target is not None:
            table = table.append_column(
                "treat", [np.arange(n) < target.count(self.uplift)]
            )
        return table.append_column("flags", [_flags(self.missing, self.outside)])

    def tied(self, n: int) -> int:
        """Return how many people are tied where a list of ``n`` ends, if it parts them."""
        if not 0 < n < len(self.uplift):
            return 0
        near = SAME * max(float(np.abs(self.uplift).max()), 1e-300)
        if self.uplift[n - 1] - self.uplift[n] > near:
            return 0
        return int(np.count_nonzero(np.abs(self.uplift - self.uplift[n]) <= near))


Piece = tuple[Frame, Array, Array | None, Array | None, BoolArray, BoolArray, list[str]]


def _score_pieces(
    model: UpliftEstimator, table: Named, keep: list[str]
) -> Iterator[Piece]:
    """Yield what the list needs of each piece of a table."""
    names = [str(name) for name in model.feature_names_in_]
    text = {*written_columns(model)} | ({*keep} - {*names})
    total = estimate_rows(table)
    for frame, place in scan_table(table, "--table", PIECE_ROWS, text):
        kept = select_columns(frame, keep, title=repr(str(table)))
        if not len(frame):
            continue
        people = _without_infinite(select_columns(frame, names, title=repr(str(table))))
        uplift = model.predict_gain(people)
        low = high = None
        with suppress(InputError):  # some estimators do not know
            low, high = model.predict_interval(people)
        if low is not None and getattr(model, "randomised", False):
            taken = model.predict_take_up(people)
            low, high = low * taken, high * taken
        gaps = [
            column.is_null(nan_is_null=True).to_numpy() for column in people.columns
        ]
        outside = np.zeros(len(frame), dtype=np.bool_)
        if hasattr(model, "training_range_"):
            outside = model.outside_training(people)
        done = place.first_row + len(frame)
        tell_progress("scoring people", done, max(done, total))
        ignored = [name for name in frame.column_names if name not in {*names, *keep}]
        yield kept, uplift, low, high, np.any(gaps, axis=0), outside, ignored


def _without_infinite(people: Frame) -> Frame:
    """Return people with infinite numbers as missing ones, which are scored and flagged."""
    arrow = import_extra("pyarrow", extra="cli")
    compute = import_extra("pyarrow.compute", extra="cli")
    for j, column in enumerate(people.columns):
        if arrow.types.is_floating(column.type):
            real = compute.if_else(compute.is_inf(column), None, column)
            people = people.set_column(j, people.column_names[j], real)
    return people


def show_list(
    out: Console, model: UpliftEstimator, people: Scored, target: Target | None
) -> dict[str, Any]:
    """Print what the list is expected to bring and what is odd about it; return all numbers.

    Without a target nobody is chosen, because the verdict is red.
    """
    uplift = people.uplift
    n = 0 if target is None else target.count(people.uplift)
    show_uplift(out, uplift, "the people in the table")
    if target is not None and target.top is not None and target.top > n:
        out.print(
            f"--top asks for {target.top:,} people, and the table has {n:,}: all are listed."
        )
    odd = {
        "tied": people.tied(n),
        "harmed": int(np.count_nonzero(uplift[:n] < 0.0)),
        "missing_values": int(people.missing.sum()),
        "outside_training": int(people.outside.sum()),
    }
    facts: dict[str, Any] = {
        "rows": len(uplift),
        "treated": None if target is None else n,
    }
    facts |= {"uplift": uplift_summary(uplift)} | odd | {"ignored": people.ignored}
    facts |= (
        {"gain": None} if target is None else _show_gain(out, model, people, target, n)
    )
    for name, count in odd.items():
        if count:
            out.print(f"{count:,} {ODD[name]}")
    if people.ignored:
        out.print(
            f"Ignored, because the model does not use them: {shown(people.ignored)}."
        )
    verdict = show_verdict(out, model.verdict_)
    if target is None:
        out.print(
            "The list has no column treat, because the verdict is red: nobody should be chosen by "
            "these scores. If you know better, --despite-red writes the column."
        )
    return facts | {"verdict": verdict}


def _show_gain(
    out: Console, model: UpliftEstimator, people: Scored, target: Target, n: int
) -> dict[str, Any]:
    """Print the expected gain of a list with its interval, in outcome units and in money."""
    offers = bool(getattr(model, "randomised", False))
    does = "Making the offer to" if offers else "Treating"
    if model.identification_.is_dose:
        does = "Giving one unit more to"
    whom = f"{does} the {n:,} of {len(people.uplift):,} people on the list"
    record = getattr(model, "gain_", None)
    chosen = np.arange(len(people.uplift)) < n
    if record is None:
        total = float(people.uplift[:n].sum())
        out.print(
            f"{whom} is predicted to add {signed(total)} in units of the outcome, if "
            "the model is right about each of them; it has no record of its own errors, so there "
            "is no interval."
        )
        return {"predicted_gain": total, "gain": None}
    gain = record.gain(people.uplift, chosen)
    told = record.told(people.uplift, chosen)
    measured = (
        f"It {reach_in_words(record)}"
        if told >= NEARLY_ALL
        else _say_measured(gain, told)
    )
    predicted = float(people.uplift[:n].sum())
    column = (
        f"Their column uplift adds up to {signed(predicted)}: predictions are for the order of "
        "people. What to promise is the number above, which people show whom the fits had not seen."
    )
    if offers:
        measured = (
            "It is what those of them gain who take it up because of the offer, as measured "
            "between those who were made it and those who were not."
        )
    out.print(
        f"{whom} is expected to add {with_interval(gain)} in units of the outcome. {measured}"
    )
    out.print(column)
    spent = target.cost * n
    facts: dict[str, Any] = {"gain": estimate_facts(gain), "cost": spent}
    facts |= {"speaks_for": record.speaks_for, "measured_share": told}
    facts |= {"predicted_gain": predicted}
    if target.value is not None:
        low, high = (target.value * end - spent for end in gain.interval(0.95))
        net = target.value * gain.value - spent
        facts["net"] = {"value": net, "low": low, "high": high, "level": 0.95}
        out.print(
            f"In money: {target.value * gain.value:,.2f} less {spent:,.2f} for treatment leaves "
            f"{net:+,.2f} ({interval(low, high, say='{:+,.2f}'.format)})."
        )
    elif target.cost:
        out.print(f"It costs {spent:,.2f}.")
    return facts


def _say_measured(gain: Estimate, told: float) -> str:
    """Say which part of a gain comes from people whom the tables tell of."""
    low, high = (told * end for end in gain.interval(0.95))
    ends = f" ({span(low, high)})" if is_bounded(low, high) else ""
    return (
        f"Of this, {signed(told * gain.value)}{ends} was measured: it comes from the {told:.0%} of "
        "them whom the populations treated differently. The rest takes the others to gain as much, "
        "which the tables cannot tell."
    )
