"""What is asked of an evaluation, and its tables if they are in memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.random import RandomState as Rng
from sklearn.utils import check_random_state

from unjoined._typing import Array, BoolArray, IntArray, MatrixLike, RandomState
from unjoined._validation import (
    LARGEST,
    check_cost,
    check_finite,
    check_not_negative,
    check_option,
    check_positive,
    check_probability,
    check_share,
    check_vector,
    did_you_mean,
    shown,
)
from unjoined.data.columns import take_rows
from unjoined.data.encode import TableEncoder
from unjoined.data.fold import hash_features, hash_with
from unjoined.data.labels import SeparateLabels, as_data
from unjoined.data.rows import LabelledRows
from unjoined.data.tables import is_dask
from unjoined.errors import InputError, UnjoinedWarning
from unjoined.evaluate.ranks import (
    EvaluatedTables,
    Functional,
    Gain,
    Order,
    Piece,
    Scored,
    Sheet,
    T,
)
from unjoined.evaluate.regions import NamedFeatures
from unjoined.evaluate.terms import EvaluationRows, evaluation_rows, refuse_few
from unjoined.model.crossfit import CrossFit

Rules = Mapping[str, Any]
DEFAULT_RULES: dict[str, tuple[str, float]] = {
    "best 10%": ("share", 0.1),
    "best 30%": ("share", 0.3),
    "predicted to gain": ("threshold", 0.0),
}
BLOCK_ROWS = 32_768  # added up at a time


class Computed(NamedTuple):
    """A column of numbers that is computed of the rows: a score, a rule or a cost."""

    name: str  # for messages
    given: Any  # a function of the features, or a number for each row
    check: Callable[[Array], Array] | None = None


def is_source(data: Any) -> bool:
    """Tell whether rows are streamed."""
    if isinstance(data, SeparateLabels):
        return data.is_streamed
    return isinstance(data, Mapping) and is_dask(data.get("X"))


def row_fingerprint(rows: LabelledRows) -> str:
    """Return 16 hexadecimal digits that change with the rows, but not with their order."""
    columns = (rows.label, rows.cell.astype(np.float64), rows.weight)
    with np.errstate(over="ignore"):
        total = hash_with(hash_features(rows.X), *columns).sum(dtype=np.uint64)
    return f"{int(total):016x}"


def was_fitted_to(model: Any, data: Any) -> bool:
    """Tell whether a model was fitted to these rows in memory; of other sources nobody knows."""
    if (
        not isinstance(data, SeparateLabels)
        or data.is_streamed
        or not hasattr(model, "run_")
    ):
        return False
    matrix = model._check_features(data.X, reset=False)
    several = data.checked.arms
    rows = data.checked.of_arm(matrix, 1) if several else data.labelled(matrix)
    return bool(row_fingerprint(rows) == model.run_["data"])


def warn_of_own_rows(models: Iterable[Any], data: Any, *, stacklevel: int) -> None:
    """Warn of models that are judged by the rows they were fitted to."""
    if any(was_fitted_to(model, data) for model in models):
        warnings.warn(
            "a model is judged by the very rows it was fitted to, which flatters it. Give rows "
            "that it has not seen, or leave each out of a fit (cross_evaluate, evaluate --cross).",
            UnjoinedWarning,
            stacklevel=stacklevel + 1,
        )


def ranked_by(model: Any) -> Any:
    """Return what orders people: what deciding for them gains, predictions, or what was given."""
    return getattr(model, "predict_gain", getattr(model, "predict", model))


def _check_scores(name: str, values: Array) -> Array:
    if np.abs(values).max(initial=0.0) > LARGEST:
        raise InputError(
            f"{name} holds numbers beyond {LARGEST:g}, which cannot be squared and added up. "
            "Divide the score by a constant."
        )
    return values


def _check_costs(values: Array) -> Array:
    return check_cost(values, len(values))


class Asked:
    """Scores, and rules by them: what is computed of each row, and the orders they need."""

    def __init__(
        self, models: Mapping[str, Any], rules: Rules | None, *, in_pieces: bool
    ) -> None:
        self.in_pieces = in_pieces
        self.models = list(models)
        self.columns: list[Computed] = []
        for name, model in models.items():
            title = "the score" if len(models) == 1 else f"the score of {name}"
            given = ranked_by(model)
            if in_pieces and not callable(given):
                raise InputError(
                    "tables that are read in pieces need a model or a function of the features, "
                    f"got {type(model).__name__}. Scores of rows need all rows in memory."
                )
            self.columns.append(Computed(title, given, partial(_check_scores, title)))
        self.rules = self._checked(rules)
        self.orders = [Order(m) for m in range(len(models))]
        costs = [rule[2] for rule in self.rules.values() if rule[0] == "budget"]
        self.orders += [
            Order(m, j) for j in costs if isinstance(j, int) for m in range(len(models))
        ]

    def _checked(self, rules: Rules | None) -> dict[str, tuple[Any, ...]]:
        if rules is None:
            return dict(DEFAULT_RULES)
        if not isinstance(rules, Mapping):
            raise InputError(
                "rules must be a mapping of names to rules, such as "
                f"{{'best 30%': ('share', 0.3)}}, got {type(rules).__name__}."
            )
        if taken := [name for name in rules if name in ("average", "auuc", "qini")]:
            raise InputError(
                f"a rule cannot be called {taken[0]!r}. Choose another name."
            )
        return {
            str(name): self._rule(f"rule {str(name)!r}", rule)
            for name, rule in rules.items()
        }

    def _rule(self, title: str, rule: Any) -> tuple[Any, ...]:
        """Check a rule, and give it its kind and numbers; an int is a column."""
        if not (isinstance(rule, tuple | list) and rule and isinstance(rule[0], str)):
            if self.in_pieces and not callable(rule):
                raise InputError(
                    f"{title} must be a function of the features for tables that are read in "
                    "pieces, or a kind and a number such as ('share', 0.3), got "
                    f"{type(rule).__name__}."
                )
            return "own", self._column(title, rule, partial(check_probability, title))
        check_option(f"kind of {title}", rule[0], ("share", "threshold", "budget"))
        if len(rule) != 2 and not (rule[0] == "budget" and len(rule) == 3):
            raise InputError(
                f"{title} must be a kind and a number, such as ('share', 0.3), or ('budget', "
                f"amount per person, cost of each row), got {len(rule)} entries."
            )
        if rule[0] == "share":
            return "share", check_share(title, rule[1], zero_allowed=True)
        if rule[0] == "threshold":
            cut = check_finite(title, rule[1])
            return "threshold", float(np.float32(cut)) if self.in_pieces else cut
        cost = self._cost(f"the cost of {title}", rule[2] if len(rule) == 3 else 1.0)
        return "budget", check_not_negative(title, rule[1]), cost

    def _cost(self, title: str, cost: Any) -> int | float:
        """Return the cost of treating anybody, or the column that holds each row's."""
        if callable(cost) or (np.ndim(cost) and not self.in_pieces):
            return self._column(title, cost, _check_costs)
        if np.ndim(cost):
            raise InputError(
                f"{title} must be a number or a function of the features for tables that are read "
                f"in pieces, got {type(cost).__name__}."
            )
        return float(check_positive(title, cost))

    def _column(self, name: str, given: Any, check: Callable[[Array], Array]) -> int:
        self.columns.append(Computed(name, given, check))
        return len(self.columns) - 1

    def edges(self) -> list[list[float]]:
        """Return the edges that bins of each order must have, so that rules cut between bins."""
        # Scores in pieces have 7 digits; the edge below a threshold leaves all who reach it above.
        cuts = [
            np.float32(rule[1])
            for rule in self.rules.values()
            if rule[0] == "threshold"
        ]
        below = [float(np.nextafter(cut, np.float32(-np.inf))) for cut in cuts]
        return [
            [0.0] if order.cost is not None else [0.0, *below] for order in self.orders
        ]

    def gains(
        self,
        model: int,
        scored: Sequence[Scored],
        sheet: Sheet,
        *,
        plain: bool,
        swayed: bool = False,
    ) -> dict[str, Gain]:
        """Put the rules by a model's score on a sheet."""
        return {
            name: sheet.gain(functional, plain=plain, swayed=swayed, order=at, own=own)
            for name, functional, at, own in self.functionals(model, scored)
        }

    def functionals(
        self, model: int, scored: Sequence[Scored]
    ) -> Iterator[tuple[str, Functional, int, int | None]]:
        """Yield each rule: its name, whom it takes, in which order, and a column of its own."""
        for name, (kind, *numbers) in self.rules.items():
            at, own = model, None
            if kind == "own":
                functional = scored[at].everyone()
                own = numbers[0]
            elif kind == "budget" and isinstance(numbers[1], int):
                wanted = (model, numbers[1])
                at = next(
                    i for i, o in enumerate(self.orders) if (o.score, o.cost) == wanted
                )
                functional = scored[at].budget(numbers[0], scored[at].cost)
            else:
                functional = scored[at].rule(kind, *numbers)
            yield name, functional, at, own


