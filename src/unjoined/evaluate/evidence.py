"""Can these tables tell? Strength, balance, overlap and tests, and a verdict from all of them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.random import RandomState as Rng
from sklearn.utils import check_random_state

from unjoined._threads import CACHE_ROWS
from unjoined._typing import Array, IntArray, MatrixLike, RandomState
from unjoined._validation import KINDS, OUTCOME, TREATMENT
from unjoined.data.rows import LabelledRows
from unjoined.errors import InputError, OverlapWarning
from unjoined.evaluate.checks import (
    Balance,
    Check,
    Implied,
    Sample,
    Sharing,
    check_bounds,
    check_shared_law,
    compare,
    correct,
    implied_means,
    shared_rows,
    table_doubts,
    total_given_target,
)
from unjoined.evaluate.diagnosis import Diagnosis, PolicyGap
from unjoined.evaluate.estimate import Estimate
from unjoined.evaluate.pieces import Scorer, Source
from unjoined.evaluate.regions import NamedFeatures, find_regions
from unjoined.evaluate.strength import strength_of
from unjoined.evaluate.tables import HeldOutTables, is_source
from unjoined.evaluate.terms import (
    GAP,
    N_FOLDS,
    OVERLAP,
    EvaluationRows,
    RatioTerms,
    evaluation_of,
    with_target,
)
from unjoined.evaluate.verdict import FEWEST_ROWS, Asides, judge
from unjoined.model.basis import Scaling
from unjoined.model.crossfit import CrossFit
from unjoined.model.regressors import cross_fitted_mean, deal_evaluation_folds
from unjoined.model.shift import CellShift, effective_size, weigh_shift

BOUND_ROWS = 10_000  # of a table, by which implied means are judged


def diagnose(
    data: Any,
    target: MatrixLike | None = None,
    *,
    crossfit: CrossFit | None = None,
    random_state: RandomState = 0,
) -> Diagnosis:
    """Say whether tables can tell uplift: how strongly, for whom, and what contradicts it.

    Enough rows, policies that differ, tables that describe the same people, and outcomes that
    depend on features and treatment alone: each is measured, and the verdict is as good as the
    worst of them.

    Parameters
    ----------
    data : SeparateLabels or mapping
        ``X``, ``y``, ``kind``, ``population`` and perhaps ``sample_weight``, as ``fit`` takes
        them. Two populations or more. Of a `TableSource`, a `DaskSource` or another source, as
        ``fit_chunks`` takes it, at most 20,000 rows of each table are looked at: strengths and
        tests are then those of the sample, which errs on the careful side.
    target : array or data frame of shape (n, d), optional
        The people uplift is wanted for, with the same features. Default: rows of kind
        "target" if there are any. They add findings: whether the tables cover such people, and
        whether the policies differ for them. All numbers stay those of the people in the tables.
    crossfit : CrossFit, optional
        ``crossfit_`` of a model that was fitted to the same data; nothing is cross-fitted then.
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
    if is_source(data):
        source = Source.look_through(data, Scorer())
        rows, _ = source.census.sample(N_FOLDS)
        features = NamedFeatures.of_numbers(rows.X, source.encoder)
        tables, aim, strange, people = source.summary(), None, list[str](), target
        crossfit = None if _too_few(rows) else CrossFit.of_rows(rows, n_jobs=None, rng=rng)
        if target is not None:
            matrix, strange = features.numbers(target)
            aim = matrix, np.ones(len(matrix))
    else:
        held = HeldOutTables.of(data, target)
        rows, features, tables = held.rows, held.features, held.data.summary()
        aim, strange, people = held.target_rows, list(held.strange), held.people
        if crossfit is not None:
            held.evaluated(crossfit, rng=rng)  # which refuses those of other rows
        elif not _too_few(rows):
            crossfit = held.cross_fit(rng=rng)
    names = features.names
    measured = Diagnosis(
        tables=tuple(tables),
        identification=strength_of(rows),
        balance=_within(rows, names, rng),
        between=_between(rows, names, rng),
        shared=_sharing(rows),
        checks=(),
    )
    asides = Asides(_rarest_outcome(rows), tuple(table_doubts(rows)), tuple(strange))
    if crossfit is not None and not _too_few(rows):
        own = evaluation_of(rows, crossfit.fold, crossfit.nuisances)
        asked = None
        if aim is not None:
            nuisances, dealt = crossfit.elsewhere(aim[0], people, n_jobs=None, rng=rng)
            asked = with_target(own, *aim, dealt, nuisances, rows)
            asked = replace(asked, aim=np.where(asked.is_labelled, 0.0, 1.0))
        tests, outside = _refutable(rows, own, crossfit.nuisances.outcome_mean, rng)
        measured = replace(measured, checks=tests, implied_outside=outside)
        measured, asides = _measured(measured, asides, rows, own, asked, features)
        overlap, apart = _overlap(rows, aim, rng)
        measured, asides = replace(measured, overlap=overlap), asides._replace(apart=apart)
    checks = [check for balance in measured.balance for check in balance.checks]
    return judge(replace(measured, checks=correct([*checks, *measured.checks])), asides)


