"""The command init: a file of settings from tables, saying what was guessed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from unjoined._typing import Frame
from unjoined._validation import TREATMENT, did_you_mean, label_codes, shown
from unjoined.cli.inputs import SETTINGS, Named, as_table, check_paths
from unjoined.cli.options import AsJson, Force, command
from unjoined.cli.show import console, print_json
from unjoined.data import (
    ENDINGS,
    Reading,
    database_tables,
    is_query,
    replace_file,
    scan_table,
    table_ending,
)
from unjoined.errors import LabelError, TableError

FIRST_ROWS = 2000  # of each table that are looked at
FEW = 10  # treatments, as a rule, at most
TREATMENTS = "treat mail sent send contact expos offer target campaign call letter arm group"
OUTCOMES = "outcome bought buy purchas visit conver spend sale sold respon revenue churn click"
POPULATIONS = "population region area city country state wave period store branch site market"
LIST = {"uplift", "rank", "treat"}  # columns of a list that score wrote


@dataclass(frozen=True, slots=True)
class Guess:
    """What the tables of a folder seem to be."""

    outcomes: dict[str, Named]  # by population; under "" if a column tells the population
    treatments: dict[str, Named]
    outcome: str
    treatment: str
    population: str | None
    people: Named | None  # a table without labels
    keep: str | None  # a column that seems to identify people
    words: tuple[str, ...] = ()  # treatments of which nobody but their owner knows what they mean

    def sentences(self) -> list[str]:
        """Say what was guessed."""
        lines = [
            f"{label!r} is the {kind}: {', '.join(str(table) for table in files.values())}."
            for kind, label, files in (
                ("outcome", self.outcome, self.outcomes),
                ("treatment", self.treatment, self.treatments),
            )
        ]
        if self.population is None:
            lines.append(f"Populations by the names of tables: {', '.join(self.outcomes)}.")
        else:
            lines.append(f"Populations by the column {self.population!r}.")
        if self.people is not None:
            lines.append(f"People to score: {self.people}, which has no label.")
        if self.words:
            lines.append(
                f"{self.treatment!r} holds {shown(self.words)}: say in the settings which means "
                "treated."
            )
        return lines

    def toml(self, folder: Path) -> str:
        """Return the settings, with paths as seen from a folder."""

        def of(table: Named) -> str:
            return _quoted(os.path.relpath(str(table), folder).replace(os.sep, "/"))

        lines = ["# Written by `unjoined init`: its guesses. Correct what is wrong.", ""]
        for kind, files in (("outcomes", self.outcomes), ("treatments", self.treatments)):
            if self.population is not None:
                lines.append(f"{kind} = {of(next(iter(files.values())))}")
            else:
                parts = ", ".join(f"{_quoted(name)} = {of(path)}" for name, path in files.items())
                lines.append(f"{kind} = {{ {parts} }}")
        lines += [f"outcome = {_quoted(self.outcome)}", f"treatment = {_quoted(self.treatment)}"]
        if self.population is not None:
            lines.append(f"population = {_quoted(self.population)}")
        if self.words:
            lines.append(f"treated = {_quoted('')}  # one of {', '.join(self.words)}")
        lines += [
            '# ignore = ["a_column"]  # columns that are not features',
            'model = "model.skops"',
        ]
        if self.people is not None:
            lines += [f"table = {of(self.people)}", "", "[score]", 'out = "list.csv"']
            lines += [] if self.keep is None else [f"keep = {_quoted(self.keep)}"]
            lines.append('# share = "30%"')
        return "\n".join(lines) + "\n"


@command("unjoined init", "unjoined init data/ --outcome bought --treatment mailed")
def init(
    tables: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Tables, folders of tables or a DuckDB database; default: this folder."
        ),
    ] = None,
    outcome: Annotated[str, typer.Option(metavar="COLUMN", help="Column with the outcome.")] = "",
    treatment: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column with the treatment.")
    ] = "",
    population: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column that names each row's population.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write the settings.")] = Path(
        "unjoined.toml"
    ),
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write a file of settings for your tables, and say what was guessed."""
    check_paths([], [("--out", out, SETTINGS)], force=force)
    if out.suffix.lower() != ".toml":
        raise TableError(f"--out {str(out)!r} must end in .toml.")
    files = _find(tables or [Path()])
    heads = {file: _head(file) for file in files}
    heads = {file: head for file, head in heads.items() if not {*head.column_names} >= LIST}
    guess = make_guess(heads, outcome, treatment, population)
    text = guess.toml(out.parent)
    replace_file(out, lambda file: file.write_text(text, "utf-8"))
    screen = console(quiet=as_json)
    for line in guess.sentences():
        screen.print(line)
    screen.print(f"Wrote {out}; correct it if a guess is wrong.")
    screen.print(f"Next: unjoined check --config {out}", soft_wrap=True)
    if as_json:
        print_json({"out": str(out), "guessed": guess.sentences(), "settings": text})


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _find(places: Iterable[Path]) -> list[Named]:
    """Return the tables that are named, and those in folders and databases that are named."""
    found: list[Named] = []
    for place in places:
        if not place.exists():
            raise TableError(f"there is no file or folder {str(place)!r}. Check the path.")
        if is_query(f"{place}:"):
            found += [as_table(f"{place}:{name}") for name in database_tables(place)]
            continue
        inside = [place]
        if place.is_dir():  # where text files are notes, as in folders that are read as tables
            inside = [file for file in sorted(place.iterdir()) if ".txt" not in file.suffixes]
        found += [file for file in inside if table_ending(file) in ENDINGS and file.is_file()]
    if len(found) < 2:
        raise TableError(
            f"found {len(found)} table{'s' * (len(found) != 1)} in "
            f"{', '.join(repr(str(place)) for place in places)}, and at least two are needed: one "
            f"with outcomes, one with treatments. Tables end in .csv, .parquet, .xlsx and the like."
        )
    return found


