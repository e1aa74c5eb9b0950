"""Simulated problems whose true uplift is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.random import RandomState as Rng
from scipy.special import expit
from sklearn.utils import check_random_state

from unjoined._typing import (
    Array,
    ArrayLike,
    BoolArray,
    IntArray,
    MatrixLike,
    RandomState,
)
from unjoined._validation import (
    OUTCOME,
    TARGET,
    TREATMENT,
    check_count,
    check_finite_features,
    check_length,
    check_numeric_columns,
    check_one_per_row,
    check_policies,
    check_probability,
    check_propensity,
    check_treated,
    check_vector,
    shown,
)
from unjoined.data.columns import column_names
from unjoined.data.labels import SeparateLabels
from unjoined.data.rows import number_matrix, rebuild_frame, separate_labels
from unjoined.errors import InputError

FeatureLaw: TypeAlias = Callable[[int, Rng], Array]
Policy: TypeAlias = Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class JointLabels:
    """Rows that carry both labels: what a trial has, and what separate labels lack."""

    X: Array  # (n, d)
    y: Array  # (n,) outcome units
    treatment: Array  # (n,) 0 or 1
    propensity: Array  # (n,) probability of treatment, known
    uplift: Array  # (n,) true uplift, outcome units


@dataclass(frozen=True, slots=True)
class SimulatedProblem:
    """A law of features, two policies or more and a law of outcomes, from which rows are drawn.

    Parameters
    ----------
    features : callable, or mapping of population name to callable
        ``features(n, rng)`` draws ``n`` rows of features, shape (n, d). One law per population
        makes a covariate shift.
    policies : mapping of population name to callable
        For each of two populations or more, ``policy(X)`` is the probability of treatment.
    outcome : callable
        ``outcome(X, treated, rng)`` draws outcomes; ``treated`` is an array of 0 and 1.
    outcome_mean : callable
        ``outcome_mean(X, treated)`` is the mean of that law, from which the true uplift follows.
    target_features : callable, optional
        Law of the features of target rows and of joint rows; needed if ``features`` is a
        mapping, otherwise ``features`` itself.
    feature_names : tuple of str, optional
        Names of the columns, for tables made from the problem.

    Examples
    --------
    >>> import numpy as np
    >>> problem = SimulatedProblem(
    ...     features=lambda n, rng: rng.standard_normal((n, 1)),
    ...     policies={"A": lambda X: np.full(len(X), 0.8), "B": lambda X: np.full(len(X), 0.2)},
    ...     outcome=lambda X, treated, rng: treated * X[:, 0] + rng.standard_normal(len(X)),
    ...     outcome_mean=lambda X, treated: treated * X[:, 0],
    ... )
    >>> problem.draw(100, random_state=0).n_rows
    400
    >>> problem.uplift(np.array([[0.5]]))
    array([0.5])
    """

    features: FeatureLaw | Mapping[str, FeatureLaw]
    policies: Mapping[str, Policy]
    outcome: Callable[[Array, Array, Rng], Array]
    outcome_mean: Callable[[Array, Array], Array]
    target_features: FeatureLaw | None = None
    feature_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse policies that do not name two populations or more by text."""
        check_policies(self.policies)
        if other := [name for name in self.policies if not isinstance(name, str)]:
            raise InputError(f"populations must be named by text, got {shown(other)}.")

    def uplift(self, X: Array) -> Array:
        """Return the true uplift at each row, in outcome units."""
        n = len(X)
        return self.outcome_mean(X, np.ones(n)) - self.outcome_mean(X, np.zeros(n))

    def policy_gap(self, X: Array) -> Array:
        """Return e_1(x) - e_2(x), the difference in treatment probability, -1 to 1.

        Of more than two populations, return twice the standard deviation of e_k(x), 0 to 1.
        """
        chances = [self.policies[name](X) for name in sorted(self.policies)]
        if len(chances) == 2:
            return chances[0] - chances[1]
        return np.asarray(2.0 * np.std(chances, axis=0))

    def draw(
        self,
        n_per_table: int | Mapping[tuple[str, str], int],
        *,
        n_target: int = 0,
        random_state: RandomState = None,
    ) -> SeparateLabels:
        """Draw an outcome and a treatment table of each population, and target rows if asked.

        Parameters
        ----------
        n_per_table : int, or mapping of (kind, population) to int
            Rows in each of the tables; a mapping makes unequal sizes.
        n_target : int, default=0
            Rows without a label, of people to be scored.
        random_state : int, RandomState or None
            Seed; the same seed draws the same bits.

        Returns
        -------
        SeparateLabels
            Treatments coded 0/1. Every table has its own rows: no person is in two of them.
        """
        rng = check_random_state(random_state)
        cells = [
            (kind, name) for kind in (OUTCOME, TREATMENT) for name in self.policies
        ]
        sizes = (
            n_per_table
            if isinstance(n_per_table, Mapping)
            else dict.fromkeys(cells, int(n_per_table))
        )
        if lacking := [cell for cell in cells if cell not in sizes]:
            raise InputError(
                f"n_per_table lacks {lacking[0]!r}. It needs the rows of every table."
            )
        tables: list[tuple[Array, Array, str, str]] = []
        for kind, name in cells:
            n = sizes[kind, name]
            X = self._feature_law(name)(n, rng)
            treated = (rng.random_sample(n) < self.policies[name](X)).astype(float)
            label = treated if kind == TREATMENT else self.outcome(X, treated, rng)
            tables.append((X, label, kind, name))
        if n_target:
            tables.append(
                (
                    self._feature_law(None)(n_target, rng),
                    np.full(n_target, np.nan),
                    TARGET,
                    "",
                )
            )
        lengths = [len(table[0]) for table in tables]
        return SeparateLabels(
            X=np.concatenate([table[0] for table in tables]),
            **separate_labels(
                np.concatenate([table[1] for table in tables]),
                np.repeat([table[2] for table in tables], lengths),
            ),
            population=np.repeat([table[3] for table in tables], lengths),
        )

    def draw_joint(
        self,
        n: int,
        *,
        policy: float | str | Policy = 0.5,
        random_state: RandomState = None,
    ) -> JointLabels:
        """Draw rows with both labels, treated by one known policy.

        Parameters
        ----------
        n : int
            Number of rows, with features from the target law.
        policy : float, str or callable, default=0.5
            A constant probability of treatment, the name of a population whose policy is
            used, or a function of ``X``.
        random_state : int, RandomState or None
            Seed.

        Returns
        -------
        JointLabels
        """
        rng = check_random_state(random_state)
        X = self._feature_law(None)(n, rng)
        if isinstance(policy, str):
            if policy not in self.policies:
                there = shown(sorted(self.policies))
                raise InputError(
                    f"there is no population {policy!r}; there are {there}."
                )
            policy = self.policies[policy]
        chance = policy(X) if callable(policy) else policy
        e = check_probability("policy", check_one_per_row("policy", chance, n))
        treated = (rng.random_sample(n) < e).astype(float)
        return JointLabels(X, self.outcome(X, treated, rng), treated, e, self.uplift(X))

    def _feature_law(self, population: str | None) -> FeatureLaw:
        if population is not None and isinstance(self.features, Mapping):
            return self.features[population]
        if self.target_features is not None and population is None:
            return self.target_features
        if isinstance(self.features, Mapping):
            raise InputError(
                "features differ by population, so the problem needs target_features to say "
                "whom target rows and joint rows describe."
            )
        return self.features


