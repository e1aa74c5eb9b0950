"""The command init: a file of settings from tables, saying what was guessed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from itertools import chain, combinations, permutations
from pathlib import Path
from typing import Annotated, Any

import narwhals as nw
import typer

from unjoined._support import import_extra
from unjoined._typing import Frame
from unjoined._validation import TREATMENT, did_you_mean, label_codes, shown
from unjoined.cli.inputs import SETTINGS, Named, as_table, check_paths
from unjoined.cli.options import AsJson, Force, Outcome, Population, Treated
from unjoined.cli.program import Config, command
from unjoined.cli.show import console, print_json
from unjoined.data.columns import column_values
from unjoined.data.files import ENDINGS, table_ending
from unjoined.data.looks import says_ended, unfinished
from unjoined.data.queries import SqlQuery, database_tables, is_query
from unjoined.data.survey import shared_by
from unjoined.data.tables import scan_table
from unjoined.data.write import replace_file
from unjoined.errors import LabelError, TableError

FIRST_ROWS = 2000  # of each table that are looked at
FEW = 10  # treatments, as a rule, at most
# Parts of the names of columns, files and folders.
TREATMENTS = (
    "treat mail sent send contact expos offer target campaign call letter arm group coupon therap "
    "interven behand brief anruf kontakt aktion kampagne angebot gutschein werbung trait campagne"
)
OUTCOMES = (
    "outcome bought buy purchas visit conver spend sale sold respon revenue churn click result "
    "recover readmi ergebnis kauf umsatz erloes besuch kuendig bestell antwort achat vente"
)
POPULATIONS = (
    "population region area city country state wave period store branch site market hospital "
    "gebiet bezirk standort filiale welle klinik"
)
LIST = {"uplift", "rank", "treat"}  # columns of a list that score wrote


@command("unjoined init", "unjoined init data/ --outcome bought --treatment mailed")
def init(
    tables: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Tables, folders of tables, workbooks or databases; default: this folder."
        ),
    ] = None,
    outcome: Outcome = "",
    treatment: Annotated[
        str,
        typer.Option(
            "--treatment", metavar="COLUMN", help="Column with the treatment."
        ),
    ] = "",
    population: Population = None,
    treated: Treated = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="Where to write the settings.")
    ] = Path("unjoined.toml"),
    force: Force = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Write a file of settings for your tables, and say what was guessed."""
    check_paths([], [("--out", out, SETTINGS)], force=force)
    if out.suffix.lower() != ".toml":
        raise TableError(f"--out {str(out)!r} must end in .toml.")
    places = tables or [Path()]
    named = (outcome, treatment, population, treated or [])
    heads = _heads(places)
    try:
        settings, unclear = make_guess(heads, *named)
    except TableError:
        parts = [
            part
            for table, head in heads.items()
            for part in _apart(table, head).items()
        ]
        if len(parts) == len(heads):
            raise
        heads = dict(parts)
        settings, unclear = make_guess(heads, *named)
    text = _toml(settings, unclear, out.parent)
    guessed = _sentences(settings, unclear) + _unfinished_times(settings, heads)
    replace_file(out, lambda file: file.write_text(text, "utf-8"))
    screen = console(quiet=as_json)
    for line in guessed:
        screen.print(line)
    screen.print(f"Wrote {out}; correct it if a guess is wrong.")
    screen.print(f"Next: unjoined check --config {out}", soft_wrap=True)
    if as_json:
        print_json({"out": str(out), "guessed": guessed, "settings": text})


# Settings that were guessed: tables by population or, with a column of populations, one table;
# columns; ``treated`` words; ``table`` of people without labels and ``keep``, a column that seems
# to identify them.
Settings = dict[str, Any]


def _sentences(settings: Settings, unclear: Sequence[str]) -> list[str]:
    """Say what was guessed, and which treatments nobody but their owner knows the meaning of."""
    lines = []
    for kind in ("outcome", "treatment"):
        tables = settings[f"{kind}s"]
        files = tables.values() if isinstance(tables, dict) else [tables]
        lines.append(f"{settings[kind]!r} is the {kind}: {', '.join(map(str, files))}.")
    if "population" in settings:
        lines.append(f"Populations by the column {settings['population']!r}.")
    else:
        lines.append(
            f"Populations by the names of tables: {', '.join(settings['outcomes'])}."
        )
    if "cluster" in settings:
        lines.append(
            f"Rows of the same {settings['cluster']!r} depend on each other: they are a cluster."
        )
    if "table" in settings:
        lines.append(f"People to score: {settings['table']}, which has no label.")
    if unclear:
        lines.append(
            f"{settings['treatment']!r} holds {shown(unclear)}: say in the settings which means "
            "treated."
        )
    return lines


