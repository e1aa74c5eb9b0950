"""The command fit: from tables or sums to a model, and what was found in words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

import unjoined
from unjoined._validation import OUTCOME, TREATMENT, check_option
from unjoined.cli.inputs import MODEL, SUMS, Tables, check_paths
from unjoined.cli.options import (
    AsJson,
    Checkpoint,
    Chunks,
    Details,
    Force,
    Randomised,
    Seed,
    UnitName,
)
from unjoined.cli.program import Config, command
from unjoined.cli.show import (
    Screen,
    cell_sizes,
    estimate_facts,
    noted,
    print_json,
    show_cell_sizes,
    show_labels,
    show_uplift,
    stop_if,
    uplift_summary,
    verdict_line,
)
from unjoined.data.columns import take_rows
from unjoined.data.labels import SeparateLabels
from unjoined.data.queries import available_bytes
from unjoined.data.rows import some_rows
from unjoined.errors import InputError, LeftOutWarning, WeakIdentificationWarning
from unjoined.estimators.arms import ArmUplift
from unjoined.estimators.base import UpliftEstimator
from unjoined.estimators.minmax import MinMaxUplift
from unjoined.estimators.model_file import rows_held
from unjoined.estimators.persist import save_model
from unjoined.estimators.uplift import Uplift
from unjoined.evaluate.diagnosis import diagnose
from unjoined.evaluate.tables import cross_fit
from unjoined.evaluate.verdict import RED, Verdict
from unjoined.federated import PlannedSums, read_sums
from unjoined.words import Unit, effect_in_words, open_in_words, reach_in_words

ESTIMATORS: dict[str, Callable[..., UpliftEstimator]] = {
    "auto": Uplift,
    "weighted": unjoined.WeightedUplift,
    "minmax": MinMaxUplift,
    "plugin": unjoined.PlugInUplift,
    "two-stage": unjoined.TwoStageUplift,
    "density": unjoined.DensityUplift,
    "neural": unjoined.NeuralMinMaxUplift,
    "MinMaxGau": unjoined.MinMaxGau,
    "FourLogistic": unjoined.FourLogistic,
    "FourNNC": unjoined.FourNNC,
    "FourRidge": unjoined.FourRidge,
    "FourNNR": unjoined.FourNNR,
}
IN_PIECES = ("auto", "minmax")
FOLDS = 5  # that the record of gains is made with
MOST_DESCRIBED = 100_000  # people whose predictions are described
IGNORED = "was named with --ignore"
Facts = dict[str, Any]


@command(
    "unjoined fit --outcomes north=sales_n.csv --outcomes south=sales_s.csv \\\n"
    "    --treatments north=mail_n.csv --treatments south=mail_s.csv \\\n"
    "    --outcome bought --treatment mailed --model model.skops",
    "unjoined fit --config unjoined.toml",
)
def fit(
    ctx: typer.Context,
    tables: Tables,
    randomised: Randomised = False,
    estimator: Annotated[
        str,
        typer.Option(
            "--estimator",
            metavar="NAME",
            help=f"One of {', '.join(ESTIMATORS)}; auto says in words what it found.",
        ),
    ] = "auto",
    chunks: Chunks = None,
    checkpoint: Checkpoint = None,
    moments: Annotated[
        Path | None,
        typer.Option(
            "--moments",
            metavar="FILE",
            help="Instead of tables: a file of sums of all four.",
        ),
    ] = None,
    model: Annotated[
        Path, typer.Option("--model", metavar="FILE", help="Where to write the model.")
    ] = Path("model.skops"),
    unit: UnitName = None,
    details: Details = False,
    force: Force = False,
    seed: Seed = 0,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Estimate uplift from tables or sums, and write the model to a file."""
    inputs = tables.paths + ([] if moments is None else [("--moments", moments)])
    kept = [] if checkpoint is None else [("--checkpoint", checkpoint, SUMS)]
    check_paths(inputs, [*kept, ("--model", model, MODEL)], force=force)
    check_option("--estimator", estimator, ESTIMATORS)
    if model.suffix != ".skops":
        raise InputError(f"--model {str(model)!r} must end in .skops.")
    screen = Screen(details=details, quiet=as_json)
    out = screen.more
    with noted(lambda warning: _is_answered(warning, fitted.verdict_)) as notes:
        if moments is not None:
            _check_beside_sums(tables, estimator, checkpoint, chunks)
            sums = read_sums(moments)
            estimator = "minmax"
            fitted, facts = _fit_sums(out, MinMaxUplift(random_state=seed), sums)
            _show_features(out, fitted, {})
        else:
            tables.require("fit needs {}, or --moments with a file of sums.")
            pieces = _in_pieces(screen.out, tables, estimator, chunks)
            start = unfitted(
                estimator,
                seed,
                randomised=randomised,
                several=tables.control is not None,
            )
            if checkpoint is not None and not pieces:
                raise InputError(
                    "--checkpoint is for tables that are read with --chunks."
                )
            if pieces:
                fitted, facts = _fit_pieces(out, tables, start, checkpoint, seed)
            else:
                fitted, facts = _fit_rows(out, tables, start, seed)
    fitted.notes_ = [
        str(note) for note in notes if not isinstance(note, LeftOutWarning)
    ]
    fitted.left_out_ = facts.get("left_out", {})
    name_outcome(fitted, tables.columns["--outcome"] or "", unit)
    written = save_model(fitted, model)
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    facts |= show_fit(out, fitted) | {"warnings": notes}
    facts["rows_held"] = rows_held(fitted)
    if facts["rows_held"]:
        out.print(
            f"The model holds the features of {facts['rows_held']:,} people of the tables, as "
            "centres of its functions, so the file is data about people. --estimator auto holds "
            "none; in Python, basis='means' takes means of 20 people or more."
        )
    spelled = f"--model {written} --table PEOPLE.csv --out LIST.csv"
    if config is not None:
        same = (ctx.default_map or {}).get("model") == str(model)
        spelled = f"--config {config}" + ("" if same else f" --model {written}")
    verdict: Verdict = fitted.verdict_
    is_red = verdict.colour == RED
    held = " It holds data about people." * bool(facts["rows_held"])
    used = _used(fitted, facts) + " More with --details." * (not details)
    lines = [*([] if is_red else [*answer_lines(fitted), open_line(fitted)]), used]
    screen.answer(
        verdict.colour,
        verdict_line(verdict),
        [line for line in lines if line] + [f"Wrote {written}.{held}"],
        then="" if is_red else f"Next: unjoined score {spelled}",
    )
    if as_json:
        print_json({"model": str(written), "estimator": estimator} | facts)
    stop_if(is_red)


