"""What columns hold in each table: counts, ranges and first rows, a piece at a time."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations
from operator import add
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np

from unjoined._typing import Array, Frame, IntArray
from unjoined._validation import OUTCOME, label_codes, shown
from unjoined.data.chunks import Columns, Place, Table, population_codes
from unjoined.data.columns import (
    CATEGORIES,
    NUMBERS,
    TIMES,
    WORDS,
    ColumnProfile,
    Settled,
    Share,
    Values,
    column_values,
    read_text,
    value_word,
)
from unjoined.errors import ColumnWarning, LabelError, LeftOutWarning, TableError

LEADING = 50_000  # rows of each table that are looked at first, and that show whether values repeat
FEWEST = 50  # rows of a table that say anything of a column
FEW_VALUES = 20  # of a label or a feature, each of which is counted
THINNED = 10_000  # evenly spaced rows that medians are taken from
FEW_TIMES = 5  # fewer different values are a scale or a code
FEWEST_ENDS = 0.2  # share of the ends seen that a window must hold to be worth naming
# Words in the names of columns: of times until something ends, and of whether it has ended.
TIMES_TO_END = (
    "time duration days weeks months years hours minutes tenure survival lifetime followup dauer "
    "tage wochen monate jahre stunden laufzeit duree jours semaines mois"
)
HAS_ENDED = (
    "event status observed died dead death deceased churn churned fail failed failure relapse "
    "relapsed cancelled canceled lapsed gestorben verstorben gekuendigt ausgefallen deces"
)
GOING_ON = "censored alive living active ongoing open"  # what such columns hold

Cell = tuple[str, str]  # kind and population
Piece = tuple[Table, Frame, Place]


@dataclass(frozen=True, slots=True)
class Look:
    """What one column holds in the rows of one kind and population."""

    title: str
    profile: ColumnProfile
    head: Values  # the first rows
    some: tuple[Array, ...]  # numbers of evenly spaced rows
    stride: int = 1

    @classmethod
    def of(cls, title: str, column: Values, name: str) -> Look:
        """Look at one piece of a column."""
        profile = ColumnProfile.of_values(column, name)
        times = profile.share(TIMES).n > profile.share(NUMBERS).n
        numbers = as_numbers(column, Settled(TIMES if times else NUMBERS))
        return cls(title, profile, column.take(slice(LEADING)), (numbers,)).thinned()

    def thinned(self) -> Look:
        """Return the look with every second number of those it keeps, until there are few."""
        some, stride = self.some, self.stride
        while sum(map(len, some)) > 2 * THINNED:
            some = tuple(part[::2] for part in some)
            stride = 2 * stride
        return replace(self, some=some, stride=stride)

    def __add__(self, other: Look) -> Look:
        """Return the look at the rows of both."""
        head = self.head
        if len(head) < LEADING:
            head = join_values(head, other.head).take(slice(LEADING))
        some = (
            *self.some,
            *(part[:: max(self.stride // other.stride, 1)] for part in other.some),
        )
        return replace(
            self,
            profile=self.profile + other.profile,
            head=head,
            some=some,
        ).thinned()

    @property
    def n(self) -> int:
        """Rows with a value."""
        return self.profile.n - self.profile.missing

    def read(self, as_what: Settled) -> Share:
        """Return what reads as that which the column is taken for in all tables together."""
        return self.profile.share(as_what.form or as_what.holds)

    def spread(self, as_what: Settled) -> str:
        """Return from where to where the values go, for a message."""
        if as_what.holds == CATEGORIES:
            return shown(sorted(self.profile.levels or (), key=lambda v: (len(v), v)))
        read = self.read(as_what)
        low, high = (value_word(v, as_what.holds) for v in (read.low, read.high))
        return low if low == high else f"{low} to {high}"

    def numbers(self, as_what: Settled) -> Array:
        """Return numbers of some rows, evenly spaced, or the first ones if text needs a form."""
        some = (
            as_numbers(self.head, as_what)
            if as_what.form
            else np.concatenate(self.some)
        )
        return some[~np.isnan(some)]


def as_numbers(column: Values, as_what: Settled) -> Array:
    """Return a column as numbers or times, NaN for what is no such."""
    if column.is_text:
        return column.read(as_what.holds, as_what.form)
    numbers: Array = column.values
    return numbers


def join_values(first: Values, second: Values) -> Values:
    """Return the rows of two pieces of a column, as text if one of them is."""
    if not first.is_text and not second.is_text:
        return replace(first, values=np.concatenate([first.values, second.values]))
    one = first.as_text()
    two = second.as_text()
    levels = {
        level: j for j, level in enumerate(dict.fromkeys((*one.levels, *two.levels)))
    }
    places = [np.array([*(levels[v] for v in part.levels), -1]) for part in (one, two)]
    codes = [place[part.values] for place, part in zip(places, (one, two), strict=True)]
    return Values(WORDS, np.concatenate(codes), tuple(levels))


def ranked(parts: Sequence[Values]) -> IntArray:
    """Return the place of each value among the different ones, -1 where there is none."""
    whole = parts[0]
    for part in parts[1:]:
        whole = join_values(whole, part)
    if whole.is_text:
        numbers = whole.read(NUMBERS)
        if np.isnan(numbers[whole.values >= 0]).any():
            codes: IntArray = np.asarray(whole.values, dtype=np.int64)
            return codes
    else:
        numbers = whole.values
    places: IntArray = np.full(len(numbers), -1, dtype=np.int64)
    there = ~np.isnan(numbers)
    places[there] = np.unique(numbers[there], return_inverse=True)[1]
    return places


class LeftOut(NamedTuple):
    """A column that is not a feature, and why."""

    name: str
    reason: str

    def __str__(self) -> str:
        """Return both, as a sentence shows them."""
        return f"{self.name!r} {self.reason}"


Looks = dict[str, dict[Cell, Look]]  # by column, then by kind and population


def look_at(
    pieces: Iterable[Piece], columns: Columns, names: Iterable[str] | None = None
) -> Looks:
    """Return what columns hold in each of the cells, all but weights and populations if None."""
    looks: Looks = {}
    asked = None if names is None else set(names)
    for table, frame, place in pieces:
        whole = nw.from_native(frame, eager_only=True)
        out = {columns.population, columns.weight, columns.cluster, columns.people}
        for title, cell, part in _cells(table, whole, columns, place):
            for name in part.columns:
                if name in out if asked is None else name not in asked:
                    continue
                try:
                    values = column_values(
                        part.get_column(name), place.origin, strict=False
                    )
                except TableError:
                    if name == table.label:  # which is told where labels are read
                        continue
                    raise
                look = Look.of(title, values, name)
                known = looks.setdefault(name, {})
                known[cell] = known[cell] + look if cell in known else look
    return looks


def merge_profiles(looks: Looks, names: Iterable[str]) -> dict[str, ColumnProfile]:
    """Return what columns hold in all tables together."""
    return {str(name): whole_profile(looks[name].values()) for name in names}


def _cells(
    table: Table, frame: nw.DataFrame[Any], columns: Columns, place: Place
) -> Iterator[tuple[str, Cell, nw.DataFrame[Any]]]:
    """Yield the rows of each population of a piece."""
    if columns.population is None or columns.population not in frame.columns:
        yield table.title, (table.kind, str(table.population)), frame
        return
    names, index = population_codes(frame.get_column(columns.population), place)
    for k, name in enumerate(names):
        title = f"the {table.kind} rows of population {name!r}"
        yield title, (table.kind, name), frame.filter((index == k).tolist())


def shifts(name: str, cells: Mapping[Cell, Look]) -> str | None:
    """Say of which two tables one has hardly a value that is usual in the other."""
    looks = [look for look in cells.values() if look.n >= FEWEST]
    if not looks:
        return None
    as_what = whole_profile(list(cells.values())).settled()
    quantiles = {}
    for look in looks if as_what.holds != CATEGORIES else ():
        if not len(some := look.numbers(as_what)):
            return None
        quantiles[look.title] = np.quantile(some, (0.01, 0.5, 0.99))
    for one, two in combinations(looks, 2):
        if as_what.holds == CATEGORIES:
            far = max(_unknown_share(one, two), _unknown_share(two, one)) > 0.5
        else:
            p = quantiles[one.title]
            q = quantiles[two.title]
            far = not (q[0] <= p[1] <= q[2] and p[0] <= q[1] <= p[2])
        if far:
            return (
                f"column {name!r} is {one.spread(as_what)} in {one.title}, mostly unlike "
                f"{two.spread(as_what)} in {two.title}. Check that both mean the same, in the same "
                "units."
            )
    return None


def other_units(labels: Looks) -> list[str]:
    """Say that outcomes are ten times as large in one population as in another, or coded apart."""
    notes = []
    numbers = Settled(NUMBERS)
    for name, cells in labels.items():
        sizes = []
        codes = dict[tuple[float, ...], Look]()
        for cell, look in cells.items():
            some = np.concatenate(look.some)
            some = some[~np.isnan(some)]
            if cell[0] == OUTCOME and len(some) >= FEW_VALUES:
                if len(values := np.unique(some)) == 2:
                    codes.setdefault(tuple(values.tolist()), look)
                if len(some := np.abs(some[some != 0.0])) >= FEW_VALUES:
                    sizes.append((float(np.median(some)), look))
        least, most = (
            pick(sizes, key=lambda size: size[0], default=None) for pick in (min, max)
        )
        if least is not None and most is not None and most[0] >= 10.0 * least[0]:
            notes.append(
                f"the outcome {name!r} is {least[1].spread(numbers)} in {least[1].title} and "
                f"{most[1].spread(numbers)} in {most[1].title}, ten times as large or more. Check "
                "that both mean the same, in the same units."
            )
        elif len(codes) > 1:
            (low, high), (other, another) = list(codes)[:2]
            one, two = list(codes.values())[:2]
            notes.append(
                f"the outcome {name!r} is {low:g} or {high:g} in {one.title} and {other:g} or "
                f"{another:g} in {two.title}. Write it alike in all tables."
            )
    return notes


def odd_outcomes(labels: Looks) -> list[str]:
    """Say how outcomes in text are read, and that -999 may stand for a missing one."""
    notes = []
    for name, cells in labels.items():
        looks = [look for (kind, _), look in cells.items() if kind == OUTCOME]
        profile = whole_profile(looks) if looks else None
        if profile is None or profile.settle() != NUMBERS:
            continue
        if profile.settled().form or profile.has_three_decimals:
            some = shown(sorted(profile.levels or (), key=lambda v: (-len(v), v)))
            notes.append(
                f"the outcome {name!r} holds text such as {some}, which is read as numbers from "
                f"{profile.read.low:.10g} to {profile.read.high:.10g}. If that is wrong, write "
                "plain numbers."
            )
        for value in profile.stand_ins:
            n, (low, high) = dict(profile.read.odd)[value], profile.read.within
            notes.append(
                f"the outcome {name!r} is {value:g} in {n:,} of {profile.n:,} rows, where all "
                f"others lie from {low:g} to {high:g}. If it stands for a missing outcome, leave "
                "such rows out."
            )
    return notes


def _words(name: str) -> list[str]:
    """Return the words and numbers that a column's name is made of."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(name)).lower()
    return re.findall(r"[a-z]+|[0-9]+", apart)


