"""What a fit says of its own tables: how policies differ, the average uplift, gains of lists."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from scipy.linalg import eigh, solve

from unjoined._typing import Array, ArrayLike, IntArray, MatrixLike
from unjoined._validation import (
    OUTCOME,
    check_probability,
    check_same_length,
    check_vector,
)
from unjoined.data.chunks import feature_matrix
from unjoined.data.rows import LabelledRows, label_rows
from unjoined.errors import InputError, WeakIdentificationWarning
from unjoined.evaluate.estimate import STRONG, Estimate, Totals, widening
from unjoined.evaluate.sensitivity import EVERYONE, Claim
from unjoined.evaluate.terms import (
    EvaluationRows,
    RatioTerms,
    average_effect,
    cell_positions,
)
from unjoined.model.basis import has_constant
from unjoined.model.centring import center_sums
from unjoined.model.moments import MomentSums, PolicySums, n_functions, sum_policies
from unjoined.model.plan import PlannedSums

FEW_BINS, MANY_BINS = 10, 20
MANY_ROWS = 20_000  # of the smallest table: from here on there are many bins
BIN_ROWS = 50  # of the smallest table that a bin should have
STEADY = 1e-3  # share of the functions' mean square that keeps g from being rough
NARROW = 0.1  # policy gap at which a person counts half, in averages from sums
MOSTLY = 0.85  # mean gap over its root mean square, from which few gaps are of the other sign
SAME = 1e-9  # of the largest score: scores that differ by less are tied


@dataclass(frozen=True, slots=True)
class IdentificationStrength:
    """How far apart the policies are, as far as the treatment rows can tell.

    All gaps are differences in the probability of treatment. For two populations they are
    e_1(x) - e_2(x), between -1 and 1. For more they are twice the standard deviation of e_k over
    the populations, each with its share of the treatment rows: between 0 and 1, and the
    difference again if there are two of the same size.
    """

    mean_gap: float  # in the share treated
    rms_gap: float  # root mean square of the gap over x, corrected for noise; 0 if not detectable
    f_statistic: float  # first-stage F: whether the policies are the same at every x
    degrees: (
        int  # functions of x the gap was projected on, times the populations less one
    )
    populations: tuple[Any, ...] = ()  # their names
    pairs: tuple[
        IdentificationStrength, ...
    ] = ()  # of each two, if there are more than two
    strength: float | None = (
        None  # of the average's denominator, its square over its variance
    )
    n_joint: int = 0  # outcome rows that have both labels
    n_policy: int = 0  # other outcome rows whose probability of treatment is known
    is_known: bool = (
        False  # whether these are all, so that no policy rests on treatment rows
    )
    is_dose: bool = False  # whether gaps are in standard deviations of the dose
    n_clusters: int | None = None  # in which rows depend on each other
    design_effect: float | None = None  # on the variance of the average

    @property
    def is_weak(self) -> bool:
        """Whether the average gap is known too poorly, its strength being below 17.

        Features in which policies do not differ change it little, as they would the F of all
        functions of x. A chi-square below 17 is weak whatever the strength: of a few rows, all of
        them treated, the gap seems to be known exactly. Where no average was made, the chi-square
        has to exceed 17 by what noise alone would hardly reach. What is known and rows with both
        labels do not rest on it.
        """
        is_free = self.is_known or self.n_joint
        chi_square = np.inf if is_free else self.f_statistic * self.degrees
        if self.strength is not None:
            return not min(self.strength, chi_square) >= STRONG
        noise = self.degrees + 2.0 * np.sqrt(2.0 * self.degrees)
        return bool(chi_square - noise < STRONG)

    @property
    def sides(self) -> tuple[str, str] | None:
        """The population of two that treats nearly everyone more, then the other, if one does."""
        if len(self.populations) != 2 or abs(self.mean_gap) < MOSTLY * self.rms_gap:
            return None
        one, two = map(str, self.populations)
        return (one, two) if self.mean_gap > 0.0 else (two, one)

    def known_facts(self, worth: float = np.nan) -> dict[str, Any]:
        """Return what is known of single rows, what one is worth, and what clusters cost."""
        known = {
            name: getattr(self, name) for name in ("n_joint", "n_policy", "is_known")
        }
        clusters = {
            name: getattr(self, name) for name in ("n_clusters", "design_effect")
        }
        return {"known": known | {"worth": worth}} | clusters

    def measured_by(self, average: Estimate | None) -> IdentificationStrength:
        """Return the same with the strength of an average's denominator, if it has one."""
        if average is None or average.ratio is None:
            return self
        return replace(self, strength=average.ratio.strength)

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns of a table of all pairs of populations, ready for a data frame."""
        names = ("mean_gap", "rms_gap", "f_statistic", "degrees", "is_weak")
        pairs = self.pairs or ((self,) if len(self.populations) > 1 else ())
        ends = {"first": 0, "second": 1}
        columns = {
            end: [pair.populations[k] for pair in pairs] for end, k in ends.items()
        }
        return columns | {
            name: [getattr(pair, name) for pair in pairs] for name in names
        }


def identification_strength(
    X: MatrixLike,
    y: ArrayLike,
    **columns: ArrayLike | None,
) -> IdentificationStrength:
    """Measure how different the policies are, the strength of the "instrument".

    The paper's w = +-t has conditional mean e_1(x) - e_2(x), the policy gap. It is projected on
    a constant, the features and their squares, and tested against zero. Of more than two
    populations, what identifies uplift is the spread of their policies: the projections of all
    of them are tested for being equal.

    Parameters
    ----------
    X, y, **columns
        As in ``fit``: treatment, population and perhaps others; pass ``**data`` with a
        `SeparateLabels`. Only treatments and known policies are used.

    Returns
    -------
    IdentificationStrength
        With the strength of each pair of populations in ``pairs`` if there are more than two, and
        as columns of a table in ``to_dict()``.

    Notes
    -----
    Costs O(n d^2), and O(d^3) for each pair of populations. With equal policies w is +1 or -1
    with even odds at every x, so that the covariance under the hypothesis is known exactly and
    the first-stage F (a chi-square divided by its degrees) is about 1. A gap that is neither
    constant, linear nor quadratic in any feature goes unseen. With many features and few rows,
    squares and then slopes are left out so that there are ten rows to each degree of freedom;
    squares also with more than 500 features.

    Of K > 2 populations, p_k being their shares of the treatment rows, the gap at x is
    2 sqrt(sum_k p_k (e_k(x) - e(x))^2) with e = sum_k p_k e_k. The statistic has K - 1 times as
    many degrees of freedom as there are functions.

    Examples
    --------
    >>> from unjoined.data import paper_problem
    >>> far = identification_strength(**paper_problem(b=5.0).draw(1000, random_state=0))
    >>> same = identification_strength(**paper_problem(b=0.0).draw(1000, random_state=0))
    >>> far.is_weak, same.is_weak
    (False, True)
    """
    rows = label_rows(feature_matrix(X), y=y, **columns)
    return strength_of(rows).measured_by(average_effect(rows))


def strength_of(
    rows: LabelledRows, *, n_jobs: int | None = None
) -> IdentificationStrength:
    """Measure the strength from checked rows of two populations or more."""
    if rows.dose is not None:  # squares would be those of the distance from 0
        label = rows.label - rows.label[~rows.is_outcome].mean()
        rows = replace(rows, label=label)
    policy = sum_policies(rows, n_jobs=n_jobs)
    if len(rows.names) == 1:
        strength = IdentificationStrength(0.0, 0.0, 0.0, 1, tuple(rows.names))
    else:
        strength = strength_of_sums(policy, rows.names, rows.X.shape[1])
    if rows.exposure is not None:
        at = rows.of_kind(OUTCOME)
        people = np.ones(len(at)) if rows.count is None else rows.count[at]
        known = ~np.isnan(rows.exposure[at])
        both = np.zeros(len(at), dtype=bool)
        if rows.joint is not None:
            both = ~np.isnan(rows.joint[at])
        strength = replace(
            strength,
            n_joint=int(people[both].sum()),
            n_policy=int(people[known & ~both].sum()),
            is_known=bool(known.all()),
        )
    if rows.is_dose:
        strength = replace(strength, is_dose=True)
    if rows.cluster is None:
        return strength
    return replace(strength, n_clusters=len(np.unique(rows.cluster)))


def strength_of_sums(
    policy: PolicySums, names: Sequence[Any], n_features: int | None = None
) -> IdentificationStrength:
    """Measure the strength from sums over the treatment rows of the populations of these names.

    Populations count by their treatment rows; each of two counts half, whatever its size.
    """
    d = (policy.label.shape[1] - 1) // 2 if n_features is None else n_features
    n = policy.n_rows
    K = len(names)
    q = n_functions(int(n.sum()) // (K - 1), d)
    p = n / n.sum() if K > 2 else np.full(2, 0.5)
    B = policy.label[:, :q] / policy.weight[:, None]  # (K, q) estimates of E_k[t d]
    V = (
        policy.square[:, :q, :q] / policy.weight[:, None, None] ** 2
    )  # covariances, as t^2 = 1
    G = np.tensordot(p / policy.weight, policy.gram[:, :q, :q], axes=1)
    apart = B - p @ B
    inverse = np.linalg.pinv(G, rcond=1e-10, hermitian=True)
    # Noise alone adds p_k (1 - p_k) V_k to the expectation of the spread of the estimates.
    noise = np.trace(inverse @ np.tensordot(p * (1.0 - p), V, axes=1))
    signal = float(np.sum(p * np.einsum("kq,qr,kr->k", apart, inverse, apart)) - noise)
    chi_square, degrees = _against_each_other(B, V)
    return IdentificationStrength(
        mean_gap=float(np.sqrt(p @ apart[:, 0] ** 2) if K > 2 else apart[0, 0]),
        rms_gap=float(np.sqrt(max(signal, 0.0))),
        f_statistic=chi_square / degrees,
        degrees=degrees,
        populations=tuple(names),
        pairs=tuple(
            strength_of_sums(policy.of(i, j), (names[i], names[j]), d)
            for i, j in combinations(range(K), 2)
            if K > 2
        ),
    )


def against_zero(a: Array, V: Array) -> tuple[float, int, Array]:
    """Return the chi-square of an estimate with covariance V, its degrees and V's inverse."""
    values, vectors = eigh(V)
    kept = values > 1e-10 * values[-1]  # squares of 0/1 features repeat the features
    root = vectors[:, kept] / np.sqrt(values[kept])  # root root^T = V^+
    return float(np.sum((root.T @ a) ** 2)), int(kept.sum()), root @ root.T