def name_outcome(model: UpliftEstimator, outcome: str, unit: str | None) -> None:
    """Let a model say what outcomes are called, in its words and in those about it."""
    for one in (model, *getattr(model, "models_", {}).values()):
        is_rate = getattr(one, "_is_rate", False)
        one.unit_ = Unit.of_outcome(outcome, unit, is_rate=is_rate).name


def answer_lines(model: UpliftEstimator) -> list[str]:
    """Return what a model found, as far as it fits on one screen."""
    lines = model.summary_lines()
    if isinstance(model, ArmUplift):
        return [lines["arms"]] if "arms" in lines else []
    average = getattr(model, "average_effect_", None)
    if average is not None and not getattr(model, "randomised", False):
        most, is_dose = model._largest_effect, model.identification_.is_dose
        lines["average"] = effect_in_words(
            average, most, is_dose=is_dose, unit=model._unit
        )
    kept = ("compliers", "average", "differences")
    return [lines[about] for about in kept if about in lines]


def open_line(model: UpliftEstimator) -> str:
    """Return what is not tested, and how much of it would turn the average effect."""
    record = getattr(model, "gain_", None)
    alike = getattr(model, "randomised", False) or len(model.populations_) < 2
    claim = None if record is None or alike else record.claim()
    what = "the average effect"
    return open_in_words(model.verdict_, claim, model._unit, what)


def _used(model: UpliftEstimator, facts: Facts) -> str:
    """Say how many features of how many rows were used, and which columns were not."""
    names = ", ".join(facts.get("left_out", {}))
    said = f"{model.n_features_in_} features" + f"; left out: {names}" * bool(names)
    return f"{said}."


def _is_answered(warning: Warning, verdict: Verdict) -> bool:
    """Tell whether a check of all kinds of people answers a warning of weak policies."""
    return isinstance(warning, WeakIdentificationWarning) and verdict.is_settled


