"""The command score: whom to treat, what that is expected to bring, and what is odd."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from unjoined._support import import_extra
from unjoined._typing import Array, BoolArray, Frame, IntArray
from unjoined._validation import check_finite, check_not_negative, check_worth, shown
from unjoined.cli.inputs import TABLE, Named, as_table, check_paths, written_columns
from unjoined.cli.options import (
    AsJson,
    Budget,
    DespiteRed,
    Details,
    Force,
    Keep,
    Model,
    People,
    Share,
    Worth,
    as_share,
    select_columns,
    split_names,
)
from unjoined.cli.program import HOW_MANY, Config, command, given_words
from unjoined.cli.show import (
    Screen,
    estimate_facts,
    noted,
    print_json,
    show_uplift,
    stop_if,
    tell_progress,
    uplift_summary,
    verdict_line,
)
from unjoined.data.files import table_ending
from unjoined.data.tables import estimate_rows, scan_table
from unjoined.data.write import write_table
from unjoined.errors import BeyondWarning, InputError, TableError
from unjoined.estimators.arms import ArmUplift
from unjoined.estimators.base import UpliftEstimator
from unjoined.estimators.persist import load_model
from unjoined.evaluate.estimate import NEARLY_ALL, Estimate
from unjoined.evaluate.verdict import AMBER, RED
from unjoined.targeting import assign_arms, treatment_rank
from unjoined.words import (
    Unit,
    brief,
    interval,
    open_in_words,
    places_of,
    reach_in_words,
)

PIECE_ROWS = 200_000  # people scored together
INTERVAL = ("uplift_low", "uplift_high")
LIST_COLUMNS = (  # that the list itself writes
    "row",
    "treat",
    "rank",
    "uplift",
    *INTERVAL,
    "flags",
    "reason",
    "verdict",
)
WRITTEN = (".csv", ".parquet", ".pq", ".xlsx")
ODD = {  # what is said of so many people
    "tied": "people are tied where the list ends; those first in the table are on it.",
    "harmed": "people on the list are predicted to be harmed; treat fewer.",
    "missing_values": "people lack a value; they are scored with a usual one.",
    "outside_training": "people are unlike all rows that the model was fitted to; see the column "
    "flags.",
}
NO_COLUMN = (
    "The list has no column treat, because the verdict is red: nobody should be chosen by these "
    "scores. If you know better, --despite-red writes the column."
)
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
        ways = {f"--{name}": getattr(self, name) for name in HOW_MANY}
        given = [option for option, value in ways.items() if value is not None]
        if len(given) > 1:
            raise InputError(
                f"{given[0]} and {given[1]} both say how many people to treat. Leave out one."
            )
        for option, value in (
            ("--cost", self.cost),
            ("--budget", self.budget),
        ):
            if value is not None:
                check_not_negative(option, value)
        if self.value is not None:
            check_worth("--value", self.value)
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

    @property
    def least(self) -> float:
        """The uplift from which on treating is worth it."""
        if self.value is not None and self.threshold is None:
            return self.cost / self.value if self.value else np.inf
        return 0.0 if self.threshold is None else self.threshold

    def reasons(self, uplift: Array, chosen: BoolArray, why: Any) -> Any:
        """Return why each person is on the list or not, with the features that weigh most."""
        worth = "worth its cost" if self.cost and self.value else "gains most"
        low = "below the threshold" if self.threshold is not None else "loses by it"
        if self.threshold is None and self.least > 0.0:
            low = "gains less than it costs"
        decided = np.select(
            [chosen & (uplift >= 0.0), chosen, uplift < 0.0, uplift < self.least],
            [worth, "on the list, but loses by it", "loses by it", low],
            "others gain more",
        )
        colon = np.where(why == "", "", ": ")
        return decided.astype(object) + colon + why

    def count(self, uplift: Array) -> int:
        """Return how many to treat of people in order of their uplift, the best first."""
        if self.share is not None:
            return int(as_share(self.share) * len(uplift) + 1e-9)
        if self.top is not None:
            return min(self.top, len(uplift))
        n = int(np.count_nonzero(uplift >= self.least))
        if self.budget is not None:
            n = int(min(n, self.budget / self.cost + 1e-9))
        return n


@command(
    "unjoined score --model model.skops --table customers.csv --keep customer_id \\\n"
    "    --budget 500 --cost 0.5 --value 20 --out list.csv",
    "unjoined score --model model.skops --table customers.csv --share 30% --out list.xlsx",
)
def score(
    ctx: typer.Context,
    model: Model,
    table: People,
    worth: Worth,
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
    keep: Keep = None,
    details: Details = False,
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
    screen = Screen(details=details, quiet=as_json)
    colour, headline = fitted.verdict_.colour, verdict_line(fitted.verdict_)
    if isinstance(fitted, ArmUplift):
        if share is not None or top is not None or threshold is not None:
            raise InputError(
                "--share, --top and --threshold say how many get one treatment, and this model is "
                "of several. Say --budget with --cost NAME=MONEY,... and --value, or neither."
            )
        paid = ArmCosts.of(
            fitted,
            worth.costs(fitted.arms_),
            worth.value,
            budget,
            worth.unit_of(fitted),
        )
        with noted() as notes:
            pieces = score_pieces(fitted, people, kept)
    else:
        target = Target(share, top, threshold, budget, worth.costs()[""], worth.value)
        with noted() as notes:
            scored = Scored.of_table(fitted, people, kept)
    beyond = [note.apart for note in notes if isinstance(note, BeyondWarning)]
    if colour != RED and beyond:
        colour, which = (RED, "Nearly all") if any(beyond) else (AMBER, "Most")
        headline = f"Verdict ({colour}): {which} {BEYOND}"
    stops = colour == RED and not despite_red
    if isinstance(fitted, ArmUplift):
        facts, lines = write_arms(
            screen.more, paid, pieces, keep=kept, file=out, stops=stops
        )
    else:
        chosen = None if stops else target
        unit = worth.unit_of(fitted)
        facts, lines = show_list(screen.more, fitted, scored, chosen, unit)
        written = write_table(scored.listed(colour, chosen), out)
        facts = {"out": str(written)} | facts
    for note in getattr(fitted, "notes_", ()):
        lines.append(f"When the model was fitted: {note}")
    screen.answer(
        colour,
        headline,
        [*lines, f"Wrote {facts['out']}." + " More with --details." * (not details)],
        then="" if stops or config is None else _next_step(ctx),
    )
    if as_json:
        print_json(facts | {"colour": colour, "warnings": notes})
    stop_if(stops)


BEYOND = "of these people lie beyond those of the fit, so that their order is a guess."


def _next_step(ctx: typer.Context) -> str:
    """Return the command that makes a report of the same decision."""
    same = ("config", "share", "budget", "value", "cost", "unit", "currency")
    return f"Next: unjoined report {shlex.join(given_words(ctx, same))}"


@dataclass(frozen=True, slots=True)
class ArmCosts:
    """Several treatments, what each costs, and what may be spent."""

    model: ArmUplift
    costs: Array  # (J,) money
    value: float  # of one unit of the outcome
    budget: float | None
    unit: Unit

    @classmethod
    def of(
        cls,
        model: ArmUplift,
        costs: dict[str, float],
        value: float | None,
        budget: float | None,
        unit: Unit,
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
            unit,
        )


def write_arms(
    out: Console,
    paid: ArmCosts,
    pieces: list[Piece],
    *,
    keep: list[str],
    file: Path,
    stops: bool,
) -> tuple[dict[str, Any], list[str]]:
    """Write each person's uplift by every treatment and which to give; say what that brings."""
    arrow = import_extra("pyarrow", extra="cli")
    model = paid.model
    kept, uplift, _, _, missing, outside, ignored, _ = zip(*pieces, strict=True)
    found = np.concatenate(uplift)
    n = len(found)
    rows = arrow.concat_tables(kept, promote_options="permissive")
    rows = rows if keep else arrow.table({"row": np.arange(n)})
    for arm, column in zip(model.arms_, found.T, strict=True):
        rows = rows.append_column(f"uplift_{arm}", [column])
    chosen = np.zeros(n, dtype=np.int64)
    if not stops:
        chosen = assign_arms(
            found, value=paid.value, cost=paid.costs, budget=paid.budget
        )
        names = np.array([model.control_, *model.arms_])
        rows = rows.append_column("treatment", [names[chosen]])
    flagged = _flags(np.concatenate(missing), np.concatenate(outside))
    written = write_table(rows.append_column("flags", [flagged]), file)
    facts: dict[str, Any] = {"out": str(written), "rows": n}
    facts["treatments"], lines = {}, [NO_COLUMN.replace("treat,", "treatment,")]
    if not stops:
        facts["treatments"], lines = _arm_facts(paid, found, chosen)
    for line in dict.fromkeys(chain.from_iterable(ignored)):
        out.print(f"Ignored, because the model does not use it: {line!r}.")
    facts["verdict"] = model.verdict_.to_dict()
    return facts, lines


