"""A number with its standard error and interval, and how results are shown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from html import escape
from importlib.util import find_spec
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
from scipy.special import stdtrit
from scipy.stats import chi2

from unjoined._support import import_extra
from unjoined._typing import Array, Frame
from unjoined._validation import check_option
from unjoined.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Pieces = tuple[tuple[float, float], ...]  # intervals, from the left to the right
# Strength D^2 / V_D of a ratio's denominator. Below the first, the interval is unbounded. Above
# the second, (2.5 + 1.645)^2, intervals by the normal law cover 90 % or more, with 95 %
# confidence. Above the third all forms of the estimate agree.
BOUNDED, STRONG, PLENTY = 3.84, 17.0, 100.0
IDENTIFIED, WEAK, UNKNOWN = "identified", "weakly identified", "not identified"
# Shares of people told of. Below the first, what was measured is told apart; below the second, a
# decision rests on people of whom nobody knows.
NEARLY_ALL, MANY = 0.9, 0.8


def verdict_of(strength: float) -> str:
    """Return what a strength of the policy gap means for intervals."""
    if strength >= STRONG:
        return IDENTIFIED
    return WEAK if strength >= BOUNDED else UNKNOWN


def critical_value(level: float) -> float:
    """Return how many standard errors a normal interval of this level reaches to each side."""
    if not 0.0 < level < 1.0:
        raise InputError(
            f"level must lie strictly between 0 and 1, got {level}. Write 0.95 for 95 percent."
        )
    return NormalDist().inv_cdf(0.5 + level / 2.0)


@dataclass(frozen=True, slots=True)
class Ratio:
    """Two totals whose ratio is an estimate, and how far they vary, alone and together."""

    numerator: float
    denominator: float
    numerator_variance: float
    denominator_variance: float
    covariance: float

    @property
    def value(self) -> float:
        """The ratio; nan if the denominator is 0."""
        return self.numerator / self.denominator if self.denominator else math.nan

    @property
    def strength(self) -> float:
        """Squared denominator over its variance: how far it is from 0."""
        square = self.denominator**2
        variance = self.denominator_variance
        return (
            square / variance if variance > 0.0 else (math.inf if square > 0.0 else 0.0)
        )

    @property
    def standard_error(self) -> float:
        """Standard error by the delta method; nan if the denominator is 0."""
        if not self.denominator:
            return math.nan
        theta = self.value
        variance = self.numerator_variance - 2.0 * theta * self.covariance
        variance += theta**2 * self.denominator_variance
        return math.sqrt(max(variance, 0.0)) / abs(self.denominator)

    def fieller(self, z: float) -> Pieces:
        r"""Return all :math:`\theta` with :math:`|N - \theta D|` within ``z`` standard errors of 0.

        With :math:`A = D^2 - z^2 V_D`, :math:`B = N D - z^2 C` and :math:`G = N^2 - z^2 V_N` they
        solve :math:`A \theta^2 - 2 B \theta + G \le 0`: an interval if the denominator is clear of
        0, else all but an interval, or the whole line.
        """
        a = self.denominator**2 - z**2 * self.denominator_variance
        b = self.numerator * self.denominator - z**2 * self.covariance
        g = self.numerator**2 - z**2 * self.numerator_variance
        root = b**2 - a * g
        if a > 0.0:
            half = math.sqrt(max(root, 0.0))
            return (((b - half) / a, (b + half) / a),)
        if not root > 0.0 or a == 0.0:  # also where a variance is nan
            return ((-math.inf, math.inf),)
        half = math.sqrt(root)
        return (-math.inf, (b + half) / a), ((b - half) / a, math.inf)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its standard error, both in the same units.

    Attributes
    ----------
    value : float
        The estimate.
    standard_error : float
        Standard deviation the estimate would have over repeated draws of the rows; nan
        where the rows are too few to tell.
    ratio : Ratio or None
        The two totals that the estimate is the ratio of. Its interval is then Fieller's, which
        holds however close the denominator is to 0, where a standard error says nothing.

    Examples
    --------
    >>> low, high = Estimate(0.12, 0.05).interval(0.95)
    >>> round(low, 3), round(high, 3)
    (0.022, 0.218)

    A ratio whose denominator may be 0 has no bounded interval:

    >>> weak = Estimate.of_ratio(Ratio(0.1, 0.2, 0.0001, 0.04, 0.0))
    >>> weak.interval(0.95)
    (-inf, inf)
    >>> [(round(low, 2), round(high, 2)) for low, high in weak.confidence_set(0.95)]
    [(-inf, -0.52), (0.16, inf)]
    """

    value: float
    standard_error: float
    ratio: Ratio | None = field(default=None, repr=False)

    @classmethod
    def of_ratio(cls, ratio: Ratio) -> Estimate:
        """Return the ratio of two totals as an estimate."""
        return cls(ratio.value, ratio.standard_error, ratio)

    def shrunk_towards(self, model: Estimate) -> float:
        """Return a number that holds whatever a model is, brought towards the model's own.

        If the model is right, its estimate is the surer one, and the difference of both has the
        difference of their variances, or a fourth of this one's where they seem to be as sure as
        each other. What is beyond two such standard errors tells against it.

        Parameters
        ----------
        model : Estimate
            In the same units.

        Returns
        -------
        float
            The model's value up to two standard errors apart; beyond, ever closer to this one.
        """
        apart = self.value - model.value
        own = self.standard_error**2
        spread = max(own - model.standard_error**2, 0.25 * own)
        kept = max(1.0 - 4.0 * spread / apart**2, 0.0) if apart else 0.0
        return model.value + kept * apart

    def times(self, factor: float) -> Estimate:
        """Return a multiple of it, by a factor above 0."""
        ratio = self.ratio
        if ratio is not None:
            ratio = replace(
                ratio,
                numerator=factor * ratio.numerator,
                numerator_variance=factor**2 * ratio.numerator_variance,
                covariance=factor * ratio.covariance,
            )
        return Estimate(factor * self.value, factor * self.standard_error, ratio)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the confidence interval, in the units of ``value``.

        Parameters
        ----------
        level : float, default=0.95
            Share of repeated draws whose interval covers the truth, strictly between 0 and 1.

        Returns
        -------
        tuple of float
            Lower and upper end: by the normal approximation, or Fieller's for a ratio. Both are
            infinite where the rows bound the ratio on neither side.
        """
        pieces = self.confidence_set(level)
        return pieces[0][0], pieces[-1][1]

    def confidence_set(self, level: float = 0.95) -> Pieces:
        """Return what the interval is the hull of: one interval, or two that reach to infinity.

        Parameters
        ----------
        level : float, default=0.95
            As in `interval`.

        Returns
        -------
        tuple of pairs of float
            Ends of each interval, from the left to the right. There are two if a ratio's
            denominator cannot be told from 0 but its numerator can: the ratio is then not small,
            and its sign is unknown.
        """
        return self.within(critical_value(level))

    def within(self, z: float) -> Pieces:
        """Return the confidence set that reaches as many standard errors to each side."""
        if self.ratio is not None:
            return self.ratio.fieller(z)
        return (
            (
                self.value - z * self.standard_error,
                self.value + z * self.standard_error,
            ),
        )

    def covers(self, truth: float, level: float = 0.95) -> bool:
        """Return whether the confidence set holds a number.

        Parameters
        ----------
        truth : float
            In the units of ``value``.
        level : float, default=0.95
            As in `interval`.

        Returns
        -------
        bool
        """
        return any(low <= truth <= high for low, high in self.confidence_set(level))


def widening(n_groups: int) -> float:
    """Return what standard errors from few groups are multiplied by, so that 95 % is 95 %."""
    return (
        float(stdtrit(n_groups - 1, 0.975)) / critical_value(0.95)
        if n_groups > 1
        else math.nan
    )


@dataclass(frozen=True, slots=True, eq=False)
class Totals:
    """Totals over the rows and their covariance: what every estimate is a ratio of two of."""

    value: Array  # (m,)
    ways: Array  # (w, m, m) covariances, one for each way that totals may vary

    @property
    def covariance(self) -> Array:
        """Covariance in the first of the ways, shape (m, m)."""
        return np.asarray(self.ways[0])

    @property
    def variance(self) -> Array:
        """Variance of each total, in the way that it varies most, shape (m,)."""
        return np.asarray(np.einsum("wii->wi", self.ways).max(axis=0))

    def ratio(self, numerator: int, denominator: int) -> Estimate:
        """Return the ratio of two totals, in the way that it varies most."""
        i, j = numerator, denominator
        N, D = float(self.value[i]), float(self.value[j])
        ratios = [
            Ratio(N, D, float(V[i, i]), float(V[j, j]), float(V[i, j]))
            for V in self.ways
        ]
        return Estimate.of_ratio(max(ratios, key=lambda ratio: ratio.standard_error))

    def per_person(
        self, numerator: Array, denominator: Array, counted: Array
    ) -> Estimate:
        r"""Return the ratio of two sums of totals, by weights (m,), whose policies were fitted.

        ``counted`` are the weights of a sum that adds up to the denominator, and varies as it
        would if the policies were known. With fitted policies people count a little more or less
        than they should, which is no matter where all gain alike. Elsewhere it adds
        :math:`\theta (D - C)` to the numerator: 0 in total, but not in how it varies. Fits follow
        the rows only in part, so that of two ways to vary the wider one is taken.
        """
        D = float(denominator @ self.value)
        theta = float(numerator @ self.value) / D if D else 0.0
        moved = numerator + theta * (denominator - counted)
        return self.combined(np.array([moved, denominator])).ratio(0, 1)

    def combined(self, weights: Array) -> Totals:
        """Return other totals that are sums of these, by weights of shape (k, m)."""
        return Totals(weights @ self.value, weights @ self.ways @ weights.T)

    def chi_square(self) -> tuple[float, float]:
        """Return the squared distance of the totals from 0 in their own metric, and its p-value."""
        scale = np.sqrt(np.maximum(np.diag(self.covariance), 0.0))
        kept = scale > 0.0
        unit = scale[kept]
        size, directions = np.linalg.eigh(
            self.covariance[np.ix_(kept, kept)] / np.outer(unit, unit)
        )
        regular = size > 1e-9 * max(float(size.max(initial=0.0)), 1e-300)
        along = directions[:, regular].T @ (self.value[kept] / unit)
        statistic = float(along @ (along / size[regular]))
        return statistic, float(chi2.sf(statistic, np.count_nonzero(regular)))


ResultTable = tuple[
    str, tuple[str, ...], Sequence[tuple[str, ...]]
]  # title, columns, rows


class Shown:
    """A result that prints as sentences and tables, in plain text or as HTML for notebooks."""

    __slots__ = ()
    level: float

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain words and numbers, ready for JSON."""
        plain: dict[str, Any] = as_plain(self, self.level)
        return plain

    def to_frame(self, library: str | None = None) -> Frame:
        """Return what was found as a data frame, a row for each number that has an interval.

        Parameters
        ----------
        library : {"pandas", "polars", "pyarrow"}, optional
            Of which library; by default the first of these that is installed.

        Returns
        -------
        data frame

        Raises
        ------
        MissingExtraError
            None of them is installed.
        """
        return as_frame(self.frame_rows(), library)

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return the rows of the data frame."""
        raise NotImplementedError

    def sentences(self) -> list[str]:
        """Return what was found in words, the answer first."""
        raise NotImplementedError

    def result_tables(self) -> list[ResultTable]:
        """Return what is shown as tables, all of it text: each a title, columns and rows."""
        raise NotImplementedError

    def __str__(self) -> str:
        """Return what was found, as text."""
        return as_text(self.sentences(), self.result_tables())

    def __repr__(self) -> str:
        """Return the same."""
        return str(self)

    def _repr_html_(self) -> str:
        """Return the same as HTML."""
        return as_html(self.sentences(), self.result_tables())


def as_text(lines: Sequence[str], tables: Sequence[ResultTable]) -> str:
    """Return sentences and tables as text."""
    text = list(lines)
    for title, columns, rows in tables:
        width = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
        text += ["", title]
        for row in (columns, *rows):
            cells = [cell.ljust(w) for cell, w in zip(row, width, strict=True)]
            text.append("  ".join(cells).rstrip())
    return "\n".join(text)


def as_html(lines: Sequence[str], tables: Sequence[ResultTable]) -> str:
    """Return sentences and tables as HTML."""
    parts = [f"<p>{escape(line)}</p>" for line in lines]
    for title, columns, rows in tables:
        head = "".join(f"<th>{escape(column)}</th>" for column in columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
            for row in rows
        )
        parts.append(
            f"<p><b>{escape(title)}</b></p><table><tr>{head}</tr>{body}</table>"
        )
    return "".join(parts)


def as_frame(
    rows: Sequence[Mapping[str, Any]],
    library: str | None = None,
    names: Sequence[str] | None = None,
) -> Frame:
    """Return rows as a data frame of a library, by default of the first that is installed."""
    libraries = ("pandas", "polars", "pyarrow")
    if library is None:
        library = next((name for name in libraries if find_spec(name)), "pandas")
    backend = import_extra(check_option("library", library, libraries), extra="cli")
    columns = {name: [row[name] for row in rows] for name in names or rows[0]}
    return nw.from_dict(columns, backend=backend).to_native()


def bare_axes(ax: Axes | None, height: float) -> Axes:
    """Return axes without a frame at the top and right, in a new figure of a height by default."""
    if ax is None:
        pyplot = import_extra("matplotlib.pyplot", extra="plot")
        ax = pyplot.figure(figsize=(6.4, height), layout="constrained").add_subplot()
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def draw_intervals(
    named: Sequence[tuple[str, Estimate]], level: float, ax: Axes | None = None
) -> Axes:
    """Draw estimates with their intervals, one below the other; grey if the interval holds 0.

    A hollow mark has no interval: the tables cannot bound it.
    """
    ax = bare_axes(ax, 1.2 + 0.4 * len(named))
    for y, (_, estimate) in enumerate(named):
        low, high = estimate.interval(level)
        bounded = math.isfinite(low) and math.isfinite(high)
        colour = "C0" if bounded and not low <= 0.0 <= high else "0.5"
        if bounded:
            ax.plot([low, high], [y, y], color=colour, lw=2)
        ax.plot(
            [estimate.value],
            [y],
            "o",
            color=colour,
            mfc=colour if bounded else "none",
            ms=6,
        )
    ax.set_yticks(range(len(named)), [name for name, _ in named], fontsize="small")
    ax.invert_yaxis()
    ax.margins(y=0.25 if len(named) < 4 else 0.05)
    ax.axvline(0.0, color="0.3", lw=0.8)
    return ax


def estimate_dict(estimate: Estimate, level: float) -> dict[str, Any]:
    """Return an estimate as plain numbers, with the pieces of its confidence set."""
    low, high = estimate.interval(level)
    return {
        "value": estimate.value,
        "standard_error": estimate.standard_error,
        "low": low,
        "high": high,
        "bounded": bool(np.isfinite([low, high]).all()),
    }


def as_plain(value: Any, level: float) -> Any:
    """Return results as plain words, numbers, lists and dicts, ready for JSON."""
    if isinstance(value, Estimate):
        return estimate_dict(value, level)
    if is_dataclass(value):
        return {
            item.name: as_plain(getattr(value, item.name), level)
            for item in fields(value)
        }
    if isinstance(value, Mapping):
        named = ((f"{k:g}" if isinstance(k, float) else k, v) for k, v in value.items())
        return {name: as_plain(item, level) for name, item in named}
    if isinstance(value, np.ndarray | list | tuple):
        return [as_plain(item, level) for item in value]
    return value.item() if isinstance(value, np.generic) else value