def _head(table: Named) -> Frame:
    """Return the first rows of a table."""
    for frame, _ in scan_table(table, str(table), Reading(FIRST_ROWS)):
        return frame
    raise TableError(f"{str(table)!r} has no rows.")


def _stem(table: Named) -> str:
    """Return the name of a table without its folder, database and ending."""
    if isinstance(table, Path):
        return table.name[: -len(table_ending(table))]
    return str(table).rpartition(":")[2]


def make_guess(
    heads: dict[Named, Frame], outcome: str, treatment: str, population: str | None
) -> Guess:
    """Tell from the first rows of tables what each of them is."""
    columns = {file: set(head.column_names) for file, head in heads.items()}
    places = {
        name: {file for file in heads if name in columns[file]}
        for name in sorted(set().union(*columns.values()))
    }
    outcome, treatment = _guess_labels(places, heads, outcome, treatment)
    with_outcome = [file for file in heads if outcome in columns[file]]
    with_treatment = [file for file in heads if treatment in columns[file]]
    if both := [file for file in with_outcome if file in with_treatment]:
        raise TableError(
            f"{str(both[0])!r} has both {outcome!r} and {treatment!r}: with joined labels ordinary "
            "uplift modelling is better. Name other columns, or leave this table out."
        )
    named, shared = _populations(with_outcome, with_treatment, population, heads)
    others = [file for file in heads if file not in {*with_outcome, *with_treatment}]
    person = max(others, key=lambda f: len(columns[f] & columns[with_outcome[0]]), default=None)
    words = _unclear([heads[file].column(treatment) for file in with_treatment])
    keep = _identifier(heads, person)
    return Guess(*named, outcome, treatment, shared, person, keep, words)


def _guess_labels(
    places: dict[str, set[Named]], heads: dict[Named, Frame], outcome: str, treatment: str
) -> tuple[str, str]:
    """Return the columns that are labels: in the tables of one kind alone, told by their names."""
    known = list(places)
    for option, name in (("--outcome", outcome), ("--treatment", treatment)):
        if name and (name not in places or len(places[name]) == len(heads)):
            raise TableError(
                f"{option} {name!r} must be a column of some tables and not of others"
                + (", and all have it." if name in places else did_you_mean(name, known))
            )
    if outcome and outcome == treatment:
        raise TableError(f"--outcome and --treatment both name {outcome!r}. Name two columns.")
    partners = {name: _partners(name, places) for name in known}
    some = [name for name in known if len(places[name]) < len(heads)]
    labels = [name for name in known if partners[name]] or some
    treatment = treatment or _by_name(partners.get(outcome) or labels, TREATMENTS)
    outcome = outcome or _by_name(partners.get(treatment) or labels, OUTCOMES)
    if treatment and not outcome and len(partners[treatment]) == 1:
        outcome = partners[treatment][0]
    few = [name for name in partners.get(outcome, ()) if _has_few_values(name, heads)]
    if outcome and not treatment and len(few) == 1:
        treatment = few[0]
    for option, name in (("--outcome", outcome), ("--treatment", treatment)):
        if not name:
            may_be = "columns that it may be are " + ", ".join(map(repr, labels))
            raise TableError(
                f"cannot tell which column is the {option[2:]}: "
                f"{may_be if labels else 'no two columns are in different tables, as labels are'}. "
                f"Name it with {option}."
            )
    return outcome, treatment