def _unfinished_times(settings: Settings, heads: dict[Named, Frame]) -> list[str]:
    """Say that the outcome is a time that had not ended in all rows, if so."""
    tables = settings["outcomes"]
    named = tables.values() if isinstance(tables, dict) else [tables]
    frames = [nw.from_native(heads[table], eager_only=True) for table in named]
    outcome = settings["outcome"]
    elsewhere = {n for table in {*heads} - {*named} for n in heads[table].column_names}
    columns = {
        name: [column_values(f.get_column(name), strict=False) for f in frames]
        for name in frames[0].columns
        if name not in elsewhere
        and all(name in frame.columns for frame in frames)
        and (name == outcome or says_ended(name, outcome) or says_ended(outcome, name))
    }
    found = unfinished(outcome, columns)
    return [f"{found[1][:1].upper()}{found[1][1:]}"] if found else []


def _toml(settings: Settings, unclear: Sequence[str], folder: Path) -> str:
    """Return the settings, with paths as seen from a folder."""

    def said(value: Any) -> str:
        if isinstance(value, dict):
            return (
                f"{{ {', '.join(f'{said(k)} = {said(v)}' for k, v in value.items())} }}"
            )
        if isinstance(value, SqlQuery) and value.database is None:
            value = value.query
        elif isinstance(value, Path | SqlQuery):
            value = os.path.relpath(str(value), folder).replace(os.sep, "/")
        return json.dumps(
            value, ensure_ascii=False
        )  # as TOML writes text and lists of text

    lines = ["# Written by `unjoined init`: its guesses. Correct what is wrong.", ""]
    lines += [
        f"{k} = {said(v)}" for k, v in settings.items() if k not in ("table", "keep")
    ]
    if unclear:
        lines.append(f'treated = ""  # one of {", ".join(unclear)}')
    lines += [
        '# ignore = ["a_column"]  # columns that are not features',
        'model = "model.skops"',
    ]
    if "table" in settings:
        lines += [
            f"table = {said(settings['table'])}",
            "",
            "[score]",
            'out = "list.csv"',
        ]
        lines += [f"keep = {said(settings['keep'])}"] if "keep" in settings else []
        lines.append('# share = "30%"')
    return "\n".join(lines) + "\n"


def _heads(places: Iterable[Path]) -> dict[Named, Frame]:
    """Return the first rows of all tables: those that are named, and those in what is named."""
    heads: dict[Named, Frame] = {}
    for table in [table for place in places for table in _tables_at(place)]:
        if (head := _head(table)) is not None and not {*head.column_names} >= LIST:
            heads[table] = head
    if len(heads) < 2 and not any(len(_apart(*item)) > 1 for item in heads.items()):
        raise TableError(
            f"found {len(heads)} table{'s' * (len(heads) != 1)} in "
            f"{', '.join(repr(str(place)) for place in places)}, and at least two are needed: one "
            f"with outcomes, one with treatments. Tables end in .csv, .parquet, .xlsx and the like."
        )
    return heads


def _tables_at(place: Path) -> list[Named]:
    """Return the tables of a folder and its folders, a workbook or a database, or one table."""
    if not place.exists():
        raise TableError(f"there is no file or folder {str(place)!r}. Check the path.")
    if not place.is_dir():
        if not is_query(f"{place}:"):
            return [place] if table_ending(place) in ENDINGS and place.is_file() else []
        names = database_tables(place)
        one = len(names) == 1 and table_ending(place) in ENDINGS
        return [place] if one else [as_table(f"{place}:{name}") for name in names]
    tables = [
        file
        for file in sorted(place.rglob("*"))
        if file.is_file()
        and not any(part[0] in "._" for part in file.relative_to(place).parts)
        # Text files are notes here, as in folders that are read as tables.
        and ".txt" not in file.suffixes
        and table_ending(file) in ENDINGS
    ]
    parted = {f.parent for f in tables if PART.match(f.name) and f.parent != place}
    tables = [file for file in tables if file.parent not in parted]
    return [*sorted(parted), *(table for file in tables for table in _tables_at(file))]


