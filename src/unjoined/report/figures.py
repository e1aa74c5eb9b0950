"""The charts of a report as inline SVG, each with its numbers as a table.

Inline SVG needs no chart library in the page: it prints sharply, follows the colours of light and
dark screens by its classes, carries a title and a description for screen readers, and a report
stays far below a megabyte. What one would lose, tool tips, tables under each chart give in full.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unjoined._typing import Array
from unjoined.report.advice import Speech
from unjoined.report.drivers import FEWEST, TIMES, Driver
from unjoined.words import in_digits, treatment_in_words

if TYPE_CHECKING:
    from unjoined.evaluate.diagnosis import Diagnosis, PolicyGap
    from unjoined.report.facts import Facts

WIDTH, HEIGHT = 440.0, 280.0
LETTER = 7.5  # width of a digit
LEFT, RIGHT, TOP, BOTTOM = 56.0, 22.0, 14.0, 46.0
ROW = 26.0  # height of a lying bar
LONGEST = 18  # letters of a name beside it
FULL_GAP = 0.2  # policy gap from which people count in full
BINS = 24
MOST_COLUMNS, MOST_NAMED = 12, 4  # dots of columns, and of those with a name beside
LOW = 0.15  # share of the height of a chart, below which a name would cover the axis
LETTERS = 40  # that fit below a chart


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers between two ends."""
    step = 10.0 ** math.floor(math.log10((high - low) / about))
    factor = next(
        f for f in (1.0, 2.0, 5.0, 10.0) if (high - low) / (f * step) <= about
    )
    step *= factor
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def spread(values: Array, *, zero: bool = True) -> tuple[float, float]:
    """Return ends that hold all finite numbers, and 0, with some air."""
    known = values[np.isfinite(values)]
    both = np.append(known, 0.0) if zero or not len(known) else known
    low = float(both.min())
    high = float(both.max())
    air = 0.06 * (high - low) or max(abs(high), 1.0) * 0.1
    if low == high:  # of nothing but one number
        return low - air, high + air
    return low - air * (low < 0.0 or not zero), high + air * (high > 0.0 or not zero)