def base_groups(
    names: Sequence[Any], same: Sequence[Sequence[Any]] | None
) -> IntArray | None:
    """Return the number of each population's base; those that ``same`` does not name stand alone.

    Where bases differ between groups, populations are held against those of their own.
    """
    if same is None:
        return None
    known = [str(name) for name in names]
    base = np.full(len(known), -1, dtype=np.int64)
    for number, group in enumerate(same):
        wanted = [group] if isinstance(group, str) else [str(name) for name in group]
        for name in wanted:
            if name not in known:
                raise InputError(
                    f"same names the population {name!r}, and the tables are of {shown(known)}"
                    f"{did_you_mean(name, known)}"
                )
            at = known.index(name)
            if base[at] >= 0:
                raise InputError(
                    f"same names the population {name!r} twice. Name it once."
                )
            base[at] = number
    alone = np.flatnonzero(base < 0)
    base[alone] = len(same) + np.arange(len(alone))
    if len(np.unique(base)) == len(base):
        raise InputError(
            "same must name two populations or more that have the same base, such as "
            "[['north', 'south']]; uplift is told by comparing these."
        )
    return base


@dataclass(frozen=True, eq=False)
class HeldOutTables:
    """The tables of an evaluation: features as they were given, and as numbers for nuisances."""

    data: SeparateLabels
    features: NamedFeatures
    rows: LabelledRows
    used: IntArray  # positions of rows of the data with a label and a weight
    asked: BoolArray  # rows of the data that stand for the target
    target: MatrixLike | None  # other people the answer is for, as given
    target_rows: (
        tuple[Array, Array] | None
    )  # the same or the target rows, as numbers; weights
    strange: tuple[str, ...]  # values of the target such as no table has
    base: IntArray | None = None  # (K,) populations of one number have the same base

    @classmethod
    def of(
        cls,
        data: Mapping[str, Any],
        target: MatrixLike | None,
        *,
        randomised: bool = False,
        same: Sequence[Sequence[Any]] | None = None,
    ) -> HeldOutTables:
        """Check tables and target, and encode what is not a number.

        If populations were ``randomised``, treatment has reasons of its own within each. ``same``
        names those that have the same base, if not all of them have.
        """
        tables = as_data(data)
        matrix, features = NamedFeatures.of(tables.X)
        rows = tables.labelled(matrix)
        rows = rows.without_exposure() if randomised else rows
        checked = tables.checked
        aim = checked.target(matrix) if target is None else None
        asked = (
            (checked.cell == 2 * len(rows.names))
            & (checked.weight > 0.0)
            & (target is None)
        )
        notes: list[str] = []
        if target is not None:
            own, notes = features.numbers(target)
            aim = own, np.ones(len(own))
        return cls(
            tables,
            features,
            rows,
            checked.positions,
            asked,
            target,
            aim,
            tuple(notes),
            base_groups(rows.names, same),
        )

    @property
    def people(self) -> MatrixLike | None:
        """The people in question as they came; None if they are those of the tables."""
        if self.target is not None or self.target_rows is None:
            return self.target
        return take_rows(self.data.X, np.flatnonzero(self.asked))

    def cross_fit(self, *, n_jobs: int | None = None, rng: Rng) -> CrossFit:
        """Fit policies and outcomes of these rows, as `Uplift` does, categories being blocks."""
        refuse_few(self.rows)
        encoder = code_encoder(self.features)
        if encoder is None:
            return CrossFit.of_rows(self.rows, n_jobs=n_jobs, rng=rng)
        coded = replace(self.rows, X=encoder.encode(self.data.X).matrix[self.used])
        crossfit = CrossFit.of_rows(
            coded, categorical=encoder.codes_at, n_jobs=n_jobs, rng=rng
        )
        return replace(crossfit, encode=lambda X: encoder.encode(X).matrix)

    def evaluated(
        self,
        crossfit: CrossFit | None,
        *,
        shift: Any = None,
        n_jobs: int | None = None,
        rng: Rng,
        stacklevel: int = 2,
    ) -> EvaluationRows:
        """Return the rows of an evaluation, by a cross-fit of them that is made if it is None."""
        rows = self.rows
        if crossfit is None:
            crossfit = self.cross_fit(n_jobs=n_jobs, rng=rng)
        elif crossfit.fits(rows):
            if crossfit.rows.exposure is None:
                rows = rows.without_exposure()
        else:
            raise InputError(
                "crossfit belongs to other rows than these. Give the data that the model was "
                "fitted to, or leave out crossfit."
            )
        evaluated = evaluation_rows(
            rows,
            crossfit,
            target=self.target_rows,
            given=self.people,
            shift=shift,
            n_jobs=n_jobs,
            rng=rng,
            stacklevel=stacklevel + 1,
        )
        return replace(evaluated, base=self.base)

    def computed(self, columns: Sequence[Computed]) -> Array:
        """Return columns as the rows of an evaluation have them, shape (n, k)."""
        found = []
        for name, given, check in columns:
            values = self.values(name, given)
            found.append(values if check is None else check(values))
        n = len(self.rows) + (
            0 if self.target_rows is None else len(self.target_rows[0])
        )
        return np.column_stack([np.empty((n, 0)), *found])

    def _aligned(self, name: str, values: Any) -> Array:
        """Return a number per row of the data as the rows of an evaluation have it."""
        clean = check_vector(name, values)
        if len(clean) != self.data.n_rows:
            raise InputError(
                f"{name} must have a number for each of the {self.data.n_rows:,} rows of the data, "
                f"got {len(clean):,}."
            )
        if self.target is not None:
            raise InputError(
                f"{name} was given for the rows of the data, but target asks about other people. "
                "Give a model or a function, or put the target into the data as rows "
                "without a label."
            )
        return np.concatenate([clean[self.used], clean[self.asked]])

    def values(self, name: str, given: Any) -> Array:
        """Return the values of a function of the features as they came, or those given."""
        if not callable(given):
            return self._aligned(name, given)
        values = check_vector(name, given(self.data.X))
        if self.target is None:
            return self._aligned(name, values)
        return np.concatenate(
            [values[self.used], check_vector(name, given(self.target))]
        )


