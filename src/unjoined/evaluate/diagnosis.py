"""Whether tables identify uplift: strength, balance, overlap and tests, and a verdict."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import RandomState as Rng
from sklearn.utils import check_random_state

from unjoined._threads import CACHE_ROWS
from unjoined._typing import Array, Frame, IntArray, MatrixLike, RandomState
from unjoined._validation import KINDS, OUTCOME, TREATMENT, check_bool
from unjoined.data.labels import CellSummary
from unjoined.data.rows import LabelledRows
from unjoined.errors import InputError, OverlapWarning
from unjoined.evaluate.bounds import Bounds, bounds_of
from unjoined.evaluate.checks import (
    PANEL,
    Balance,
    Check,
    Sharing,
    check_bounds,
    check_panel,
    check_shared_outcomes,
    check_treated,
    compare,
    correct,
    find_pooled,
    implied_means,
    shared_rows,
    table_doubts,
)
from unjoined.evaluate.estimate import (
    IDENTIFIED,
    PLENTY,
    STRONG,
    UNKNOWN,
    Estimate,
    ResultTable,
    Shown,
    as_frame,
    as_html,
    bare_axes,
)
from unjoined.evaluate.pieces import Scorer, Source
from unjoined.evaluate.regions import NamedFeatures, Region, find_regions
from unjoined.evaluate.sensitivity import Sensitivity, average_claim, sensitivity_of
from unjoined.evaluate.strength import IdentificationStrength, strength_of
from unjoined.evaluate.tables import HeldOutTables, is_source
from unjoined.evaluate.terms import (
    N_FOLDS,
    EvaluationRows,
    agreed_average,
    evaluation_of,
    with_target,
)
from unjoined.evaluate.verdict import (
    COLOURS,
    FEWEST_ROWS,
    NEXT_STEPS,
    PAINT,
    Asides,
    Finding,
    Verdict,
    judge,
)
from unjoined.model.basis import Scaling
from unjoined.model.crossfit import CrossFit
from unjoined.model.regressors import cross_fitted_mean
from unjoined.model.shift import CellShift, effective_size, weigh_shift
from unjoined.words import (
    clusters_in_words,
    in_digits,
    known_in_words,
    p_text,
    treatment_in_words,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# What may keep tables from telling although each population by itself bounds the average.
UNLIKE = {"strength", "regions", "law", "populations", "panel"}
BOUND_ROWS = 10_000  # of a table, by which implied means are judged


@dataclass(frozen=True, slots=True, eq=False)
class PolicyGap:
    """How the difference of treatment probabilities is spread over people.

    Attributes
    ----------
    mean, root_mean_square : Estimate
        Over people, of cross-fitted policies, corrected by treatment rows that these did not see.
        Errors are those of the draw of treatments and of people.
    quantiles : array of shape (101,)
        At 0, 1, ..., 100 percent of people.
    is_signed : bool
        Whether gaps are e_1 - e_2; for more than two populations they are the root mean square of
        all differences of two.
    """

    mean: Estimate
    root_mean_square: Estimate
    quantiles: Array
    is_signed: bool

    @property
    def words(self) -> str:
        """Mean and root mean square with their intervals, at a level of 95 percent."""
        root = self.root_mean_square
        ends = "{:+z.2f} to {:+z.2f}".format(*self.mean.interval())
        above = "{:.2f} to {:.2f}".format(*np.maximum(root.interval(), 0.0))
        return (
            f"{self.mean.value:+z.2f} on average (95% interval {ends}), {root.value:.2f} root mean "
            f"square ({above})"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis(Shown):
    """Whether tables identify uplift, and what that rests on. Printing it shows all of it.

    Attributes
    ----------
    verdict : str
        "identified", "weakly identified" or "not identified".
    findings : tuple of Finding
        What speaks against a better verdict, the worst first.
    tables : tuple of CellSummary
        Rows and mean labels of each table.
    identification : IdentificationStrength
        The first-stage F that fits use, with that of each pair of populations.
    is_randomised : bool
        Whether chance decided who is in which population.
    gap : PolicyGap or None
        None, as are the next ones, if tables have too few rows to measure it.
    strength : float
        Squared policy gap over its variance, over all people, from rows that models did not see.
        Not the first-stage F of ``identification``, which asks whether policies differ at all.
    regions : tuple of Region
        Groups of people by how their treatment differs, described by features.
    speaks_for : Estimate or None
        Share of people for whom evaluations speak: those whose policies differ by 0.2 or more, and
        others by the square of their gap. Estimated as the mean gap is.
    effective_size : float
        Rows of a randomised trial with joined labels, half of them treated, that would measure
        the average uplift of those people as precisely.
    condition : float
        How many times less precisely the worst-known linear function of the features in uplift
        is known than the best-known: 1 if the squared gap is the same for everyone.
    balance : tuple of Balance
        Outcome against treatment table of each population.
    between : tuple of Balance
        Each population against the others.
    shared : tuple of Sharing
        Tables that have rows in common.
    overlap : tuple of CellShift
        How much of the target each table covers; empty without a target.
    implied_outside : float
        Share of outcome rows whose implied mean outcome, with or without treatment, lies beyond
        the two values of the outcome; nan for other outcomes.
    known_worth : float
        As many outcome rows of the tables would tell as much of uplift as one row with both labels
        or a known policy, on average; nan without such rows, inf if the tables tell nothing.
    checks : tuple of Check
        What could have been refuted, with p-values corrected for all of them.
    sensitivity : Sensitivity or None
        By how much equal people may differ between populations before the average turns; None if
        chance decided who is in which population, or with a single one.
    bounds : Bounds or None
        Between what the average lies all the same, if the verdict is "not identified" for reasons
        that leave it something to say, and outcomes are 0 or 1.
    """

    level = 0.95  # not a field: of all intervals that are shown
    tables: tuple[CellSummary, ...]
    identification: IdentificationStrength
    balance: tuple[Balance, ...]
    between: tuple[Balance, ...]
    shared: tuple[Sharing, ...]
    checks: tuple[Check, ...]
    is_randomised: bool = False
    gap: PolicyGap | None = None
    strength: float = math.nan
    regions: tuple[Region, ...] = ()
    speaks_for: Estimate | None = None
    effective_size: float = math.nan
    condition: float = math.nan
    overlap: tuple[CellShift, ...] = ()
    implied_outside: float = math.nan
    known_worth: float = math.nan
    sensitivity: Sensitivity | None = None
    bounds: Bounds | None = None
    verdict: str = UNKNOWN
    findings: tuple[Finding, ...] = ()

    @property
    def colour(self) -> str:
        """The verdict as a colour: "green", "amber" or "red"."""
        return COLOURS[self.verdict]

    @property
    def headline(self) -> str:
        """The verdict in one line: the reason, the remedy, and what was not tested."""
        return self.as_verdict().words

    @property
    def untested(self) -> str:
        """What an answer assumes that these tables cannot show; empty if there is no answer."""
        return self.as_verdict().untested

    @property
    def next_step(self) -> str:
        """What to do with a verdict like this one, a sentence or two."""
        return NEXT_STEPS[self.verdict]

    def as_verdict(self) -> Verdict:
        """Return what a fitted model keeps of it as ``verdict_``."""
        strong = sum(
            region.share for region in self.regions if region.verdict == IDENTIFIED
        )
        names = tuple(map(str, self.identification.populations))
        return Verdict(
            self.verdict,
            self.findings,
            names,
            float(strong),
            self.is_randomised,
            has_panel=any(check.what.startswith(PANEL) for check in self.checks),
        )

    @property
    def is_certain(self) -> bool:
        """Whether policies that differ are known, and not estimated."""
        return self.identification.is_known and self.strength >= STRONG

    def gap_in_words(self, gap: PolicyGap) -> str:
        """Say how different the policies are or, with what rows know, how much they tell."""
        if not gap.is_signed and not math.isnan(self.known_worth):
            return (
                "Gap: with what is known of single rows, the tables tell as much as policies that "
                f"differ by {gap.words}."
            )
        names = [str(name) for name in self.identification.populations]
        whose = f" ({names[0]} less {names[1]})" if gap.is_signed else ""
        treatment = treatment_in_words(self.identification)
        if self.is_certain:
            return (
                f"Gap{whose}: the policies are known, and the {treatment} differs by "
                f"{gap.mean.value:+z.2f} on average, {gap.root_mean_square.value:.2f} root mean "
                "square."
            )
        return f"Gap{whose}: the {treatment} differs by {gap.words}."

    @property
    def reach_words(self) -> str:
        """The share of people evaluations speak for, with its interval at 95 percent."""
        if self.speaks_for is None:
            return "nobody that is known"
        ends = "{:.0%} to {:.0%}".format(*np.clip(self.speaks_for.interval(), 0.0, 1.0))
        return f"{self.speaks_for.value:.0%} of people (95% interval {ends})"

    def without(self, topic: str) -> Diagnosis:
        """Return the same without the findings of a topic, as if it was judged elsewhere."""
        kept = tuple(finding for finding in self.findings if finding.topic != topic)
        verdict = kept[0].verdict if kept else IDENTIFIED
        return replace(self, findings=kept, verdict=verdict)

    def remarks(self) -> list[str]:
        """Return what tables say that cannot tell, and findings that are not in the headline."""
        told = 0 if self.verdict == IDENTIFIED else 1
        bounds = [] if self.bounds is None else self.bounds.sentences()
        return [*bounds, *(str(finding) for finding in self.findings[told:])]

    def sentences(self) -> list[str]:
        """Return the verdict, what speaks against a better one, and what was measured."""
        return [self.headline, *self.remarks(), *self.measurements()]

    @property
    def turning(self) -> str:
        """How far equal people may differ between populations; empty if there is no answer."""
        if self.sensitivity is None or self.verdict == UNKNOWN:
            return ""
        return self.sensitivity.in_words(self.sensitivity.average)

    def measurements(self) -> list[str]:
        """Return what was measured of all people, a sentence or two each."""
        gap = self.gap
        if gap is None:
            return []
        low, high = gap.quantiles[[5, 95]]
        treatment = treatment_in_words(self.identification)
        lines = [
            f"{self.gap_in_words(gap)} Nine in ten people lie between {low:+.2f} and {high:+.2f}.",
            "Strength: it has no limit, as what is known of treatment need not be estimated."
            if self.is_certain
            else f"Strength: {in_digits(self.strength)} over all people. {STRONG:g} or more "
            f"identifies the average, {PLENTY:g} or more is plenty.",
            f"Reach: evaluations speak for {self.reach_words}, those whose {treatment} "
            "differs. For their average uplift the tables are worth a trial of "
            f"{in_digits(self.effective_size)} people with joined labels.",
            f"Trends: the worst-known linear trend in uplift has {in_digits(self.condition)} "
            "times the standard error of the best-known one.",
        ]
        if self.is_randomised:
            lines.append(
                f"Offer: about {abs(gap.mean.value):.0%} of people take it up because of it. The "
                "answer is for them."
            )
        if known := known_in_words(self.identification, self.known_worth):
            lines.append(f"Known: {known[0].lower()}{known[1:]}")
        if clusters := clusters_in_words(self.identification):
            lines.append(clusters)
        if self.turning and self.sensitivity is not None:
            words = [self.turning, *self.sensitivity.benchmark_words()]
            lines.append(f"Hidden differences: {' '.join(words)}")
        if np.isfinite(self.implied_outside):
            lines.append(
                f"Implied means: for {self.implied_outside:.0%} of outcome rows the mean outcome "
                "with or without treatment that a plain fit implies is beyond the outcome's two "
                "values. Noise can do that; a test below says whether it is more."
            )
        return lines

    def result_tables(self) -> list[ResultTable]:
        """Return the tables that are shown, as text, those without rows left out."""
        tables: list[ResultTable] = [
            (
                "Which policies differ",
                ("populations", "gap on average", "root mean square", "first-stage F"),
                [
                    (
                        ", ".join(map(str, pair.populations)),
                        f"{pair.mean_gap:+.2f}",
                        f"{pair.rms_gap:.2f}",
                        in_digits(pair.f_statistic)
                        + (" (weak)" if pair.is_weak else ""),
                    )
                    for pair in self.identification.pairs
                ],
            ),
            (
                "Where policies differ",
                ("where", "people", "gap, 95% interval", "strength", "verdict"),
                [
                    (
                        r.where,
                        f"{r.share:.0%}",
                        f"{r.gap:+.2f}" if self.is_certain else r.gap_words,
                        "known" if self.is_certain else in_digits(r.strength),
                        r.verdict,
                    )
                    for r in self.regions
                ],
            ),
            (
                "Balance of features",
                ("largest difference of means", "feature", "standard deviations"),
                [
                    (b.where, b.feature, f"{b.difference:+.3f}")
                    for b in self.balance + self.between
                ],
            ),
            (
                "What could be refuted (corrected by Holm's method)",
                ("what must hold", "where", "statistic", "p", "corrected p"),
                [
                    (
                        c.what,
                        c.where,
                        f"{c.statistic:.2f}",
                        p_text(c.p_value),
                        p_text(c.corrected),
                    )
                    for c in self.checks
                ],
            ),
            (
                "Overlap with the target",
                ("weighted to the target", "rows", "worth", "of the target covered"),
                [
                    (
                        f"{cell.kind} table of {cell.population}",
                        f"{cell.n_rows:,}",
                        f"{cell.effective_size:,.0f}",
                        f"{min(cell.coverage, 1.0):.0%}",
                    )
                    for cell in self.overlap
                ],
            ),
        ]
        return [table for table in tables if table[2]]

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain words and numbers, ready for JSON."""
        plain = super().to_dict()
        plain |= {
            name: getattr(self, name) for name in ("colour", "headline", "next_step")
        }
        plain["findings"] = [finding.to_dict() for finding in self.findings]
        for name in ("sensitivity", "bounds"):
            if (found := getattr(self, name)) is not None:
                plain[name] = found.to_dict()
        for name, word in (("regions", "verdict"), ("checks", "is_rejected")):
            for said, result in zip(plain[name], getattr(self, name), strict=True):
                said[word] = getattr(result, word)
        if self.speaks_for is not None:  # a share
            for end in ("low", "high"):
                plain["speaks_for"][end] = min(max(plain["speaks_for"][end], 0.0), 1.0)
        numbers = (
            "f_statistic",
            "mean_gap",
            "rms_gap",
            "is_weak",
            "n_joint",
            "n_policy",
            "is_known",
            "n_clusters",
            "design_effect",
        )
        plain["identification"] = {
            name: getattr(self.identification, name) for name in numbers
        }
        pairs = self.identification.to_dict()
        rows = zip(*pairs.values(), strict=True)
        plain["identification"]["pairs"] = [
            dict(zip(pairs, row, strict=True)) for row in rows
        ]
        return plain

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return the tests: what, where, statistic, p-values."""
        return [asdict(check) for check in self.checks]

    def regions_frame(self, library: str | None = None) -> Frame:
        """Return the regions as a data frame: where, share, gap, strength, verdict.

        Parameters
        ----------
        library : {"pandas", "polars", "pyarrow"}, optional
            Of which library; by default the first of these that is installed.

        Returns
        -------
        data frame
        """
        rows = [asdict(region) | {"verdict": region.verdict} for region in self.regions]
        names = ("where", "share", "gap", "standard_error", "strength", "verdict")
        return as_frame(rows, library, names)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the share of people at each policy gap, and how well each region is identified.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib Axes
        """
        ax = bare_axes(ax, 3.8)
        ax.set_title(self.as_verdict().title, color=PAINT[self.colour], loc="left")
        regions = sorted(self.regions, key=lambda region: region.gap)
        for y, region in enumerate(regions):
            ax.barh(y, region.gap, color=PAINT[COLOURS[region.verdict]], height=0.7)
            ax.annotate(
                f" {region.share:.0%} of people, strength {in_digits(region.strength)} ",
                (max(region.gap, 0.0), y),
                va="center",
                fontsize="small",
            )
        ax.set_yticks(
            range(len(regions)), [region.where for region in regions], fontsize="small"
        )
        ax.axvline(0.0, color="0.3", lw=0.8)
        ax.set_xlabel(f"difference in the {treatment_in_words(self.identification)}")
        ax.margins(x=0.35)
        return ax

    def __str__(self) -> str:
        """Return the verdict and what it rests on, as text."""
        return f"{super().__str__()}\n\nWhat to do next: {self.next_step}"

    def _repr_html_(self) -> str:
        """Return the same as HTML, for notebooks."""
        head = (
            f'<p style="color:{PAINT[self.colour]}"><b>{escape(self.headline)}</b></p>'
        )
        rest = as_html(self.remarks() + self.measurements(), self.result_tables())
        return head + rest + as_html([f"What to do next: {self.next_step}"], ())