class Chart:
    """A chart under construction; ``title`` and ``tells`` are for those who do not see it."""

    def __init__(
        self,
        title: str,
        tells: str,
        x: tuple[float, float],
        y: tuple[float, float],
        across: str,
        upward: str = "",
        *,
        height: float = HEIGHT,
        width: float = WIDTH,
        left: float = LEFT,
    ) -> None:
        self.title, self.tells = title, tells
        self.x, self.y = x, y
        self.across, self.upward = across, upward
        self.width, self.height = width, height
        # Room for the numbers at the left.
        widest = max([len(_tick(v)) for v in ticks(*y)], default=0)
        self.left = max(left, 30.0 + LETTER * widest)
        self.foot = height - BOTTOM
        # Across and upward: two numbers, and their places on the page.
        self.scales = (*x, self.left, width - RIGHT), (*y, self.foot, TOP)
        self.marks: list[
            dict[str, Any]
        ] = []  # SVG elements: tag, attributes and the text inside

    def to_x(self, value: float) -> float:
        """Return the place of a horizontal number."""
        return _place(value, *self.scales[0])

    def to_y(self, value: float) -> float:
        """Return the place of a vertical number."""
        return _place(value, *self.scales[1])

    def add(
        self, tag: str, css: str, text: str = "", **attributes: float | str
    ) -> None:
        """Add an element; underscores in names become hyphens."""
        given = {"class": css}
        for name, value in attributes.items():
            given[name.replace("_", "-")] = (
                value if isinstance(value, str) else f"{value:.6g}"
            )
        self.marks.append({"tag": tag, "attributes": given, "text": text})

    def write(
        self, x: float, y: float, text: str, css: str = "label", **more: str
    ) -> None:
        """Write text at a place of the drawing."""
        self.add("text", css, text, x=x, y=y, **more)

    def line(
        self, x: Sequence[float] | Array, y: Sequence[float] | Array, css: str
    ) -> None:
        """Draw a line through points, leaving out unknown ones."""
        known = [point for point in zip(x, y, strict=True) if np.isfinite(point[1])]
        self.add("polyline", css, points=self._points(known))

    def band(self, x: Array, low: Array, high: Array) -> None:
        """Fill what lies between two lines; ends that are unbounded reach the edge."""
        over = zip(x, np.minimum(high, self.y[1]), strict=True)
        under = zip(x[::-1], np.maximum(low, self.y[0])[::-1], strict=True)
        self.add("polygon", "band", points=self._points([*over, *under]))

    def _points(self, points: Iterable[tuple[float, float]]) -> str:
        return " ".join(f"{self.to_x(x)},{self.to_y(y)}" for x, y in points)

    def upright(
        self, x: float, css: str, ends: Sequence[float] = (), **more: str
    ) -> None:
        """Draw a vertical line between two numbers, from the foot to the top by default."""
        at, (low, high) = self.to_x(x), ends or self.y
        foot = self.to_y(max(low, self.y[0]))
        top = self.to_y(min(high, self.y[1]))
        self.add("line", css, x1=at, x2=at, y1=foot, y2=top, **more)

    def point(self, x: float, y: float, css: str, **more: str) -> None:
        """Draw a dot."""
        self.add("circle", css, cx=self.to_x(x), cy=self.to_y(y), **more)

    def bar(
        self, x: tuple[float, float], y: tuple[float, float], css: str = "bar"
    ) -> None:
        """Draw a box between two numbers across and two upward."""
        left, right = sorted(map(self.to_x, x))
        top, foot = sorted(map(self.to_y, y))
        self.add("rect", css, x=left, y=top, width=right - left, height=foot - top)

    def rows(
        self, names: Sequence[str], values: Array, ends: Sequence[Array] = ()
    ) -> None:
        """Draw a lying bar from 0 for each name, one below the other, with intervals if given."""
        to_x = self.to_x
        for v in ticks(*self.x) if ends else ():
            self.upright(v, "rule")
            self.write(to_x(v), self.foot + 14, _tick(v), text_anchor="middle")
        for i, (name, value) in enumerate(zip(names, values, strict=True)):
            y, (left, right) = TOP + ROW * i, sorted((to_x(0.0), to_x(value)))
            self.add("rect", "bar", x=left, y=y, height=18.0, width=right - left)
            self.write(self.left - 8, y + 13, short(name), text_anchor="end")
            if ends and ends[1][i] > ends[0][i]:
                left = to_x(ends[0][i])
                right = to_x(ends[1][i])
                self.add("line", "whisker", x1=left, x2=right, y1=y + 9, y2=y + 9)
        if ends:
            self.upright(0.0, "zero")
        self.write(
            self.width / 2,
            self.height - 8,
            self.across,
            "label axis",
            text_anchor="middle",
        )

    def axes(
        self, *, percent: str = "", names: Sequence[tuple[float, str]] = ()
    ) -> None:
        """Draw both axes with round numbers, "x" or "y" in percent, or names along the first."""
        for v in ticks(*self.y):
            self.line(self.x, [v, v], "rule")
            said = f"{v:.0%}" if percent == "y" else _tick(v)
            self.write(self.left - 6, self.to_y(v) + 4, said, text_anchor="end")
        if self.y[0] < 0.0 < self.y[1]:
            self.line(self.x, [0.0, 0.0], "zero")
        along = names or [
            (v, f"{v:.0%}" if percent == "x" else _tick(v)) for v in ticks(*self.x)
        ]
        for v, name in along:
            self.write(self.to_x(v), self.foot + 17, name, text_anchor="middle")
        middle = (self.left + self.width - RIGHT) / 2
        self.write(
            middle, self.height - 8, self.across, "label axis", text_anchor="middle"
        )
        turned = f"translate(13 {(TOP + self.foot) / 2:g}) rotate(-90)"
        self.write(
            0, 0, self.upward, "label axis", text_anchor="middle", transform=turned
        )


def _place(value: float, low: float, high: float, start: float, end: float) -> float:
    """Return the place of a number on the page, cut a little beyond the ends."""
    share = (value - low) / (high - low)
    return round(start + min(max(share, -0.02), 1.02) * (end - start), 2)


