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
from unjoined.cli.program import LABELS, Config, command
from unjoined.cli.show import console, print_json
from unjoined.data.chunks import ONLY_TREATED
from unjoined.data.columns import column_values
from unjoined.data.files import ENDINGS, table_ending
from unjoined.data.looks import says_ended, unfinished
from unjoined.data.queries import SqlQuery, database_tables, is_query
from unjoined.data.survey import names_people, shared_by
from unjoined.data.tables import scan_table
from unjoined.data.write import replace_file
from unjoined.errors import LabelError, TableError
from unjoined.words import less_may_be_better

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
    "population region area city country state wave period store shop branch site market hospital "
    "gebiet bezirk standort filiale welle klinik"
)
CHANCES = "chance prob propens score rate"
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
        if kind in settings and f"{kind}s" in settings:
            files = _files_of(settings[f"{kind}s"])
            more = ", of which more is better" if kind == "outcome" else ""
            lines.append(f"{settings[kind]!r} is the {kind}{more}: {files}.")
    if doubt := less_may_be_better(settings.get("outcome", "")):
        lines.append(f"Look out: {doubt}")
    if "both" in settings:
        lines.append(f"Both labels are in {_files_of(settings['both'])}.")
    if "policies" in settings:
        policies = settings["policies"]
        lines.append(
            f"{shown({*policies.values()})} is taken for the known chance of treatment of "
            f"{', '.join(policies)}, of whom there is no treatment table. If it is something else, "
            "write the chance in its place, such as 0.3."
        )
    if "population" in settings:
        lines.append(f"Populations by the column {settings['population']!r}.")
    else:
        names = settings.get("outcomes") or settings["both"]
        lines.append(f"Populations by the names of tables: {', '.join(names)}.")
    if "cluster" in settings:
        lines.append(
            f"Rows of the same {settings['cluster']!r} depend on each other: they are a cluster."
        )
    if "table" in settings:
        lines.append(f"People to score: {settings['table']}, which has no label.")
    return lines + _of_treatments(settings, unclear)


def _of_treatments(settings: Settings, unclear: Sequence[str]) -> list[str]:
    """Say what treatments were taken for, if not for yes and no."""
    lines = []
    if "control" in settings:
        lines.append(
            f"{settings['treatment']!r} names several treatments; {settings['control']!r} means "
            "none. To hold them all together against none, write treated = [...] in its place."
        )
    if "dose" in settings:
        lines.append(
            f"{settings['treatment']!r} holds amounts: uplift is what one unit more does."
        )
    if unclear:
        ask = "which means treated, or which is none (control) if there are several"
        if _are_numbers(unclear):
            ask = "whether these are amounts (dose) or codes of treatments (control)"
        lines.append(
            f"{settings['treatment']!r} holds {shown(unclear)}: say in the settings {ask}."
        )
    return lines


def _are_numbers(values: Iterable[str]) -> bool:
    return all(re.fullmatch(r"-?[0-9.]+", value) for value in values)


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


def _files_of(tables: Any) -> str:
    """Return the files of a setting, which has one or one for each population."""
    files = tables.values() if isinstance(tables, dict) else [tables]
    return ", ".join(map(str, files))


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
    if unclear and _are_numbers(unclear):
        lines.append("# dose = true  # if treatments are amounts")
        lines.append(
            f"# control = {said(unclear[0])}  # if they are codes; the one for none"
        )
    elif unclear:
        lines.append(f'treated = ""  # one of {", ".join(unclear)}')
    lines += [
        '# ignore = ["a_column"]  # columns that are not features',
        'model = "model.skops"',
    ]
    lines += [
        '# unit = "purchases"  # what outcomes are called, and currency = "EUR"',
        "# value = 8  # of one unit of the outcome; cost = 0.5 of treating a person",
        '# share = "30%"  # whom to treat, or budget = 300; default: all who are worth it',
    ]
    if "table" in settings:
        lines.append(f"table = {said(settings['table'])}")
        lines += [f"keep = {said(settings['keep'])}"] if "keep" in settings else []
        lines += ["", "[score]", 'out = "list.csv"']
    return "\n".join(lines) + "\n"


