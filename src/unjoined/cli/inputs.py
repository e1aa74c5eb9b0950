"""From command-line options to separate labels, and paths that must not be the same file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import narwhals as nw

from unjoined._typing import Frame
from unjoined.data import ENDINGS, SeparateLabels, TableSource, read_table, table_ending
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


def table_paths(outcomes: list[str], treatments: list[str]) -> list[tuple[str, Path]]:
    """Return the option and path of each table."""
    return [
        (option, path)
        for option, entries in (("--outcomes", outcomes), ("--treatments", treatments))
        for path in _named_files(entries, option).values()
    ]


def check_columns(options: TableOptions) -> None:
    """Check, before any table is read, that each column has one meaning only."""
    meaning: dict[str, str] = {}
    for option, name in (
        ("--outcome", options.outcome),
        ("--treatment", options.treatment),
        ("--population", options.population),
        ("--weight", options.weight),
    ):
        if name == "" and option not in ("--outcome", "--treatment"):
            raise TableError(f"{option} is empty. Name a column, or leave it out.")
        if name and name in meaning:
            raise TableError(
                f"{meaning[name]} and {option} both name the column {name!r}. Each needs a column "
                "of its own."
            )
        meaning |= {name: option} if name else {}
    if options.features is None:
        return
    features = split_names(options.features, "--features")
    if not features:
        raise TableError("--features names no column. Name one or more, or leave it out for all.")
    if taken := [name for name in features if name in meaning]:
        raise TableError(
            f"--features names {taken[0]!r}, which is the column of {meaning[taken[0]]}. A label, "
            "weight or population is no feature."
        )
    if not set(features) - set(split_names(options.ignore, "--ignore")):
        raise TableError("--ignore leaves out all columns of --features. Keep one or more.")


def read_labels(options: TableOptions) -> SeparateLabels:
    """Read two tables with a population column, or two for each population, named by it."""
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
    """Stream two tables with a population column, or four named by it, from their files."""
    outcomes = _named_files(options.outcomes, "--outcomes")
    treatments = _named_files(options.treatments, "--treatments")
    _check_layout(options, outcomes, treatments)
    columns: dict[str, Any] = {
        "outcome": options.outcome,
        "treatment": options.treatment,
        "sample_weight": options.weight,
        "features": split_names(options.features, "--features") or None,
    }
    if options.population is None:
        source = TableSource.from_tables(outcomes, treatments, **columns)
    else:
        files = (next(iter(group.values())) for group in (outcomes, treatments))
        source = TableSource.from_frames(*files, population=options.population, **columns)
    ignored = split_names(options.ignore, "--ignore")
    if not ignored:
        return source
    names = source.feature_names
    if unknown := [name for name in ignored if name not in {*names, *_special(options)}]:
        raise TableError(f"--ignore names {unknown[0]!r}, which is no column of the first table.")
    kept = tuple(name for name in names if name not in ignored)
    _check_some_left(list(kept), options)
    return replace(source, features=kept)


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
                f"give {option} once for each population, as NAME=FILE (for instance "
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
        if not path:
            raise TableError(f"{option} {entry!r} names no file. Write NAME=FILE, or FILE alone.")
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
    ignored = split_names(options.ignore, "--ignore")
    # An identifier may be in some tables only; a name that is in none is a typing error.
    if unknown := [name for name in ignored if not any(name in c for c in columns.values())]:
        raise TableError(f"--ignore names {unknown[0]!r}, a column that no table has.")
    special, asked = _special(options), split_names(options.features, "--features")
    chosen = {}
    for path, table in tables.items():
        wanted = asked or [c for c in columns[path] if c not in special]
        kept = [name for name in wanted if name not in ignored]
        _check_some_left(kept, options)
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


def _special(options: TableOptions) -> set[str | None]:
    return {options.outcome, options.treatment, options.population, options.weight}


def _check_some_left(features: list[str], options: TableOptions) -> None:
    if options.ignore and not features:
        raise TableError("--ignore leaves no column to be a feature. Keep one or more.")


def split_names(names: str | None, option: str) -> list[str]:
    """Take a comma-separated list of columns apart; none may be named twice."""
    found = [name.strip() for name in (names or "").split(",") if name.strip()]
    for i, name in enumerate(found):
        if name in found[:i]:
            raise TableError(f"{option} names the column {name!r} twice. Name each column once.")
    return found


# How a file begins that may be replaced, and what it is called; a table replaces any file. Files of
# sums are archives too, in which the name of the first part comes behind 30 bytes.
MODEL, SUMS, TABLE = b"PK", b"unjoined-sums", b""


NAMES = {MODEL: "model", SUMS: "file of sums"}


Input = tuple[str, Path]  # the option, and the file or folder it names


Output = tuple[str, Path, bytes]  # the option, the file, and how one of its kind begins


def check_paths(inputs: Sequence[Input], outputs: Sequence[Output]) -> None:
    """Refuse paths that would overwrite each other, before anything is read or written.

    Parameters
    ----------
    inputs : sequence of (option, path)
        Files and folders that the command reads.
    outputs : sequence of (option, path, beginning)
        Files that it writes. One that exists must begin with the bytes given: then it is an
        earlier result, not something else of the user's.

    Raises
    ------
    TableError
        Two paths are the same file, by whatever name or link, an output is one of the tables in
        an input folder, or an output cannot be replaced.
    """
    paths: list[Input] = [*inputs, *((option, path) for option, path, _ in outputs)]
    # Of an input that does not exist there is more to say, where it is read.
    check_distinct([*(entry for entry in inputs if entry[1].exists()), *paths[len(inputs) :]])
    for one, folder in inputs:
        for two, path in paths:
            if path != folder and folder.is_dir() and _stands_for(folder, path):
                raise TableError(
                    f"{two} {str(path)!r} is among the tables in the folder {str(folder)!r}, which "
                    f"{one} reads. Name one outside of it."
                )
    for option, path, beginning in outputs:
        _check_replaceable(option, path, beginning)


def check_distinct(paths: Sequence[Input]) -> None:
    """Refuse two paths that are one file or folder, by whatever name or link."""
    for (one, first), (two, second) in combinations(paths, 2):
        if _same(first, second):
            what = "folder" if first.is_dir() else "file"
            raise TableError(
                f"{one} {str(first)!r} and {two} {str(second)!r} are the same {what}. Name a "
                "different one for each."
            )


def _same(first: Path, second: Path) -> bool:
    """Tell whether two paths are one file, or would be once it is written."""
    if first.exists() and second.exists():
        return first.samefile(second)
    if first.exists() or second.exists():
        return False
    # Nobody can ask the disk whether it tells upper from lower case before there is a file.
    return os.path.realpath(first).casefold() == os.path.realpath(second).casefold()


def _stands_for(folder: Path, path: Path) -> bool:
    """Tell whether a path is, or would be, among the tables that are read from a folder."""
    if path.is_dir() or not path.exists():
        inside = Path(os.path.realpath(folder)) in Path(os.path.realpath(path)).parents
        return inside and (path.is_dir() or table_ending(path) in ENDINGS)
    tables = (
        file for file in folder.rglob("*") if table_ending(file) in ENDINGS and file.is_file()
    )
    return any(file.samefile(path) for file in tables)


def _check_replaceable(option: str, path: Path, beginning: bytes) -> None:
    if not path.parent.is_dir():
        raise TableError(
            f"there is no folder {str(path.parent)!r} to write to ({option}). Create it first."
        )
    if path.is_dir():
        raise TableError(f"{option} {str(path)!r} is a folder; name a file to write to.")
    if not path.exists():
        return
    if not path.is_file():  # such as /dev/null, which must not be replaced by a file
        raise TableError(f"{option} {str(path)!r} is no ordinary file. Name a file to write to.")
    with path.open("rb") as file:
        found = file.read(30 + len(SUMS))
    if found[30:] == SUMS:
        found = SUMS
    if not found.startswith(beginning) and found:
        raise TableError(
            f"{option} {str(path)!r} exists and is no {NAMES[beginning]}, so it is not replaced. "
            "Name another file, or delete this one first."
        )
