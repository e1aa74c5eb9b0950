"""From command-line options to tables of rows, and checks that no path overwrites another."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Sequence
from copy import copy
from glob import glob
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np

from unjoined._typing import Array
from unjoined._validation import did_you_mean, shown
from unjoined.cli.options import (
    Both,
    Categories,
    Cluster,
    Control,
    Count,
    Dose,
    Features,
    Ignore,
    Outcome,
    Outcomes,
    Policies,
    Population,
    Treated,
    Treatment,
    Treatments,
    Weight,
    as_policies,
    split_names,
)
from unjoined.cli.program import SETTINGS_TABLES, SharedOptions
from unjoined.data.files import ENDINGS, table_ending
from unjoined.data.labels import SeparateLabels
from unjoined.data.queries import (
    SqlQuery,
    as_query,
    available_bytes,
    is_query,
    is_server,
)
from unjoined.data.tables import needed_bytes
from unjoined.errors import InputError, TableError, UnjoinedWarning
from unjoined.estimators.persist import is_model_file
from unjoined.words import less_may_be_better

# How a file begins that may be replaced, and what it is called; a table replaces any file.
MODEL, SUMS, TABLE, SETTINGS = (
    b"PK",
    b"unjoined-sums",
    b"",
    b"# Written by `unjoined init`",
)
QUERY = b"-- Uplift by "
QUERIES = b"-- Queries of unjoined for the plan "
NAMES = {MODEL: "model", SUMS: "file of sums", QUERY: "query of ours"}
NAMES[QUERIES] = "file of queries of ours"
NAMES[SETTINGS] = "file of settings that init wrote"
QUOTED = re.compile(r"'((?:[^']|'')+)'")  # in SQL
Named = Path | SqlQuery  # a table: a file or folder, or a query
Input = tuple[str, Named]  # the option, and what it names
Output = tuple[str, Path, bytes]  # the option, the file, and how one of its kind begins


class Tables(SharedOptions):
    """The tables and columns that a command line names, each column with one meaning."""

    def __init__(
        self,
        outcomes: Outcomes = None,
        treatments: Treatments = None,
        both: Both = None,
        policies: Policies = None,
        *,
        outcome: Outcome = "",
        treatment: Treatment = "",
        population: Population = None,
        features: Features = None,
        ignore: Ignore = None,
        categories: Categories = None,
        weight: Weight = None,
        cluster: Cluster = None,
        count: Count = None,
        treated: Treated = None,
        dose: Dose = False,
        control: Control = None,
    ) -> None:
        """Check what can be checked before a table is read."""
        # By population; under "" if a column tells the population.
        self.outcomes = _named_tables("--outcomes", outcomes)
        self.treatments = _named_tables("--treatments", treatments)
        self.both = _named_tables("--both", both)
        self.policies = as_policies(policies)
        self.columns = {  # of labels, populations and weights
            "--outcome": outcome,
            "--treatment": treatment,
            "--population": population,
            "--weight": weight,
            "--cluster": cluster,
            "--count": count,
        }
        self.features = split_names(
            "--features", features
        )  # all columns that are left, if empty
        self.ignored = split_names("--ignore", ignore)
        self.categories = tuple(split_names("--categories", categories))
        self.treated = (
            treated or None
        )  # treatments that mean treated, if they are not plain
        self.is_dose = dose
        self.control = control
        self.text: tuple[
            str, ...
        ] = ()  # columns of text files that are left as they are written
        self._check_columns(has_features=features is not None)

    def require(self, needs: str) -> None:
        """Say which of the tables and labels is missing.

        Rows with both labels are outcomes and treatments, and a known policy stands for treatments.
        """
        needed = ("--outcomes", "--treatments", "--outcome", "--treatment")
        there = self.options
        there["--outcomes"] = self.outcomes or self.both
        there["--treatments"] = self.treatments or self.both or self.policies
        if self.policies and not (self.treatments or self.both):
            there["--treatment"] = "known"
        if missing := [option for option in needed if not there[option]]:
            hint = (
                " If the chance of treatment is known, give --policies NAME=CHANCE in place of "
                "--treatments and --treatment; if rows have both labels, --both."
            )
            raise TableError(
                f"{needs.format(', '.join(needed))} Missing: {', '.join(missing)}."
                + hint * (missing[0] == "--treatments")
            )

    @property
    def paths(self) -> list[Input]:
        """The option and file, folder or query of each table."""
        return [(option, table) for option, of in self._named for table in of.values()]

    @property
    def _named(self) -> list[tuple[str, dict[str, Named]]]:
        """The tables by option."""
        return [
            ("--outcomes", self.outcomes),
            ("--treatments", self.treatments),
            ("--both", self.both),
        ]

    @property
    def options(self) -> dict[str, Any]:
        """What was given, by option."""
        tables = {**dict(self._named), "--policies": self.policies}
        lists = {
            "--features": self.features,
            "--ignore": self.ignored,
            "--treated": self.treated,
            "--dose": self.is_dose,
            "--control": self.control,
        }
        return tables | self.columns | lists

    @property
    def population(self) -> str | None:
        """The column that names each row's population, if there is one."""
        return self.columns["--population"]

    @property
    def in_pieces(self) -> bool:
        """Whether to read in pieces: tables that are folders, or too large for memory."""
        if self.whole:
            return False
        folders = any(
            isinstance(table, Path) and table.is_dir() for _, table in self.paths
        )
        return folders or self.memory() > available_bytes()

    @property
    def whole(self) -> str:
        """The option for which all rows have to be in memory, if there is one."""
        if self.columns["--count"]:
            return "--count"
        if self.is_dose or self.control is not None:
            return "--dose" if self.is_dose else "--control"
        return "--both" * bool(self.both) or "--policies" * bool(self.policies)

    def refuse_arms(self, command: str) -> None:
        """Refuse several treatments where one is looked at."""
        if self.control is not None:
            raise InputError(
                f"{command} looks at one treatment, and --control says that there are several. "
                "unjoined fit says what each of them does and how sure that is, and unjoined score "
                "writes whom to give which."
            )

    def memory(self) -> int:
        """Return about how many bytes the tables take in memory, with what a fit adds."""
        return needed_bytes(table for _, table in self.paths)

    def read(self) -> SeparateLabels:
        """Read all rows into memory."""
        self._check_layout()
        self._doubt_direction()
        return self.combined(self.features or None, stream=False)

    def _doubt_direction(self) -> None:
        """Warn of an outcome of which less may be better: all that is said goes by more."""
        if doubt := less_may_be_better(self.columns["--outcome"] or ""):
            warnings.warn(doubt, UnjoinedWarning, stacklevel=3)

    def earlier(self, before: Sequence[str], data: SeparateLabels) -> SeparateLabels:
        """Read outcomes of an earlier time, when nobody was treated, as the rows of now are."""
        named = _named_tables("--before", before)
        names = [str(name) for name in np.unique(data.population)]
        if self.population is None and sorted(named) != sorted(names):
            raise TableError(
                f"give --before once for each population, as NAME=FILE; they are {shown(names)}."
            )
        if self.population is not None and len(named) > 1:
            raise TableError("with --population there is one --before file.")
        return SeparateLabels.from_tables(
            named if self.population is None else next(iter(named.values())),
            None,
            policies=dict.fromkeys(names, 0.0),
            outcome=self.columns["--outcome"] or "",
            treatment=None,
            population=self.population,
            sample_weight=self.columns["--weight"],
            cluster=self.columns["--cluster"],
            count=self.columns["--count"],
            features=data.feature_names,
            text=self.text,
            stream=False,
        )

    def unaffected(self, column: str, data: SeparateLabels) -> Array:
        """Read another outcome of the rows of now, NaN for rows that have none."""
        tables = copy(self)
        tables.columns = self.columns | {"--outcome": column}
        return tables.combined(data.feature_names, stream=False).y

    def of_model(self, model: Any) -> Tables:
        """Return the same with the features of a model, unless others are named."""
        names = [str(name) for name in getattr(model, "feature_names_in_", ())]
        tables = copy(self)
        tables.text = written_columns(model)
        tables.features = self.features or [
            name for name in names if name not in self.ignored
        ]
        return tables

    def stream(self) -> SeparateLabels:
        """Return the rows to be read in pieces, however many there are."""
        if self.whole:
            raise InputError(
                f"{self.whole} needs all rows in memory, so that they are not read in pieces. "
                "Leave out --chunks."
            )
        self._check_layout()
        self._doubt_direction()
        return self.combined(self.features or None, stream=True)

    def check_party(self) -> None:
        """Check the tables of one party, who may have some of the four only."""
        for kind, files in (("outcome", self.outcomes), ("treatment", self.treatments)):
            if files and not self.columns[f"--{kind}"]:
                raise TableError(
                    f"--{kind}s needs --{kind}, the column with the {kind}."
                )
            if self.population is None and "" in files:
                raise TableError(
                    f"write --{kind}s NAME=FILE to say whose rows these are, or name the column "
                    "that tells populations apart with --population."
                )
            if self.population is not None and len(files) > 1:
                raise TableError(
                    f"with --population there is one --{kind}s file or folder."
                )

    def combined(
        self, features: Iterable[str] | None, *, stream: bool
    ) -> SeparateLabels:
        """Make one of whatever tables there are."""
        outcomes, treatments, both = (
            of if self.population is None else next(iter(of.values()), None)
            for _, of in self._named
        )
        return SeparateLabels.from_tables(
            outcomes,
            treatments,
            both=both or None,
            policies=self.policies or None,
            outcome=self.columns["--outcome"] or "",
            treatment=self.columns["--treatment"],
            population=self.population,
            treated=self.treated,
            dose=self.is_dose,
            control=self.control,
            sample_weight=self.columns["--weight"],
            cluster=self.columns["--cluster"],
            count=self.columns["--count"],
            features=features,
            ignore=self.ignored,
            categories=self.categories,
            text=self.text,
            stream=stream,
        )

    def _check_columns(self, *, has_features: bool) -> None:
        meaning: dict[str, str] = {}
        for option, name in self.columns.items():
            if name == "" and option not in ("--outcome", "--treatment"):
                raise TableError(f"{option} is empty. Name a column, or leave it out.")
            if name and name in meaning:
                raise TableError(
                    f"{meaning[name]} and {option} both name the column {name!r}. Each needs a "
                    "column of its own."
                )
            meaning |= {name: option} if name else {}
        if has_features and not self.features:
            raise TableError(
                "--features names no column. Name one or more, or leave it out for all."
            )
        if taken := [name for name in self.features if name in meaning]:
            raise TableError(
                f"--features names {taken[0]!r}, which is the column of {meaning[taken[0]]}. A "
                "label, weight, cluster, count or population cannot be a feature."
            )
        if has_features and set(self.features) <= set(self.ignored):
            raise TableError(
                "--ignore leaves out all columns of --features. Keep one or more."
            )

    def _check_layout(self) -> None:
        if self.population is not None:
            for option, of in self._named:
                if len(of) > 1:
                    raise TableError(
                        f"with --population there is one {option} file, with rows of all "
                        "populations. Leave it out to give one file per population."
                    )
            return
        told = {**self.treatments, **self.both, **self.policies}
        seen = {**self.outcomes, **self.both}
        plain = [sorted({name.casefold() for name in of}) for of in (seen, told)]
        if plain[0] != plain[1] and "" not in plain[0] + plain[1]:
            self._refuse_names(seen, told)
        fewest = 1 if self.both or self.policies else 2
        for option, of in self._named:
            if "" in of or (of and len(seen) < fewest):
                raise TableError(
                    f"give {option} once for each population, as NAME=FILE (for instance "
                    f"{option} north=a.parquet {option} south=b.parquet), or name the column that "
                    "tells populations apart with --population."
                )

    def _refuse_names(self, seen: Iterable[str], told: Iterable[str]) -> None:
        """Say which population has outcomes or treatments alone."""
        seen, told = list(seen), list(told)
        if not (self.both or self.policies):
            raise TableError(
                f"--outcomes names the populations {', '.join(seen)}, and --treatments "
                f"{', '.join(told)}. Each needs a table of both, under one name."
            )
        if lack := [name for name in seen if name not in told]:
            raise TableError(
                f"of population {lack[0]!r} nothing is said about treatments. Give --treatments "
                f"{lack[0]}=TABLE, --policies {lack[0]}=CHANCE if the chance of treatment is "
                f"known, or --both {lack[0]}=TABLE."
            )
        lack = [name for name in told if name not in seen]
        raise TableError(
            f"of population {lack[0]!r} there are no outcomes. Give --outcomes {lack[0]}=TABLE; "
            f"named are {', '.join(seen)}{did_you_mean(lack[0], seen)}"
        )