def _heads(places: Iterable[Path]) -> dict[Named, Frame]:
    """Return the first rows of all tables: those that are named, and those in what is named."""
    heads: dict[Named, Frame] = {}
    for table in [table for place in places for table in _tables_at(place)]:
        if (head := _head(table)) is not None and not {*head.column_names} >= LIST:
            heads[table] = head
    enough = len(heads) > 1 or any(map(_chances, heads.values()))
    if not enough and not any(len(_apart(*item)) > 1 for item in heads.items()):
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
    both = [file for file in heads if {outcome, treatment} <= columns[file]]
    with_outcome, with_treatment = (
        [file for file in heads if label in columns[file] and file not in both]
        for label in (outcome, treatment)
    )
    if both and not (with_outcome or with_treatment):
        raise TableError(
            f"{str(both[0])!r} has both {outcome!r} and {treatment!r}: with joined labels ordinary "
            "uplift modelling is better. Name other columns, or leave this table out. If all you "
            "have are such tables, unjoined fit takes them as well, with --both."
        )
    if with_treatment:
        _refuse_lists(with_treatment, treatment, heads)
    settings = _populations(with_outcome, with_treatment, both, population, heads)
    settings["outcome"] = outcome
    if treatment:
        settings["treatment"] = treatment
    labelled = [*with_outcome, *with_treatment, *both]
    others = [file for file in heads if file not in labelled]
    person = max(
        others, key=lambda f: len(columns[f] & columns[labelled[0]]), default=None
    )
    held = [heads[file].column(treatment) for file in (*with_treatment, *both)]
    values = list(
        dict.fromkeys(str(v) for column in held for v in column.unique().to_pylist())
    )
    if unknown := [word for word in treated if word not in values]:
        raise TableError(
            f"--treated {unknown[0]!r} is not among the first values of {treatment!r}, which are "
            f"{shown(values)}{did_you_mean(unknown[0], values)}"
        )
    # In the order in which people read them.
    order = ("outcomes", "treatments", "both", "policies", *LABELS[:3])
    settings = {name: settings[name] for name in order if name in settings}
    settings |= {"treated": list(treated)} if treated else {}
    if shared := _shared(
        [heads[file] for file in labelled],
        {outcome, treatment, population, *settings.get("policies", {}).values()},
    ):
        settings["cluster"] = shared
    if person is not None:
        settings["table"] = person
        if keep := _identifier(heads[person]):
            settings["keep"] = keep
    if treated:
        return settings, []
    kind, unclear = _treatments(held)
    return settings | kind, unclear