def diagnose(
    data: Any,
    target: MatrixLike | None = None,
    *,
    crossfit: CrossFit | None = None,
    randomised: bool = False,
    never_harms: bool = False,
    random_state: RandomState = 0,
) -> Diagnosis:
    """Say whether tables identify uplift: how strongly, for whom, and what contradicts it.

    Enough rows, policies that differ, tables that describe the same people, and outcomes that
    depend on features and treatment alone: each is measured, and the verdict is as good as the
    worst of them.

    Parameters
    ----------
    data : SeparateLabels or mapping
        ``X``, ``y``, ``treatment``, ``population`` and perhaps ``sample_weight``, as ``fit`` takes
        them. Two populations or more. Of streamed rows
        at most 20,000 rows of each table are looked at: strengths and
        tests are then those of the sample, which errs on the careful side.
    target : array or data frame of shape (n, d), optional
        The people uplift is wanted for, with the same features. Default: rows without
        a label if there are any. They add findings: whether the tables cover such people, and
        whether the policies differ for them. All numbers stay those of the people in the tables.
    crossfit : CrossFit, optional
        ``crossfit_`` of a model that was fitted to the same data; nothing is cross-fitted then.
    randomised : bool, default=False
        Whether chance decided who is in which population, as with an offer. Then nothing is asked
        of why people take it up, and no test of outcomes applies: they are those of other people
        in each population.
    never_harms : bool, default=False
        Whether treatment can do nobody harm, for the bounds of what cannot be told.
    random_state : int, RandomState or None, default=0
        Seed for folds and splits.

    Returns
    -------
    Diagnosis
        ``print`` it, or read ``verdict``, ``findings``, ``regions``, ``checks``.

    See Also
    --------
    identification_strength : The one statistic that every fit computes, without cross-fitting.
    plan_study : Rows and policy gap that a wanted precision needs.

    Notes
    -----
    Costs the cross-fitting of policies and outcomes, a few seconds for 20,000 rows, and
    O(n d^2) for the tests. Models are fitted to at most 20,000 rows of a table; means are over
    all rows. Not all that can go wrong can be seen: if outcomes of one of two populations are
    shifted for reasons other than treatment, no table shows it.

    Examples
    --------
    >>> from unjoined.data import paper_problem
    >>> diagnose(paper_problem(b=0.0).draw(200, random_state=0)).verdict  # equal policies
    'not identified'
    """
    rng = check_random_state(random_state)
    check_bool("randomised", randomised)
    if is_source(data):
        source = Source.look_through(data, Scorer())
        rows, _ = source.census.sample(N_FOLDS)
        features = NamedFeatures.of_numbers(rows.X, source.encoder)
        tables = source.summary()
        aim = None
        strange = list[str]()
        people = target
        crossfit = (
            None if _too_few(rows) else CrossFit.of_rows(rows, n_jobs=None, rng=rng)
        )
        if target is not None:
            matrix, strange = features.numbers(target)
            aim = matrix, np.ones(len(matrix))
    else:
        held = HeldOutTables.of(data, target, randomised=randomised)
        rows = held.rows
        features = held.features
        tables = held.data.summary()
        aim = held.target_rows
        strange = list(held.strange)
        people = held.people
        if crossfit is not None:
            held.evaluated(crossfit, rng=rng)  # which refuses those of other rows
        elif not _too_few(rows):
            crossfit = held.cross_fit(rng=rng)
    alone = rows.independent(rng)  # as tests take rows to be
    asides = Asides(_rarest_outcome(rows), tuple(table_doubts(rows)), tuple(strange))
    diagnosis = Diagnosis(
        tables=tuple(tables),
        identification=strength_of(rows),
        balance=_within(alone, features.names, rng),
        between=_between(alone, features.names, rng),
        shared=_sharing(alone),
        checks=(),
        is_randomised=randomised,
    )
    checks = [check for balance in diagnosis.balance for check in balance.checks]
    own = None
    if crossfit is not None and not _too_few(rows):
        own = evaluation_of(rows, crossfit.fold, crossfit.nuisances)
        z = own.gap_in_errors()
        regions = aimed = find_regions(own, features)
        if aim is not None:
            nuisances, dealt = crossfit.elsewhere(aim[0], people, n_jobs=None, rng=rng)
            asked = with_target(own, *aim, dealt, nuisances, rows)
            asked = replace(asked, aim=np.where(asked.is_labelled, 0.0, 1.0))
            aimed = find_regions(asked, features)
        outside = math.nan
        if not (randomised or rows.arms):  # what other treatments do is no law of one
            mean = crossfit.nuisances.outcome_mean
            tests, outside = _refutable(rows, own, mean, rng)
            checks += tests
        if rows.twin is not None:
            Z = Scaling.of_rows(rows.X, rows.share)(rows.X)
            checks += check_treated(own, rows, Z)
        overlap, apart = _overlap(rows, aim, rng)
        # What is said of the tables stays the same, whoever asks.
        diagnosis = replace(
            diagnosis,
            identification=replace(
                diagnosis.identification, design_effect=own.design_effect()
            ),
            gap=_gap(own),
            strength=max(z, 0.0) ** 2,
            regions=regions.leaves,
            speaks_for=_speaks_for(own),
            effective_size=_trial_size(own, rows),
            condition=_condition(own),
            implied_outside=outside,
            overlap=overlap,
            known_worth=_known_worth(own),
            sensitivity=None
            if randomised
            else _hidden_differences(own, rows, features, crossfit),
        )
        pooled = find_pooled(own, features, rows.names)
        asides = asides._replace(z=z, regions=aimed, apart=apart, pooled=pooled)
    judged = judge(replace(diagnosis, checks=correct(checks)), asides)
    if own is None:
        return judged
    return replace(judged, bounds=_bounds(judged, own, rows, never_harms=never_harms))


