"""The command evaluate: what a model is worth, on tables that it has not seen."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from unjoined._validation import check_not_negative, check_option
from unjoined.cli.fit import ESTIMATORS, unfitted
from unjoined.cli.inputs import Tables, check_paths
from unjoined.cli.options import (
    AsJson,
    Chunks,
    Details,
    Randomised,
    Seed,
    Worth,
    as_share,
    split_names,
)
from unjoined.cli.program import Config, command
from unjoined.cli.show import Screen, noted, print_json, show_titled
from unjoined.data.labels import SeparateLabels
from unjoined.errors import InputError
from unjoined.estimators.base import UpliftEstimator
from unjoined.estimators.persist import load_model
from unjoined.evaluate.arms import ArmEvaluation, evaluate_arms
from unjoined.evaluate.evaluate import (
    Evaluation,
    cross_evaluate,
    evaluate_uplift,
    sensitivity,
)
from unjoined.evaluate.tables import was_fitted_to
from unjoined.evaluate.terms import N_FOLDS
from unjoined.evaluate.verdict import AMBER, GREEN, RED
from unjoined.targeting import assign_arms
from unjoined.words import UNNAMED, Unit, is_bounded

MOST_RULES = 3  # on one screen


@command(
    "unjoined evaluate --model model.skops --outcomes north=o_n.parquet "
    "--outcomes south=o_s.parquet \\\n  --treatments north=t_n.parquet "
    "--treatments south=t_s.parquet --outcome bought --treatment mailed",
    "unjoined evaluate --cross --outcomes outcomes.csv --treatments treatments.csv "
    "--population region \\\n  --outcome bought --treatment mailed --share 0.2 --json",
)
def evaluate(
    tables: Tables,
    worth: Worth,
    randomised: Randomised = False,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model", help="A model that was fitted to other rows than these."
        ),
    ] = None,
    cross: Annotated[
        bool,
        typer.Option(
            "--cross", help="Fit --estimator without each fold of these rows."
        ),
    ] = False,
    estimator: Annotated[
        str, typer.Option("--estimator", help="With --cross: as in `unjoined fit`.")
    ] = "auto",
    folds: Annotated[
        int, typer.Option("--folds", min=2, help="With --cross: how many folds.")
    ] = 5,
    share: Annotated[
        list[str] | None,
        typer.Option(
            "--share",
            help="Value of treating this share, such as 30% or 0.3; repeatable.",
        ),
    ] = None,
    threshold: Annotated[
        list[float] | None,
        typer.Option(
            "--threshold", help="Value of treating from this uplift on; repeatable."
        ),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            "--delta",
            metavar="DIFFERENCE",
            help="Intervals that hold if equal people of two populations differ by this much.",
        ),
    ] = None,
    before: Annotated[
        list[str] | None,
        typer.Option(
            "--before",
            metavar="NAME=TABLE",
            help="Outcomes of an earlier time, when nobody was treated; of each population.",
        ),
    ] = None,
    unaffected: Annotated[
        list[str] | None,
        typer.Option(
            "--unaffected",
            metavar="COLUMN",
            help="Column of the outcome tables that treatment cannot have changed; repeatable.",
        ),
    ] = None,
    same: Annotated[
        list[str] | None,
        typer.Option(
            "--same",
            metavar="NAMES",
            help="Populations alike but for treatment, comma-separated; repeatable. Default: all.",
        ),
    ] = None,
    level: Annotated[
        float, typer.Option("--level", help="Level of the intervals.")
    ] = 0.95,
    chunks: Chunks = None,
    details: Details = False,
    seed: Seed = 0,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Say what a model is worth on held-out tables, with intervals."""
    tables.require("evaluate needs {}.")
    if (model is None) != cross:
        raise InputError(
            "evaluate needs either --model with a model that was fitted to other rows, or --cross "
            "to fit --estimator without each fold of these rows."
        )
    check_paths(tables.paths + ([] if model is None else [("--model", model)]), [])
    asked: dict[str, Any] = {"level": level, "random_state": seed}
    asked["rules"] = _rules(share, threshold)
    check_not_negative("--delta", delta or 0.0)
    check_option("--estimator", estimator, ESTIMATORS)
    if tables.control is not None:
        alone: dict[str, Any] = {"--before": before, "--unaffected": unaffected}
        alone |= {"--same": same, "--delta": delta}
        alone |= {"--chunks": chunks, "--randomised": randomised}
        _refuse_beside_control(alone)
        with noted() as notes:
            arms = _evaluate_arms(tables, model, estimator, folds, worth, asked)
        _show(arms, notes, details=details, as_json=as_json)
        return
    asked["same"] = _same(same)
    spent = _cost_in_outcomes(worth.costs()[""], worth.value)
    with noted() as notes:
        if model is None:
            if chunks:
                raise InputError(
                    "--cross fits to all rows in memory, so --chunks cannot be given beside it. "
                    "Fit a model to other rows with `unjoined fit --chunks`, and give it as "
                    "--model."
                )
            data = tables.read()
            fitted = unfitted(estimator, seed, randomised=randomised)
            found = cross_evaluate(fitted, data, folds, **asked)
        else:
            fitted = load_model(model)
            if randomised and not getattr(fitted, "randomised", False):
                raise InputError(
                    f"{str(model)!r} was fitted without --randomised, so that it ranks people by "
                    "the effect on all of them. Fit it with --randomised, or leave it out."
                )
            tables = tables.of_model(fitted)
            if chunks is None:
                chunks = tables.in_pieces
            data = tables.stream() if chunks else tables.read()
            _refuse_own_rows(fitted, data, model)
            found = evaluate_uplift(fitted, data, **asked)
        own = tables, data
        found = _beside(found, fitted, *own, before, unaffected, asked, cross=cross)
    shown = _held_against(found, spent, delta)
    turns = found.sensitivity
    is_rate = turns is not None and turns.is_rate
    called = worth.unit or getattr(fitted, "unit_", None)
    unit = Unit.of_outcome(tables.columns["--outcome"] or "", called, is_rate=is_rate)
    then = "" if config is None else f"Next: unjoined score --config {config}"
    _show(shown, notes, unit, then, details=details, as_json=as_json)


