"""Charts as plain marks that a template writes as inline SVG.

Inline SVG needs no chart library in the page: it prints sharply, follows the colours of light and
dark screens by its classes, carries a title and a description for screen readers, and a report
stays far below a megabyte. What one would lose, tool tips, tables under each chart give in full.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from unjoined._typing import Array
from unjoined.report.words import number

WIDTH, HEIGHT = 440.0, 280.0
LETTER = 7.5  # width of a digit
LEFT, RIGHT, TOP, BOTTOM = 56.0, 22.0, 14.0, 46.0
ROW = 26.0  # height of a lying bar
LONGEST = 18  # letters of a name beside it


@dataclass(frozen=True, slots=True)
class Mark:
    """One SVG element: its name, its attributes, and the text inside."""

    tag: str
    attributes: dict[str, str]
    text: str = ""


@dataclass(frozen=True, slots=True)
class Scale:
    """From numbers to places on the page."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the place of a number, cut at the ends."""
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + min(max(share, -0.02), 1.02) * (self.end - self.start), 2)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers between two ends."""
    step = 10.0 ** math.floor(math.log10((high - low) / about))
    factor = next(f for f in (1.0, 2.0, 5.0, 10.0) if (high - low) / (f * step) <= about)
    step *= factor
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def spread(values: Array, *, zero: bool = True) -> tuple[float, float]:
    """Return ends that hold all finite numbers, and 0, with some air."""
    known = values[np.isfinite(values)]
    both = np.append(known, 0.0) if zero or not len(known) else known
    low, high = float(both.min()), float(both.max())
    air = 0.06 * (high - low) or max(abs(high), 1.0) * 0.1
    return low - air * (low < 0.0 or not zero), high + air * (high > 0.0 or not zero)


@dataclass(slots=True)
class Chart:
    """A chart under construction; ``title`` and ``tells`` are for those who do not see it."""

    title: str
    tells: str
    x: tuple[float, float]
    y: tuple[float, float]
    across: str = ""
    upward: str = ""
    height: float = HEIGHT
    left: float = LEFT
    width: float = WIDTH
    marks: list[Mark] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make room for the numbers at the left."""
        widest = max([len(_tick(v)) for v in ticks(*self.y)], default=0)
        self.left = max(self.left, 30.0 + LETTER * widest)

    @property
    def to_x(self) -> Scale:
        """Places of horizontal numbers."""
        return Scale(*self.x, self.left, self.width - RIGHT)

    @property
    def to_y(self) -> Scale:
        """Places of vertical numbers."""
        return Scale(*self.y, self.height - BOTTOM, TOP)

    def add(self, tag: str, css: str, text: str = "", **attributes: float | str) -> None:
        """Add an element; underscores in names become hyphens."""
        given = {k.replace("_", "-"): f"{v:g}" if isinstance(v, float) else v
                 for k, v in attributes.items()}  # fmt: skip
        self.marks.append(Mark(tag, {"class": css} | {k: str(v) for k, v in given.items()}, text))

    def write(self, x: float, y: float, text: str, css: str = "label", **more: str) -> None:
        """Write text at a place of the drawing."""
        self.add("text", css, text, x=float(x), y=float(y), **more)

    def line(self, x: Sequence[float] | Array, y: Sequence[float] | Array, css: str) -> None:
        """Draw a line through points, leaving out unknown ones."""
        to_x, to_y = self.to_x, self.to_y
        points = [f"{to_x(a)},{to_y(b)}" for a, b in zip(x, y, strict=True) if np.isfinite(b)]
        self.add("polyline", css, points=" ".join(points))

    def band(self, x: Array, low: Array, high: Array) -> None:
        """Fill what lies between two lines; ends that are unbounded reach the edge."""
        to_x, to_y = self.to_x, self.to_y
        over = [(to_x(a), to_y(min(b, self.y[1]))) for a, b in zip(x, high, strict=True)]
        under = [(to_x(a), to_y(max(b, self.y[0]))) for a, b in zip(x, low, strict=True)]
        points = " ".join(f"{a},{b}" for a, b in [*over, *reversed(under)])
        self.add("polygon", "band", points=points)

    def whisker(self, x: float, low: float, high: float, css: str = "whisker") -> None:
        """Draw a vertical interval."""
        at = self.to_x(x)
        ends = self.to_y(max(low, self.y[0])), self.to_y(min(high, self.y[1]))
        self.add("line", css, x1=at, x2=at, y1=ends[0], y2=ends[1])

    def bar(self, x0: float, x1: float, y: float, css: str = "bar") -> None:
        """Draw an upright bar from 0."""
        left, right, foot, top = self.to_x(x0), self.to_x(x1), self.to_y(0.0), self.to_y(y)
        self.add("rect", css, x=left, y=min(foot, top), width=right - left, height=abs(foot - top))

    def rows(
        self,
        names: Sequence[str],
        values: Array,
        low: Array | None = None,
        high: Array | None = None,
    ) -> None:
        """Draw a lying bar from 0 for each name, one below the other, with intervals if given."""
        to_x, foot = self.to_x, self.height - BOTTOM
        for v in ticks(*self.x) if low is not None else ():
            self.add("line", "rule", x1=to_x(v), x2=to_x(v), y1=TOP, y2=foot)
            self.write(to_x(v), foot + 14, _tick(v), text_anchor="middle")
        for i, (name, value) in enumerate(zip(names, values, strict=True)):
            y, ends = TOP + ROW * i, sorted((to_x(0.0), to_x(value)))
            self.add("rect", "bar", x=ends[0], y=y, height=18.0, width=ends[1] - ends[0])
            self.write(self.left - 8, y + 13, short(name), text_anchor="end")
            if low is not None and high is not None and high[i] > low[i]:
                ends = [to_x(low[i]), to_x(high[i])]
                self.add("line", "whisker", x1=ends[0], x2=ends[1], y1=y + 9, y2=y + 9)
        if low is not None:
            self.add("line", "zero", x1=to_x(0.0), x2=to_x(0.0), y1=TOP, y2=foot)
        self.write(self.width / 2, self.height - 8, self.across, "label axis", text_anchor="middle")

    def axes(self, *, percent: str = "", names: Sequence[tuple[float, str]] = ()) -> None:
        """Draw both axes with round numbers, "x" or "y" in percent, or names along the first."""
        foot, to_x, to_y = self.height - BOTTOM, self.to_x, self.to_y
        for v in ticks(*self.y):
            self.add("line", "rule", x1=self.left, x2=self.width - RIGHT, y1=to_y(v), y2=to_y(v))
            said = f"{v:.0%}" if percent == "y" else _tick(v)
            self.write(self.left - 6, to_y(v) + 4, said, text_anchor="end")
        if self.y[0] < 0.0 < self.y[1]:
            self.add(
                "line", "zero", x1=self.left, x2=self.width - RIGHT, y1=to_y(0.0), y2=to_y(0.0)
            )
        along = names or [(v, f"{v:.0%}" if percent == "x" else _tick(v)) for v in ticks(*self.x)]
        for v, name in along:
            self.write(to_x(v), foot + 17, name, text_anchor="middle")
        self.write((self.left + self.width - RIGHT) / 2, self.height - 8, self.across,
                   "label axis", text_anchor="middle")  # fmt: skip
        turned = f"translate(13 {(TOP + foot) / 2:g}) rotate(-90)"
        self.write(0.0, 0.0, self.upward, "label axis", text_anchor="middle", transform=turned)


def short(text: str, longest: int = LONGEST) -> str:
    """Return text that fits, its end cut off if it is long."""
    return text if len(text) <= longest else f"{text[: longest - 1]}\u2026"


def _tick(value: float) -> str:
    """Return a round number in as few digits as it has."""
    return f"{value:,.6g}" if abs(value) >= 1e-4 or not value else number(value)