def _check_beside_sums(
    tables: Tables, estimator: str, checkpoint: Path | None, chunks: bool | None
) -> None:
    """Refuse what sums of all tables leave no room for."""
    given = tables.options | {"--checkpoint": checkpoint, "--chunks": chunks}
    if extra := [option for option, value in given.items() if value]:
        raise InputError(
            f"--moments holds sums of all tables, so {extra[0]} cannot be given beside it. "
            "Leave out one of the two."
        )
    if estimator not in ("auto", "minmax"):
        raise InputError(
            f"--moments holds sums, to which only minmax can be fitted, not {estimator!r}. Leave "
            "out --estimator."
        )


def _in_pieces(
    out: Console, tables: Tables, estimator: str, chunks: bool | None
) -> bool:
    """Tell whether to read tables in pieces: if asked for, or if they are too large to hold."""
    if chunks and estimator not in IN_PIECES:
        raise InputError(
            f"--chunks reads in pieces, which --estimator {estimator} cannot do. Leave out one of "
            "the two, or use --estimator minmax."
        )
    if chunks is not None or estimator not in IN_PIECES:
        return bool(chunks)
    needed = tables.memory()
    free = available_bytes()
    if needed <= free:
        return tables.in_pieces
    out.print(
        f"The tables need about {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free, so they "
        "are read in pieces (--no-chunks reads them at once)."
    )
    return True


def unfitted(
    estimator: str, seed: int, *, randomised: bool, several: bool = False
) -> UpliftEstimator:
    """Return the estimator that was asked for."""
    if several and (estimator != "auto" or randomised):
        raise InputError(
            "--control is for the default estimator, without --randomised. Leave out "
            + ("--randomised." if randomised else "--estimator.")
        )
    if several:
        return ArmUplift(random_state=seed)
    if not randomised:
        return ESTIMATORS[estimator](random_state=seed)
    if estimator != "auto":
        raise InputError(
            f"--randomised is for the default estimator, not for {estimator!r}. Leave out "
            "--estimator."
        )
    return Uplift(randomised=True, random_state=seed)


def _diagnosed(
    fitted: UpliftEstimator, data: SeparateLabels, **options: Any
) -> Verdict:
    chance = bool(getattr(fitted, "randomised", False))
    return diagnose(data, randomised=chance, **options).as_verdict()


def _fit_rows(
    out: Console, tables: Tables, estimator: UpliftEstimator, seed: int
) -> tuple[UpliftEstimator, Facts]:
    """Read the tables into memory and fit any estimator."""
    data = tables.read()
    show_labels(out, data.summary())
    fitted = estimator.fit(data)
    if isinstance(fitted, ArmUplift):
        left_out = {c.name: c.reason for c in data.left_out}
        left_out |= dict.fromkeys(tables.ignored, IGNORED)
        _show_features(out, fitted, left_out)
        return fitted, _arm_facts(fitted) | {"rows": data.n_rows, "left_out": left_out}
    crossfit = getattr(fitted, "crossfit_", None)
    kinds = (OUTCOME, TREATMENT)
    if min(c.n_rows for c in data.summary() if c.kind in kinds) >= FOLDS:
        crossfit = crossfit or cross_fit(data, random_state=seed)
        if not hasattr(fitted, "gain_"):
            unjoined.record_gain(fitted, data, crossfit=crossfit, random_state=seed)
    fitted.verdict_ = _diagnosed(fitted, data, crossfit=crossfit, random_state=seed)
    some = some_rows(data.n_rows, MOST_DESCRIBED, np.random.RandomState(seed))
    uplift = fitted.predict(take_rows(data.X, some))
    left_out = {c.name: c.reason for c in data.left_out}
    left_out |= dict.fromkeys(tables.ignored, IGNORED)
    _show_features(out, fitted, left_out)
    if not hasattr(fitted, "effect_range_"):  # else it is told with what was found
        whose = "some of the people" if len(some) < data.n_rows else "the people"
        show_uplift(out, uplift, f"{whose} in the tables")
    return fitted, {
        "rows": data.n_rows,
        "tables": [
            {"kind": c.kind, "population": c.population, "rows": c.n_rows}
            | {"label_mean": c.label_mean}
            for c in data.summary()
        ],
        "left_out": left_out,
        "uplift": uplift_summary(uplift),
    }