def _hidden_differences(
    own: EvaluationRows,
    rows: LabelledRows,
    features: NamedFeatures,
    crossfit: CrossFit,
) -> Sensitivity | None:
    """Return what would turn the average of a fit; None for a single population."""
    if len(rows.names) == 1:
        return None
    _, change = agreed_average(own, crossfit)
    return sensitivity_of(
        [average_claim(own, change)],
        own,
        features,
        rows.names,
        is_rate=rows.coding.is_rate,
        level=Diagnosis.level,
    )


def _bounds(
    judged: Diagnosis, own: EvaluationRows, rows: LabelledRows, *, never_harms: bool
) -> Bounds | None:
    """Return between what the average lies if it is not identified but each table is sound."""
    worst = {each.topic for each in judged.findings if each.verdict == UNKNOWN}
    if not worst or worst - UNLIKE or not rows.coding.is_rate:
        return None
    return bounds_of(own, {}, never_harms=never_harms, level=Diagnosis.level)


def _too_few(rows: LabelledRows) -> bool:
    """Tell whether a table has too few rows to model."""
    return min(rows.people) < FEWEST_ROWS


def _within(rows: LabelledRows, names: Sequence[str], rng: Rng) -> tuple[Balance, ...]:
    """Compare the outcome with the treatment table of each population."""
    return tuple(
        compare(
            f"outcome and treatment table of {name}",
            rows.take(rows.at(OUTCOME, k)),
            rows.take(rows.at(TREATMENT, k)),
            names,
            rng,
        )
        for k, name in enumerate(rows.names)
        if len(rows.at(TREATMENT, k))
    )