def says_ended(name: str, time: str) -> bool:
    """Tell whether a column may say which times had ended, by its name and that of the times.

    Names of times go without numbers: spend_12_months and visits_30_days are amounts.
    """
    words = _words(name)
    if any("censor" in word or word == "cens" for word in words):
        return True
    of_time = _words(time)
    if any(word.isdigit() or word == "per" for word in of_time):
        return False
    return not (
        {*TIMES_TO_END.split()}.isdisjoint(of_time)
        or {*HAS_ENDED.split()}.isdisjoint(words)
    )


def unfinished(
    outcome: str, columns: Mapping[str, Sequence[Values]]
) -> tuple[bool, str] | None:
    """Say that times had not ended in some rows, and what to use instead.

    ``columns`` are the outcome and columns that outcome tables alone have, in pieces. Either the
    outcome is the time, which is told first, or it says whether another column had ended. Nothing
    is told where all that had not ended were followed up to the same, latest time: such times are
    the restricted mean that would be asked for.
    """
    for time, name in ((outcome, None), (None, outcome)):
        for other in columns:
            pair = (time or other, name or other)
            if other == outcome or not says_ended(pair[1], pair[0]):
                continue
            if said := _cut_short(*pair, columns, outcome):
                return time is not None, said
    return None


def _cut_short(
    time: str, name: str, columns: Mapping[str, Sequence[Values]], outcome: str
) -> str | None:
    """Say that times had not ended where a column of two values says so, and what to do."""
    y = np.concatenate([as_numbers(part, Settled(NUMBERS)) for part in columns[time]])
    known = y[~np.isnan(y)]
    text = [part.as_text() for part in columns[name]]
    levels = [*dict.fromkeys(level for part in text for level in part.levels)]
    if len(levels) != 2 or len(np.unique(known)) < FEW_TIMES or known.min() < 0.0:
        return None
    if (at := _still_going(name, levels)) is None:
        return None
    level = np.concatenate(
        [np.array([*map(levels.index, part.levels), -1])[part.values] for part in text]
    )
    going_on, ended = (y[(level == j) & ~np.isnan(y)] for j in (at, 1 - at))
    if not (len(going_on) and len(ended) and going_on.min() < known.max()):
        return None
    said = f"the outcome {outcome!r} seems to be a time"
    left, complete = name, "every time is complete"
    if outcome != time:
        said = f"the outcome {outcome!r} seems to say whether a time, {time!r},"
        left, complete = time, "all were followed for as long"
    said += (
        f" that had not ended in all rows: {name!r} is {levels[at]!r} in "
        if outcome == time
        else f" had ended: it is {levels[at]!r} in "
    )
    said += f"{len(going_on) / len(known):.0%} of rows, "
    least = float(going_on.min())
    said += f"which were followed for {least:g} or longer"
    use = f". Give min({time}, {least:g}) as the outcome"
    if least <= 0.0 or (ended < least).mean() < FEWEST_ENDS:
        use = (
            ", too short to tell. Choose a window that everyone could be followed for, leave out "
            f"who came too late for it, and give min({time}, window) as the outcome"
        )
    return (
        f"{said}{use}: its mean is the restricted mean, while that of {outcome!r} takes longer "
        f"follow-up for an effect. {left!r} is no feature, as only outcome tables have it; if "
        f"{complete}, name it in ignore (--ignore)."
    )