def _has_few_values(name: str, heads: dict[Named, Frame]) -> bool:
    """Tell whether a column may hold treatments, of which there are a few."""
    columns = (head.column(name) for head in heads.values() if name in head.column_names)
    return all(len(column.unique()) <= FEW for column in columns)


def _unclear(columns: Iterable[Any]) -> tuple[str, ...]:
    """Return a few treatments if they are not such as every program knows."""
    values = {v: None for column in columns for v in column.to_pylist() if v is not None}
    try:
        label_codes(values, TREATMENT)
    except LabelError:
        return tuple(map(str, values))[:5]
    return ()


def _partners(name: str, places: dict[str, set[Named]]) -> list[str]:
    """Return columns of tables without this one: if it is a label, the other is among them."""
    apart = [other for other, where in places.items() if not where & places[name]]
    return [o for o in apart if len(places[o]) == len(places[name])] or apart


def _by_name(names: Iterable[str], hints: str) -> str:
    """Return the one column whose name holds one of some words, or nothing."""
    found = [name for name in names if any(hint in name.lower() for hint in hints.split())]
    return found[0] if len(found) == 1 else ""


def _populations(
    outcomes: list[Named], treatments: list[Named], column: str | None, heads: dict[Named, Frame]
) -> tuple[tuple[dict[str, Named], dict[str, Named]], str | None]:
    """Tell populations by the names of files, or by a column of two tables."""
    several = not len(outcomes) == len(treatments) == 1
    if several and column is not None:
        raise TableError(
            "--population is for one table with outcomes and one with treatments, but there are "
            f"{len(outcomes)} and {len(treatments)}. Leave it out, or name two tables."
        )
    if not several:
        if column is None:
            both = set(heads[outcomes[0]].column_names) & set(heads[treatments[0]].column_names)
            column = _by_name(both, POPULATIONS)
        if not column:
            raise TableError(
                "one table has outcomes and one has treatments; name the column that tells "
                "populations apart with --population."
            )
        return ({"": outcomes[0]}, {"": treatments[0]}), column
    first, second = (
        _differing([_stem(table) for table in files]) for files in (outcomes, treatments)
    )
    if sorted(first) != sorted(second) or len(first) < 2:
        raise TableError(
            "cannot tell populations by the names of tables: outcomes are in "
            f"{', '.join(map(str, outcomes))} and treatments in "
            f"{', '.join(map(str, treatments))}. Name them alike, such as "
            "sales_north.csv and mail_north.csv, or write the settings yourself."
        )
    named = dict(zip(first, outcomes, strict=True)), dict(zip(second, treatments, strict=True))
    return named, None


def _differing(names: list[str]) -> list[str]:
    """Return what is left of names without the words that all of them have in common."""
    words = [re.split(r"[ _.-]+", name) for name in names]
    common = set.intersection(*map(set, words)) if words else set()
    left = ["_".join(word for word in name if word not in common) for name in words]
    return left if len({*left}) == len(names) and all(left) else []


def _identifier(heads: dict[Named, Frame], person: Named | None) -> str | None:
    """Return a column of people that seems to identify them."""
    if person is None:
        return None
    head: Any = heads[person]
    for name in head.column_names:
        values = head.column(name).to_pylist()
        whole = len(values) >= 50 and all(isinstance(value, int | str) for value in values)
        named = re.search(r"(^|[ _.-])(id|key|no|nr|number|email)$", name.lower())
        if (named or whole) and len({*values}) == len(values):
            return str(name)
    return None