def _between(rows: LabelledRows, names: Sequence[str], rng: Rng) -> tuple[Balance, ...]:
    """Compare each population with the others; of two, once."""
    balances = []
    K = len(rows.names)
    for k, name in enumerate(rows.names if K > 2 else rows.names[: K - 1]):
        own = rows.population == k
        others = rows.names[1] if K == 2 else "the others"
        balance = compare(
            f"{name} and {others}", rows.take(own), rows.take(~own), names, rng
        )
        balances.append(replace(balance, checks=correct(balance.checks)))
    return tuple(balances)


def _sharing(rows: LabelledRows) -> tuple[Sharing, ...]:
    """Return the pairs of tables that have more rows in common than chance explains."""
    K = len(rows.names)
    titles = [f"{KINDS[c // K]} table of {rows.names[c % K]}" for c in range(2 * K)]
    shared = []
    cells = [(c, at) for c, at in enumerate(rows.all_cells()) if len(at)]
    for (i, one), (j, two) in combinations(cells, 2):
        labels = [rows.label[one], rows.label[two]] if i // K == j // K else None
        where = f"the {titles[i]} and the {titles[j]}"
        shared.append(shared_rows(where, [rows.X[one], rows.X[two]], labels))
    return tuple(sharing for sharing in shared if sharing.share > 0.0)