PART = re.compile(
    r"(part|chunk)?[-_.]?[0-9]{2,}[-_.a-z0-9]*$", re.IGNORECASE
)  # of a folder


def _head(table: Named) -> Frame | None:
    """Return the first rows of a table; None for a sheet that is none."""
    for frame, _ in scan_table(table, str(table), FIRST_ROWS):
        return frame if isinstance(table, Path) or frame.num_columns > 1 else None
    if isinstance(table, SqlQuery):
        return None
    raise TableError(f"{str(table)!r} has no rows.")


def _apart(table: Named, head: Frame) -> dict[Named, Frame]:
    """Return a table as it is, or as two if some rows have one label and the others another."""
    compute = import_extra("pyarrow.compute", extra="cli")
    there = {name: compute.is_valid(head.column(name)) for name in head.column_names}
    gappy = [name for name in there if 0 < head.column(name).null_count < len(head)]
    for one, other in combinations(gappy, 2):
        if not compute.all(compute.xor(there[one], there[other])).as_py():
            continue
        source = str(table).rpartition(":")[2] if isinstance(table, SqlQuery) else None
        if isinstance(table, Path):
            if table_ending(table) not in (".csv", ".parquet", ".pq"):
                raise TableError(
                    f"{str(table)!r} has {one!r} in some rows and {other!r} in the others. Write "
                    "them to two tables, each with one of the two columns."
                )
            source = "'" + str(table.absolute()).replace("'", "''") + "'"
        else:
            source = '"' + str(source).replace('"', '""') + '"'
        found: dict[Named, Frame] = {}
        for kept, left in ((one, other), (other, one)):
            x, y = ('"' + name.replace('"', '""') + '"' for name in (left, kept))
            text = f"SELECT * EXCLUDE ({x}) FROM {source} WHERE {y} IS NOT NULL"  # noqa: S608
            part = head.filter(there[kept]).drop_columns([left])
            found[SqlQuery(text, getattr(table, "database", None))] = part
        return found
    return {table: head}


def _words(table: Named, heads: Iterable[Named]) -> list[str]:
    """Return the words of a table's name, with those of folders that not all tables are in."""
    paths = [
        str(one) if isinstance(one, Path) else str(one.database or "") for one in heads
    ]
    text = str(table)
    if isinstance(table, Path):
        text = (
            text[: -len(table_ending(table))]
            if table_ending(table) in ENDINGS
            else text
        )
    root = os.path.commonpath(
        [os.path.dirname(os.path.abspath(path)) for path in paths]
    )
    if isinstance(table, Path) or table.database is not None:
        text = os.path.relpath(os.path.abspath(text), root)
    return [word for word in re.split(r"[ _./:\\-]+", text) if word]


def make_guess(
    heads: dict[Named, Frame],
    outcome: str,
    treatment: str,
    population: str | None,
    treated: Sequence[str],
) -> tuple[Settings, list[str]]:
    """Tell from the first rows of tables what each of them is, and which treatments are unclear."""
    columns = {file: set(head.column_names) for file, head in heads.items()}
    outcome, treatment = _guess_labels(heads, outcome, treatment)
    with_outcome = [file for file in heads if outcome in columns[file]]
    with_treatment = [file for file in heads if treatment in columns[file]]
    if both := [file for file in with_outcome if file in with_treatment]:
        raise TableError(
            f"{str(both[0])!r} has both {outcome!r} and {treatment!r}: with joined labels ordinary "
            "uplift modelling is better. Name other columns, or leave this table out."
        )
    _refuse_lists(with_treatment, treatment, heads)
    settings = _populations(with_outcome, with_treatment, population, heads)
    settings |= {"outcome": outcome, "treatment": treatment}
    others = [file for file in heads if file not in {*with_outcome, *with_treatment}]
    person = max(
        others, key=lambda f: len(columns[f] & columns[with_outcome[0]]), default=None
    )
    held = [heads[file].column(treatment) for file in with_treatment]
    values = list(
        dict.fromkeys(str(v) for column in held for v in column.unique().to_pylist())
    )
    if unknown := [word for word in treated if word not in values]:
        raise TableError(
            f"--treated {unknown[0]!r} is not among the first values of {treatment!r}, which are "
            f"{shown(values)}{did_you_mean(unknown[0], values)}"
        )
    # In the order in which people read them.
    order = ("outcomes", "treatments", "outcome", "treatment", "population")
    settings = {name: settings[name] for name in order if name in settings}
    settings |= {"treated": list(treated)} if treated else {}
    if shared := _shared(
        [heads[file] for file in (*with_outcome, *with_treatment)],
        {outcome, treatment, population},
    ):
        settings["cluster"] = shared
    if person is not None:
        settings["table"] = person
        if keep := _identifier(heads[person]):
            settings["keep"] = keep
    return settings, [] if treated else _unclear(held)