def _against_each_other(B: Array, V: Array) -> tuple[float, int]:
    """Return the chi-square, and its degrees, of independent estimates being of one vector.

    Each estimate is compared with the best mean of those before it. These differences are
    independent, so that their chi-squares add up to that of all estimates, and covariances need
    not be regular.
    """
    mean = B[0]
    covariance = V[0]
    total, degrees = 0.0, 0
    for b, own in zip(B[1:], V[1:], strict=True):
        chi_square, kept, inverse = against_zero(b - mean, own + covariance)
        total = total + chi_square
        degrees = degrees + kept
        gain = covariance @ inverse
        mean = mean + gain @ (b - mean)
        covariance = covariance - gain @ covariance
    return total, degrees


def warn_if_weak(strength: IdentificationStrength, *, stacklevel: int = 3) -> None:
    """Warn the caller of ``fit`` if the policies can hardly be told apart."""
    if strength.is_weak:
        m = len(strength.populations)
        if m == 1:
            warnings.warn(
                "there is one population, and what is known of treatment hardly varies among "
                "people with the same features. Uplift is weakly identified. Give a second "
                "population that was treated differently, or chances that were drawn by lot.",
                WeakIdentificationWarning,
                stacklevel=stacklevel,
            )
            return
        who, gap = ("two", "+.3f") if m == 2 else (str(m), ".3f")
        known = (
            ""
            if strength.strength is None
            else f" (strength {strength.strength:.1f}, below {STRONG:g})"
        )
        what = "treatment probabilities"
        if strength.is_dose:
            what = "mean doses, in standard deviations,"
        warnings.warn(
            f"the {who} populations' policies can hardly be told apart: {what} differ by "
            f"{strength.mean_gap:{gap}} on average{known}. Uplift is weakly identified "
            "and its error grows like the inverse of that gap. See "
            "`unjoined.identification_strength`.",
            WeakIdentificationWarning,
            stacklevel=stacklevel,
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GainByScore:
    r"""How much people gain by treatment, by where a model ranks them.

    Made of rows that the scores have not seen: people were ranked within their fold, and each
    range of ranks has its own totals :math:`N_j` and :math:`D_j`, whose ratio is the average
    uplift there. The gain of any list of people follows from their predictions alone, with
    Fieller's interval. No training row is kept.

    Attributes
    ----------
    edges : array of shape (J + 1,)
        Predictions, in outcome units, between one bin and the next, and the ends of all of them.
    center : array of shape (J,)
        Mean prediction in each bin.
    numerator, denominator : array of shape (J,)
        :math:`N_j`, outcome units, and :math:`D_j`.
    covariance : array of shape (2, 3 J, 3 J)
        That of all numerators, all denominators, and denominators as they would vary if
        policies were known: if fits of the policies follow the rows, and if they do not. Of an
        estimate the wider one counts.
    share : array of shape (J,)
        Of the training rows in each bin.
    sway, picked : array of shape (J,)
        How far numerators move at most if equal people of two populations differ by 1, and if those
        treated gain by 1 more or less than equal people would.
    speaks_for : float
        Share of people for whom the policies differ enough to tell, from 0 to 1.
    rise : Estimate
        By how much uplift rises from the person ranked lowest to the one ranked highest, measured
        by the squared gap of the policies: that tells best whether people differ, and is 0 on
        average where they do not.
    relative : Estimate or None
        Average uplift of everyone over their mean outcome without treatment; None if outcomes may
        be negative, or that mean cannot be told from 0.

    Notes
    -----
    People count in a bin as in every average: fully where policies differ by 0.2 or more. Measured
    by the squared gap averages would vary less, by a third in hard cases, and be those of other
    people where uplift goes along with the gap in a way that the model has missed.

    Two fits without one fold each have seen most rows in common. Where they rank by noise, what
    one finds in the other's fold is found the other way round as well, so that numerators of bins
    vary more than their rows say: about their total twice as much if noise is all that the fits
    rank by. How much of it is noise is told by how far the fits agree.

    Examples
    --------
    >>> from unjoined import Uplift
    >>> from unjoined.data import campaign_problem
    >>> problem = campaign_problem()
    >>> model = Uplift(random_state=0).fit(**problem.draw(2000, random_state=0))
    >>> uplift = model.predict(problem.draw_joint(1000, random_state=1).X)
    >>> gain = model.gain_.gain(uplift, uplift > np.quantile(uplift, 0.7))
    >>> low, high = gain.interval(0.95)
    >>> bool(low < gain.value < high)
    True
    """

    edges: Array
    center: Array
    numerator: Array
    denominator: Array
    covariance: Array
    share: Array
    sway: Array
    picked: Array
    speaks_for: float
    rise: Estimate
    relative: Estimate | None = None

    def __post_init__(self) -> None:
        """Refuse numbers that do not belong together, as a file may hold them."""
        J = len(self.share)
        if np.shape(self.covariance)[1:] != (3 * J, 3 * J):
            raise InputError(
                f"the record of gains has {J} bins and covariances of shape "
                f"{np.shape(self.covariance)}, not (2, {3 * J}, {3 * J}). Fit the model again."
            )

    def __repr__(self) -> str:
        """Return what is kept, without its numbers."""
        return f"GainByScore({len(self.share)} bins, speaks for {self.speaks_for:.0%} of people)"

    @classmethod
    def of_rows(
        cls,
        evaluation: EvaluationRows,
        score: Array,
        predicted: Array,
        weight: Array,
        noise: float,
        change: float = 0.0,
    ) -> GainByScore:
        """Make the record from out-of-fold scores of all rows, ranked within the rows' folds.

        ``predicted`` (m,) are predictions of the model itself at training rows that count by
        ``weight``: they say where bins end. Scores are in the units of the predictions. ``noise``
        is the share of it in what the fits rank by, as `ranking_noise` tells it. All people are
        taken to gain more by ``change``, outcome units, than was measured.
        """
        fewest = int(np.bincount(evaluation.cell, evaluation.count).min())
        few = int(np.clip(fewest // BIN_ROWS, 1, FEW_BINS))
        edges, below = _edges(
            predicted, weight, MANY_BINS if fewest >= MANY_ROWS else few
        )
        J = len(below) + 1
        people = evaluation.share * evaluation.aim
        rank = np.empty(len(score))
        for at in cell_positions(evaluation.fold):
            rank[at] = mid_ranks(score[at], people[at])
        place = np.searchsorted(below, rank, side="right")
        terms = evaluation.terms(evaluation.omega()).shifted(change)
        share = np.diff(np.concatenate([[0.0], below, [1.0]]))
        apart = np.eye(J) - share[:, None]  # takes off each bin's share of the total

        def binned(
            terms: RatioTerms, gain: Array, counted: Array
        ) -> tuple[Array, Array, Array]:
            totals = terms.by_bin(place, J, gain, terms.denominator, counted)
            ways = totals.ways.copy()
            ways[:, :J, :J] += noise * apart @ ways[:, :J, :J] @ apart.T
            return totals.value[:J], totals.value[J : 2 * J], ways

        sway, picked = (
            np.bincount(place, terms.share * moved, J).astype(np.float64)
            for moved in (terms.sway, terms.picked)
        )
        inside = np.searchsorted(edges[1:-1], predicted, side="right")
        there = np.bincount(inside, weight, J)
        center = np.divide(
            np.bincount(inside, weight * predicted, J),
            there,
            out=0.5 * (edges[:-1] + edges[1:]),
            where=there > 0.0,
        )
        record = cls(
            edges,
            center,
            *binned(terms, terms.gain, terms.counted),
            share,
            sway,
            picked,
            terms.speaks_for,
            Estimate(np.nan, np.nan),
            evaluation.relative(terms),
        )
        # Whoever counts, people who gain alike have no slope: that needs no known policy.
        shown = evaluation.where_it_shows(place, J)
        numerator, denominator, covariance = binned(
            shown, shown.numerator, shown.denominator
        )
        measured = replace(
            record, numerator=numerator, denominator=denominator, covariance=covariance
        )
        return replace(record, rise=measured.slope())

    def everyone(self) -> Estimate:
        """Return the average uplift of all people who were ranked, outcome units.

        Returns
        -------
        Estimate
            Its interval is Fieller's.
        """
        one = np.ones(len(self.share))
        return self._ratio(one, one)

    def claim(
        self,
        uplift: ArrayLike | None = None,
        rule: ArrayLike | None = None,
        *,
        name: str = "list",
        cost: float = 0.0,
    ) -> Claim:
        """Return the claim that treating people by a rule gains more than it costs.

        Parameters
        ----------
        uplift, rule : array-like of shape (n,), optional
            As in `gain`. Default: everyone who was ranked is treated.
        name : str, default="list"
            What the claim is about.
        cost : float, default=0.0
            Of treating a person, outcome units.

        Returns
        -------
        Claim
            Its gain is that of each person treated. Costs O(n).
        """
        if uplift is None or rule is None:
            h, gain, name = np.ones(len(self.share)), self.everyone(), EVERYONE
        else:
            _, h = self._treated(uplift, rule)
            gain = self.average(uplift, rule)
        D = abs(float(h @ self.denominator))
        sway, picked = (float(h @ each) for each in (self.sway, self.picked))
        sway, picked = (each / D if D > 0.0 else math.inf for each in (sway, picked))
        return Claim(name, gain, 1.0, sway, picked, cost)

    def slope(self) -> Estimate:
        """Return by how much uplift rises from the person ranked lowest to the one ranked highest.

        Returns
        -------
        Estimate
            The slope of a line through the bins' averages, outcome units; nan for a single bin.
            People who were ranked have not been seen by the fits that ranked them. No model of
            outcomes is needed for it to be centred on 0 where all gain alike.
        """
        rank = np.cumsum(self.share) - 0.5 * self.share
        return self._line(rank)[0] if len(rank) > 1 else Estimate(np.nan, np.nan)

    def _line(self, at: Array) -> tuple[Estimate, Array]:
        """Return the slope of the bins' averages by a number of each bin, and its numerators."""
        N, D = self.numerator, self.denominator
        if not D.sum() > 0.0:
            return Estimate(np.nan, np.nan), np.zeros_like(D)
        apart = at - at @ D / D.sum()
        spread = float(apart**2 @ D)
        if not spread > 0.0:
            return Estimate(np.nan, np.nan), np.zeros_like(D)
        weight = apart / spread
        theta = N.sum() / D.sum()
        both = np.concatenate([weight, np.zeros_like(D), -theta * weight])
        variance = float((both @ self.covariance @ both).max())
        return Estimate(float(weight @ N), float(np.sqrt(max(variance, 0.0)))), weight

    def _ratio(self, gained: Array, counted: Array) -> Estimate:
        """Return the ratio of sums of numerators and of denominators, by weights (J,) each."""
        value = (self.numerator, self.denominator, self.denominator)
        weights = np.kron(np.eye(3), np.ones(len(counted)))
        weights *= np.concatenate([gained, counted, counted])
        return Totals(np.concatenate(value), self.covariance).per_person(*weights)

    def bins(self, uplift: ArrayLike) -> IntArray:
        """Return the bin of each person, from 0 for the lowest predictions.

        Parameters
        ----------
        uplift : array-like of shape (n,)
            Predictions of the model, outcome units.

        Returns
        -------
        array of shape (n,)
        """
        scores = check_vector("uplift", uplift)
        return np.searchsorted(self.edges[1:-1], scores, side="right")

    def gain(self, uplift: ArrayLike, rule: ArrayLike) -> Estimate:
        """Return the total gain of treating people by a rule, over treating nobody.

        Parameters
        ----------
        uplift : array-like of shape (n,)
            Predictions of the model for the people of the list, outcome units; of an offer that
            is taken up or not those of ``predict_gain``.
        rule : array-like of shape (n,)
            Probability that each of them is treated, or whether.

        Returns
        -------
        Estimate
            In units of the outcome, summed over people. Its interval is Fieller's; it is infinite
            where the tables cannot bound it. Costs O(n), and no row of the fit.

        Raises
        ------
        InputError
            Lengths differ, a number is not finite, or a rule lies outside of 0 to 1.
        """
        count, _ = self._treated(uplift, rule)
        return self.average(uplift, rule).times(count) if count else Estimate(0.0, 0.0)

    def average(self, uplift: ArrayLike, rule: ArrayLike) -> Estimate:
        """Return the gain for each person treated by a rule, over treating nobody.

        Parameters
        ----------
        uplift, rule
            As in `gain`.

        Returns
        -------
        Estimate
            In units of the outcome; nan if nobody is treated.
        """
        count, h = self._treated(uplift, rule)
        if not count:
            return Estimate(np.nan, np.nan)
        top = h
        if len(h) > 1:
            # A part of a bin is as far from its average as its predictions are, times the slope
            # of averages over predictions.
            scores = np.clip(
                check_vector("uplift", uplift), self.edges[0], self.edges[-1]
            )
            off = (
                (scores - self.center[self.bins(uplift)])
                @ np.asarray(rule, dtype=float)
                / count
            )
            top = h + (h @ self.denominator) * off * self._line(self.center)[1]
        return self._ratio(top, h)

    def told(self, uplift: ArrayLike, rule: ArrayLike) -> float:
        """Return the share of the people treated for whom the policies differ enough to tell.

        `gain` takes the others to gain as much, bin by bin. This share of it was measured. It is
        corrected by treatments that the policies' fits had not seen, as ``speaks_for`` is not.

        Parameters
        ----------
        uplift, rule
            As in `gain`.

        Returns
        -------
        float
            From 0 to 1; nan if nobody is treated.
        """
        share = self._treated(uplift, rule)[1] @ self.denominator
        return float(np.clip(share, 0.0, 1.0))

    def _treated(self, uplift: ArrayLike, rule: ArrayLike) -> tuple[float, Array]:
        """Return how many are treated, and their share in each bin over the record's share."""
        treated = check_probability("rule", rule)
        check_same_length(uplift=check_vector("uplift", uplift), rule=treated)
        count = float(treated.sum())
        J = len(self.share)
        if count == 0.0:
            return count, np.full(J, np.nan)
        return count, np.bincount(self.bins(uplift), treated, J) / (count * self.share)


def _edges(predicted: Array, weight: Array, n_bins: int) -> tuple[Array, Array]:
    """Return the ends of bins of equal shares, and the share of people below those inside.

    Predictions that are tied share a bin, so that there may be fewer bins than asked for.
    """
    order = np.argsort(predicted, kind="stable")
    values = predicted[order]
    mass = np.cumsum(weight[order])
    tied = SAME * float(np.abs(values).max(initial=0.0))
    starts = 1 + np.flatnonzero(
        np.diff(values) > tied
    )  # of each run of values but the first
    below = mass[starts - 1] / mass[-1]
    wanted = np.arange(1, n_bins) / n_bins if len(starts) else ()
    chosen = np.unique([np.abs(below - share).argmin() for share in wanted]).astype(
        np.int64
    )
    at = starts[chosen]
    return np.insert(values[[0, -1]], 1, 0.5 * (values[at - 1] + values[at])), below[
        chosen
    ]


def ranking_noise(scores: Array, weight: Array | None = None) -> float:
    """Return the share of noise in what fits without one fold each rank by, from 0 to 1.

    ``scores`` (m, K) are those of all fits at the same people, who count by ``weight``. Noise of
    two such fits is that of the rows they share, K - 2 folds of K - 1, so that it agrees to that
    extent.
    """
    K = scores.shape[1]
    if (
        np.ptp(scores, axis=0).min() <= SAME * np.abs(scores).max()
    ):  # somebody ranks nobody
        return 1.0
    weight = np.ones(len(scores)) if weight is None else weight
    ranks = np.column_stack([mid_ranks(column, weight) for column in scores.T])
    spread = np.cov(ranks.T, aweights=weight)
    size = np.sqrt(np.diag(spread))
    agreement = ((spread / np.outer(size, size)).sum() - K) / (K * (K - 1))
    return float(np.clip((1.0 - agreement) * (K - 1), 0.0, 1.0))


def mid_ranks(score: Array, weight: Array) -> Array:
    """Return the share of weight below each score plus half of the tied, from 0 to 1."""
    order = np.argsort(score, kind="stable")
    tied = SAME * float(np.abs(score).max(initial=0.0))
    run = np.zeros(
        len(score), dtype=np.int64
    )  # of nearly equal scores, the lowest first
    run[order[1:]] = np.cumsum(np.diff(score[order]) > tied)
    size = np.bincount(run, weight)
    return np.asarray((np.cumsum(size) - 0.5 * size)[run] / size.sum())


def average_effect_of_sums(planned: PlannedSums) -> Estimate:
    r"""Return the average uplift from sums of rows alone, outcome units.

    For a function g in the span of the sums' functions, the contrasts of outcomes and of
    treatments estimate :math:`E[g d u]` and :math:`E[g d]`, d being the policy gap; their ratio is
    an average of the uplift. With a constant among the functions, g is about
    :math:`d / (d^2 + 0.01)`, so that people count alike where policies differ; without, g is about
    d. Each group of rows is met by the g of the others. The variance is that of leaving out one
    group at a time, widened for few groups. Costs O(p^3) for each group.
    """
    two = planned.in_two_groups()
    plan, sums = two.plan, two.sums
    constant = has_constant(plan.basis)
    if constant and not plan.centring:
        sums = center_sums(sums, plan.basis)
    p, groups = plan.basis.size, sums.groups
    value = np.zeros(
        (2, len(groups), 2, 2)
    )  # numerator or denominator; group; population; sum
    for i, group in enumerate(groups):
        g = _weights_without(sums, group, p, constant=constant)
        value[:, i, :, 0] = sums.label_basis[:, :, group, :p] @ g
        value[:, i, :, 1] = sums.weight[:, :, group]
    scale = np.array([plan.coding.scale, 0.5])  # treatments are -1/+1
    left = np.array(
        [scale * _contrast(np.delete(value, i, 1)) for i in range(len(groups))]
    )
    G = len(groups)
    apart = left - left.mean(axis=0)
    covariance = widening(G) ** 2 * (G - 1) / G * apart.T @ apart
    return Totals(scale * _contrast(value), covariance[None]).ratio(0, 1)


def _contrast(value: Array) -> Array:
    """Return the difference of the populations' means, of outcomes and of treatments."""
    total = value.sum(axis=1)
    mean = total[..., 0] / np.where(total[..., 1] > 0.0, total[..., 1], np.nan)
    return np.asarray(mean[:, 0] - mean[:, 1])


def _weights_without(sums: MomentSums, group: int, p: int, *, constant: bool) -> Array:
    """Return the coefficients of g, from all groups but one if every table has others."""
    others = sums.without(group).over_groups()
    if others.weight.min() == 0.0:
        others = sums.over_groups()
    weight = others.weight[..., None]
    C = (others.gram[..., :p, :p] / weight[..., None]).mean(axis=(0, 1))
    C[np.diag_indices(p)] += STEADY * max(float(np.trace(C)) / p, 1e-300)
    if not constant:
        first, second = others.label_basis[1, :, :p] / weight[1]
        return np.asarray(solve(C, 0.5 * (first - second), assume_a="pos"))
    first, second = others.label_cross[1, :, :p, :p] / weight[1, ..., None]
    A = 0.5 * (first - second)
    met = solve(C, np.column_stack([A, C[:, 0]]), assume_a="pos")
    return np.asarray(
        solve(A.T @ met[:, :p] + NARROW**2 * C, A.T @ met[:, p], assume_a="pos")
    )
