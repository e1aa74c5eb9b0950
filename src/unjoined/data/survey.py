"""Which columns of tables are features: ids, labels, constants and the like are left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from scipy.stats import f, rankdata

from unjoined._typing import Array, IntArray
from unjoined._validation import (
    OUTCOME,
    TREATMENT,
    did_you_mean,
    nearest,
    plain_name,
    shown,
)
from unjoined.data.chunks import Columns, Table
from unjoined.data.columns import (
    CATEGORIES,
    MOST_CATEGORIES,
    NUMBERS,
    TIMES,
    Settled,
    column_names,
    fewest_rows,
    names_codes,
)
from unjoined.data.looks import (
    FEW_VALUES,
    FEWEST,
    Cell,
    Choice,
    LeftOut,
    Look,
    Looks,
    Piece,
    as_numbers,
    look_at,
    mixed,
    odd_outcomes,
    other_units,
    ranked,
    says_ended,
    shifts,
    unfinished,
    whole_profile,
)
from unjoined.errors import TableError

FIRST = 2_000  # of the leading rows: in most columns they tell at once
INDEX_NAME = re.compile(r"(Unnamed: \d+|__index_level_\d+__)$")
ID_NAME = re.compile(
    r"(?i:(.*[ _.-])?(id|uuid|guid|rowid|row[ _]?n(r|um|umber)|key|index))$|.*[a-z]I[dD]$"
)
WHO_NAME = re.compile(
    r"(?i)(.*[ _.-])?(customer|client|user|household|house|family|person|patient|member|visitor|"
    r"subscriber|account|employee|student|pupil|kunden?|haushalt|familie|person|patient|nutzer)"
    r"([ _.-]?(id|nr|no|num|number|key|code|nummer))?$"
)
FEWEST_NAMES = 10  # that are in several rows
WIDE = 1e6  # a range of whole numbers that measurements do not fill evenly
EVEN_ROWS = 400  # fewer rows do not tell a flat law from a round one
SPARSE = 20.0  # whole numbers in the range of ids to each that is taken
SHARP_END = (
    0.25  # of the middle half of values: amounts have twenty in a hundred further up
)
FEW_ROWS = 0.2  # the share of the rows that frequent categories must have
SMOOTH = 6  # parameters of a curve and its ends
UNLIKELY = 1e-6  # the chance that means leave the curve by so much
SAME = 0.9995  # correlation of ranks of a label and what is a function of it


def judge(name: str, cells: Mapping[Cell, Look], labels: Looks) -> str | None:
    """Return why a column that all tables have is not a feature, None if it may be one."""
    if INDEX_NAME.match(str(name)):
        return "is an index that was written as a column"
    looks = list(cells.values())
    profile = whole_profile(looks)
    as_what = profile.settled()
    holds = as_what.holds
    few = profile.n < FEW_VALUES
    if profile.missing == profile.n and not few:
        return "has no value in any row"
    if empty := next(
        (look for look in looks if not look.n and look.profile.n >= FEWEST), None
    ):
        return f"has no value in {empty.title}"
    read = profile.read
    one = (
        len(profile.levels or "??") == 1
        if holds == CATEGORIES
        else read.low == read.high
    )
    if one and not profile.missing and not few:
        return f"is {looks[0].spread(as_what)} in all rows"
    if as_what.doubt and not few:
        return as_what.doubt
    rules: tuple[Callable[..., str | None], ...] = (
        _is_shared,
        _is_id,
        _disjoint,
        _is_label,
        _is_scattered,
    )
    for rule in rules:
        if reason := rule(name, cells, as_what, labels):
            return reason
    return None


def _disjoint(
    _: str, cells: Mapping[Cell, Look], as_what: Settled, labels: Looks
) -> str | None:
    """Find two tables that have no value in common."""
    holds = as_what.holds
    for one, two in combinations(
        [look for look in cells.values() if look.n >= FEWEST], 2
    ):
        if holds == CATEGORIES:
            apart = not set(one.profile.levels or "?") & set(two.profile.levels or "?")
        else:
            first = one.read(as_what)
            second = two.read(as_what)
            apart = first.high < second.low or second.high < first.low
        if apart:
            units = (
                " (in one unit in all tables, it can be used)"
                if holds == NUMBERS
                else ""
            )
            return (
                f"is {one.spread(as_what)} in {one.title} and {two.spread(as_what)} in "
                f"{two.title}, so nobody in the one can be compared with anybody in the "
                f"other{units}"
            )
    return None


def _is_label(
    name: str, cells: Mapping[Cell, Look], as_what: Settled, labels: Looks
) -> str | None:
    """Find that a label is the same as the column, or a function of it, in all tables of a kind."""
    # Outcomes come first. A table may have the other label as well, or that alone by mistake.
    for kind, label, found in _labels_of(labels):
        if not found or any(at not in cells for at in found):
            continue
        parts = [(look.head, cells[at].head) for at, look in found.items()]
        for some in (slice(FIRST), slice(None)):
            ys, xs = ([part[i].take(some) for part in parts] for i in (0, 1))
            y, x = (ranked(column) for column in (ys, xs))
            if not _tells(y, x, is_ordered=as_what.holds != CATEGORIES):
                break
        else:
            return f"tells the {kind} {label!r} by itself, so it is the label or made of it"
    return None


def _labels_of(labels: Looks) -> Iterator[tuple[str, str, dict[Cell, Look]]]:
    """Yield each kind, its label, and the label in the tables of that kind."""
    for kind, label in zip(
        (OUTCOME, TREATMENT), [*labels][:1] + [*labels][-1:], strict=False
    ):
        yield (
            kind,
            label,
            {at: look for at, look in labels[label].items() if at[0] == kind},
        )


def _tells(y: IntArray, x: IntArray, *, is_ordered: bool) -> bool:
    """Tell whether y is (nearly) a function of x: of its few values, or by its order."""
    there = (y >= 0) & (x >= 0)
    y = y[there]
    x = x[there]
    sizes = np.bincount(y)
    if len(y) < FEWEST or np.count_nonzero(sizes) < 2:
        return False
    rest = len(y) - sizes.max()  # rows whose label is not the most frequent one
    if len(sizes) <= FEW_VALUES:
        if rest < FEW_VALUES:
            return False
        if x.max() < FEW_VALUES:
            counts = np.bincount(
                x * len(sizes) + y, minlength=(x.max() + 1) * len(sizes)
            )
            wrong = len(y) - counts.reshape(-1, len(sizes)).max(axis=1).sum()
            return bool(wrong <= 0.005 * rest)
        if len(sizes) > 2 or not is_ordered:
            return False
        ranks = rankdata(x)
        ones = y == 1
        n1 = int(ones.sum())
        n0 = int((~ones).sum())
        auc = (ranks[ones].sum() - n1 * (n1 + 1) / 2.0) / (n1 * n0)
        return bool(max(auc, 1.0 - auc) >= SAME)
    if not is_ordered or x.max() < FEW_VALUES:
        return False
    return bool(abs(np.corrcoef(rankdata(x), rankdata(y))[0, 1]) >= SAME)


def _is_id(
    name: str, cells: Mapping[Cell, Look], as_what: Settled, labels: Looks
) -> str | None:
    """Find that values hardly ever occur twice in a table, though measurements would."""
    holds = as_what.holds
    by_name = bool(ID_NAME.match(str(name)) or WHO_NAME.match(str(name)))
    fewest = FEW_VALUES if by_name else FEWEST
    heads = [look.head for look in cells.values() if look.n >= fewest]
    if not heads:
        return None
    if holds == CATEGORIES:
        if all(_hardly_repeats(head.as_text().values, 0.5) for head in heads):
            return "differs in nearly every row, as ids, names and free text do"
        return None
    if all(head.is_long for head in heads):
        return "is a whole number of 16 digits or more, as ids are"
    numbers = [as_numbers(head, as_what) for head in heads]
    numbers = [column[~np.isnan(column)] for column in numbers]
    if holds == TIMES:
        return _is_entry(numbers)
    if any((column[:FIRST] % 1.0 != 0.0).any() for column in numbers):
        return None
    if not all(_hardly_repeats(column[:FIRST], 0.1) for column in numbers):
        return None
    whole = [np.concatenate(numbers)]
    rules = (_avoid_each_other, _fill_evenly)
    if all(by_name or _is_sorted(c) or _avoid_each_other(c) for c in numbers) or any(
        all(map(rule, parts)) for rule in rules for parts in (numbers, whole)
    ):
        return "is a whole number that differs in nearly every row, as ids and row numbers do"
    return None


def _like_ids(name: str, cells: Mapping[Cell, Look]) -> str | None:
    """Say that whole numbers may be ids: they hardly repeat, are far apart, and end all at once.

    New ids are the largest ones, in whatever blocks they were given out; amounts get rare first.
    """
    looks = [look for look in cells.values() if look.n >= FEWEST]
    if not looks or whole_profile(list(cells.values())).settled() != Settled(NUMBERS):
        return None
    numbers = [look.numbers(Settled(NUMBERS)) for look in looks]
    whole = np.concatenate(numbers)
    if not (_end_sharply(whole) or all(map(_end_sharply, numbers))):
        return None
    return (
        f"column {name!r} holds whole numbers that hardly repeat, {whole.min():.10g} to "
        f"{whole.max():.10g}, and may be an id, by which nobody can be compared. If so, leave it "
        "out: name it in ignore (--ignore)."
    )


def _end_sharply(numbers: Array) -> bool:
    """Tell whether whole numbers that hardly repeat are far apart, and frequent up to the end."""
    n, most = len(numbers), float(numbers.max())
    if (numbers % 1.0).any() or numbers.min() < 0.0:
        return False
    if most - numbers.min() < SPARSE * n or len(np.unique(numbers)) < 0.99 * n:
        return False
    low, high, upper = np.quantile(numbers, (0.25, 0.75, 0.95))
    is_rounded = (numbers % 10.0 == 0.0).mean() > 0.5
    return bool(most - upper <= SHARP_END * (high - low)) and not is_rounded


def _is_shared(
    name: str, cells: Mapping[Cell, Look], as_what: Settled, labels: Looks
) -> str | None:
    """Find that ids come up several times in a table: rows of one person, or of one household."""
    if not names_people(name):
        return None
    for look in cells.values():
        if look.n >= FEWEST and (times := shared_by(look.head.as_text().values)):
            return (
                f"is the same in about {times:.1f} rows of {look.title} each. Rows of one "
                "household or customer depend on each other, and intervals are too narrow unless "
                "cluster (--cluster) names the column"
            )
    return None


def names_people(name: str) -> bool:
    """Tell whether a column is named as ids of people are; stores and regions are features."""
    of_what = re.sub(r"(?i)[ _.-]?(id|code|nr|key)$", "", name)
    is_id = ID_NAME.match(name) or WHO_NAME.match(name)
    return bool(is_id) and not names_codes(of_what)


def shared_by(codes: Any) -> float | None:
    """Return in how many rows each id of a column is, None if all are different or they are few.

    ``codes`` (n,) are whole numbers, one for each id, negative where there is none.
    """
    known = codes[codes >= 0]
    times = len(known) / max(len(np.unique(known)), 1)
    enough = len(known) >= FEWEST_NAMES * times
    return times if times >= 1.5 and enough else None


def _is_scattered(
    _: str, cells: Mapping[Cell, Look], as_what: Settled, labels: Looks
) -> str | None:
    """Find that hardly any rows have one of the categories that can stand by themselves."""
    profile = whole_profile(list(cells.values()))
    if as_what.holds != CATEGORIES or CATEGORIES in profile.holds or not profile.levels:
        return None
    n = len(profile.levels)
    fewest = fewest_rows(profile.n)
    some = [
        size
        for _, size in profile.levels.most_common(MOST_CATEGORIES)
        if size >= fewest
    ]
    share = sum(some) / max(profile.n - profile.missing, 1)
    if n <= MOST_CATEGORIES or share >= FEW_ROWS:
        return None
    return (
        f"has {n:,} different values, of which the {len(some)} that are frequent are in "
        f"{share:.0%} of the rows, too few to compare people by. Put them into groups, such as "
        "zips by their first digits, to use it"
    )


def _without_order(name: str, cells: Mapping[Cell, Look], labels: Looks) -> str | None:
    """Say that a label goes up and down with a column of few whole numbers, as with codes."""
    profile = whole_profile(list(cells.values()))
    n = len(profile.levels or ())
    as_what = profile.settled()
    if as_what != Settled(NUMBERS) or not profile.may_be_codes or n <= 2 * SMOOTH:
        return None
    for kind, label, found in _labels_of(labels):
        if not found or any(at not in cells for at in found):
            continue
        places = ranked([look.head for look in found.values()])
        x = np.concatenate([as_numbers(cells[at].head, as_what) for at in found])
        table = np.repeat(
            np.arange(len(found)), [len(look.head) for look in found.values()]
        )
        there = (places >= 0) & ~np.isnan(x)
        table = table[there]
        y = places[there].astype(np.float64)
        y -= (np.bincount(table, y) / np.maximum(np.bincount(table), 1))[table]
        if _jumps(x[there], y):
            return (
                f"column {name!r} holds {n} different whole numbers, "
                f"{profile.read.low:.10g} to {profile.read.high:.10g}, with which the {kind} "
                f"{label!r} goes up and down without order, as with codes. If they are codes, name "
                "the column in categories."
            )
    return None


def _jumps(x: Array, y: Array) -> bool:
    """Tell whether the mean of y differs between values of x, and mostly not along a curve."""
    values, at, sizes = np.unique(x, return_inverse=True, return_counts=True)
    dof = len(values) - SMOOTH, len(y) - len(values)
    if len(y) < FEW_VALUES * len(values):
        return False
    mean = np.bincount(at, y) / sizes
    noise = float(((y - mean[at]) ** 2).sum()) / dof[1]
    curve = np.vander(np.linspace(-1.0, 1.0, len(values)), SMOOTH)
    curve[:, :2] = 0.0
    curve[0, 0] = curve[-1, 1] = 1.0  # none, or all, may be apart from the others
    root = np.sqrt(sizes)
    coef = np.linalg.lstsq(curve * root[:, None], mean * root, rcond=None)[0]
    rest = float((sizes * (mean - curve @ coef) ** 2).sum())
    total = float((sizes * mean**2).sum())  # y has mean 0
    if rest <= 0.5 * total or noise == 0.0:
        return False
    return bool(f.sf(rest / dof[0] / noise, *dof) < UNLIKELY)


def _is_entry(times: Sequence[Array]) -> str | None:
    """Find that times, in days, are those at which rows were written."""
    if all(_is_sorted(column) for column in times):
        return "holds dates in the order of the rows, as dates of entry are"
    if all(_hardly_repeats(c, 0.1) and (c % 1.0 != 0.0).mean() > 0.5 for c in times):
        return "is a moment that differs in nearly every row"
    return None


def _hardly_repeats(values: Any, most: float) -> bool:
    """Tell whether few rows repeat a value; of few rows, fewer must."""
    there = values[values >= 0] if values.dtype.kind == "i" else values
    again = 1.0 - len(np.unique(there)) / max(len(there), 1)
    return bool(again <= (most if len(there) >= FIRST // 2 else 0.1))


def _is_sorted(numbers: Array) -> bool:
    """Tell whether values only rise, or only fall, from row to row."""
    steps = np.diff(numbers)
    several = len(np.unique(numbers[:FIRST])) >= FEW_VALUES
    return bool(several and ((steps >= 0.0).all() or (steps <= 0.0).all()))


def _avoid_each_other(numbers: Array) -> bool:
    """Tell whether near whole numbers are many and equal ones few.

    Draws from a smooth law fall on one number half as often as on two that differ by 1, or by any
    other small step. Ids fall on one number once.
    """
    values = np.unique(numbers)
    near = sum(int(np.isin(values + step, values).sum()) for step in (1, 2, 3)) / 6.0
    return near >= 12.0 and len(numbers) - len(values) <= near / 4.0


def _fill_evenly(numbers: Array) -> bool:
    """Tell whether whole numbers that hardly repeat fill a wide range evenly, as ids may do."""
    values = np.unique(numbers)
    n = len(values)
    reach = values[-1] - values[0]
    if n < EVEN_ROWS or reach < WIDE or len(numbers) > 1.1 * n:
        return False
    even = (values - values[0]) / reach
    gap = np.abs(even - np.arange(n) / n).max()
    return bool(gap <= 0.02 + 1.0 / np.sqrt(n))


class Survey(NamedTuple):
    """Tables that can be gone through in part or as a whole."""

    tables: Sequence[Table]
    columns: Columns
    leading: Callable[[], Iterable[Piece]]  # the first rows of each table
    whole: (
        Callable[[Sequence[str]], Looks] | None
    )  # at some columns; None if leading rows are all

    @np.errstate(
        over="ignore", invalid="ignore"
    )  # infinite numbers are refused by name later
    def choose(self, ignored: Iterable[str], categories: Iterable[str] = ()) -> Choice:
        """Return the columns that all tables have and that may be features."""
        looks = look_at(self.leading(), self.columns)
        ignored = list(ignored)
        self._check_known("ignore", ignored, looks)
        self._check_known("categories", categories, looks)
        for name in ignored:
            looks.pop(name, None)
        for name in filter(None, {*self.columns.policies.values()} & {*looks}):
            looks.pop(name)
        both = [label for t in self.tables for label in (t.label, t.joint)]
        named = dict.fromkeys(filter(None, both))
        labels = {label: looks.pop(label, {}) for label in named}
        times = _unfinished_times(self.tables, labels, looks)
        cells = {
            cell: look.title
            for of in (*labels.values(), *looks.values())
            for cell, look in of.items()
        }
        if not cells:
            raise TableError("no table was given, or all of them are empty.")
        out = _other_labels(self.tables, labels)
        rows: dict[Cell, int] = {}
        for of in (*labels.values(), *looks.values()):
            rows |= {
                cell: max(rows.get(cell, 0), look.profile.n)
                for cell, look in of.items()
            }
        renamed = []
        for name in list(looks):
            of = looks[name]
            if absent := [c for c in cells if c not in of or of[c].profile.n < rows[c]]:
                left, doubt = _absent(name, looks, absent[0], cells[absent[0]])
                out.append(left)
                renamed += [doubt] * bool(doubt)
                del looks[name]
        found, notes = self._judged(looks, labels)
        notes += [*other_units(labels), *odd_outcomes(labels)]
        notes += _both_labels(self.tables, labels) + times + renamed
        features = tuple(
            name for name in looks if name not in {part.name for part in found}
        )
        out += found
        if not features:
            said = f" Left out: {'; '.join(map(str, out))}." if out else ""
            raise TableError(
                "no column is left that could be a feature: it must be in all tables and be "
                f"neither label, weight nor population.{said} Name columns in features to use them."
            )
        return Choice(features, tuple(out), tuple(notes))

    def named(self, features: Iterable[str], ignored: Iterable[str]) -> Choice:
        """Return features that were named, if the outcome is none that had not ended.

        That takes no more than a look at names, unless one of them says so.
        """
        out = {*ignored}
        choice = Choice(tuple(name for name in features if name not in out))
        for table, frame, _ in self.leading():
            if table.kind != OUTCOME:
                continue
            own = str(table.label)
            some = [
                name
                for name in column_names(frame) or ()
                if name not in out and (says_ended(name, own) or says_ended(own, name))
            ]
            if not some:
                break
            looks = look_at(self.leading(), self.columns, [own, *some])
            labels = {own: looks.pop(own, {})}
            notes = _unfinished_times(self.tables, labels, looks)
            return choice._replace(notes=tuple(notes))
        return choice

    def _judged(self, looks: Looks, labels: Looks) -> tuple[list[LeftOut], list[str]]:
        """Return columns that are not features, and notes; doubts are settled by all rows."""
        populations = {cell[1] for of in labels.values() for cell in of}
        doubted = [
            name
            for name, cells in looks.items()
            if judge(name, cells, labels) or shifts(name, cells)
        ]
        if self.columns.population is not None and len(populations) < 2:
            doubted = list(looks)  # sorted by population, as it seems
        first = labels  # in the rows that columns without a doubt are known in
        if doubted and self.whole is not None:
            known = self.whole([*doubted, *(label for label in labels if label)])
            labels = {label: known.pop(label, {}) for label in labels}
            looks |= known
        out, notes = [], []
        for name, cells in looks.items():
            if name in doubted and (reason := judge(name, cells, labels)):
                out.append(LeftOut(name, reason))
            elif note := (
                mixed(name, cells)
                or shifts(name, cells)
                or _without_order(name, cells, labels if name in doubted else first)
                or _like_ids(name, cells)
            ):
                notes.append(note)
        return out, notes

    def _check_known(self, argument: str, names: Iterable[str], looks: Looks) -> None:
        columns = self.columns
        own = (columns.population, columns.weight, columns.cluster, columns.people)
        known = {*looks, *own} - {None}
        for name in names:
            if looks and name not in known:
                raise TableError(
                    f"{argument} names {name!r}, a column that no table has. Their columns are "
                    f"{shown(known)}{did_you_mean(name, known)}"
                )


def _unfinished_times(
    tables: Sequence[Table], labels: Looks, looks: Looks
) -> list[str]:
    """Refuse an outcome that is a time that had not ended in all rows; warn of its end as such."""
    notes = []
    for outcome in {str(table.label) for table in tables if table.kind == OUTCOME}:
        of = {
            at: look for at, look in labels.get(outcome, {}).items() if at[0] == OUTCOME
        }
        columns = {
            name: [own[at].head for at in of]
            for name, own in ({outcome: of} | looks).items()
            if own.keys() == of.keys()
        }
        if found := unfinished(outcome, columns):
            is_time, sentence = found
            if is_time:
                raise TableError(sentence)
            notes.append(sentence)
    return notes


def _other_labels(tables: Sequence[Table], labels: Looks) -> list[LeftOut]:
    """Return labels that tables of the other kind have too."""
    out = []
    for table in {table.label: table for table in tables}.values():
        kinds = {
            other.kind for other in tables if table.label in (other.label, other.joint)
        }
        of = labels.get(str(table.label), {})
        if also := [cell for cell in of if cell[0] not in kinds]:
            title = of[also[0]].title
            reason = f"is the {table.kind}, so it is not a feature of {title}"
            out.append(LeftOut(str(table.label), reason))
    return out


def _both_labels(tables: Sequence[Table], labels: Looks) -> list[str]:
    """Say what is thrown away of tables that hold both labels, a sentence for each table."""
    own = {table.kind: str(table.label) for table in tables}
    notes = []
    for kind, label in own.items():
        for (at, _), look in labels.get(label, {}).items():
            if kind == TREATMENT and label in {table.joint for table in tables}:
                continue  # which is used
            if at in own and own[at] != label and look.profile.missing < look.profile.n:
                notes.append(
                    f"{look.title} has the {kind} {label!r} as well as the {at} {own[at]!r}: only "
                    f"the {at} is used, and that both are known together is thrown away. If they "
                    "belong to the same people, give the table as one of both labels "
                    "(both=, --both)."
                )
    return notes


def _absent(name: str, looks: Looks, cell: Cell, title: str) -> tuple[LeftOut, str]:
    """Return a column that some table lacks, or ask about one that is spelled in another way.

    Also return a doubt if another table of that kind has it, and this one a name like it.
    """
    if cell in looks[name]:
        return LeftOut(name, f"is not in all files of {title}"), ""
    there = [other for other, of in looks.items() if cell in of and other != name]
    first = next(iter(looks[name].values())).title
    for other in there:
        if plain_name(other) == plain_name(name):
            raise TableError(
                f"{first} has a column {name!r} and {title} has {other!r}. Did you mean one "
                "column? Then write its name in the same way in every table."
            )
    alone = [other for other in there if len(looks[other]) < len(looks[name]) + 1]
    near = nearest(name, alone)
    hint = "" if near is None else f" (which has {near!r})"
    doubt = ""
    if near is not None and any(kind == cell[0] for kind, _ in looks[name]):
        doubt = (
            f"{title} lacks the column {name!r}, and has {near!r}: neither is used. If they are "
            "one column, write its name in the same way in every table."
        )
    return LeftOut(name, f"is in {first}, but not in {title}{hint}"), doubt


def check_named_columns(
    labels: Mapping[str, Any], features: Iterable[str] | None, ignore: Iterable[str]
) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Return features and columns to leave out; refuse what names no column, or names a label."""
    for argument, name in labels.items():
        if not isinstance(name, str) and not (
            name is None and argument in ("sample_weight", "cluster", "count")
        ):
            raise TableError(
                f"{argument} must be the name of a column, got {type(name).__name__}."
            )
    for argument, given in (("features", features), ("ignore", ignore)):
        if isinstance(given, str):
            raise TableError(
                f"{argument} must be a list of columns. Write [{given!r}]."
            )
    names = None if features is None else tuple(features)
    taken = {name: argument for argument, name in labels.items() if name is not None}
    for name in names or ():
        if name in taken:
            raise TableError(
                f"features names {name!r}, which is the {taken[name]}. Labels, weights, clusters, "
                "populations and known policies are not features."
            )
    if names is not None and not set(names) - set(ignore):
        raise TableError(
            "features leaves no column. Name one or more, or give None for all."
        )
    return names, tuple(ignore)


def check_categories(
    names: Iterable[str], labels: Mapping[str, Any], features: Sequence[str] | None
) -> tuple[str, ...]:
    """Return columns that are categories; refuse what is no feature."""
    if isinstance(names, str):
        raise TableError(f"categories must be a list of columns. Write [{names!r}].")
    names = tuple(names)
    taken = {name: argument for argument, name in labels.items() if name is not None}
    for name in names:
        if name in taken or (features is not None and name not in features):
            what = f"the {taken[name]}" if name in taken else "none of the features"
            raise TableError(
                f"categories names {name!r}, which is {what}. Name features only."
            )
    return names


def check_frame(table: Table) -> None:
    """Refuse a data frame whose columns have no names, or one without rows."""
    if odd := [
        name for name in column_names(table.table) or () if not isinstance(name, str)
    ]:
        raise TableError(
            f"columns of {table.title} must be named by text, got {shown(odd)}. Rename them, such "
            "as with frame.columns = [str(name) for name in frame.columns]."
        )
    if len(nw.from_native(table.table, eager_only=True)) == 0:
        rows = (
            "rows of all populations"
            if table.population is None
            else "at least one row"
        )
        raise TableError(f"{table.title} is empty. It needs {rows}.")