def _guess_labels(
    heads: dict[Named, Frame], outcome: str, treatment: str
) -> tuple[str, str]:
    """Return the columns that are labels: in the tables of one kind alone, told by names."""
    places: dict[str, set[Named]] = {}
    for file, head in heads.items():
        for name in head.column_names:
            places.setdefault(name, set()).add(file)
    for option, name in (("--outcome", outcome), ("--treatment", treatment)):
        if name and (name not in places or len(places[name]) == len(heads)):
            raise TableError(
                f"{option} {name!r} must be a column of some tables and not of others"
                + (
                    ", and all have it."
                    if name in places
                    else did_you_mean(name, list(places))
                )
            )
    if outcome and outcome == treatment:
        raise TableError(
            f"--outcome and --treatment both name {outcome!r}. Name two columns."
        )
    kinds = {file: _leans(" ".join(_words(file, heads))) for file in heads}
    counts = {name: _distinct(name, heads) for name in places}
    found: dict[tuple[str, str], float] = {}
    for y, t in permutations(sorted(places), 2):
        if (
            (outcome and y != outcome)
            or (treatment and t != treatment)
            or places[y] & places[t]
        ):
            continue
        if (not treatment and counts[t] > FEW) or (
            not outcome and _identifies(y, heads)
        ):
            continue
        likely = 2.0 * (_leans(y) - _leans(t))
        likely += sum(3.0 * kinds[file] / len(places[y]) for file in places[y])
        likely -= sum(3.0 * kinds[file] / len(places[t]) for file in places[t])
        # Amounts are outcomes, and what has two values beside them is the treatment.
        likely += (counts[t] <= 2 < counts[y]) - (counts[y] <= 2 < counts[t])
        likely += (len(places[y]) == len(places[t])) + 0.4 * len(
            places[y] | places[t]
        ) / len(heads)
        found[y, t] = likely
    best = max(found.values(), default=0.0)
    near = [pair for pair, likely in found.items() if likely > best - 0.5]
    if len(near) != 1:
        labels = sorted(
            {name for pair in near or found for name in pair} - {outcome, treatment}
        )
        unsure = len({y for y, _ in near}) != 1 and not outcome
        option = "--outcome" if unsure else "--treatment"
        may_be = "columns that it may be are " + ", ".join(map(repr, labels))
        lists = [str(file) for file, kind in kinds.items() if kind < 0]
        note = (
            f" If {shown(lists)} only list those who were treated, give everyone instead, with a "
            "column of 1 for them and 0 for the others."
        )
        raise TableError(
            f"cannot tell which column is the {option[2:]}: "
            f"{may_be if labels else 'no two columns are in different tables, as labels are'}. "
            f"Name it with {option}." + note * (not near and bool(lists))
        )
    return near[0]


def _leans(text: str) -> float:
    """Return 1 if words speak for an outcome, -1 for a treatment, and 0 for neither or both."""
    plain = text.lower().replace("ü", "ue").replace("ö", "oe")
    speaks = [
        any(hint in plain for hint in hints.split()) for hints in (OUTCOMES, TREATMENTS)
    ]
    return float(speaks[0]) - float(speaks[1])


def _distinct(name: str, heads: dict[Named, Frame]) -> int:
    """Return how many values a column has in the first rows of tables, the most of any."""
    columns = (
        head.column(name) for head in heads.values() if name in head.column_names
    )
    return max(len(column.drop_null().unique()) for column in columns)


def _identifies(name: str, heads: dict[Named, Frame]) -> bool:
    """Tell whether a column cannot be an outcome: an id, or words that are no numbers."""
    for head in heads.values():
        if name in head.column_names:
            values = head.column(name).drop_null().to_pylist()
            if (
                len(values) >= 50
                and len({*values}) == len(values)
                and isinstance(values[0], int)
            ):
                return True
            if len({*values}) > 2 and any(isinstance(value, str) for value in values):
                return True
    return False