def _guess_labels(
    heads: dict[Named, Frame], outcome: str, treatment: str
) -> tuple[str, str]:
    """Return the columns that are labels: in the tables of one kind alone, told by names.

    Some tables may have both beside tables that have one. The treatment is "" if there is none, but
    a column that looks like a chance of it.
    """
    places: dict[str, set[Named]] = {}
    for file, head in heads.items():
        for name in head.column_names:
            places.setdefault(name, set()).add(file)
    if outcome and treatment and places.get(outcome) == places.get(treatment):
        return outcome, treatment  # which is told of
    _check_named(places, heads, outcome, treatment)
    kinds = {file: _leans(" ".join(_words(file, heads))) for file in heads}
    counts = {name: _distinct(name, heads) for name in places}
    found: dict[tuple[str, str], float] = {}
    for y, t in permutations(sorted(places), 2):
        if (
            (outcome and y != outcome)
            or (treatment and t != treatment)
            or not _may_be_labels(places[y], places[t], len(heads))
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
        found[y, t] = likely - bool(places[y] & places[t])
    if not found and (pair := _joined_or_known(heads, places, outcome, treatment)):
        return pair
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
        note = f" {ONLY_TREATED.replace('it only lists', f'{shown(lists)} only list')}"
        raise TableError(
            f"cannot tell which column is the {option[2:]}: "
            f"{may_be if labels else 'no two columns are in different tables, as labels are'}. "
            f"Name it with {option}."
            + note * (not near and bool(lists))
            + KNOWN_INSTEAD.format("NAME") * (not near)
        )
    return near[0]


def _check_named(
    places: dict[str, set[Named]],
    heads: dict[Named, Frame],
    outcome: str,
    treatment: str,
) -> None:
    """Refuse names of labels that are no columns, or columns of all tables."""
    known = {file for file, head in heads.items() if _chances(head)}
    for option, name in (("--outcome", outcome), ("--treatment", treatment)):
        alone = len(places.get(name, ())) == len(heads) and not known
        if name and (name not in places or alone):
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


KNOWN_INSTEAD = (
    " If the chance of treatment is known, no treatment table is needed: write policies = {{ {} = "
    "0.3 }} in the settings, or the name of a column of the outcome table in place of the number."
)


def _may_be_labels(outcomes: set[Named], treatments: set[Named], n: int) -> bool:
    """Tell whether tables that have two columns may have them as labels, of ``n`` tables."""
    both = outcomes & treatments
    if not both:
        return True
    return outcomes != both != treatments and max(len(outcomes), len(treatments)) < n


def _joined_or_known(
    heads: dict[Named, Frame],
    places: dict[str, set[Named]],
    outcome: str,
    treatment: str,
) -> tuple[str, str] | None:
    """Return labels that are always together, or an outcome beside a known chance of treatment."""
    outcomes = [outcome] if outcome else [y for y in places if _leans(y) > 0.0]
    treatments = [treatment] if treatment else [t for t in places if _leans(t) < 0.0]
    pairs = [(y, t) for y in outcomes for t in treatments if places[y] == places[t]]
    if len(pairs) == 1:
        return pairs[0]
    known = {file for file, head in heads.items() if _chances(head)}
    outcomes = [y for y in outcomes if places[y] & known]
    return (outcomes[0], "") if len(outcomes) == 1 and not treatment else None


def _chances(head: Frame) -> list[str]:
    """Return columns that look like chances of treatment: by name, and of values from 0 to 1."""
    found = []
    for name in head.column_names:
        values = [v for v in head.column(name).to_pylist() if v is not None]
        if (
            any(hint in name.lower() for hint in CHANCES.split())
            and all(isinstance(v, int | float) for v in values)
            and all(0.0 <= v <= 1.0 for v in values)
            and not {*values} <= {0, 1}
        ):
            found.append(str(name))
    return found


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


def _treatments(columns: Iterable[Any]) -> tuple[Settings, list[str]]:
    """Tell amounts and several treatments, or return a few values that only their owner knows."""
    values = {
        v: None for column in columns for v in column.to_pylist() if v is not None
    }
    some = [str(value) for value in values][:5]
    try:
        codes = {*label_codes(values, TREATMENT).values()}
    except LabelError:
        none = [v for v in values if NONE.match(str(v))]
        several = len(values) > 2 and len(none) == 1
        return ({"control": str(none[0])}, []) if several else ({}, some)
    if codes <= {0.0, 1.0} or codes <= {-1.0, 1.0} or codes <= {0.0, 1.0, -1.0}:
        return {}, []
    is_amount = len(codes) > MOST_CODES or any(code % 1.0 for code in codes)
    return ({"dose": True}, []) if is_amount else ({}, some)


NONE = re.compile(
    r"(no|none|not|nothing|control|untreated|kein\w*|ohne|nicht\w*|sans|aucun\w*|ningun\w*)\b",
    re.IGNORECASE,
)
MOST_CODES = 6  # of treatments; more numbers are amounts


def _by_name(names: Iterable[str], hints: str) -> str:
    """Return the one column whose name holds one of some words, or nothing."""
    found = [
        name for name in names if any(hint in name.lower() for hint in hints.split())
    ]
    return found[0] if len(found) == 1 else ""


def _populations(
    outcomes: list[Named],
    treatments: list[Named],
    both: list[Named],
    column: str | None,
    heads: dict[Named, Frame],
) -> Settings:
    """Tell populations by the names of files, or by a column of one table of each kind."""
    kinds = {"outcomes": outcomes, "treatments": treatments, "both": both}
    kinds = {kind: tables for kind, tables in kinds.items() if tables}
    several = max(map(len, kinds.values())) > 1
    if several and column is not None:
        raise TableError(
            "--population is for one table with outcomes and one with treatments, but there are "
            f"{len(outcomes)} and {len(treatments)}. Leave it out, or name two tables."
        )
    if not several:
        tables = [of[0] for of in kinds.values()]
        if column is None:
            shared = [{*heads[table].column_names} for table in tables]
            column = _by_name(set.intersection(*shared), POPULATIONS)
        if column:
            return _by_column({kind: of[0] for kind, of in kinds.items()}, column)
        if len(kinds) > 1:
            raise TableError(
                "one table has outcomes and one has treatments; name the column that tells "
                "populations apart with --population."
            )
    return _by_files(outcomes, treatments, both, heads)


def _by_column(tables: Settings, column: str) -> Settings:
    """Return one table of each kind, whose rows name their population."""
    settings = tables | {"population": column}
    if "treatments" in tables or "both" in tables:
        return settings
    table = tables["outcomes"]
    names: dict[str, str] = {}
    for frame, _ in scan_table(table, str(table), WHOLE):
        chance = _chances(frame.slice(0, FIRST_ROWS))
        for name in frame.column(column).drop_null().unique().to_pylist():
            names.setdefault(str(name), *chance[:1])
    return settings | {"policies": names}


def _by_files(
    outcomes: list[Named],
    treatments: list[Named],
    both: list[Named],
    heads: dict[Named, Frame],
) -> Settings:
    """Return the tables by population, which their names tell, and policies of the others."""
    first = outcomes or both
    words = {table: _words(table, heads) for table in (*outcomes, *treatments, *both)}
    names = dict(
        zip(first, _differing([words[table] for table in first]), strict=False)
    )
    if len(first) == 1:
        names = {first[0]: "_".join(words[first[0]]) or "all"}
    of = {"treatments": treatments, "both": both if outcomes else []}
    pairs = {kind: _alike(tables, list(names), words) for kind, tables in of.items()}
    if not names or any(None in found for found in pairs.values()):
        raise TableError(
            "cannot tell populations by the names of tables: outcomes are in "
            f"{', '.join(map(str, outcomes))} and treatments in "
            f"{', '.join(map(str, treatments))}"
            + f"; both labels are in {', '.join(map(str, both))}"
            * bool(both)
            + ". Name them alike, such as sales_north.csv and mail_north.csv, or write the "
            "settings yourself."
        )
    for kind, tables in of.items():
        for table, mate in zip(tables, pairs[kind], strict=True):
            shared = [word for word in names[mate].split("_") if word in words[table]]
            names[mate] = "_".join(shared) or names[mate]
    settings: Settings = {"outcomes" if outcomes else "both": _turned(names)}
    for kind, tables in of.items():
        if tables:
            mates = [names[mate] for mate in pairs[kind]]
            settings[kind] = dict(zip(mates, tables, strict=True))
    told = {*pairs["treatments"], *pairs["both"], *(both if not outcomes else ())}
    policies = {}
    for table, name in names.items():
        if table in told:
            continue
        if not (chances := _chances(heads[table])):
            raise TableError(
                f"there is no treatment table whose name goes with {str(table)!r}, the outcomes of "
                f"population {name!r}. Name them alike, such as sales_north.csv and "
                f"mail_north.csv.{KNOWN_INSTEAD.format(name)}"
            )
        policies[name] = chances[0]
    return settings | ({"policies": policies} if policies else {})


def _turned(names: dict[Named, str]) -> dict[str, Named]:
    return {name: table for table, name in names.items()}


def _alike(
    tables: list[Named], firsts: list[Named], words: dict[Named, list[str]]
) -> list[Any]:
    """Return which of the first tables each table's name is most alike; None if it is not clear."""
    plain = {table: {word.casefold() for word in own} for table, own in words.items()}
    common = set.intersection(*(plain[first] for first in firsts)) if firsts else set()
    found: list[Any] = []
    for table in tables:
        near = {}
        for first in firsts:
            own = plain[first] - common if len(firsts) > 1 else plain[first]
            near[first] = len(own & plain[table]) / len(own | plain[table])
        most = max(near.values(), default=0.0)
        best = [first for first, share in near.items() if share == most > 0.0]
        found.append(best[0] if len(best) == 1 and best[0] not in found else None)
    return found


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
        for head in heads if names_people(name) else ():
            column = head.column(name).combine_chunks().dictionary_encode()
            codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False)
            if shared_by(codes) is not None:
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