def _rarest_outcome(rows: LabelledRows) -> int | None:
    """Return how many outcome rows have the rarer of two outcomes; None for other outcomes."""
    if not rows.coding.is_binary:
        return None
    label = rows.label[rows.is_outcome]
    people = None if rows.count is None else rows.count[rows.is_outcome]
    return int(np.bincount(label > 0.0, people, 2).min())


def _refutable(
    rows: LabelledRows, own: EvaluationRows, mean: Array, rng: Rng
) -> tuple[list[Check], float]:
    """Test the law of outcomes; return the share of implied means that are impossible as well.

    ``mean`` is the cross-fitted mean outcome at the rows, inner coding. The second test models each
    population's outcomes by itself, and looks at no more rows of a table than that takes.
    """
    scaled = Scaling.of_rows(rows.X, rows.share)(rows.X)
    checks = check_panel(own, scaled) + check_shared_outcomes(own, scaled)
    coding = rows.coding
    if not coding.is_binary or len(rows.names) < 2:
        return checks, math.nan
    if max(len(at) for at in rows.all_cells()) > BOUND_ROWS:
        few = np.sort(
            np.concatenate(
                [at[rng.permutation(len(at))[:BOUND_ROWS]] for at in rows.all_cells()]
            )
        )
        rows = rows.take(few)
        own = own.thinned(few)
        mean = mean[few]
        own = replace(own, fold=rows.deal(N_FOLDS, rng))
    Z = Scaling.of_rows(rows.X, rows.share)(rows.X)
    means = [
        cross_fitted_mean(rows, rows.at(OUTCOME, k), None, Z, own.fold, rng)
        for k in range(len(rows.names))
    ]
    low = coding.offset - coding.scale
    high = coding.offset + coding.scale
    implied = implied_means(own, coding.offset + coding.scale * np.column_stack(means))
    outside = ((implied < low) | (implied > high)).any(axis=1)
    counted = np.where(rows.is_outcome, rows.weight, 0.0)
    bounds = check_bounds(
        own, implied, coding.offset + coding.scale * mean, (low, high)
    )
    return [bounds, *checks], float(np.average(outside, weights=counted))


