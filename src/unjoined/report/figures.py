"""The charts of a report, each with its numbers as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unjoined._typing import Array
from unjoined.report.charts import BOTTOM, LONGEST, ROW, TOP, Chart, short, spread
from unjoined.report.people import FEWEST, TIMES, Driver
from unjoined.report.words import Speech

if TYPE_CHECKING:
    from unjoined.metrics import Diagnosis
    from unjoined.report.facts import Facts

FULL_GAP = 0.2  # policy gap from which people count in full
BINS = 24
LETTERS = 40  # that fit below a chart


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of words and numbers under a caption."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart, what it shows, and its numbers."""

    chart: Chart
    says: str
    table: Table


def gap_figure(diagnosis: Diagnosis, n_rows: int) -> Figure | None:
    """Draw how the difference in the chance of treatment is spread over people."""
    gap = diagnosis.gap
    if gap is None:
        return None
    least = -FULL_GAP if gap.is_signed else 0.0
    low, high = min(float(gap.quantiles[0]), least), max(float(gap.quantiles[-1]), FULL_GAP)
    edges = np.linspace(low, high, BINS + 1)
    share = np.diff(_share_below(gap.quantiles, edges))
    share[share * n_rows < FEWEST] = 0.0
    inside = np.diff(_share_below(gap.quantiles, np.array([-FULL_GAP, FULL_GAP])))
    chart = Chart(
        "How differently people were treated",
        f"Bars show the share of people at each difference in the chance of treatment. "
        f"For {inside[0]:.0%} of people it is below {FULL_GAP:g}.",
        (low, high),
        (0.0, 1.1 * float(share.max())),
        "difference in the chance of treatment",
        "share of people",
    )
    box = [chart.to_x(least), chart.to_x(FULL_GAP)]
    tall = chart.height - BOTTOM - TOP
    chart.add("rect", "shade", x=box[0], width=box[1] - box[0], y=TOP, height=tall)
    chart.axes(percent="y")
    bars = [bar for bar in zip(edges, edges[1:], share, strict=False) if bar[2]]
    for bar in bars:
        chart.bar(*bar)
    names = [str(name) for name in diagnosis.identification.populations]
    whose = f" ({names[0]} less {names[1]})" if gap.is_signed else ""
    there = f"{inside[0]:.0%} of people are there, and they count only in part"
    says = (
        f"Difference in the chance of treatment{whose}, over people. Where it is shaded, below "
        f"{FULL_GAP:g}, policies are nearly alike: {there if inside[0] >= 0.005 else 'nobody is'}."
    )
    rows = tuple((f"{a:+.2f} to {b:+.2f}", f"{s:.1%}") for a, b, s in bars)
    return Figure(chart, says, Table("People by difference", ("difference", "people"), rows))


def _share_below(quantiles: Array, values: Array) -> Array:
    """Return the share of people below some values, given percentiles."""
    rising = quantiles + 1e-9 * np.arange(len(quantiles))  # so that each is met once
    return np.interp(values, rising, np.linspace(0.0, 1.0, len(quantiles)), left=0.0, right=1.0)


def curve_figure(facts: Facts, speech: Speech) -> Figure:
    """Draw the uplift curve with its uniform band, and the line of a random order."""
    curve, factor = facts.evaluation.curve, speech.factor
    share = curve.share
    value, low, high = (factor * part for part in (curve.value, curve.low, curve.high))
    chart = Chart(
        "Uplift curve",
        f"Gain {speech.per} over treating nobody, against the share treated, the best first, with "
        "a band that holds the whole curve.",
        (0.0, 1.0),
        spread(np.concatenate([value, _most(low), _most(high)])),
        "share of people treated, best first",
        f"gain {speech.per}",
    )
    chart.axes(percent="x")
    chart.band(share, low, high)
    chart.line([0.0, 1.0], [0.0, value[-1]], "random")
    chart.line(share, value, "curve")
    rows = tuple(
        (f"{s:.0%}", speech.said(v), speech.span(a, b))
        for s, v, a, b in zip(share, value, low, high, strict=True)
    )
    columns = ("share treated", f"gain {speech.per}", f"{speech.percent} band")
    says = (
        f"Solid: the gain {speech.per} of all when the best are treated first. Shaded: a band that "
        f"holds the whole curve with {speech.percent} confidence. Dashed: a random order."
    )
    return Figure(chart, says, Table("Uplift curve", columns, rows))


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
    tall = spread(np.concatenate([value, _most(ends.ravel()), predicted]))
    wide = spread(predicted)
    chart = Chart(
        "Predicted and measured uplift",
        "One point for each tenth of the people: measured against predicted uplift, with intervals "
        "and the line of perfect agreement.",
        wide,
        tall,
        f"predicted uplift, {speech.per}",
        f"measured uplift, {speech.per}",
    )
    chart.axes()
    line = [max(wide[0], tall[0]), min(wide[1], tall[1])]
    chart.line(line, line, "random")
    for x, y, (low, high) in zip(predicted, value, ends, strict=True):
        chart.whisker(x, low, high)
        chart.add("circle", "point", cx=chart.to_x(x), cy=chart.to_y(y), r="4.5")
    rows = tuple(
        (f"{each.share:.0%}", speech.said(x), speech.said(y), speech.span(*end))
        for each, x, y, end in zip(bins, predicted, value, ends, strict=True)
    )
    columns = ("people", "predicted", "measured", f"{speech.percent} interval")
    says = (
        "Each point is a group of people with similar scores. On the dashed line, predictions are "
        "right; points that rise from left to right mean that the order is right."
    )
    return Figure(chart, says, Table(f"Uplift by score, {speech.per}", columns, rows))