def _arm_facts(
    paid: ArmCosts, uplift: Array, chosen: IntArray
) -> tuple[dict[str, Any], list[str]]:
    """Return how many get which treatment, and what that is expected to bring."""
    facts: dict[str, Any] = {}
    lines: list[str] = []
    for j, (arm, model) in enumerate(paid.model.models_.items()):
        mine = chosen == j + 1
        spent = float(paid.costs[j] * mine.sum())
        gain = model.gain_.gain(uplift[:, j], mine)
        facts[arm] = {"people": int(mine.sum()), "cost": spent}
        facts[arm]["gain"] = estimate_facts(gain)
        cost = f" It costs {paid.unit.money(spent)}." if spent else ""
        lines.append(
            f"{arm}: {mine.sum():,} of {len(chosen):,} people, expected to add "
            f"{paid.unit.total(gain)}.{cost}"
        )
    values = paid.model.values_["the best for each"]
    lines.append(
        f"Free of charge, giving each the best one or none gains {paid.unit.each(values)} "
        "in the tables of the fit."
    )
    return facts, lines


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
    features: (
        Any  # (2, n) in words, the features that raise uplift most, and that lower it
    )

    @classmethod
    def of_table(cls, model: UpliftEstimator, table: Named, keep: list[str]) -> Scored:
        """Score a table piece by piece; what is held of it are the columns to copy."""
        arrow = import_extra("pyarrow", extra="cli")
        if not hasattr(model, "feature_names_in_"):
            raise InputError(
                "the model was fitted to plain arrays, so it does not know the names of its "
                "features. Fit it to tables, or call its predict with an array."
            )
        pieces = score_pieces(model, table, keep)
        kept, uplift, low, high, missing, outside, ignored, why = zip(
            *pieces, strict=True
        )
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
        reasons = np.concatenate(why, axis=1)[:, order]
        return cls(rows, best, lacks, far, ends, extra, reasons)

    def listed(self, colour: str, target: Target | None) -> Frame:
        """Return the list as a table, the best first, with decisions if there is a target.

        Uplift has as many places as tell the middle half of the people apart to a hundredth. The
        order is that of all digits.
        """
        n = len(self.uplift)
        table = self.kept
        chosen = np.zeros(n, dtype=np.bool_)
        if target is not None:
            chosen = np.arange(n) < target.count(self.uplift)
            table = table.append_column("treat", [chosen])
        table = table.append_column("rank", [np.arange(1, n + 1)])
        quarter, more = np.quantile(self.uplift, [0.25, 0.75])
        size = (more - quarter) or float(np.abs(self.uplift).max())
        places = places_of(size / 100.0)
        for name, column in zip(
            ("uplift", *INTERVAL), [self.uplift, *self.interval], strict=False
        ):
            table = table.append_column(name, [np.round(column, places) + 0.0])
        up = self.uplift >= 0.0 if target is None else chosen
        why = self.features[np.where(up, 0, 1), np.arange(n)]
        if target is not None:
            why = target.reasons(self.uplift, chosen, why)
        table = table.append_column("flags", [_flags(self.missing, self.outside)])
        table = table.append_column("reason", [why.astype(str)])
        return table.append_column("verdict", [np.full(n, colour)])

    def tied(self, n: int) -> int:
        """Return how many people are tied where a list of ``n`` ends, if it parts them."""
        if not 0 < n < len(self.uplift):
            return 0
        near = SAME * max(float(np.abs(self.uplift).max()), 1e-300)
        if self.uplift[n - 1] - self.uplift[n] > near:
            return 0
        return int(np.count_nonzero(np.abs(self.uplift - self.uplift[n]) <= near))


