"""From command-line options to separate labels."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import narwhals as nw

from unjoined._typing import Frame
from unjoined.data import SeparateLabels, TableSource, read_table
from unjoined.errors import TableError
from unjoined.estimators import (
    DensityUplift,
    FourLogistic,
    FourNNC,
    FourNNR,
    FourRidge,
    MinMaxGau,
    MinMaxUplift,
    MixtureUplift,
    NeuralMinMaxUplift,
    PlugInUplift,
    TwoStageUplift,
    Uplift,
    UpliftEstimator,
    WeightedUplift,
)

__all__ = ["ESTIMATORS", "TableOptions", "read_labels", "select_columns", "table_source"]

ESTIMATORS: dict[str, Callable[..., UpliftEstimator]] = {
    "auto": Uplift,
    "mixture": MixtureUplift,
    "weighted": WeightedUplift,
    "minmax": MinMaxUplift,
    "plugin": PlugInUplift,
    "two-stage": TwoStageUplift,
    "density": DensityUplift,
    "neural": NeuralMinMaxUplift,
    "MinMaxGau": MinMaxGau,
    "FourLogistic": FourLogistic,
    "FourNNC": FourNNC,
    "FourRidge": FourRidge,
    "FourNNR": FourNNR,
}


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What the user said about the tables."""

    outcomes: list[str]  # FILE, or NAME=FILE
    treatments: list[str]
    outcome: str
    treatment: str
    population: str | None
    features: str | None  # comma-separated
    ignore: str | None  # comma-separated
    weight: str | None


def read_labels(options: TableOptions) -> SeparateLabels:
    """Read two tables with a population column, or four tables named by population."""
    outcomes = _named_files(options.outcomes, "--outcomes")
    treatments = _named_files(options.treatments, "--treatments")
    _check_layout(options, outcomes, treatments)
    names = () if options.population is None else (options.population,)  # north, 1 or 01: text
    files = (*outcomes.values(), *treatments.values())
    tables = {path: read_table(path, text=names) for path in files}
    tables = _chosen_features(tables, options)
    if options.population is not None:
        return SeparateLabels.from_frames(
            tables[next(iter(outcomes.values()))],
            tables[next(iter(treatments.values()))],
            outcome=options.outcome,
            treatment=options.treatment,
            population=options.population,
            sample_weight=options.weight,
        )
    return SeparateLabels.from_tables(
        {name: tables[path] for name, path in outcomes.items()},
        {name: tables[path] for name, path in treatments.items()},
        outcome=options.outcome,
        treatment=options.treatment,
        sample_weight=options.weight,
    )


def table_source(options: TableOptions) -> TableSource:
    """Stream two tables with a population column, or four named by population, from their files."""
    outcomes = _named_files(options.outcomes, "--outcomes")
    treatments = _named_files(options.treatments, "--treatments")
    _check_layout(options, outcomes, treatments)
    columns: dict[str, Any] = {
        "outcome": options.outcome,
        "treatment": options.treatment,
        "sample_weight": options.weight,
        "features": _split(options.features) or None,
    }
    if options.population is None:
        source = TableSource.from_tables(outcomes, treatments, **columns)
    else:
        files = (next(iter(group.values())) for group in (outcomes, treatments))
        source = TableSource.from_frames(*files, population=options.population, **columns)
    ignored = _split(options.ignore)
    if not ignored:
        return source
    names = source.feature_names
    if unknown := [name for name in ignored if name not in names]:
        raise TableError(f"--ignore names {unknown[0]!r}, which is no column of the first table.")
    return replace(source, features=tuple(name for name in names if name not in ignored))


def _check_layout(
    options: TableOptions, outcomes: dict[str, Path], treatments: dict[str, Path]
) -> None:
    if options.population is not None:
        if len(outcomes) != 1 or len(treatments) != 1:
            raise TableError(
                "with --population there is one --outcomes file and one --treatments file, each "
                "with rows of all populations. Leave it out to give one file per population."
            )
        return
    for files, option in ((outcomes, "--outcomes"), (treatments, "--treatments")):
        if len(files) < 2 or "" in files:
            raise TableError(
                f"give {option} twice, as NAME=FILE for each of the populations (for instance "
                f"{option} north=a.parquet {option} south=b.parquet), or name the column that "
                "tells populations apart with --population."
            )


def _named_files(entries: list[str], option: str) -> dict[str, Path]:
    """Take NAME=FILE apart; a plain FILE, even one with "=" in its path, gets the name ""."""
    files: dict[str, Path] = {}
    for entry in entries:
        name, equals, path = entry.partition("=")
        is_path = not equals or os.path.basename(name) != name  # a folder before the "="
        if not is_path and Path(entry).exists():
            if Path(path).exists():
                raise TableError(
                    f"{option} {entry} may stand for the file {path!r} of population {name!r} or "
                    f"for the file {entry!r}, and both exist. Write ./{entry} for the latter, or "
                    "rename one."
                )
            is_path = True
        if is_path:
            name, path = "", entry
        if name in files:
            raise TableError(
                f"{option} was given twice for "
                + (f"population {name!r}." if name else "no named population: write NAME=FILE.")
            )
        files[name] = Path(path)
    return files


def _chosen_features(tables: dict[Path, Frame], options: TableOptions) -> dict[Path, Frame]:
    """Keep the features asked for, and leave out the columns to be ignored."""
    columns = {
        path: nw.from_native(table, eager_only=True).columns for path, table in tables.items()
    }
    ignored = _split(options.ignore)
    # An identifier may be in some tables only; a name that is in none is a typing error.
    if unknown := [name for name in ignored if not any(name in c for c in columns.values())]:
        raise TableError(f"--ignore names {unknown[0]!r}, a column that no table has.")
    special = {options.outcome, options.treatment, options.population, options.weight}
    chosen = {}
    for path, table in tables.items():
        wanted = _split(options.features) or [c for c in columns[path] if c not in special]
        kept = [name for name in wanted if name not in ignored]
        labels = [name for name in columns[path] if name in special]
        chosen[path] = select_columns(table, kept + labels, table=str(path))
    return chosen


def select_columns(frame: Frame, names: list[str], *, table: str) -> Frame:
    """Return the named columns, in that order, or say which are missing."""
    native = nw.from_native(frame, eager_only=True)
    if missing := [name for name in names if name not in native.columns]:
        raise TableError(
            f"{table} lacks the column{'s' * (len(missing) > 1)} {', '.join(map(repr, missing))}; "
            f"its columns are {', '.join(native.columns)}."
        )
    return native.select(names).to_native()


def _split(names: str | None) -> list[str]:
    return [name.strip() for name in (names or "").split(",") if name.strip()]