def _show(
    found: Evaluation | ArmEvaluation,
    notes: list[Any],
    unit: Unit = UNNAMED,
    then: str = "",
    *,
    details: bool,
    as_json: bool,
) -> None:
    """Print what was found: the ranking and the gains first, then tables; or JSON."""
    screen = Screen(details=details, quiet=as_json)
    if isinstance(found, ArmEvaluation):
        colour, headline = AMBER, "What each treatment is worth, on these tables."
        lines = found.sentences()
    else:
        colour, headline, lines = _answer(found, unit)
        for line in found.sentences():
            screen.more.print(line)
    show_titled(screen.more, found.result_tables())
    more = [] if details else ["Tables and intervals with --details."]
    then = then if colour == GREEN else ""
    screen.answer(colour, headline, [*lines, *more], then=then)
    if as_json:
        print_json(found.to_dict() | {"warnings": notes})


def _answer(found: Evaluation, unit: Unit) -> tuple[str, str, list[str]]:
    """Return a colour, whether the ranking beats a random order, and what rules gain."""
    low, high = found.qini.interval(found.level)
    if not is_bounded(low, high):
        colour, does = RED, "cannot be held against a random order"
    elif low > 0.0:
        colour, does = GREEN, "beats a random order"
    elif high < 0.0:
        colour, does = RED, "does worse than a random order"
    else:
        colour, does = AMBER, "is not shown to beat a random order"
    qini = unit.each(found.qini, found.level)
    ruled = {"everyone": found.average, **found.rules}
    what = "Offer to" if found.compliers is not None else "Treat"
    lines = [
        f"{what} {name}: {unit.each(gain, found.level)}."
        for name, gain in list(ruled.items())[:MOST_RULES]
    ]
    lines.append(f"These numbers speak for {found.speaks_for:.0%} of people.")
    if found.sensitivity is not None:
        lines.append(
            found.sensitivity.in_words(found.sensitivity.average, unit=unit.name)
        )
    return colour, f"Verdict ({colour}): the ranking {does}; Qini {qini}.", lines