Piece = tuple[
    Frame, Array, Array | None, Array | None, BoolArray, BoolArray, list[str], Any
]


def score_pieces(model: UpliftEstimator, table: Named, keep: list[str]) -> list[Piece]:
    """Return what the list needs of a table, which has a row at least."""
    pieces = list(_each_piece(model, table, keep))
    if not pieces:
        raise InputError(f"{str(table)!r} is empty: there is nobody to score.")
    return pieces


def _each_piece(
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
        why: Any = np.full((2, len(frame)), "", dtype=object)
        if hasattr(model, "usual_functions_"):
            explained = model.explain(people)
            for i, up in enumerate((True, False)):
                why[i] = explained.reasons(np.full(len(frame), up))
        yield kept, uplift, low, high, np.any(gaps, axis=0), outside, ignored, why


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
    more: Console,
    model: UpliftEstimator,
    people: Scored,
    target: Target | None,
    unit: Unit,
) -> tuple[dict[str, Any], list[str]]:
    """Return all numbers of a list, and in a few lines what it brings; print the rest.

    Without a target nobody is chosen, because the verdict is red.
    """
    uplift = people.uplift
    n = 0 if target is None else target.count(people.uplift)
    show_uplift(more, uplift, "the people in the table", unit)
    lines: list[str] = []
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
    if target is None:
        facts["gain"] = None
        lines.append(NO_COLUMN)
    else:
        gain, lines = _gain_facts(more, model, people, target, n, unit)
        facts |= gain
        if target.top is not None and target.top > n:
            lines.append(
                f"--top asks for {target.top:,} people, and the table has {n:,}: all are listed."
            )
    lines += [f"{count:,} {ODD[name]}" for name, count in odd.items() if count]
    if people.ignored:
        more.print(
            f"Ignored, because the model does not use them: {shown(people.ignored)}."
        )
    return facts | {"verdict": model.verdict_.to_dict()}, lines