def paper_problem(b: float = 5.0, *, slope: float = 10.0) -> SimulatedProblem:
    r"""Return the synthetic problem of the paper, section 6.1, in the corrected form.

    Two features, :math:`N(0, 10 I)`; outcomes -1/+1 with
    :math:`p(y \mid x, t) = 1/(1 + \exp(-y a_t^\top x))`, :math:`a_{-1} = (10, 10)`,
    :math:`a_1 = (10, -10)`; policies :math:`p_1(t \mid x) = 1/(1 + \exp(-t x_2))` and
    :math:`p_2(t \mid x) = 1/(1 + \exp(-t (x_2 + b)))`.

    Parameters
    ----------
    b : float, default=5.0
        How far the policies are apart; at 0 they are the same and nothing is identified.
        The paper varies it over 25 values in [0, 10].
    slope : float, default=10.0
        Size of the entries of :math:`a_t`. The paper's 10 makes outcomes almost certain given x
        and t; 1 makes them noisy.

    Returns
    -------
    SimulatedProblem
        With populations "1" and "2"; uplift runs from -2 to 2, as outcomes are -1/+1.

    Examples
    --------
    >>> problem = paper_problem(b=5.0)
    >>> problem.uplift(np.array([[0.0, -1.0], [0.0, 1.0]])).round(3)
    array([ 2., -2.])
    """
    slopes = {0.0: np.array([slope, slope]), 1.0: np.array([slope, -slope])}

    def features(n: int, rng: Rng) -> Array:
        draws: Array = rng.standard_normal((n, 2))
        return float(np.sqrt(10.0)) * draws

    def chance(X: Array, treated: Array) -> Array:
        return np.asarray(
            expit(np.where(treated == 1.0, X @ slopes[1.0], X @ slopes[0.0]))
        )

    return SimulatedProblem(
        features=features,
        policies={"1": lambda X: expit(X[:, 1]), "2": lambda X: expit(X[:, 1] + b)},
        outcome=lambda X, treated, rng: np.where(
            rng.random_sample(len(X)) < chance(X, treated), 1.0, -1.0
        ),
        outcome_mean=lambda X, treated: 2.0 * chance(X, treated) - 1.0,
        feature_names=("x1", "x2"),
    )