def _refuse_beside_control(given: dict[str, Any]) -> None:
    """Refuse options that are for one treatment."""
    if named := [name for name, value in given.items() if value]:
        raise InputError(
            f"{named[0]} is for one treatment, and --control says that there are several. Leave "
            f"out {named[0]}, or look at one of them: merge them with --treated."
        )


def _evaluate_arms(
    tables: Tables,
    model: Path | None,
    estimator: str,
    folds: int,
    worth: Worth,
    asked: dict[str, Any],
) -> ArmEvaluation:
    """Evaluate each of several treatments: by a model, or by fits without each fold."""
    if model is not None:
        known = load_model(model)
        data = tables.of_model(known).read()
        _refuse_own_rows(known, data, model)
        return evaluate_arms(known, data, **_assigned(data, worth), **asked)
    if folds != N_FOLDS:
        raise InputError(
            f"several treatments are fitted without each of {N_FOLDS} folds, got --folds {folds}. "
            "Leave it out."
        )
    seed = asked["random_state"]
    fitted = unfitted(estimator, seed, randomised=False, several=True)
    data = tables.read()
    given = _assigned(data, worth)
    return evaluate_arms(fitted.fit(data), data, **given, **asked)


def _assigned(data: SeparateLabels, worth: Worth) -> dict[str, Any]:
    """Return who gets which treatment if each costs something, as evaluations take it."""
    arms = data.checked.arms[1:]
    costs = [worth.costs(arms)[arm] for arm in arms]
    if not any(costs):
        return {}
    if worth.value is None:
        raise InputError(
            "--cost needs --value, what one unit of the outcome is worth, so that treatments can "
            "be held against what they cost."
        )
    assign = partial(assign_arms, value=worth.value, cost=costs)
    return {"assignments": {"whatever is worth its cost": assign}}


def _refuse_own_rows(
    fitted: UpliftEstimator, data: SeparateLabels, model: Path
) -> None:
    if was_fitted_to(fitted, data):
        raise InputError(
            f"{str(model)!r} was fitted to these very rows, which would flatter it. Give "
            "tables that it has not seen, or --cross in place of --model."
        )


def _beside(
    found: Evaluation,
    fitted: UpliftEstimator,
    tables: Tables,
    data: SeparateLabels,
    before: list[str] | None,
    unaffected: list[str] | None,
    asked: dict[str, Any],
    *,
    cross: bool,
) -> Evaluation:
    """Return an evaluation with what outcomes say that treatment cannot have changed."""
    if found.sensitivity is None or not (before or unaffected):
        return found
    if data.is_streamed:
        raise InputError(
            "--before and --unaffected need all rows in memory. Leave out --chunks."
        )
    turns = sensitivity(
        fitted.fit(data) if cross else fitted,
        data,
        before=tables.earlier(before, data) if before else None,
        controls={name: tables.unaffected(name, data) for name in unaffected or ()},
        **asked,
    )
    return replace(found, sensitivity=turns)


def _rules(
    shares: list[str] | None, thresholds: list[float] | None
) -> dict[str, Any] | None:
    """Return the rules that were asked for, None for the usual ones."""
    rules: dict[str, Any] = {
        f"best {100 * s:g}%": ("share", s) for s in map(as_share, shares or ())
    }
    rules |= {f"from {t:g} on": ("threshold", t) for t in thresholds or ()}
    return rules or None


def _held_against(found: Evaluation, cost: float, delta: float | None) -> Evaluation:
    """Return an evaluation whose claims are held against a cost and a difference."""
    if found.sensitivity is None:
        return found
    return replace(found, sensitivity=found.sensitivity.at(cost=cost, delta=delta))


def _same(groups: list[str] | None) -> list[list[str]] | None:
    """Return the groups of populations that have the same base, None if all have."""
    return [split_names("--same", names) for names in groups] if groups else None


def _cost_in_outcomes(cost: float, value: float | None) -> float:
    """Return what treating a person costs in units of the outcome."""
    check_not_negative("--cost", cost)
    if not cost:
        return 0.0
    if value is None or not value > 0.0:
        raise InputError(
            "--cost needs --value above 0, what one unit of the outcome is worth, so that gains "
            "can be held against costs."
        )
    return cost / value
