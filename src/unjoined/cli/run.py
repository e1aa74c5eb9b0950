"""What the commands fit, score and reproduce do."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import narwhals as nw
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

from unjoined._optional import import_extra
from unjoined._typing import Frame
from unjoined._validation import OUTCOME, TREATMENT, check_option, shown
from unjoined.cli.inputs import (
    ESTIMATORS,
    TableOptions,
    check_columns,
    check_distinct,
    read_labels,
    select_columns,
    table_source,
)
from unjoined.cli.show import (
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
from unjoined.reproduce import STUDIES, PaperFiles, reproduce_paper
from unjoined.sums import PlannedSums, read_finished_sums
from unjoined.targeting import treatment_rank


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


OWN = ("uplift", "rank", "treat", "row")  # columns that the list itself writes


def check_kept(keep: list[str]) -> None:
    """Refuse to copy columns under names that the list writes itself."""
    if taken := [name for name in keep if name in OWN]:
        raise InputError(
            f"--keep cannot copy the column {taken[0]!r}, as the list has a column of that name "
            "of its own. Rename yours in the table."
        )


def targeting_list(
    model: UpliftEstimator,
    table: Frame,
    *,
    title: str,
    keep: list[str],
    share: float | None,
) -> Frame:
    """Return a pyarrow table, best first: kept columns, uplift, rank and whom to treat.

    Parameters
    ----------
    model : UpliftEstimator
        Fitted on a table, so that it knows its columns' names.
    table : pyarrow.Table
        People to be scored; columns are found by name, further ones do not matter.
    title : str
        What messages call the table.
    keep : list of str
        Columns to copy into the list; with none, the row number (from 0) under ``row``.
    share : float or None
        Treat this share of the rows, rounded down; None treats whoever has an uplift of 0 or
        more, the optimal rule if treatment costs nothing.
    """
    pyarrow = import_extra("pyarrow", extra="cli")
    if not hasattr(model, "feature_names_in_"):
        raise InputError(
            "the model was fitted to plain arrays, so it does not know the names of its features. "
            "Fit it to tables, or call its predict with an array."
        )
    names = [str(name) for name in model.feature_names_in_]
    rows = nw.from_native(table, eager_only=True)
    if len(rows) == 0:
        raise InputError(f"{title} is empty: there is nobody to score.")
    uplift = model.predict(select_columns(table, names, table=title))
    rank = treatment_rank(uplift)
    treat = uplift >= 0.0 if share is None else rank <= int(share * len(rank) + 1e-9)
    kept = select_columns(table, keep, table=title) if keep else None
    columns = (
        {"row": np.arange(len(rank))}
        if kept is None
        else {name: kept.column(name) for name in keep}
    )
    scored = pyarrow.table({**columns, "uplift": uplift, "rank": rank, "treat": treat})
    return scored.take(np.argsort(rank))


def run_reproduce(
    out: Console,
    studies: list[str],
    folder: Path,
    *,
    trials: int,
    jobs: int | None,
    seed: int,
    small: bool,
    data: Path | None,
    ridges: bool,
) -> dict[str, Any]:
    """Run the studies named, show what happens, and return the verdicts and files."""
    if folder.exists() and not folder.is_dir():
        raise TableError(f"{str(folder)!r} is a file; name a folder with --out.")
    if data is not None and not data.is_dir():
        raise TableError(f"there is no folder {str(data)!r}. Check --data.")
    if data is not None:
        check_distinct([("--data", data), ("--out", folder)])
    wanted = _wanted(studies)
    with _progress(out) as told:
        try:
            files = reproduce_paper(
                wanted,
                folder,
                trials=trials,
                jobs=jobs or os.cpu_count() or 1,
                seed=seed,
                small=small,
                data=None if data is None else str(data),
                ridges=ridges,
                progress=told,
            )
        except KeyboardInterrupt:
            out.print(f"Finished trials are kept in {folder}; the same command goes on.")
            raise
    claims = json.loads(files.results.read_text("utf-8"))["claims"]
    _show(out, files, claims)
    verdicts = {claim["claim"]: claim["verdict"] for claim in claims}
    return {"verdicts": verdicts, "files": _names(files)}


def _names(files: PaperFiles) -> dict[str, Any]:
    return {
        "page": str(files.page),
        "results": str(files.results),
        "trials": str(files.trials),
        "figures": [str(file) for file in files.figures],
    }


@contextmanager
def _progress(out: Console) -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function that is told how far each study is, and draws a bar for it."""
    bars: dict[str, TaskID] = {}
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=out,
    ) as shown:

        def told(study: str, done: int, total: int) -> None:
            if study not in bars:
                bars[study] = shown.add_task(study, total=total)
            shown.update(bars[study], completed=done)

        yield told


def _wanted(studies: list[str]) -> list[str]:
    """Return the studies named, in the paper's order, each once."""
    for study in studies:
        check_option("study", study, (*STUDIES, "all"))
    return [name for name in STUDIES if name in studies or "all" in studies]


def _show(out: Console, files: PaperFiles, claims: list[dict[str, Any]]) -> None:
    """Print the verdict on each claim, and what was written."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("verdict", no_wrap=True)
    table.add_column("the paper, section 6.3")
    for claim in claims:
        table.add_row(claim["verdict"], claim["claim"])
    out.print(table)
    out.print(f"Wrote {files.page}, {files.results} and {len(files.figures)} figures.")