def as_table(text: str) -> Named:
    """Return the file or query that an option names."""
    return as_query(text) or Path(text)


def _files_of(table: Named) -> list[Path]:
    """Return a file, or the database that a query reads and files that it may name in quotes."""
    if isinstance(table, Path):
        return [table]
    named = [
        name
        for text in QUOTED.findall(table.query)
        for name in glob(text, recursive=True)
    ]
    stored = None if is_server(table.database) else table.database
    return [Path(name) for name in (stored, *named) if name is not None]


def _named_tables(option: str, entries: Sequence[str] | None) -> dict[str, Named]:
    """Take NAME=FILE apart; a plain FILE, even one with "=" in its path, gets the name ""."""
    tables: dict[str, Named] = {}
    for entry in entries or ():
        name, equals, path = entry.partition("=")
        # No name if a folder, a database or the beginning of a query is in front of the "=".
        is_path = not equals or os.path.basename(name) != name or is_query(name)
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
            raise TableError(
                f"{option} {entry!r} names no file. Write NAME=FILE, or FILE alone."
            )
        if name in tables:
            raise TableError(
                f"{option} was given twice for "
                + (
                    f"population {name!r}."
                    if name
                    else "no named population: write NAME=FILE."
                )
            )
        tables[name] = as_table(path)
    return tables


