"""Evaluate and compare predicted uplift on separate tables, with intervals."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.random import RandomState as Rng
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from unjoined._typing import Array, IntArray, MatrixLike, RandomState
from unjoined._validation import OUTCOME, TREATMENT, check_count, check_vector
from unjoined.data.columns import take_rows
from unjoined.errors import InputError
from unjoined.evaluate.checks import warn_of_tables
from unjoined.evaluate.estimate import Estimate, critical_value
from unjoined.evaluate.evaluation import Comparison, Difference, Evaluation
from unjoined.evaluate.passes import EvaluatedTables
from unjoined.evaluate.pieces import RowsInPieces, Scorer, Source
from unjoined.evaluate.ranks import Appraisal, Read, Sheet
from unjoined.evaluate.strength import GainByScore, ranking_noise
from unjoined.evaluate.tables import (
    Asked,
    HeldOutTables,
    RowsInMemory,
    Rules,
    is_source,
    warn_of_own_rows,
)
from unjoined.evaluate.terms import N_FOLDS
from unjoined.model.crossfit import CrossFit
from unjoined.model.regressors import check_folds, deal_evaluation_folds, deal_rows

COMPARED_ROWS = 20_000  # at most, at which fits without one fold each are compared
ROUNDING = 1e-7  # standard errors: less is no difference


def evaluate_uplift(
    model_or_scores: Any,
    data: Any,
    *,
    target: MatrixLike | None = None,
    rules: Rules | None = None,
    level: float = 0.95,
    shift: Any = None,
    crossfit: CrossFit | None = None,
    n_jobs: int | None = None,
    random_state: RandomState = None,
) -> Evaluation:
    r"""Say what predicted uplift is worth, from separate tables, with an interval on every number.

    The model must not have been fitted to these rows: keep some aside, or use `cross_evaluate`.

    Parameters
    ----------
    model_or_scores : fitted model, function or array of shape (n,)
        A model with ``predict``, a function of the features, or the score of each row of the
        data: predicted uplift, or anything that orders people. Models and functions get the
        features as they are in the data.
    data : SeparateLabels, mapping, TableSource, DaskSource or function that returns chunks
        ``X``, ``y``, ``kind``, ``population`` and perhaps ``sample_weight``, as ``fit`` takes
        them. Two populations or more; data frames may hold text, dates and missing values. A
        source, as ``fit_chunks`` takes it, is gone through in pieces; see Notes.
    target : array or data frame of shape (m, d), optional
        The people the answer is for. Default: rows of kind "target" if there are any, else the
        people in the tables.
    rules : mapping of str to rule, optional
        Whom to treat: ``("share", 0.3)``, ``("threshold", 0.02)`` in units of the score,
        ``("budget", 0.5, cost)`` with the amount per person and the cost of treating (a number, an
        array or a function of the features; 1 by default), a function of the features or an
        array with the probability of treatment of each row. Default: the best 10 % and 30 %, and
        all whose score is not below 0.
    level : float, default=0.95
        Level of the band and of the intervals that are shown.
    shift : {None, "classifier"}, default=None
        How tables are weighted to the people in question, as in `MinMaxUplift`. None takes all
        tables for the same people; small differences then do little harm.
    crossfit : CrossFit, optional
        That of the same rows in memory, if it is at hand: nothing is cross-fitted then.
    n_jobs : int or None, default=None
        Threads; None uses all cores.
    random_state : int, RandomState or None, default=None
        Seed for folds and for the width of the band.

    Returns
    -------
    Evaluation
        Print it, or read ``average``, ``rules``, ``curve``, ``auuc``, ``qini``, ``bins``.

    Raises
    ------
    InputError
        Scores, rules or tables do not fit together, or a table has fewer rows than folds.

    See Also
    --------
    cross_evaluate : the same without rows kept aside.
    compare_uplift : differences of several models on the same rows.
    diagnose : whether the tables can tell uplift at all.

    Notes
    -----
    Every number is a ratio of two sums over the rows, with Fieller's interval, which holds
    however little the policies differ; it may be unbounded. Costs the cross-fitting of policies
    and outcomes, a second or two for 20,000 rows, and a sort of the scores.

    Of a source, a first look says what the columns hold and a second pass keeps a sample, which
    settles policies, outcome models and a thousand bins of the score. A third counts the people in
    each bin and a fourth adds up all rows, on Dask where the partitions are; scores within a bin
    count as tied. Memory is the sample and a chunk. How rows are cut changes nothing but rounding;
    their order counts as a seed does. Scores and rules are then models and functions, scores have
    seven digits, and ``shift`` is not to be had.

    Examples
    --------
    >>> from unjoined import WeightedUplift
    >>> from unjoined.data import campaign_problem
    >>> problem = campaign_problem()
    >>> model = WeightedUplift(random_state=0).fit(**problem.draw(1000, random_state=0))
    >>> found = evaluate_uplift(model, problem.draw(1000, random_state=1), random_state=0)
    >>> low, high = found.average.interval(0.95)
    >>> bool(low < 0.07 < high)  # the truth
    True
    """
    critical_value(level)
    rng = check_random_state(random_state)
    warn_of_own_rows([model_or_scores], data, stacklevel=2)
    options = target, shift, n_jobs, rng, crossfit
    asked, tables = prepare({"": model_or_scores}, data, rules, *options)
    return _evaluate(asked, tables, level, rng)


def cross_evaluate(
    estimator: Any,
    data: Mapping[str, Any],
    n_folds: int = N_FOLDS,
    *,
    target: MatrixLike | None = None,
    rules: Rules | None = None,
    level: float = 0.95,
    shift: Any = None,
    crossfit: CrossFit | None = None,
    n_jobs: int | None = None,
    random_state: RandomState = None,
) -> Evaluation:
    """Evaluate an estimator on the rows it is fitted to, each by a fit that has not seen it.

    The estimator, the policies and the outcome models are all fitted without each fold in turn.
    `Uplift` does that by itself, so that one fit of it is enough. Rows are ranked within their
    fold, since scores of different fits may not compare.

    Parameters
    ----------
    estimator : estimator
        Not fitted, or fitted to anything: a copy of it is fitted ``n_folds`` times, or once if it
        is an `Uplift` and there are five folds.
    data : SeparateLabels or mapping
        As in `evaluate_uplift`, in memory.
    n_folds : int, default=5
        At least 2, and at most the rows of the smallest table.
    crossfit : CrossFit, optional
        That of the data, if it is at hand. Of an `Uplift`, that of its fit to the data.
    target, rules, level, shift, n_jobs, random_state
        As in `evaluate_uplift`.

    Returns
    -------
    Evaluation
        Of fits to all folds but one, which are a little worse than a fit to all rows. Costs
        ``n_folds`` fits more than `evaluate_uplift`.

    Examples
    --------
    >>> from unjoined import WeightedUplift
    >>> from unjoined.data import campaign_problem
    >>> data = campaign_problem().draw(500, random_state=0)
    >>> found = cross_evaluate(WeightedUplift(random_state=0), data, random_state=0)
    >>> found.how
    'rows left out of each fit, 5 folds'
    """
    critical_value(level)
    if isinstance(estimator, type):
        name = estimator.__name__
        raise InputError(f"estimator must be an object, not a class. Write {name}() for {name}.")
    held = HeldOutTables.of(data, target)
    rng = check_random_state(random_state)
    check_folds(held.rows, n_folds, (OUTCOME, TREATMENT))
    others = Asked({"": _no_scores}, rules, in_pieces=False)
    columns = held.computed(others.columns)
    own = n_folds == N_FOLDS and getattr(estimator, "keeps_crossfit", False)
    if own and crossfit is None:
        crossfit = clone(estimator).fit(held.data).crossfit_
    rows = held.evaluated(crossfit, shift=shift, n_jobs=n_jobs, rng=rng, stacklevel=2)
    few = np.sort(rng.permutation(len(held.rows))[:COMPARED_ROWS])
    if own and crossfit is not None:
        columns[:, 0], fold = rows.effect, rows.fold
        compared = crossfit.models.scores(crossfit.rows.X[few])
    else:
        fold = deal_evaluation_folds(held.rows, n_folds, rng)
        fold = np.concatenate([fold, deal_rows(len(rows.cell) - len(fold), n_folds, rng)])
        columns[:, 0], compared = out_of_fold_scores(estimator, held, fold, few)
    how = f"rows left out of each fit, {n_folds} folds"
    tables, noise = RowsInMemory(held, rows, columns, fold, how), ranking_noise(compared)
    return _evaluate(others, tables, level, rng, noise)


def _no_scores(X: MatrixLike) -> Array:
    return np.zeros(len(X))


def out_of_fold_scores(
    estimator: Any, tables: HeldOutTables, fold: IntArray, few: IntArray
) -> tuple[Array, Array]:
    """Return the score of each row by a fit without the row's fold, those of the target last.

    Also return the scores of some labelled rows, ``few``, by all of the fits.
    """
    data, at = tables.data, np.flatnonzero(tables.used)
    n, people = len(at), tables.people
    score, compared = np.empty(len(fold)), np.empty((len(few), int(fold.max()) + 1))
    for j in range(compared.shape[1]):
        train = np.ones(data.n_rows, dtype=np.bool_)
        train[at[fold[:n] == j]] = False
        model = clone(estimator).fit(**data.take(train))
        inside = np.flatnonzero(fold[:n] == j)
        score[inside] = model.predict(take_rows(data.X, at[inside]))
        asked = np.flatnonzero(fold[n:] == j)
        if people is not None and len(asked):
            score[n + asked] = model.predict(take_rows(people, asked))
        compared[:, j] = model.predict(take_rows(data.X, at[few]))
    return check_vector("the model's predictions", score), compared


def compare_uplift(
    models: Mapping[str, Any],
    data: Any,
    *,
    target: MatrixLike | None = None,
    rules: Rules | None = None,
    level: float = 0.95,
    shift: Any = None,
    n_jobs: int | None = None,
    random_state: RandomState = None,
) -> Comparison:
    """Compare what several models are worth on rows that none of them has seen.

    Differences are paired: both models are evaluated by the same rows, policies and outcome
    models, so that most of the noise cancels.

    Parameters
    ----------
    models : mapping of str to model, function or array
        Two or more, by name; each as in `evaluate_uplift`.
    data, target, rules, level, shift, n_jobs, random_state
        As in `evaluate_uplift`; sources are gone through in pieces.

    Returns
    -------
    Comparison
        Differences of the areas under the uplift curves and of the gains of the rules, and
        sentences that say which models cannot be told apart. Costs one cross-fitting of policies
        and outcomes, and a sort for each model.

    See Also
    --------
    uplift_scorer : scores with less noise than the AUUC, to choose by.

    Examples
    --------
    >>> from unjoined.data import campaign_problem
    >>> problem = campaign_problem()
    >>> data = problem.draw(1000, random_state=0)
    >>> truth = problem.uplift(data.X)
    >>> found = compare_uplift({"truth": truth, "opposite": -truth}, data, random_state=0)
    >>> print(found.sentences()[0][:41])
    truth orders people better than opposite:
    """
    critical_value(level)
    if not isinstance(models, Mapping) or len(models) < 2:
        raise InputError(
            "models must be a mapping of two names or more to models, such as "
            "{'linear': one, 'smooth': other}. Use evaluate_uplift for a single model."
        )
    warn_of_own_rows(models.values(), data, stacklevel=2)
    rng = check_random_state(random_state)
    return _compare(*prepare(models, data, rules, target, shift, n_jobs, rng), level)


def record_gain(
    model: Any,
    data: Mapping[str, Any],
    *,
    n_folds: int = N_FOLDS,
    crossfit: CrossFit | None = None,
    random_state: RandomState = None,
) -> GainByScore:
    """Measure what lists by a fitted model gain, and keep it with the model as ``gain_``.

    `Uplift` has it from its fit. Any other estimator is fitted again
    without each fold, so that people are ranked by fits that have not seen their labels.

    Parameters
    ----------
    model : estimator
        Fitted to ``data``. It gets the attribute ``gain_``; a clone of it is fitted.
    data : SeparateLabels or mapping
        The rows it was fitted to.
    n_folds : int, default=5
        Folds, dealt table by table.
    crossfit : CrossFit, optional
        That of the data, if it is at hand: policies and outcome models are not fitted then.
    random_state : int, RandomState or None, default=None
        Seed of the folds.

    Returns
    -------
    GainByScore
        Costs ``n_folds`` fits of the estimator, and those of policies and outcome models.

    Raises
    ------
    InputError
        There are fewer rows in a table than folds, or fewer than two folds.

    Examples
    --------
    >>> from unjoined import WeightedUplift
    >>> from unjoined.data import campaign_problem
    >>> data = campaign_problem().draw(500, random_state=0)
    >>> model = WeightedUplift(basis="linear").fit(data)
    >>> record_gain(model, data, random_state=0)
    GainByScore(10 bins, speaks for ... of people)
    """
    check_is_fitted(model)
    if check_count("n_folds", n_folds) < 2:
        raise InputError(f"n_folds must be 2 or above, got {n_folds}.")
    rng = check_random_state(random_state)
    tables = HeldOutTables.of(data, None)
    check_folds(tables.rows, n_folds, (OUTCOME, TREATMENT))
    evaluation = tables.evaluated(crossfit, rng=rng)
    X, used = tables.data.X, np.flatnonzero(tables.used)
    fold = deal_evaluation_folds(tables.rows, n_folds, rng)
    score = np.empty(len(used))
    few = np.sort(rng.permutation(used)[:COMPARED_ROWS])
    compared = np.empty((len(few), n_folds))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit to all rows has said what there is to say
        for j in range(n_folds):
            train = np.ones(tables.data.n_rows, dtype=np.bool_)
            train[used[fold == j]] = False
            again = clone(model).fit(**tables.data.take(train))
            score[fold == j] = again.predict(take_rows(X, used[fold == j]))
            compared[:, j] = again.predict(take_rows(X, few))
        predicted = model.predict(take_rows(X, used))
    noise = ranking_noise(compared)
    gain = GainByScore.of_rows(evaluation, score, predicted, tables.rows.weight, noise)
    model.gain_ = gain
    return gain


def prepare(
    models: Mapping[str, Any],
    data: Any,
    rules: Rules | None,
    target: MatrixLike | None,
    shift: Any,
    n_jobs: int | None,
    rng: Rng,
    crossfit: CrossFit | None = None,
) -> tuple[Asked, EvaluatedTables]:
    """Return what is asked, and the tables with their cross-fitted nuisances."""
    in_pieces = is_source(data)
    asked = Asked(models, rules, in_pieces=in_pieces)
    if not in_pieces:
        held = HeldOutTables.of(data, target)
        warn_of_tables(held.rows, stacklevel=3)
        columns = held.computed(asked.columns)
        rows = held.evaluated(crossfit, shift=shift, n_jobs=n_jobs, rng=rng, stacklevel=3)
        return asked, RowsInMemory(held, rows, columns)
    if shift is not None:
        raise InputError(
            "shift needs all rows in memory. Leave it out for tables that are read in pieces, or "
            "read them with SeparateLabels."
        )
    source = Source.look_through(data, Scorer(tuple(asked.columns)))
    return asked, RowsInPieces(source, target, n_jobs, rng)


def _evaluate(
    asked: Asked, tables: EvaluatedTables, level: float, rng: Rng, noise: float = 0.0
) -> Evaluation:
    """Return all that is said of a score; ``noise`` is its share in the ranks of several fits."""
    scored, sheet = tables.scored(asked.orders, asked.edges()), Sheet()
    appraisal = Appraisal(scored[0], sheet, asked.gains(0, scored, sheet, plain=True))
    found = tables.add(sheet, scored)
    read = Read(appraisal.allowing_for(noise, found.sums.totals(), sheet))
    evaluation = appraisal.evaluation(read, found.least_variance(), level, rng)
    return replace(evaluation, left_out=tables.left_out(), how=tables.how, n_rows=tables.n_rows)


def _apart(read: Read, one: Array, two: Array) -> Estimate:
    """Return how much more one sum is per person than another; 0 if it is rounding alone."""
    found, noise = read.per_person(one - two), read.per_person(one).standard_error
    if max(abs(found.value), found.standard_error) <= ROUNDING * noise:
        return Estimate(0.0, 0.0)
    return found


def _compare(asked: Asked, tables: EvaluatedTables, level: float) -> Comparison:
    """Return what each score is worth, and all differences of two."""
    scored, sheet = tables.scored(asked.orders, asked.edges()), Sheet()
    gains = {}
    for m, name in enumerate(asked.models):
        area = sheet.gain(scored[m].area(), order=m)
        gains[str(name)] = {"auuc": area} | asked.gains(m, scored, sheet, plain=False)
    read = Read(tables.add(sheet, scored).sums.totals())
    sums = {name: {w: read.gain(g) for w, g in each.items()} for name, each in gains.items()}
    worth = {name: {w: read.per_person(g) for w, g in s.items()} for name, s in sums.items()}
    names = sorted(worth, key=lambda name: -worth[name]["auuc"].value)
    differences = []
    for one, two in combinations(names, 2):
        apart = {w: _apart(read, g, sums[two][w]) for w, g in sums[one].items()}
        differences.append(Difference(one, two, apart.pop("auuc"), apart))
    return Comparison(
        auuc={name: worth[name].pop("auuc") for name in names},
        rules={name: worth[name] for name in names},
        differences=tuple(differences),
        speaks_for=read.speaks_for,
        left_out=tables.left_out(),
        level=level,
    )