def _people(rows: EvaluationRows) -> tuple[IntArray, Array]:
    """Return the positions and shares of the rows that stand for the people in question."""
    share = rows.share * rows.aim
    at = np.flatnonzero(share > 0.0)
    return at, share[at] / share[at].sum()


def _gap(rows: EvaluationRows) -> PolicyGap:
    """Return how the policy gap is spread over people."""
    two = rows.n_populations == 2 and not rows.known[:, 0].any()
    gaps = rows.policies[:, 0] - rows.policies[:, 1] if two else rows.gap
    at, share = _people(rows)
    gap = gaps[at]
    order = np.argsort(gap)
    middle = np.cumsum(share[order]) - share[order] / 2.0
    # Each policy's own part in the gap; of two populations it is 1 and -1, also where they agree.
    slope = np.array([1.0, -1.0])[rows.cell % 2] if two else gaps * rows.contrast()
    _, mean = _over_people(rows, gaps, slope)
    square = _allowing_for(*_over_people(rows, gaps**2, 2.0 * gaps * slope))
    root = math.sqrt(square.value)
    # By the delta method, and near 0, where that has no bound, by the root of the error itself.
    error = square.standard_error
    error = min(error / (2.0 * root or 1e-300), math.sqrt(error))
    return PolicyGap(
        mean=mean,
        root_mean_square=Estimate(root, error),
        quantiles=np.interp(np.linspace(0.0, 1.0, 101), middle, gap[order]),
        is_signed=two,
    )