def check_paths(
    inputs: Sequence[Input], outputs: Sequence[Output], *, force: bool | None = None
) -> None:
    """Refuse paths that would overwrite something, before anything is read or written.

    With ``force`` an output may exist, if it is of its own kind; with None that is not looked at,
    for files that a command goes on with.
    """
    written = [(option, path) for option, path, _ in outputs]
    read = [(option, path) for option, path in inputs if isinstance(path, Path)]
    queries = [
        (option, query) for option, query in inputs if isinstance(query, SqlQuery)
    ]
    # An input that does not exist is reported where it is read.
    check_distinct([*(entry for entry in read if entry[1].exists()), *written])
    for (one, query), (two, other) in combinations(queries, 2):
        if query == other:
            raise TableError(
                f"{one} and {two} both name {str(query)!r}. Each table needs rows of its own."
            )
    for (option, query), target in product(queries, written):
        for file in _files_of(
            query
        ):  # which queries may share, and nothing is written to
            check_distinct([(option, file), target])
    _check_settings(written)
    for (one, folder), (two, path) in product(read, [*read, *written]):
        if path != folder and folder.is_dir() and _is_table_in(folder, path):
            raise TableError(
                f"{two} {str(path)!r} is among the tables in the folder {str(folder)!r}, which "
                f"{one} reads. Name one outside of it."
            )
    for option, path, beginning in outputs:
        _check_replaceable(option, path, beginning)
        if force is False and option != "--checkpoint" and path.exists():
            raise TableError(
                f"{option} {str(path)!r} exists. Add --force to replace it, or name another file."
            )


