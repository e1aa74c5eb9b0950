"""Evaluate several treatments: each against none, and who gets which."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import RandomState as Rng
from sklearn.utils import check_random_state

from unjoined._typing import Array, IntArray, MatrixLike, RandomState
from unjoined._validation import shown
from unjoined.data.labels import SeparateLabels, as_data
from unjoined.data.rows import LabelledRows
from unjoined.errors import InputError, UnjoinedWarning
from unjoined.evaluate.estimate import (
    Estimate,
    ResultTable,
    Shown,
    critical_value,
    estimate_dict,
)
from unjoined.evaluate.evaluate import Evaluation, cross_evaluate, evaluate_uplift
from unjoined.evaluate.regions import NamedFeatures
from unjoined.evaluate.tables import (
    Asked,
    HeldOutTables,
    Rules,
    code_encoder,
    was_fitted_to,
)
from unjoined.evaluate.terms import EvaluationRows, refuse_few
from unjoined.model.arms import Contrasts, check_arms
from unjoined.model.crossfit import CrossFit
from unjoined.words import arms_in_words, cells

BEST, MORE = "the best for each", "over the best for all"
Assignment = Callable[[Array], Any]


@dataclass(frozen=True, eq=False, repr=False)
class ArmEvaluation(Shown):
    """What scores of several treatments are worth. Printing it shows all of it.

    Attributes
    ----------
    control : str
        What the treatment that is none is called.
    arms : dict of str to Evaluation
        Of each treatment against none.
    gains : dict of str to Estimate
        What each person gains on average over treating nobody, outcome units: if all get one
        treatment, if each gets the one of the largest score above 0 ("the best for each"), how much
        more that is than the best single one ("over the best for all"), and by each assignment
        that was asked for. Sums over the treatments of plain doubly robust scores, of people for
        whom all policies differ enough; empty if the tables cannot bound the average of each.
    level : float
        Level of the intervals that are shown.
    """

    control: str
    arms: dict[str, Evaluation]
    gains: dict[str, Estimate]
    level: float

    def sentences(self) -> list[str]:
        """Return what was found in words: all treatments, then each."""
        first = "The tables cannot tell all treatments apart, so that no gains are compared."
        if self.gains:
            first = arms_in_words(self.control, list(self.arms), self.gains)
        each = [
            f"{arm}: {sentence}"
            for arm, found in self.arms.items()
            for sentence in found.sentences()
        ]
        return [first, *each]

    def result_tables(self) -> list[ResultTable]:
        """Return the tables that are shown, as text: of all treatments, then of each."""
        rows = [(name, *cells(value, self.level)) for name, value in self.gains.items()]
        head = ("everybody gets", "estimate", f"{self.level:.0%} interval")
        return [
            *[(f"Gain per person over {self.control!r}", head, rows)] * bool(rows),
            *(
                (f"{arm}: {title}", columns, cells)
                for arm, found in self.arms.items()
                for title, columns, cells in found.result_tables()
            ),
        ]

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return all estimates: of which treatment, what, value, standard error, interval."""
        rows = [
            {"arm": "", "what": name} | estimate_dict(value, self.level)
            for name, value in self.gains.items()
        ]
        for arm, found in self.arms.items():
            rows += [{"arm": arm} | row for row in found.frame_rows()]
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain words and numbers, ready for JSON."""
        plain = super().to_dict()
        del plain["arms"]
        return plain | {
            "treatments": {arm: found.to_dict() for arm, found in self.arms.items()}
        }


class ArmLabels(SeparateLabels):
    """Rows of several treatments as those of one that stands alone, which a cross-fit made."""

    alone: LabelledRows

    @classmethod
    def of_arm(cls, data: SeparateLabels, j: int, alone: LabelledRows) -> ArmLabels:
        """Return the rows of treatment j, from 1."""
        weighted = data.sample_weight is not None
        view = object.__new__(cls)
        view._freeze(data.X, data.checked.as_arm(j), data.population, weighted=weighted)
        view.__dict__.update(left_out=data.left_out, alone=alone)
        return view

    def labelled(self, X: Array) -> LabelledRows:
        """Return the rows that have a label and a weight, with these numbers as features."""
        return replace(self.alone, X=X[self.checked.positions])


def arm_labels(
    data: SeparateLabels, crossfits: Iterable[CrossFit]
) -> dict[str, ArmLabels]:
    """Return the rows of each treatment as its cross-fit has them."""
    return {
        data.checked.arms[j]: ArmLabels.of_arm(data, j, crossfit.rows)
        for j, crossfit in enumerate(crossfits, 1)
    }


def cross_fit_arms(
    data: SeparateLabels, *, n_jobs: int | None = None, rng: Rng
) -> dict[str, CrossFit]:
    """Return the cross-fit of each treatment, by what tells it from the others."""
    check_arms(data.checked)
    matrix, features = NamedFeatures.of(data.X)
    encoder = code_encoder(features)
    if encoder is not None:
        matrix = encoder.encode(data.X).matrix
    arms = data.checked.arms
    each = [data.checked.of_arm(matrix, a) for a in range(len(arms))]
    refuse_few(each[0])
    codes = () if encoder is None else encoder.codes_at
    contrasts = Contrasts.of_rows(each, codes, n_jobs, rng)
    found = {arm: contrasts.cross_fit(j, rng) for j, arm in enumerate(arms[1:])}
    if encoder is None:
        return found
    return {
        arm: replace(crossfit, encode=lambda X: encoder.encode(X).matrix)
        for arm, crossfit in found.items()
    }


def best_arms(found: Sequence[EvaluationRows]) -> IntArray:
    """Return the treatment, from 1, of the largest cross-fitted effect above 0, or 0 for none."""
    return _best(np.column_stack([rows.effect for rows in found]))


def _best(effects: Array) -> IntArray:
    best = np.argmax(effects, axis=1)
    return np.where(effects[np.arange(len(best)), best] > 0.0, best + 1, 0)


def arm_values(
    arms: Sequence[str],
    found: Sequence[EvaluationRows],
    given: Mapping[str, IntArray],
) -> dict[str, Estimate]:
    """Return what people gain on average by single treatments, and by assignments of them.

    ``given`` holds the treatment of each row, 0 for none. Who gets which is taken as given.
    """
    omega = np.min([rows.omega() for rows in found], axis=0)
    terms = [rows.terms(omega) for rows in found]
    gains = np.column_stack([each.plain for each in terms])
    n = len(arms)

    def gain(chosen: IntArray) -> Array:
        return np.asarray(np.sum(gains * (chosen[:, None] == np.arange(1, n + 1)), 1))

    whole = np.column_stack([gains, *map(gain, given.values())])
    total = terms[0].totals(*whole.T, terms[0].aim)
    names = (*arms, *given)
    values = {name: total.ratio(j, len(names)) for j, name in enumerate(names)}
    first = max(range(n), key=lambda j: values[arms[j]].value)
    apart = gain(given[BEST]) - gains[:, first]
    values[MORE] = terms[0].totals(apart, terms[0].aim).ratio(0, 1)
    return values


def evaluate_arms(
    model_or_scores: Any,
    data: Any,
    *,
    target: MatrixLike | None = None,
    rules: Rules | None = None,
    assignments: Mapping[str, Assignment] | None = None,
    level: float = 0.95,
    n_jobs: int | None = None,
    random_state: RandomState = None,
) -> ArmEvaluation:
    """Say what predicted uplift of several treatments is worth, with an interval on every number.

    Each treatment is evaluated by itself, against none, on rows freed of what the others do.

    Parameters
    ----------
    model_or_scores : fitted ArmUplift, or mapping of str to model, function or array
        The model; or of each treatment what `evaluate_uplift` takes, uplift in units of the
        outcome. A model that was fitted to these very rows is judged by its fits without each fold.
    data : SeparateLabels or mapping
        With ``control``, in memory.
    target, rules, level, n_jobs, random_state
        As in `evaluate_uplift`. Rules are about each treatment by itself.
    assignments : mapping of str to function, optional
        Who gets which treatment: functions of the scores of all people (n, J) that return 0 for
        none, else the treatment, 1 to J, as `assign_arms` does.

    Returns
    -------
    ArmEvaluation
        Print it, or read ``arms`` and ``gains``. Costs a cross-fit for each treatment, and a
        policy for each treatment and population.

    Raises
    ------
    InputError
        Scores are not of the treatments of the data, or as `evaluate_uplift`.
    LabelError
        There are fewer populations than tell the treatments apart.

    Examples
    --------
    >>> from unjoined import SeparateLabels
    >>> rng = np.random.default_rng(0)
    >>> n = 900
    >>> X, place = rng.normal(size=(2 * n, 2)), np.tile(["east", "south", "west"], 2 * n // 3)
    >>> shares = {"east": [0.2, 0.6, 0.2], "south": [0.2, 0.2, 0.6], "west": [0.8, 0.1, 0.1]}
    >>> arm = np.array([rng.choice(["none", "mail", "phone"], p=shares[name]) for name in place])
    >>> effect = np.select([arm == "mail", arm == "phone"], [0.5, 1.0 + X[:, 0]], 0.0)
    >>> is_outcome = np.arange(2 * n) < n
    >>> data = SeparateLabels(
    ...     X,
    ...     y=np.where(is_outcome, X[:, 1] + effect + rng.normal(size=2 * n), np.nan),
    ...     treatment=np.where(is_outcome, None, arm),
    ...     population=place,
    ...     control="none",
    ... )
    >>> truth = {"mail": lambda X: 0.5 + 0.0 * X[:, 0], "phone": lambda X: 1.0 + X[:, 0]}
    >>> found = evaluate_arms(truth, data, random_state=0)
    >>> found.arms["phone"].average.covers(1.0), found.gains["over the best for all"].covers(0.08)
    (True, True)
    """
    critical_value(level)
    tables = as_data(data)
    if tables.is_streamed:
        raise InputError("evaluate_arms needs all rows in memory: leave out stream.")
    check_arms(tables.checked)
    rng = check_random_state(random_state)
    control, *arms = tables.checked.arms
    models = _models(model_or_scores, arms)
    crossfits: dict[str, Any] = {
        arm: getattr(model, "crossfit_", None) for arm, model in models.items()
    }
    own = None not in crossfits.values() and was_fitted_to(model_or_scores, tables)
    if not own:
        if was_fitted_to(model_or_scores, tables):
            warnings.warn(
                "a model from a file is judged by the very rows it was fitted to, which flatters "
                "it. Give rows that it has not seen, or fit it to these rows again.",
                UnjoinedWarning,
                stacklevel=2,
            )
        crossfits = cross_fit_arms(tables, n_jobs=n_jobs, rng=rng)
    views = arm_labels(tables, crossfits.values())
    evaluate = cross_evaluate if own else evaluate_uplift
    found, rows, scores = {}, [], []
    for arm, view in views.items():
        scored = models[arm]
        if not own:  # all of what was to be warned of has been said
            scored = getattr(scored, "predict", scored)
        found[arm] = evaluate(
            scored,
            view,
            target=target,
            rules=rules,
            level=level,
            crossfit=crossfits[arm],
            n_jobs=n_jobs,
            random_state=rng,
        )
        held = HeldOutTables.of(view, target)
        rows.append(held.evaluated(crossfits[arm], n_jobs=n_jobs, rng=rng))
        asked = Asked({"": models[arm]}, {}, in_pieces=False)
        scores.append(rows[-1].effect if own else held.computed(asked.columns)[:, 0])
    given = _assigned(assignments, np.column_stack(scores))
    ends = [one.average.interval(level) for one in found.values()]
    gains = arm_values(arms, rows, given) if np.isfinite(ends).all() else {}
    return ArmEvaluation(control, found, gains, level)


def _models(model_or_scores: Any, arms: Sequence[str]) -> dict[str, Any]:
    """Return what scores each treatment, in the order of the data."""
    models = getattr(model_or_scores, "models_", model_or_scores)
    if not isinstance(models, Mapping):
        raise InputError(
            "scores of several treatments must come as an ArmUplift or a mapping of the treatments "
            f"{shown(arms)} to models, functions or arrays, got {type(models).__name__}."
        )
    if {*models} != {*arms}:
        raise InputError(
            f"the scores are of {shown(list(models))}, and the treatments of these rows are "
            f"{shown(arms)}. Give a score for each, and rows in which each is given."
        )
    return {arm: models[arm] for arm in arms}


def _assigned(
    assignments: Mapping[str, Assignment] | None, scores: Array
) -> dict[str, IntArray]:
    """Return the treatment of each row by each assignment, the best by the scores first."""
    given = {BEST: _best(scores)}
    n, J = scores.shape
    for name, assign in (assignments or {}).items():
        if not callable(assign) or name in given or name == MORE:
            raise InputError(
                "assignments must be a mapping of names to functions of the scores (n, J), such as "
                "{'within budget': lambda uplift: assign_arms(uplift, budget=900.0, cost=[1, 3])}, "
                f"and {BEST!r} and {MORE!r} are taken."
            )
        chosen = np.asarray(assign(scores))
        if chosen.shape != (n,) or not np.isin(chosen, np.arange(J + 1)).all():
            raise InputError(
                f"assignment {name!r} must return one of 0 to {J} for each of {n:,} people, 0 for "
                f"none, got shape {chosen.shape} with {shown(np.unique(chosen)[:5].tolist())}."
            )
        given[name] = chosen
    return given