def _gain_facts(
    more: Console,
    model: UpliftEstimator,
    people: Scored,
    target: Target,
    n: int,
    unit: Unit,
) -> tuple[dict[str, Any], list[str]]:
    """Return the expected gain of a list with its interval, in outcome units and in money."""
    offers = bool(getattr(model, "randomised", False))
    does = "Make the offer to" if offers else "Treat"
    if model.identification_.is_dose:
        does = "Give one unit more to"
    whom = f"{does} {n:,} of {len(people.uplift):,} people"
    record = getattr(model, "gain_", None)
    chosen = np.arange(len(people.uplift)) < n
    if record is None:
        total = float(people.uplift[:n].sum())
        line = (
            f"{whom}: predicted to add {brief(total)} {unit.name}, if the model is right about "
            "each of them. It has no record of its own errors, so there is no interval."
        )
        return {"predicted_gain": total, "gain": None}, [line]
    gain = record.gain(people.uplift, chosen)
    told = record.told(people.uplift, chosen)
    predicted = float(people.uplift[:n].sum())
    measured = f"It {reach_in_words(record)}"
    if told < NEARLY_ALL:
        measured = _say_measured(gain, told, unit)
    column = (
        f"Their column uplift adds up to {brief(predicted)}: predictions are for the order of "
        "people. What to promise is the expected gain, which people show whom the fits had not "
        "seen."
    )
    if offers:
        measured = (
            "It is what those of them gain who take it up because of the offer, as measured "
            "between those who were made it and those who were not."
        )
    more.print(column)
    if told >= NEARLY_ALL and not offers:
        more.print(measured)
        measured = ""
    lines = [f"{whom}: expected to add {unit.total(gain)}."]
    spent = target.cost * n
    facts: dict[str, Any] = {"gain": estimate_facts(gain), "cost": spent}
    facts |= {"speaks_for": record.speaks_for, "measured_share": told}
    facts |= {"predicted_gain": predicted}
    if target.value is not None:
        low, high = (target.value * end - spent for end in gain.interval(0.95))
        net = target.value * gain.value - spent
        facts["net"] = {"value": net, "low": low, "high": high, "level": 0.95}

        widest = max(abs(low), abs(high))

        def say(value: float) -> str:
            return replace(unit, currency="").money(value, sign=True, beside=widest)

        worth, left = target.value * gain.value, say(net)
        left = f"{left} {unit.currency}".rstrip()
        lines.append(
            f"In money: {unit.money(worth)} less {unit.money(spent)} for treatment leaves "
            f"{left} ({interval(low, high, say=say)})."
        )
    elif target.cost:
        lines.append(f"It costs {unit.money(spent)}.")
    cost = target.cost / target.value if target.value else 0.0
    claim = None
    if n and not offers and len(model.populations_) > 1:
        claim = record.claim(people.uplift, chosen, cost=cost)
    return facts, [
        *lines,
        *filter(None, [measured, open_in_words(model.verdict_, claim, unit, "this")]),
    ]


def _say_measured(gain: Estimate, told: float, unit: Unit) -> str:
    """Say which part of a gain comes from people whom the tables tell of."""
    return (
        f"Of this, {unit.total(gain.times(told))} was measured: it comes from the {told:.0%} of "
        "them whom the populations treated differently. The rest takes the others to gain as much, "
        "which the tables cannot tell."
    )