def _refuse_lists(
    tables: list[Named], treatment: str, heads: dict[Named, Frame]
) -> None:
    """Refuse tables all of whose rows were treated alike: lists of those who were treated."""
    found: set[Any] = set()
    for table in tables:
        for frame, _ in chain(
            [(heads[table], None)], scan_table(table, str(table), WHOLE)
        ):
            found |= {*frame.column(treatment).drop_null().unique().to_pylist()}
            if len(found) > 1:
                return
    raise TableError(
        f"{treatment!r} is {next(iter(found), None)!r} in every row of "
        f"{', '.join(map(str, tables))}. A list of those who were treated does not say who was "
        "not: give everyone of each population, or a random sample, with 1 for those who were "
        "treated and 0 for the others."
    )


WHOLE = 100_000


def _unclear(columns: Iterable[Any]) -> list[str]:
    """Return a few treatments if they are not such as every program knows."""
    values = {
        v: None for column in columns for v in column.to_pylist() if v is not None
    }
    try:
        label_codes(values, TREATMENT)
    except LabelError:
        return [str(value) for value in values][:5]
    return []


def _by_name(names: Iterable[str], hints: str) -> str:
    """Return the one column whose name holds one of some words, or nothing."""
    found = [
        name for name in names if any(hint in name.lower() for hint in hints.split())
    ]
    return found[0] if len(found) == 1 else ""


def _populations(
    outcomes: list[Named],
    treatments: list[Named],
    column: str | None,
    heads: dict[Named, Frame],
) -> Settings:
    """Tell populations by the names of files, or by a column of two tables."""
    several = not len(outcomes) == len(treatments) == 1
    if several and column is not None:
        raise TableError(
            "--population is for one table with outcomes and one with treatments, but there are "
            f"{len(outcomes)} and {len(treatments)}. Leave it out, or name two tables."
        )
    if not several:
        if column is None:
            both = set(heads[outcomes[0]].column_names) & set(
                heads[treatments[0]].column_names
            )
            column = _by_name(both, POPULATIONS)
        if not column:
            raise TableError(
                "one table has outcomes and one has treatments; name the column that tells "
                "populations apart with --population."
            )
        return {
            "outcomes": outcomes[0],
            "treatments": treatments[0],
            "population": column,
        }
    first, second = (
        _differing([_words(table, heads) for table in files])
        for files in (outcomes, treatments)
    )
    plain = (sorted(map(str.casefold, names)) for names in (first, second))
    if next(plain) != next(plain) or len(first) < 2:
        raise TableError(
            "cannot tell populations by the names of tables: outcomes are in "
            f"{', '.join(map(str, outcomes))} and treatments in "
            f"{', '.join(map(str, treatments))}. Name them alike, such as "
            "sales_north.csv and mail_north.csv, or write the settings yourself."
        )
    return {
        "outcomes": dict(zip(first, outcomes, strict=True)),
        "treatments": dict(zip(second, treatments, strict=True)),
    }


def _differing(words: list[list[str]]) -> list[str]:
    """Return what is left of names without the words that all of them have in common."""
    common = set.intersection(*map(set, words)) if words else set()
    left = ["_".join(word for word in name if word not in common) for name in words]
    return left if len({*left}) == len(words) and all(left) else []


def _shared(heads: list[Frame], taken: set[Any]) -> str | None:
    """Return a column of all tables whose ids come up several times in one of them."""
    for name in heads[0].column_names:
        if name in taken or any(name not in head.column_names for head in heads):
            continue
        for head in heads:
            column = head.column(name).combine_chunks().dictionary_encode()
            codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False)
            if shared_by(name, codes) is not None:
                return str(name)
    return None


def _identifier(head: Frame) -> str | None:
    """Return a column of people that seems to identify them."""
    for name in head.column_names:
        values = head.column(name).to_pylist()
        whole = len(values) >= 50 and all(
            isinstance(value, int | str) for value in values
        )
        named = re.search(r"(^|[ _.-])(id|key|no|nr|number|email)$", name.lower())
        if (named or whole) and len({*values}) == len(values):
            return str(name)
    return None