def _speaks_for(rows: EvaluationRows) -> Estimate:
    """Return the share of people whose treatment differs: all from a gap of 0.2 on, less below."""
    omega = rows.omega()
    slope = np.where(omega < 1.0, 2.0 * omega * rows.contrast(), 0.0)
    return _allowing_for(*_over_people(rows, omega, slope))


def _over_people(
    rows: EvaluationRows, value: Array, slope: Array
) -> tuple[float, Estimate]:
    r"""Return the mean over people of a function h of the policies: by models, and corrected.

    The first is the mean of :math:`h(\hat e)` at cross-fitted policies. The second adds what
    treatment rows say that the models did not see, :math:`h_k'(\hat e)(t - \hat e_k)` (``slope``),
    so that errors of the policies count by their square alone. Its standard error is that of the
    draw of treatments, and of people unless they are a target: that of one person at the least.
    """
    weight = np.where(rows.is_treatment, slope * rows.ratio, 0.0)
    column = rows.aim * value + weight * rows.residual
    total, variance = rows.total_given_target(column, weight)
    people = rows.share * rows.aim
    one = float((people if rows.count is None else people / rows.count).max())
    return float(people @ value), Estimate(total, math.sqrt(max(variance, one**2)))


def _allowing_for(plain: float, corrected: Estimate) -> Estimate:
    """Return what models say, with an error that allows for what the correction moves as well."""
    off = plain - corrected.value
    return Estimate(plain, math.hypot(corrected.standard_error, off))


