"""The three ways to a model: rows in memory, rows in chunks, sums alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unjoined._validation import OUTCOME, TREATMENT, check_option, shown
from unjoined.cli._inputs import (
    ESTIMATORS,
    TableOptions,
    check_columns,
    read_labels,
    table_source,
)
from unjoined.cli._show import (
    console,
    print_json,
    show_choice,
    show_labels,
    show_strength,
    show_uplift,
    uplift_summary,
)
from unjoined.errors import InputError, TableError
from unjoined.estimators import MinMaxUplift, Uplift, UpliftEstimator, save_model
from unjoined.moments._plan import PlannedSums
from unjoined.moments._sums_file import read_finished_sums

__all__ = ["fit_chunks", "fit_moments", "fit_rows"]


def fit_rows(
    options: TableOptions, estimator: str, model: Path, *, seed: int, as_json: bool
) -> None:
    """Read the tables into memory and fit any estimator."""
    check_option("--estimator", estimator, ESTIMATORS)
    _check_tables(options)
    data = read_labels(options)
    names = data.populations
    if len(names) > 2 and not getattr(ESTIMATORS[estimator], "_takes_several", False):
        raise InputError(
            f"--estimator {estimator} takes two populations, found {len(names)}: {shown(names)}. "
            "Use --estimator auto or mixture, which take any number, or give tables of two."
        )
    fitted = ESTIMATORS[estimator](random_state=seed).fit(**data)
    uplift = fitted.predict(data.X)
    written = save_model(fitted, model)
    if as_json:
        result = _result(fitted, estimator, written)
        result |= {"rows": data.n_rows, "reason": getattr(fitted, "reason_", None)}
        print_json(result | {"uplift": uplift_summary(uplift)})
        return
    out = console()
    show_labels(out, data)
    show_strength(out, fitted.identification_)
    if isinstance(fitted, Uplift):
        show_choice(out, fitted)
    show_uplift(out, uplift)
    _show_next(written, estimator)


def fit_chunks(
    options: TableOptions,
    estimator: str,
    model: Path,
    *,
    checkpoint: Path | None,
    seed: int,
    as_json: bool,
) -> None:
    """Read the tables in pieces, however large they are, and fit `MinMaxUplift`."""
    if estimator not in ("auto", "minmax"):
        raise InputError(
            f"--chunks fits from sums, which --estimator {estimator} cannot do. Leave --estimator "
            "out, or --chunks."
        )
    _check_tables(options)
    fitter = MinMaxUplift(random_state=seed)
    found = fitter.collect_sums(table_source(options), checkpoint=checkpoint)
    fitted = fitter.fit_moments(found)
    written = save_model(fitted, model)
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    _report_sums(fitted, found, "minmax", written, as_json=as_json)


def fit_moments(moments: Path, options: TableOptions, model: Path, *, as_json: bool) -> None:
    """Fit `MinMaxUplift` to a file of sums."""
    given = {
        "--outcomes": options.outcomes,
        "--treatments": options.treatments,
        "--outcome": options.outcome,
        "--treatment": options.treatment,
        "--population": options.population,
        "--features": options.features,
        "--ignore": options.ignore,
        "--weight": options.weight,
    }
    if extra := [name for name, value in given.items() if value]:
        raise InputError(
            f"--moments holds sums of all tables, so {extra[0]} cannot be given beside it. Leave "
            "out one of the two."
        )
    found = read_finished_sums(moments)
    fitted = MinMaxUplift().fit_moments(found)
    _report_sums(fitted, found, "minmax", save_model(fitted, model), as_json=as_json)


def _check_tables(options: TableOptions) -> None:
    """Say which of the tables and columns is missing, and that sums would do."""
    needed = {
        "--outcomes": options.outcomes,
        "--treatments": options.treatments,
        "--outcome": options.outcome,
        "--treatment": options.treatment,
    }
    if missing := [name for name, value in needed.items() if not value]:
        raise TableError(
            f"fit needs {', '.join(needed)}, or --moments with a file of sums. Missing: "
            f"{', '.join(missing)}."
        )
    check_columns(options)


def _feature_names(fitted: UpliftEstimator) -> list[str] | None:
    """Return the features' names; sums of plain arrays have none."""
    names = getattr(fitted, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def _result(fitted: UpliftEstimator, estimator: str, written: Path) -> dict[str, Any]:
    strength = fitted.identification_
    return {
        "estimator": estimator,
        "model": str(written),
        "features": _feature_names(fitted),
        "f_statistic": strength.f_statistic,
        "weak": strength.is_weak,
    }


def _report_sums(
    fitted: MinMaxUplift, found: PlannedSums, estimator: str, written: Path, *, as_json: bool
) -> None:
    cells = [(kind, k) for kind in (OUTCOME, TREATMENT) for k in (0, 1)]
    if as_json:
        rows = sum(found.n_rows(kind, k) for kind, k in cells)
        ridges = {"ridge_f": fitted.ridge_f_, "ridge_g": fitted.ridge_g_}
        print_json(_result(fitted, estimator, written) | {"rows": rows} | ridges)
        return
    out = console()
    for kind, k in cells:
        out.print(f"{kind} rows of {found.plan.populations[k]}: {found.n_rows(kind, k):,}")
    show_strength(out, fitted.identification_)
    _show_next(written, estimator)


def _show_next(written: Path, estimator: str) -> None:
    console().print(
        f"Wrote {written} ({estimator}). Next: unjoined score --model {written} --table "
        "NEW.parquet --out SCORES.parquet"
    )