def code_encoder(features: NamedFeatures) -> TableEncoder | None:
    """Return what makes categories codes, as models of a cross-fit take them; None without any."""
    encoder = None if features.encoder is None else features.encoder.as_codes()
    return encoder if encoder is not None and encoder.codes_at else None


def cross_fit(
    data: Mapping[str, Any], *, n_jobs: int | None = None, random_state: RandomState = 0
) -> CrossFit:
    """Fit policies, mean outcome and effect of tables in memory, without each fold in turn.

    What `diagnose`, `plan_study`, `cross_evaluate` and `record_gain` begin with: made once, it can
    be given to each of them. A fitted `Uplift` has it as ``crossfit_``.

    Parameters
    ----------
    data : SeparateLabels or mapping
        ``X``, ``y``, ``treatment``, ``population`` and perhaps ``sample_weight``.
    n_jobs : int or None, default=None
        Threads; None uses all cores.
    random_state : int, RandomState or None, default=0
        Seed for folds.

    Returns
    -------
    CrossFit
        It holds the rows. Costs as much as a fit of `Uplift`.

    Examples
    --------
    >>> from unjoined.data import campaign_problem
    >>> from unjoined.evaluate import diagnose, plan_study
    >>> data = campaign_problem().draw(500, random_state=0)
    >>> crossfit = cross_fit(data)
    >>> diagnose(data, crossfit=crossfit).verdict
    'weakly identified'
    >>> plan_study(data, crossfit=crossfit, half_width=0.05).needed.rows > 500
    True
    """
    return HeldOutTables.of(data, None).cross_fit(
        n_jobs=n_jobs, rng=check_random_state(random_state)
    )