def _too_few(rows: LabelledRows) -> bool:
    """Tell whether a table has too few rows to model."""
    return min(len(at) for at in rows.all_cells()) < FEWEST_ROWS


def _sample(rows: LabelledRows, at: Any) -> Sample:
    return Sample(rows.X[at], rows.weight[at])


def _within(rows: LabelledRows, names: Sequence[str], rng: Rng) -> tuple[Balance, ...]:
    """Compare the outcome with the treatment table of each population."""
    return tuple(
        compare(
            f"outcome and treatment table of {name}",
            _sample(rows, rows.at(OUTCOME, k)),
            _sample(rows, rows.at(TREATMENT, k)),
            names,
            rng,
        )
        for k, name in enumerate(rows.names)
    )


def _between(rows: LabelledRows, names: Sequence[str], rng: Rng) -> tuple[Balance, ...]:
    """Compare each population with the others; of two, once."""
    found = []
    for k, name in enumerate(rows.names if len(rows.names) > 2 else rows.names[:1]):
        own = rows.population == k
        others = rows.names[1] if len(rows.names) == 2 else "the others"
        balance = compare(
            f"{name} and {others}", _sample(rows, own), _sample(rows, ~own), names, rng
        )
        found.append(replace(balance, checks=correct(balance.checks)))
    return tuple(found)


def _sharing(rows: LabelledRows) -> tuple[Sharing, ...]:
    """Return the pairs of tables that have more rows in common than chance explains."""
    K = len(rows.names)
    found = []
    for (i, one), (j, two) in combinations(enumerate(rows.all_cells()), 2):
        of_one_kind = i // K == j // K
        title = " and the ".join(f"{KINDS[c // K]} table of {rows.names[c % K]}" for c in (i, j))
        labels = [rows.label[one], rows.label[two]] if of_one_kind else None
        sharing = shared_rows(f"the {title}", [rows.X[one], rows.X[two]], labels)
        if sharing.share > 0.0:
            found.append(sharing)
    return tuple(found)


def _rarest_outcome(rows: LabelledRows) -> int | None:
    """Return how many outcome rows have the rarer of two outcomes; None for other outcomes."""
    if not rows.coding.is_binary:
        return None
    label = rows.label[rows.of_kind(OUTCOME)]
    return int(min(np.count_nonzero(label > 0.0), np.count_nonzero(label < 0.0)))


def _measured(
    so_far: Diagnosis,
    asides: Asides,
    rows: LabelledRows,
    own: EvaluationRows,
    asked: EvaluationRows | None,
    features: NamedFeatures,
) -> tuple[Diagnosis, Asides]:
    """Add what cross-fitted policies say; ``asked`` has a target behind the rows, if there is one.

    What is said of the tables stays the same, whoever asks.
    """
    terms = own.terms(own.omega(GAP))
    K = own.n_populations
    treated = (own.cell >= K) & own.is_labelled
    reach = np.where(treated, own.omega(GAP) * own.contrast() * own.ratio, 0.0)
    D, V = total_given_target(terms, terms.denominator, reach, K)
    regions = aimed = find_regions(own, terms, features)
    if asked is not None:
        aimed = find_regions(asked, asked.terms(asked.omega(GAP)), features)
    z = D / np.sqrt(V) if V > 0.0 else 0.0
    measured = replace(
        so_far,
        gap=_gap(own, terms),
        strength=max(z, 0.0) ** 2,
        regions=regions.each,
        speaks_for=_speaks_for(own, terms),
        effective_size=_trial_size(own, rows),
        condition=_condition(own),
    )
    return measured, asides._replace(z=z, regions=aimed)