def short(text: str, longest: int = LONGEST) -> str:
    """Return text that fits, its end cut off if it is long."""
    return text if len(text) <= longest else f"{text[: longest - 1]}\u2026"


def _tick(value: float) -> str:
    """Return a round number in as few digits as it has."""
    return in_digits(value, 6)


Figure = dict[str, Any]  # a chart, and its numbers as a table


def _figure(
    chart: Chart, caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]]
) -> Figure:
    return {
        "chart": chart,
        "table": {"caption": caption, "columns": columns, "rows": [*rows]},
    }


def gap_figure(diagnosis: Diagnosis, n_rows: int) -> Figure | None:
    """Draw how the difference in the chance of treatment is spread over people."""
    gap = diagnosis.gap
    if gap is None:
        return None
    least = -FULL_GAP if gap.is_signed else 0.0
    low = min(float(gap.quantiles[0]), least)
    high = max(float(gap.quantiles[-1]), FULL_GAP)
    edges = np.linspace(low, high, BINS + 1)
    share = np.diff(_share_below(gap.quantiles, edges))
    share[share * n_rows < FEWEST] = 0.0
    treatment = treatment_in_words(diagnosis.identification)
    chart = Chart(
        "How differently people were treated",
        f"Bars show the share of people at each difference in the {treatment}. "
        f"{share_alike(gap):.0%} of people have one below {FULL_GAP:g}.",
        (low, high),
        (0.0, 1.1 * float(share.max())),
        f"difference in the {treatment}",
        "share of people",
    )
    chart.bar((least, FULL_GAP), chart.y, "shade")
    chart.axes(percent="y")
    bars = [bar for bar in zip(edges, edges[1:], share, strict=False) if bar[2]]
    for left, right, tall in bars:
        chart.bar((left, right), (0.0, tall))
    rows = ((f"{a:+.2f} to {b:+.2f}", f"{s:.1%}") for a, b, s in bars)
    return _figure(chart, "People by difference", ("difference", "people"), rows)


def share_alike(gap: PolicyGap) -> float:
    """Return the share of people whom the populations treat nearly alike."""
    low, high = _share_below(gap.quantiles, np.array([-FULL_GAP, FULL_GAP]))
    return float(high - low)


def _share_below(quantiles: Array, values: Array) -> Array:
    """Return the share of people below some values, given percentiles."""
    rising = quantiles + 1e-9 * np.arange(len(quantiles))  # so that each is met once
    return np.interp(
        values, rising, np.linspace(0.0, 1.0, len(quantiles)), left=0.0, right=1.0
    )


def hidden_figure(facts: Facts) -> Figure | None:
    """Draw which hidden traits would turn the advice, and where the columns are."""
    claim, turns = facts.claim, facts.sensitivity
    if claim is None or turns is None or not (claim.gains and turns.sigma > 0.0):
        return None
    some = turns.benchmarks[:MOST_COLUMNS]
    is_sure = claim.breakdown(facts.level) > 0.0
    dashed = ", beyond the dashed one it is no longer sure" if is_sure else ""
    most = 1.25 * max([0.25, *(each.population for each in some)])
    chart = Chart(
        "Hidden traits that would turn the advice",
        f"Beyond the solid line a trait that no column records turns the advice{dashed}. Dots are "
        "the columns, as if each was hidden.",
        (0.0, 1.0),
        (0.0, most),
        "how far it tells the outcome (correlation)",
        "how far populations differ in it",
    )
    chart.axes()
    R = np.linspace(0.002, 1.0, 200)
    for level, css in ((None, "curve"), (facts.level, "random")):
        S = claim.breakdown(level) / turns.sigma / R
        inside = most >= S
        if S[-1] > 0.0 and inside.any():
            start = (
                claim.breakdown(level) / turns.sigma / most
            )  # where it enters the chart
            chart.line([start, *R[inside]], [most, *S[inside]], css)
    for i, each in enumerate(some):
        chart.point(each.outcome, each.population, "point", r="4.5")
        if (
            i < MOST_NAMED and each.delta > 0.0
        ):  # those at an edge would cover each other
            left = each.outcome > 0.7
            x = chart.to_x(each.outcome) + (-8 if left else 8)
            anchor = "end" if left else "start"
            above = i % 2 == 0 or each.population < LOW * most
            y = chart.to_y(each.population) + (-6 if above else 15)
            chart.write(x, y, short(each.column), "label told", text_anchor=anchor)
    value = claim.breakdown()
    rows = (
        (
            each.column,
            f"{each.outcome:.2f}",
            f"{each.population:.2f}",
            turns.said(each.delta, facts.terms.unit),
            f"{each.delta / value:.0%}" if value > 0.0 else "",
        )
        for each in some
    )
    columns = ("column", "tells outcome", "differs", "as hidden", "of what turns it")
    return _figure(chart, "If a hidden trait was as telling as", columns, rows)