def _still_going(name: str, levels: Sequence[str]) -> int | None:
    """Return which of two values means that a time had not ended, None if nobody can say."""
    plain = [level.strip().lower() for level in levels]
    for j, word in enumerate(plain):
        if word in HAS_ENDED.split() or plain[1 - j] in GOING_ON.split():
            return 1 - j
    try:
        codes = [*label_codes(levels, OUTCOME).values()]
    except LabelError:
        return None
    turned = any(word.startswith("cens") for word in _words(name))
    return int(np.argmax(codes) if turned else np.argmin(codes))


def _unknown_share(one: Look, two: Look) -> float:
    """Return the share of rows of the one whose category the other never has."""
    known, counts = two.profile.levels, one.profile.levels
    if known is None or counts is None:
        return 0.0
    return sum(n for level, n in counts.items() if level not in known) / max(one.n, 1)


def mixed(name: str, cells: Mapping[Cell, Look]) -> str | None:
    """Say that a column holds numbers in one table and words in another."""
    looks = [look for look in cells.values() if look.n]
    if not looks or whole_profile(looks).settle() != CATEGORIES:
        return None
    words = [look for look in looks if look.profile.settle() == CATEGORIES]
    others = [look for look in looks if look.profile.settle() != CATEGORIES]
    if (
        not words
        or not others
        or any(CATEGORIES in look.profile.holds for look in words)
    ):
        return None
    holds, form, _ = others[0].profile.settled()
    strays = [
        v for v in words[0].profile.levels or () if np.isnan(read_text(v, holds, form))
    ]
    if not strays:
        return None
    return (
        f"column {name!r} holds {holds} in {others[0].title} and words such as {shown(strays)} in "
        f"{words[0].title}, so it is taken for categories in all tables."
    )


def whole_profile(looks: Iterable[Look]) -> ColumnProfile:
    """Return what a column holds in all tables together."""
    return reduce(add, (look.profile for look in looks))


class Choice(NamedTuple):
    """Which columns are features, which are not, and what else is to be said of them."""

    features: tuple[str, ...]
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()

    def warn(self, *, stacklevel: int) -> None:
        """Warn of what was left out, all columns in one warning, and of each note."""
        if self.left_out:
            n = len(self.left_out)
            which = "a column is left out" if n == 1 else f"{n} columns are left out"
            listed = "; ".join(map(str, self.left_out))
            sentence = (
                f"{which}: {listed}. To use such a column, name all features yourself."
            )
            warnings.warn(sentence, LeftOutWarning, stacklevel=stacklevel + 1)
        for sentence in self.notes:
            warnings.warn(sentence, ColumnWarning, stacklevel=stacklevel + 1)