def _trial_size(rows: EvaluationRows, labelled: LabelledRows) -> float:
    r"""Return the size of a trial as precise for the average, by its noise of outcomes.

    A trial of n people, half of them treated, has variance 4 s^2 / n; the tables have
    :math:`s^2 \sum_k E[\omega^2 c_k^2] / (n_k E[\omega]^2)`.
    """
    at, share = _people(rows)
    p = rows.population_share
    omega = rows.omega()[at]
    scale = omega / np.maximum(rows.spread[at], 1e-12)
    square = (rows.apart[at] ** 2 + rows.each_within[at]) * (scale[:, None] * p) ** 2
    each = (
        labelled.weight if labelled.count is None else labelled.weight / labelled.count
    )
    people = np.ones(len(each)) if labelled.count is None else labelled.count
    n = [
        effective_size(each[at], people[at])
        for at in (labelled.at(OUTCOME, k) for k in range(len(p)))
    ]
    variance = float(np.sum(share @ square / np.array(n)))
    counted = float(share @ omega)
    return (
        4.0 * counted**2 / variance if variance > 0.0 else 0.0
    )  # 0 if policies are the same


def _known_worth(rows: EvaluationRows) -> float:
    """Return how many outcome rows one is worth whose treatment or policy is known."""
    if not rows.known[:, 0].any():
        return math.nan
    at, share = _people(rows)
    own = rows.policies * (1.0 - rows.policies)
    variance = np.where(np.isnan(rows.known[:, 1]), own, rows.known[:, 1])
    p = rows.population_share * rows.known[:, 0]
    within = float(share @ (variance[at] @ (p / p.sum())))
    between = float(share @ rows.between[at])
    return 1.0 + within / between if between > 0.0 else math.inf


def _condition(rows: EvaluationRows) -> float:
    """Return how much less is known of the worst linear part of uplift than of the best."""
    at, share = _people(rows)
    X = rows.X[at]
    square = rows.gap[at] ** 2
    scaling = Scaling.of_rows(X, share)
    gram = information = np.zeros(())
    for start in range(0, len(X), CACHE_ROWS):  # by pieces, which need no more memory
        piece = slice(start, start + CACHE_ROWS)
        Z = scaling(X[piece])
        B = np.column_stack([np.ones(len(Z)), Z])
        counted = B * share[piece, None]
        gram = gram + counted.T @ B
        counted *= square[piece, None]
        information = information + counted.T @ B
    values, vectors = np.linalg.eigh(gram)
    kept = values > 1e-10 * values[-1]
    root = vectors[:, kept] / np.sqrt(values[kept])
    sizes = np.linalg.eigvalsh(root.T @ information @ root)
    return float(np.sqrt(sizes[-1] / max(float(sizes[0]), 1e-12)))


def _overlap(
    rows: LabelledRows, target: tuple[Array, Array] | None, rng: Rng
) -> tuple[tuple[CellShift, ...], str]:
    """Return how much of the target each table covers, or why that cannot be said."""
    if target is None:
        return (), ""
    X, weight = target
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OverlapWarning)  # it becomes a finding
            _, report = weigh_shift(
                rows, X, "classifier", rng=rng, target_weight=weight
            )
    except InputError as error:
        return (), str(error)
    return report.cells, ""