def curve_figure(facts: Facts, speech: Speech) -> Figure:
    """Draw the uplift curve with its uniform band, and the line of a random order."""
    curve, factor = facts.evaluation.curve, speech.factor
    share = curve.share
    value, low, high = (factor * part for part in (curve.value, curve.low, curve.high))
    chart = Chart(
        "Uplift curve",
        f"Gain {speech.per} over {speech.treating} nobody, by the share {speech.treated}, best "
        "first, with a band that holds the whole curve.",
        (0.0, 1.0),
        spread(np.concatenate([value, low, high])),
        f"share of people {speech.treated}, best first",
        f"gain {speech.per}",
    )
    chart.axes(percent="x")
    chart.band(share, low, high)
    chart.line([0.0, 1.0], [0.0, value[-1]], "random")
    chart.line(share, value, "curve")
    rows = (
        (f"{s:.0%}", *speech.scaled(v, a, b))
        for s, v, a, b in zip(share, value, low, high, strict=True)
    )
    columns = (
        f"share {speech.treated}",
        f"gain {speech.per}",
        f"{speech.percent} band",
    )
    return _figure(chart, "Uplift curve", columns, rows)


def bins_figure(facts: Facts, speech: Speech) -> Figure | None:
    """Draw measured against predicted uplift, by ranges of the score."""
    n = facts.data.n_rows
    bins = [each for each in facts.evaluation.bins if each.share * n >= FEWEST]
    if not bins:
        return None
    factor, level = speech.factor, facts.level
    predicted = factor * np.array([each.predicted for each in bins])
    value = factor * np.array([each.uplift.value for each in bins])
    ends = factor * np.array([each.uplift.interval(level) for each in bins])
    tall = spread(np.concatenate([value, ends.ravel(), predicted]))
    wide = spread(predicted)
    what = "gain by the offer" if facts.offers else "measured uplift"
    agree = "" if facts.offers else " and the line of perfect agreement"
    chart = Chart(
        f"Predicted uplift and {what}",
        f"One point for each tenth of the people: {what} against predicted uplift, with "
        f"intervals{agree}.",
        wide,
        tall,
        f"predicted uplift, {speech.per}",
        f"{what}, {speech.per}",
    )
    chart.axes()
    if (
        not facts.offers
    ):  # of which what is predicted is the effect on whoever takes them up
        line = [max(wide[0], tall[0]), min(wide[1], tall[1])]
        chart.line(line, line, "random")
    for x, y, (low, high) in zip(predicted, value, ends, strict=True):
        chart.upright(x, "whisker", (low, high))
        chart.point(x, y, "point", r="4.5")
    rows = (
        (f"{each.share:.0%}", speech.said(x), *speech.scaled(y, *end))
        for each, x, y, end in zip(bins, predicted, value, ends, strict=True)
    )
    columns = ("people", "predicted", "measured", f"{speech.percent} interval")
    return _figure(chart, f"Uplift by score, {speech.per}", columns, rows)


def gain_chart(facts: Facts, speech: Speech) -> Chart:
    """Draw the expected gain of all shares, with a mark that the slider moves."""
    share, value, low, high = np.array(
        [(s.share, s.gain, s.low, s.high) for s in facts.stages]
    ).T
    chart = Chart(
        f"Expected gain by share {speech.treated}",
        "The line is the expected gain in total, the band its interval at each share.",
        (0.0, 1.0),
        spread(np.concatenate([value, low, high])),
        f"share of people {speech.treated}, best first",
        facts.terms.unit,
        height=240.0,
    )
    chart.axes(percent="x")
    chart.band(share, low, high)
    chart.line(share, value, "curve")
    if facts.arm:  # who gets it is not those of the highest scores
        return chart
    chart.upright(facts.chosen.share, "now", id="now-line")
    chart.point(facts.chosen.share, facts.chosen.gain, "now", r="6", id="now-point")
    return chart