def _arm_facts(fitted: ArmUplift) -> Facts:
    """Return what each of several treatments does, for JSON."""
    values = {name: estimate_facts(value) for name, value in fitted.values_.items()}
    each = {
        arm: {
            "average_effect": estimate_facts(model.average_effect_),
            "strength": model.identification_.strength,
            "verdict": model.verdict_.to_dict(),
        }
        for arm, model in fitted.models_.items()
    }
    return {"control": fitted.control_, "values": values, "treatments": each}


def _fit_pieces(
    out: Console,
    tables: Tables,
    estimator: UpliftEstimator,
    checkpoint: Path | None,
    seed: int,
) -> tuple[UpliftEstimator, Facts]:
    """Fit to tables that are read in pieces."""
    source = tables.stream()
    fitted, facts = estimator, Facts()
    if isinstance(estimator, MinMaxUplift):
        sums = estimator.collect_sums(source, checkpoint=checkpoint)
        fitted, facts = _fit_sums(out, estimator, sums)
    else:
        fitted = estimator.fit(source, checkpoint=checkpoint)
    fitted.verdict_ = _diagnosed(fitted, source, random_state=seed)
    left_out = {c.name: c.reason for c in source.left_out}
    left_out |= dict.fromkeys(tables.ignored, IGNORED)
    _show_features(out, fitted, left_out)
    return fitted, facts | {"left_out": left_out}


def _fit_sums(
    out: Console, model: MinMaxUplift, sums: PlannedSums
) -> tuple[UpliftEstimator, Facts]:
    """Fit `MinMaxUplift` to sums of all tables."""
    fitted = model.fit_moments(sums)
    show_cell_sizes(out, sums)
    return fitted, {
        "rows": sum(cell["rows"] for cell in cell_sizes(sums)),
        "tables": cell_sizes(sums),
        "ridge_f": fitted.ridge_f_,
        "ridge_g": fitted.ridge_g_,
    }


def _show_features(
    out: Console, fitted: UpliftEstimator, left_out: dict[str, str]
) -> None:
    """Print the features that were used, and columns that are not features."""
    if (
        names := getattr(fitted, "feature_names_in_", None)
    ) is not None:  # arrays have none
        out.print(f"Features used: {', '.join(map(str, names))}.")
    for name, why in left_out.items():
        out.print(f"Left out: {name!r} {why}.")
    if any(why != IGNORED for why in left_out.values()):
        out.print("To use such a column after all, name all features with --features.")


def show_fit(out: Console, fitted: UpliftEstimator) -> Facts:
    """Print what a model found, ending in the verdict; return all numbers of it."""
    names = getattr(fitted, "feature_names_in_", None)  # sums of plain arrays have none
    strength = fitted.identification_
    facts: Facts = strength.known_facts() | {
        "features": None if names is None else [str(name) for name in names],
        "f_statistic": strength.f_statistic,
        "strength": strength.strength,
        "mean_gap": strength.mean_gap,
        "rms_gap": strength.rms_gap,
        "weak": strength.is_weak,
        "reason": getattr(fitted, "reason_", None),
    }
    average = getattr(fitted, "average_effect_", None)
    if average is not None:
        facts["average_effect"] = estimate_facts(average)
        relative = fitted.relative_effect_
        facts["relative_effect"] = (
            None if relative is None else estimate_facts(relative)
        )
    if getattr(fitted, "randomised", False):
        facts["compliers"] = estimate_facts(fitted.compliers_)
        facts["complier_share"] = estimate_facts(fitted.complier_share_)
        facts["offer"] = estimate_facts(fitted.gain_.everyone())
    lines = fitted.summary_lines()
    del lines["features"]  # all of them have been named
    if strength.is_weak and fitted.verdict_.is_settled:
        lines.pop("policies", None)
    for line in lines.values():
        out.print(line)
    if average is not None and not any(
        "differences" in about for about in lines
    ):  # which says whom it speaks for
        out.print(
            f"The average effect {reach_in_words(getattr(fitted, 'gain_', None))}"
        )
    if (spread := getattr(fitted, "effect_features_", None)) is not None and np.any(
        spread
    ):
        total = float(np.sum(spread**2))
        shares = [float(s**2 / total) for s in spread]
        labels = fitted._feature_names or range(len(shares))
        facts["effect_varies_with"] = dict(zip(map(str, labels), shares, strict=True))
    if (ends := getattr(fitted, "effect_range_", None)) is not None:
        facts["nine_in_ten"] = [float(end) for end in ends]
    return facts | {"verdict": fitted.verdict_.to_dict()}