class RowsInMemory(EvaluatedTables):
    """The rows of an evaluation in memory, with what was computed of each."""

    def __init__(
        self,
        tables: HeldOutTables,
        rows: EvaluationRows,
        columns: Array,
        fold: IntArray | None = None,
        how: str = "held-out rows",
    ) -> None:
        self.sample = rows
        self.features = tables.features
        self.names = tables.rows.names
        self.coding = tables.rows.coding
        self.columns = columns
        self.fold = fold
        self.how = how
        self.n_rows = sum(tables.rows.without_copies().people)
        self.refuse_alike()

    def over(self, work: Callable[[Piece], T]) -> T:
        """Return the sum of what a pass finds in blocks of rows."""
        found: Any = None
        for start in range(0, len(self.sample.cell), BLOCK_ROWS):
            at = slice(start, start + BLOCK_ROWS)
            part = work(Piece(self.sample.take(at), self.columns[at], at))
            found = part if found is None else found + part
        result: T = found
        return result

    def scored(
        self, orders: Sequence[Order], extra: Sequence[Sequence[float]]
    ) -> list[Scored]:
        """Return the places of each order, a row each."""
        rows = self.sample
        return scored_rows(rows.effect, rows.people, self.columns, orders, self.fold)


def scored_rows(
    effect: Array,
    people: Array,
    columns: Array,
    orders: Sequence[Order],
    fold: IntArray | None = None,
) -> list[Scored]:
    """Return rows of an effect (n,) in each order, who count by ``people`` (n,)."""
    people = people / people.sum()
    return [
        Scored(
            order,
            columns[:, order.score],
            people,
            effect,
            fold,
            cost=1.0 if order.cost is None else columns[:, order.cost],
        )
        for order in orders
    ]