def driver_figure(driver: Driver, speech: Speech) -> Figure:
    """Draw what one feature adds to uplift: a curve, bars, or lying bars if names are long."""
    factor, column = speech.factor, driver.column
    change = factor * driver.change
    reach = np.zeros(len(driver.change))
    if driver.has_band:
        reach = 1.96 * factor * driver.error
    low = change - reach
    high = change + reach
    said = [column.said(float(v)) for v in driver.values]
    words = (
        f"Uplift by {column.name}",
        f"What each value of {column.name} adds to the average uplift, {speech.per}.",
    )
    sides = spread(np.concatenate([low, high]))
    across = short(column.name, 48)
    change_axis = f"change, {speech.per}"
    if not driver.is_curve and len(driver.levels[0]) > len(said):
        across = (
            f"{short(column.name, 24)}, {len(said)} of {len(driver.levels[0])} values"
        )
    if driver.is_curve:
        ends = (float(driver.values[0]), float(driver.values[-1]))
        chart = Chart(
            *words, ends, sides, across, change_axis, height=210.0, width=360.0
        )
        dates = (
            np.interp([0.1, 0.5, 0.9], [0.0, 1.0], ends)
            if column.holds == TIMES
            else ()
        )
        chart.axes(names=[(float(v), column.said(float(v))) for v in dates])
        if driver.has_band:
            chart.band(driver.values, low, high)
        chart.line(driver.values, change, "curve")
    elif sum(map(len, said)) <= LETTERS:
        ends = (-0.6, len(said) - 0.4)
        chart = Chart(
            *words, ends, sides, across, change_axis, height=210.0, width=360.0
        )
        chart.axes(names=[(float(j), name) for j, name in enumerate(said)])
        for j, (a, c, b) in enumerate(zip(low, change, high, strict=True)):
            chart.bar((j - 0.32, j + 0.32), (0.0, c))
            if b > a:
                chart.upright(j, "whisker", (a, b))
    else:
        chart = _lying(words, said, sides, f"{across}: {change_axis}")
        chart.rows(said, change, (low, high))
    rows = (
        (
            s,
            *(
                speech.scaled(c, a, b)
                if driver.has_band
                else (speech.said(c), "not offered")
            ),
        )
        for s, c, a, b in zip(said, change, low, high, strict=True)
    )
    columns = (column.name, change_axis, "model uncertainty (95%)")
    return _figure(chart, words[0], columns, rows)


def _lying(
    words: tuple[str, str], names: list[str], ends: tuple[float, float], across: str
) -> Chart:
    """Return a chart with room for a lying bar and a name in each row."""
    height = ROW * len(names) + BOTTOM + TOP
    left = 16.0 + max((_width(short(name)) for name in names), default=0.0)
    return Chart(
        *words, ends, (0.0, 1.0), across, height=height, left=left, width=360.0
    )


def _width(text: str) -> float:
    """Return how much room a name needs on a phone, where letters are largest."""
    return sum(
        13.0 if letter in "mwMW@%" else 10.0 if letter.isupper() else 8.0
        for letter in text
    )


def importance_chart(drivers: Sequence[Driver], speech: Speech) -> Chart:
    """Draw how much uplift varies with each feature."""
    names = [driver.column.name for driver in drivers[:12]]
    sizes = speech.factor * np.array([driver.spread for driver in drivers[:12]])
    chart = _lying(
        (
            "How much uplift varies with each feature",
            "Bars show the standard deviation over people of what the feature adds.",
        ),
        names,
        (0.0, 1.25 * (float(sizes.max(initial=0.0)) or 1.0)),
        f"standard deviation, {speech.per}",
    )
    chart.rows(names, sizes)
    for i, size in enumerate(sizes):
        said = speech.said(size).removeprefix("+")
        chart.write(chart.to_x(size) + 5, TOP + ROW * i + 13, said)
    return chart