def gain_chart(facts: Facts) -> Chart:
    """Draw the expected gain of all shares, with a mark that the slider moves."""
    stages = facts.stages
    share = np.array([stage.share for stage in stages])
    value, low, high = (
        np.array([getattr(stage, name) for stage in stages]) for name in ("gain", "low", "high")
    )
    chart = Chart(
        "Expected gain by share treated",
        "The line is the expected gain in total, the band its interval at each share.",
        (0.0, 1.0),
        spread(np.concatenate([value, _most(low), _most(high)])),
        "share of people treated, best first",
        facts.terms.unit,
        height=240.0,
    )
    chart.axes(percent="x")
    chart.band(share, low, high)
    chart.line(share, value, "curve")
    x = chart.to_x(facts.chosen.share)
    chart.add("line", "now", x1=x, x2=x, y1=TOP, y2=chart.height - BOTTOM, id="now-line")
    y = chart.to_y(facts.chosen.gain)
    chart.add("circle", "now", cx=x, cy=y, r="6", id="now-point")
    return chart


def driver_figure(driver: Driver, speech: Speech) -> Figure:
    """Draw what one feature adds to uplift: a curve, bars, or lying bars if names are long."""
    factor, column = speech.factor, driver.column
    change, reach = factor * driver.change, np.zeros(len(driver.change))
    if driver.has_band:
        reach = 1.96 * factor * driver.error
    low, high = change - reach, change + reach
    said = [column.said(float(v)) for v in driver.values]
    words = (
        f"Uplift by {column.name}",
        f"What each value of {column.name} adds to the average uplift, {speech.per}.",
    )
    sides = spread(np.concatenate([low, high]))
    across, change_axis = short(column.name, 48), f"change, {speech.per}"
    if driver.is_curve:
        ends = (float(driver.values[0]), float(driver.values[-1]))
        chart = Chart(*words, ends, sides, across, change_axis, height=210.0, width=360.0)
        _draw_curve(chart, driver, low, change, high)
    elif sum(map(len, said)) <= LETTERS:
        ends = (-0.6, len(said) - 0.4)
        chart = Chart(*words, ends, sides, across, change_axis, height=210.0, width=360.0)
        chart.axes(names=[(float(j), name) for j, name in enumerate(said)])
        for j, (a, c, b) in enumerate(zip(low, change, high, strict=True)):
            chart.bar(j - 0.32, j + 0.32, c)
            if b > a:
                chart.whisker(j, a, b)
    else:
        chart = _lying(words, said, sides, f"{across}: {change_axis}")
        chart.rows(said, change, low, high)
    rows = tuple(
        (s, speech.said(c), speech.span(a, b) if driver.has_band else "not offered")
        for s, c, a, b in zip(said, change, low, high, strict=True)
    )
    columns = (column.name, change_axis, "model uncertainty (95%)")
    return Figure(chart, "", Table(words[0], columns, rows))


def _draw_curve(chart: Chart, driver: Driver, low: Array, change: Array, high: Array) -> None:
    """Draw a curve with its band; times have dates along the axis."""
    dates = np.interp([0.1, 0.5, 0.9], [0.0, 1.0], chart.x) if driver.column.holds == TIMES else ()
    chart.axes(names=[(float(v), driver.column.said(float(v))) for v in dates])
    if driver.has_band:
        chart.band(driver.values, low, high)
    chart.line(driver.values, change, "curve")


def _lying(
    words: tuple[str, str], names: list[str], ends: tuple[float, float], across: str
) -> Chart:
    """Return a chart with room for a lying bar and a name in each row."""
    height = ROW * len(names) + BOTTOM + TOP
    left = 16.0 + 7.0 * min(max(map(len, names), default=0), LONGEST)
    return Chart(*words, ends, (0.0, 1.0), across, height=height, left=left, width=360.0)


def importance_chart(drivers: tuple[Driver, ...], speech: Speech) -> Chart:
    """Draw how much uplift varies with each feature."""
    drivers = drivers[:12]
    names = [driver.column.name for driver in drivers]
    sizes = speech.factor * np.array([driver.spread for driver in drivers])
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


def _most(values: Array) -> Array:
    """Return what is finite: ends that are unbounded do not set the scale."""
    return values[np.isfinite(values)]