def _refutable(
    rows: LabelledRows, own: EvaluationRows, mean: Array, rng: Rng
) -> tuple[tuple[Check, ...], float]:
    """Test the law of outcomes; return the share of implied means that are impossible as well.

    ``mean`` is the cross-fitted mean outcome at the rows, inner coding. The second test models each
    population's outcomes by itself, and looks at no more rows of a table than that takes.
    """
    checks: list[Check] = []
    if len(rows.names) > 2:
        Z = Scaling.of_rows(rows.X, rows.share)(rows.X)
        checks = check_shared_law(own, own.terms(own.omega(GAP)), Z)
    coding = rows.coding
    if not coding.is_binary:
        return tuple(checks), float("nan")
    if max(len(at) for at in rows.all_cells()) > BOUND_ROWS:
        few = np.sort(
            np.concatenate([at[rng.permutation(len(at))[:BOUND_ROWS]] for at in rows.all_cells()])
        )
        rows, own, mean = rows.take(few), own.thinned(few), mean[few]
        own = replace(own, fold=deal_evaluation_folds(rows, N_FOLDS, rng))
    Z = Scaling.of_rows(rows.X, rows.share)(rows.X)
    means = [
        cross_fitted_mean(rows, rows.at(OUTCOME, k), None, Z, own.fold, rng)
        for k in range(len(rows.names))
    ]
    implied = Implied(
        plug_in=implied_means(own, coding.offset + coding.scale * np.column_stack(means)),
        mean=coding.offset + coding.scale * mean,
        low=coding.offset - coding.scale,
        high=coding.offset + coding.scale,
    )
    counted = np.where(rows.is_outcome, rows.weight, 0.0)
    outside = float(np.average(implied.outside, weights=counted))
    return (check_bounds(own, own.terms(own.omega(GAP)), implied), *checks), outside


def _people(rows: EvaluationRows) -> tuple[IntArray, Array]:
    """Return the positions and shares of the rows that stand for the people in question."""
    share = rows.share * rows.aim
    at = np.flatnonzero(share > 0.0)
    return at, share[at] / share[at].sum()


def _gaps(rows: EvaluationRows) -> Array:
    """Return the policy gap at each row, with its sign if there are two populations."""
    if rows.n_populations == 2:
        return np.asarray(rows.policies[:, 0] - rows.policies[:, 1])
    return rows.gap


def _gap(rows: EvaluationRows, terms: RatioTerms) -> PolicyGap:
    """Return how the policy gap is spread over people."""
    at, share = _people(rows)
    gaps = _gaps(rows)
    gap = gaps[at]
    order = np.argsort(gap)
    middle = np.cumsum(share[order]) - share[order] / 2.0
    two = rows.n_populations == 2
    # Each policy's own part in the gap; of two populations it is 1 and -1, also where they agree.
    slope = np.array([1.0, -1.0])[rows.cell % 2] if two else gaps * rows.contrast()
    _, mean = _over_people(rows, terms, gaps, slope)
    square = _allowing_for(*_over_people(rows, terms, gaps**2, 2.0 * gaps * slope))
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


def _speaks_for(rows: EvaluationRows, terms: RatioTerms) -> Estimate:
    """Return the share of people whose treatment differs: all from a gap of 0.2 on, less below."""
    omega = rows.omega(OVERLAP)
    slope = np.where(omega < 1.0, 2.0 * omega * rows.contrast(), 0.0)
    return _allowing_for(*_over_people(rows, terms, omega, slope))


def _over_people(
    rows: EvaluationRows, terms: RatioTerms, value: Array, slope: Array
) -> tuple[float, Estimate]:
    r"""Return the mean over people of a function h of the policies: by models, and corrected.

    The first is the mean of :math:`h(\hat e)` at cross-fitted policies. The second adds what
    treatment rows say that the models did not see, :math:`h_k'(\hat e)(t - \hat e_k)` (``slope``),
    so that errors of the policies count by their square alone. Its standard error is that of the
    draw of treatments, and of people unless they are a target: that of one person at the least.
    """
    K = rows.n_populations
    weight = np.where((rows.cell >= K) & rows.is_labelled, slope * rows.ratio, 0.0)
    total, variance = total_given_target(
        terms, rows.aim * value + weight * rows.residual, weight, K
    )
    people = rows.share * rows.aim
    one = float(people.max())
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
    p = rows.size / rows.size.sum()
    apart = rows.policies[at] - (rows.policies[at] @ p)[:, None]
    spread = np.maximum(apart**2 @ p, 1e-12)
    omega = rows.omega(OVERLAP)[at]
    contrast = omega[:, None] * apart * p / spread[:, None]  # (n, K)
    n = [effective_size(labelled.weight[labelled.at(OUTCOME, k)]) for k in range(len(p))]
    variance, counted = float(np.sum(share @ contrast**2 / np.array(n))), float(share @ omega)
    return 4.0 * counted**2 / variance if variance > 0.0 else 0.0  # 0 if policies are the same


def _condition(rows: EvaluationRows) -> float:
    """Return how much less is known of the worst linear part of uplift than of the best."""
    at, share = _people(rows)
    X, square = rows.X[at], rows.gap[at] ** 2
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
            _, report = weigh_shift(rows, X, "classifier", rng=rng, target_weight=weight)
    except InputError as error:
        return (), str(error)
    return report.cells, ""