def campaign_problem() -> SimulatedProblem:
    """Return a made-up e-mail campaign: two regions, two mailing habits, one kind of customer.

    The north mails recent buyers, the south mails those it has not seen for long; who buys,
    with a mail or without, depends on the customer alone. The outcome is 1 for a purchase
    within two weeks and 0 otherwise. A mail helps lapsed customers and annoys frequent ones.

    Returns
    -------
    SimulatedProblem
        With populations "north" and "south"; uplift in purchases per customer, nine in ten
        between -0.12 and 0.32, 0.07 on average.

    Examples
    --------
    >>> problem = campaign_problem()
    >>> X = problem.draw_joint(100_000, random_state=0).X
    >>> bool(0.065 < problem.uplift(X).mean() < 0.075)
    True
    """

    def features(n: int, rng: Rng) -> Array:
        age = rng.uniform(18.0, 80.0, n)
        days = rng.exponential(60.0, n)
        orders = rng.poisson(1.0 + 5.0 * np.exp(-days / 60.0)).astype(float)
        spend = orders * rng.gamma(4.0, 12.0, n)
        member = (rng.random_sample(n) < 0.4).astype(float)
        return np.column_stack([age, days.round(), orders, spend.round(2), member])

    def lapsed(X: Array) -> Array:
        return np.tanh((X[:, 1] - 45.0) / 40.0)

    def chance(X: Array, treated: Array) -> Array:
        age = (X[:, 0] - 49.0) / 18.0
        orders = X[:, 2]
        member = X[:, 4]
        base = -2.3 + 0.2 * orders - 0.4 * lapsed(X) - 0.2 * age
        effect = 0.2 + 1.1 * lapsed(X) + 0.5 * member - 0.3 * age
        return expit(base + treated * effect)

    return SimulatedProblem(
        features=features,
        policies={
            "north": lambda X: expit(0.2 - 1.8 * lapsed(X)),
            "south": lambda X: expit(0.2 + 1.8 * lapsed(X)),
        },
        outcome=lambda X, treated, rng: (
            rng.random_sample(len(X)) < chance(X, treated)
        ).astype(float),
        outcome_mean=chance,
        feature_names=("age", "days_since_order", "orders", "spend", "member"),
    )


@dataclass(frozen=True, slots=True)
class UnjoinedTrial:
    """The tables made from a trial, two for each population, and where each row came from."""

    data: SeparateLabels
    rows: (
        IntArray  # (data.n_rows,) position of each row in the trial; none occurs twice
    )


