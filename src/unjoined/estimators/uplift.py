"""The estimator to start with: it chooses for the data at hand and says what and why."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import cast

import numpy as np
from numpy.random import RandomState as Rng
from sklearn.utils import check_random_state

from unjoined._typing import Array, BoolArray, MatrixLike, RandomState
from unjoined._validation import OUTCOME, TREATMENT
from unjoined.data import LabelledRows
from unjoined.estimators.base import RowEstimator, UpliftEstimator
from unjoined.estimators.candidates import (
    CandidateScore,
    CandidateTable,
    FitWarnings,
    FoldFit,
    score_rows,
    warned,
)
from unjoined.estimators.minmax import MinMaxUplift
from unjoined.estimators.mixture import MixtureUplift
from unjoined.estimators.mixture_fit import MEAN, MixtureFit, refit
from unjoined.estimators.mixture_search import OutcomeRows
from unjoined.estimators.weighted import WeightedUplift
from unjoined.metrics import Estimate, HeldOutRows, IdentificationStrength, strength_of
from unjoined.nuisance import cross_fit, deal_evaluation_folds

MIXTURE, WEIGHTED, MINMAX = "mixture", "weighted", "min-max"


N_FOLDS = 3


FEWEST_ROWS = 30  # of a table; with fewer, held-out comparisons say nothing


COMPARED_ROWS = 3_000  # of each table: enough to tell estimators apart if it matters


CLEARLY = 3.0  # standard errors by which another estimator must be better to be preferred


EFFECTS = ("no effect", "a constant effect", "a linear effect", "a smooth effect")


class Uplift(RowEstimator):
    """Uplift from separate labels, with everything chosen for you.

    Fits `MixtureUplift`, the likelihood of the tables, whose functions, ridges and policies are
    chosen by held-out likelihood. Then it fits `WeightedUplift` and `MinMaxUplift`, which do not
    rest on that likelihood, and compares the three on held-out rows by the outcome risk, which
    needs no joint labels. The mixture is kept unless another one is better by three standard
    errors: of two rivals that are no better, one would pass two errors in every twenty-fifth fit.

    Parameters
    ----------
    compare : bool, default=True
        Whether the other estimators are fitted and compared. Without it, and with more than two
        populations, the mixture is used.
    n_jobs : int or None, default=-1
        Threads; -1 uses all cores. Results do not depend on it.
    random_state : int, RandomState or None, default=None
        Seed; the same seed gives the same bits.

    Attributes
    ----------
    chosen_ : {"mixture", "weighted", "min-max"}
        The estimator in use.
    reason_ : str
        One sentence: what was chosen, why, and how sure that is.
    estimator_ : UpliftEstimator
        The chosen estimator, fitted to all rows.
    mixture_ : MixtureUplift
        The mixture, fitted to all rows, whether chosen or not.
    candidates_ : CandidateTable or None
        Held-out outcome risk of each estimator (with a minus: higher is better), its difference
        to the best with a standard error, and which was chosen. None if nothing was compared.
    heterogeneity_ : Estimate
        By how much the mixture's held-out log-likelihood beats that of its best setting with a
        constant effect, nats over all rows that choose. Several standard errors: people do respond
        differently. Near 0: the ranking rests on the base alone.
    identification_ : IdentificationStrength
        How different the policies are.
    populations_ : list
        Names of the populations.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    See Also
    --------
    MixtureUplift, WeightedUplift, MinMaxUplift : what it chooses among.
    UpliftSearchCV : choose among estimators of your own.

    Notes
    -----
    Costs a fit of `MixtureUplift` and, on at most 3,000 rows of each table, three fits each of the
    others: a few seconds for 4 x 5,000 rows and 20 features on two cores. Time is about
    proportional to the number of features: of more than 100, and more than a twentieth of the
    rows, the leading principal components serve as linear functions, see `MixtureUplift`.

    Examples
    --------
    >>> from unjoined import Uplift
    >>> from unjoined.data import campaign_problem
    >>> data = campaign_problem().draw(500, random_state=0)
    >>> model = Uplift(random_state=0).fit(**data)
    >>> model.chosen_
    'mixture'
    >>> print(model.reason_)
    Chose the mixture likelihood ...
    """

    _takes_several = True

    chosen_: str
    reason_: str
    estimator_: UpliftEstimator
    mixture_: MixtureUplift
    candidates_: CandidateTable | None
    heterogeneity_: Estimate

    def __init__(
        self, *, compare: bool = True, n_jobs: int | None = -1, random_state: RandomState = None
    ) -> None:
        self.compare = compare
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _fit_rows(
        self, rows: LabelledRows, target: tuple[Array, Array] | None
    ) -> IdentificationStrength:
        rng = check_random_state(self.random_state)
        seeds = rng.randint(np.iinfo(np.int32).max, size=3).tolist()
        mixture = MixtureUplift(n_jobs=self.n_jobs, random_state=seeds[0])
        others: dict[str, RowEstimator] = {
            WEIGHTED: WeightedUplift(random_state=seeds[1]),
            MINMAX: MinMaxUplift(n_jobs=self.n_jobs, random_state=seeds[2]),
        }
        strength = strength_of(rows, n_jobs=self.n_jobs)
        self._fit_one(mixture, rows, strength)
        self.mixture_, self.estimator_, self.chosen_ = mixture, mixture, MIXTURE
        self.heterogeneity_ = _heterogeneity(mixture)
        smallest = min(
            len(rows.at(kind, k)) for kind in (OUTCOME, TREATMENT) for k in range(len(rows.names))
        )
        self.candidates_ = None
        if self.compare and len(rows.names) == 2 and smallest >= FEWEST_ROWS:
            said = FitWarnings()
            self.candidates_ = _compare(mixture, others, rows, rng, said)
            said.warn([MIXTURE, *others, "the models of the comparison"], stacklevel=4)
            self.chosen_ = next(row.name for row in self.candidates_ if row.chosen)
        if self.chosen_ != MIXTURE:
            self.estimator_ = self._fit_one(others[self.chosen_], rows, strength)
        self.reason_ = _reason(self)
        return strength

    def _fit_one(
        self, estimator: UpliftEstimator, rows: LabelledRows, strength: IdentificationStrength
    ) -> UpliftEstimator:
        """Fit an estimator to rows that were checked already, as if it had checked them."""
        estimator._fit_rows(rows, None)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                setattr(estimator, name, getattr(self, name))
        estimator.populations_ = rows.names
        estimator.identification_ = strength
        return estimator

    def _predict_rows(self, matrix: Array) -> Array:
        return self.estimator_._predict_rows(matrix)

    def predict_outcomes(self, X: MatrixLike) -> tuple[Array, Array]:
        """Return the mixture's mean outcome with and without treatment at each row.

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            Features, with the columns seen in ``fit``.

        Returns
        -------
        treated, untreated : array of shape (n,)
            In the units of the outcome. Their difference is ``predict(X)`` if the mixture was
            chosen.
        """
        return self.mixture_.predict_outcomes(X)

    def _check_parameters(self) -> None:
        """Nothing can be wrong but the number of threads, which is checked where it is used."""


def _heterogeneity(mixture: MixtureUplift) -> Estimate:
    """Return the gain in held-out log-likelihood over a constant effect, nats over all rows."""
    candidates = mixture.candidates_
    gain, error = candidates.gain_over(1)
    # A squared loss becomes a log-likelihood once it is measured in noise variances.
    scale = 0.5 / float(candidates.loss[0]) if mixture.family_ == MEAN else 1.0
    n = candidates.n_rows
    return Estimate(n * scale * gain, n * scale * error)


def _compare(
    mixture: MixtureUplift,
    others: dict[str, RowEstimator],
    rows: LabelledRows,
    rng: Rng,
    said: FitWarnings,
) -> CandidateTable:
    """Score all three on held-out rows; the first is kept unless another is clearly better.

    What the fits to folds warn of is taken down in ``said``, to be repeated once.
    """
    rows = _some_of_each(rows, rng)
    fold = deal_evaluation_folds(rows, N_FOLDS, rng)
    names = [MIXTURE, *others]
    uplift = np.zeros((len(names), len(rows.label)))
    outcome = rows.kind == OUTCOME
    for j in range(N_FOLDS):
        held, kept = outcome & (fold == j), fold != j
        with _recorded(said, 0, j):
            uplift[0, held] = _refitted(mixture, rows, outcome & kept, held)
        train = rows.take(kept)
        for i, name in enumerate(names[1:], start=1):
            with _recorded(said, i, j):
                others[name]._fit_rows(train, None)
                uplift[i, held] = others[name]._predict_rows(rows.X[held])
    with _recorded(said, len(names), 0):
        nuisances = cross_fit(rows, policy_model=None, outcome_model=None, n_folds=N_FOLDS, rng=rng)
    everything = HeldOutRows(rows, nuisances, np.ones(len(rows.label), dtype=bool))
    scored = score_rows(everything, uplift[None], ["outcome_risk"])
    best = int(np.argmax(scored.score))
    behind = scored.score[best] - scored.score
    error = np.sqrt(np.sum((scored.influence - scored.influence[:, [best]]) ** 2, axis=0))
    chosen = 0 if behind[0] <= CLEARLY * error[0] else best
    return CandidateTable(
        "outcome_risk",
        tuple(
            CandidateScore(
                name, {}, float(scored.score[i]), float(behind[i]), float(error[i]), i == chosen
            )
            for i, name in enumerate(names)
        ),
    )


@contextmanager
def _recorded(said: FitWarnings, candidate: int, fold: int) -> Iterator[None]:
    """Take down what is warned of inside, instead of showing it fold by fold."""
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        yield
    said.add(FoldFit(candidate, 0, fold, warned=warned(record)))


def _refitted(
    mixture: MixtureUplift, rows: LabelledRows, kept: BoolArray, held: BoolArray
) -> Array:
    """Return the mixture's uplift at held-out outcome rows, its settings fitted to the others.

    Its policies come from treatment rows, which are other people than those held out.
    """
    Z = mixture.scaling_(rows.X[kept])
    part = OutcomeRows(
        Z,
        mixture._encode(rows.label[kept]),
        mixture._exposure(Z, rows.population[kept]),
        rows.weight[kept] / rows.weight[kept].mean(),
        np.zeros(len(Z), dtype=np.int64),
    )
    again = copy(mixture)
    again.fit_ = refit(cast("MixtureFit", mixture.fit_), part)
    return again._predict_rows(rows.X[held])


def _some_of_each(rows: LabelledRows, rng: Rng) -> LabelledRows:
    """Return at most a few thousand rows of each table."""
    cells = [rows.at(kind, k) for kind in (OUTCOME, TREATMENT) for k in range(len(rows.names))]
    if max(map(len, cells)) <= COMPARED_ROWS:
        return rows
    chosen = [rng.permutation(cell)[:COMPARED_ROWS] for cell in cells]
    return rows.take(np.sort(np.concatenate(chosen)))


def _reason(model: Uplift) -> str:
    """Say in one sentence what was chosen, why, and how sure that is."""
    mixture = model.mixture_
    best = mixture.candidates_.settings[0]
    base = "smooth" if best.base > 0 else "linear"
    effect = EFFECTS[min(best.effect, len(EFFECTS) - 1)]
    law = "mean" if mixture.family_ == MEAN else "likelihood"
    if model.chosen_ == MIXTURE:
        what = f"Chose the mixture {law} with a {base} base and {effect}"
    else:
        row = model.candidates_[MIXTURE]  # type: ignore[index]
        what = (
            f"Chose {type(model.estimator_).__name__}: its held-out outcome risk is lower than the "
            f"mixture's by {row.behind:.3g}, {row.behind / row.standard_error:.1f} standard errors"
        )
    if model.candidates_ is None:
        against = "nothing else was compared"
    elif model.chosen_ == MIXTURE:
        against = "no other estimator is shown to be better on held-out rows"
    else:
        against = f"the mixture had a {base} base and {effect}"
    gain = model.heterogeneity_
    sure = gain.value / gain.standard_error if gain.standard_error > 0.0 else 0.0
    told = (
        "people clearly respond differently"
        if sure > 3.0
        else "people probably respond differently"
        if sure > 2.0
        else "the rows do not show that people respond differently, so rank by it with care"
    )
    return (
        f"{what}; {against}; {told} (held-out log-likelihood {gain.value:.1f} "
        f"± {gain.standard_error:.1f} nats above a constant effect)."
    )