def _check_settings(written: Sequence[tuple[str, Path]]) -> None:
    """Refuse to write to a table that the settings name for this command or another."""
    for text, (option, path) in product(SETTINGS_TABLES.get(), written):
        for file in _files_of(as_table(text)):
            same = file.exists() and path.exists() and file.samefile(path)
            if same or (file.is_dir() and _is_table_in(file, path)):
                raise TableError(
                    f"{option} {str(path)!r} is a table that the settings name, or would be among "
                    "them. Nothing is written there, even with --force: name another file."
                )


def check_distinct(paths: Sequence[tuple[str, Path]]) -> None:
    """Refuse two paths that are one file or folder, by whatever name or link."""
    for (one, first), (two, second) in combinations(paths, 2):
        if first.exists() and second.exists():
            same = first.samefile(second)
        else:  # whether the disk ignores case shows only once a file exists
            same = not (first.exists() or second.exists()) and (
                os.path.realpath(first).casefold()
                == os.path.realpath(second).casefold()
            )
        if same:
            what = "folder" if first.is_dir() else "file"
            hint = " If its rows have both labels, give it as --both; if some have an outcome and "
            hint += "others a treatment, unjoined init makes two tables of it."
            raise TableError(
                f"{one} {str(first)!r} and {two} {str(second)!r} are the same {what}. Name a "
                "different one for each."
                + hint
                * ({one, two} == {"--outcomes", "--treatments"})
            )


def _is_table_in(folder: Path, path: Path) -> bool:
    """Tell whether a path is, or would be, among the tables that are read from a folder."""
    if path.is_dir() or not path.exists():
        inside = Path(os.path.realpath(folder)) in Path(os.path.realpath(path)).parents
        return inside and (path.is_dir() or table_ending(path) in ENDINGS)
    tables = (
        file
        for file in folder.rglob("*")
        if table_ending(file) in ENDINGS and file.is_file()
    )
    return any(file.samefile(path) for file in tables)


def _check_replaceable(option: str, path: Path, beginning: bytes) -> None:
    if not path.parent.is_dir():
        raise TableError(
            f"there is no folder {str(path.parent)!r} to write to ({option}). Create it first."
        )
    if path.is_dir():
        raise TableError(
            f"{option} {str(path)!r} is a folder; name a file to write to."
        )
    if not path.exists():
        return
    if not path.is_file():  # such as /dev/null, which must not be replaced by a file
        raise TableError(
            f"{option} {str(path)!r} is not an ordinary file. Name a file to write to."
        )
    with path.open("rb") as file:
        start = file.read(30 + len(SUMS))
    if start[30:] == SUMS:
        start = SUMS
    known = not start or start.startswith(beginning)
    if beginning == MODEL and start and known:  # a workbook is a zip file, too
        known = is_model_file(path)
    if not known:
        raise TableError(
            f"{option} {str(path)!r} exists and is not a {NAMES[beginning]}, so it is not "
            "replaced. Name another file, or delete this one first."
        )


def written_columns(model: Any) -> tuple[str, ...]:
    """Return the features of a model that text files are to be read in as they are written."""
    encoder = getattr(model, "encoder_", None)
    return () if encoder is None else tuple(encoder.text_columns)