def unjoin(
    X: MatrixLike,
    y: ArrayLike,
    treatment: ArrayLike,
    *,
    policies: Mapping[Any, float | Callable[[Array], Array]],
    propensity: ArrayLike | None = None,
    n_per_table: int | None = None,
    random_state: RandomState = None,
) -> UnjoinedTrial:
    r"""Sub-sample a trial into separate tables, as if two policies or more had been at work.

    The rows are dealt at random into two hands for each population. From a hand of population
    :math:`k` a row is kept with probability proportional to
    :math:`p_k(t_i \mid x_i) / p(t_i \mid x_i)`, which leaves :math:`p(x)` and
    :math:`p(y \mid x, t)` as they were and makes :math:`p_k(t \mid x)` the policy (appendix of
    the paper, "Justification of the sub-sampling procedure"). Outcome tables then lose the
    treatment and treatment tables the outcome.

    Parameters
    ----------
    X : array or data frame of shape (n, d)
        Features.
    y : array-like of shape (n,)
        Outcomes.
    treatment : array-like of shape (n,)
        Treatment, coded 0/1, False/True or -1/+1.
    policies : mapping of population name to float or callable
        For each of two populations or more, the probability of treatment: a constant, or a
        function of the feature matrix. Strictly between 0 and 1 is not required.
    propensity : float or array-like of shape (n,), optional
        Known probability of treatment in the trial, strictly between 0 and 1; by default the
        share treated, which is right if treatment was assigned by a coin.
    n_per_table : int, optional
        Keep this many rows in each table; by default all that the sub-sampling gives.
    random_state : int, RandomState or None
        Seed.

    Returns
    -------
    UnjoinedTrial
        An outcome and a treatment table for each population, and the trial's rows they use, each
        at most once.

    Raises
    ------
    InputError
        A policy or the propensity is not a probability, or a table would have too few rows.

    Notes
    -----
    Rows that were not kept are a selection by treatment and no fair test set. Set test rows
    aside *before* calling this.

    Examples
    --------
    >>> from unjoined.data import paper_problem
    >>> trial = paper_problem().draw_joint(4000, random_state=0)
    >>> unjoined = unjoin(
    ...     trial.X, trial.y, trial.treatment, policies={"A": 0.9, "B": 0.2}, random_state=0
    ... )
    >>> [round(cell.label_mean, 1) for cell in unjoined.data.summary()[2:]]
    [0.9, 0.2]
    """
    names = column_names(X)
    check_numeric_columns(X)
    matrix = number_matrix(X)
    check_finite_features(matrix, names)
    n = len(matrix)
    outcome = check_vector("y", y)
    code = check_vector("treatment", treatment)
    check_length("y", outcome, n)
    check_length("treatment", code, n)
    treated = check_treated(code)
    words = check_policies(policies)
    if n_per_table is not None:
        check_count("n_per_table", n_per_table)
    logged = check_propensity(treated.mean() if propensity is None else propensity, n)
    rng = check_random_state(random_state)
    hands = np.array_split(rng.permutation(n), 2 * len(policies))
    tables = []
    named = list(zip(policies, words, strict=True))
    cells = [(kind, *cell) for kind in (OUTCOME, TREATMENT) for cell in named]
    for hand, (kind, name, word) in zip(hands, cells, strict=True):
        policy = policies[name]
        wanted = policy(matrix) if callable(policy) else policy
        title = f"policies[{name!r}]"
        chance = check_probability(title, check_one_per_row(title, wanted, n))
        kept = _sub_sample(hand, treated, chance, logged, rng)
        tables.append((_first(kept, n_per_table, kind, name), kind, word))
    rows = np.concatenate([table[0] for table in tables])
    sizes = [len(table[0]) for table in tables]
    kinds = np.repeat([table[1] for table in tables], sizes)
    picked = matrix[rows]
    data = SeparateLabels(
        X=picked if names is None else rebuild_frame(picked, names, like=X),
        y=np.where(kinds == OUTCOME, outcome[rows], np.nan),
        treatment=np.where(kinds == TREATMENT, code[rows], np.nan),
        population=np.repeat([table[2] for table in tables], sizes),
    )
    return UnjoinedTrial(data, rows)


def _sub_sample(
    hand: IntArray,
    treated: BoolArray,
    wanted: Array,
    logged: Array,
    rng: np.random.RandomState,
) -> IntArray:
    """Keep each row of ``hand`` with probability proportional to p_k(t|x) / p(t|x)."""
    ratio_treated = wanted / logged
    ratio_control = (1.0 - wanted) / (1.0 - logged)
    # The constant must not depend on which treatment a row happened to get, or the kept rows
    # would not have the asked policy: it is the largest ratio either treatment could have.
    bound = max(ratio_treated.max(), ratio_control.max())
    ratio = np.where(treated[hand], ratio_treated[hand], ratio_control[hand])
    kept: IntArray = hand[rng.random_sample(len(hand)) < ratio / bound]
    return kept


def _first(rows: IntArray, n: int | None, kind: str, population: Any) -> IntArray:
    if n is None:
        n = max(len(rows), 1)
    if len(rows) < n:
        raise InputError(
            f"sub-sampling left {len(rows)} rows for the {kind} table of population "
            f"{population!r}, but {n} are needed. Ask for fewer, or for policies closer to the "
            "trial's own."
        )
    return rows[:n]
