"""Uplift by the likelihood of the tables: the estimator to start with."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.random import RandomState as Rng
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from unjoined._threads import over_pieces
from unjoined._typing import Array, ArrayLike, IntArray, MatrixLike, RandomState
from unjoined._validation import (
    KINDS,
    OUTCOME,
    OutcomeCoding,
    check_bool,
    check_known_policy,
    check_labels,
    check_population,
    check_positive,
    check_treatment,
    check_weight,
)
from unjoined.data.encode import TableEncoder
from unjoined.data.labels import COLUMNS, SeparateLabels
from unjoined.data.rows import LabelledRows, some_rows
from unjoined.errors import InputError, LabelError
from unjoined.estimators.base import (
    Check,
    UpliftEstimator,
    check_verbose,
    column_ranges,
    one_of,
    optional,
)
from unjoined.estimators.explain import Explanation, named_columns
from unjoined.estimators.inputs import MOST_NAMED, columns_of
from unjoined.estimators.streams import Passes, Sampled
from unjoined.evaluate.estimate import Estimate
from unjoined.evaluate.strength import GainByScore, ranking_noise, strength_of
from unjoined.evaluate.terms import agreed_average, evaluation_of
from unjoined.model.basis import Scaling, weighted_quantile
from unjoined.model.crossfit import (
    AUTO,
    BERNOULLI,
    CURVED,
    GAUSSIAN,
    MEAN,
    POISSON,
    CrossFit,
    Likelihood,
)
from unjoined.model.regressors import ConditionalMean
from unjoined.model.shift import ShiftReport, weigh_shift
from unjoined.model.specifications import (
    AdditiveAverage,
    ModelRows,
    SpecificationTable,
    in_words,
)
from unjoined.words import (
    UNNAMED,
    compliers_in_words,
    doses_in_words,
    effect_in_words,
    offer_in_words,
    policies_in_words,
)

SAMPLE_ROWS = 10_000  # of each table, kept from the first pass over chunks
SAMPLE_FOLDS = 5  # of that sample
DESCRIBED_ROWS = 20_000  # at most, over which predictions are averaged
PREDICT_ROWS = 16_384
# Standard errors by which uplift rises with the rank, by people whom the fits have not seen.
PROBABLY, CLEARLY = 2.2, 3.0
T = TypeVar("T")


def check_list(name: str, value: Any) -> None:
    """Allow a list of columns; whether they are there, the rows will tell."""
    if not isinstance(value, list | tuple | np.ndarray):
        raise InputError(
            f"{name} must be a list of columns, by name or position, got {value!r}."
        )


class Uplift(UpliftEstimator):
    r"""Uplift from separate labels: the estimator to start with.

    Among outcome rows of population :math:`k` at :math:`x`, a share :math:`e_k(x)` was treated,
    and nobody knows which rows. Their outcomes are a mixture,

    .. math::

        p_k(y \mid x) = e_k(x) \, p(y \mid x, 1) + (1 - e_k(x)) \, p(y \mid x, 0),

    whose shares come from the treatment tables and whose two parts are the same in every
    population. The likelihood of the outcomes needs no row with both labels. It is written with a
    base and an effect, which are sums of functions of single features: a line, a square and a
    curve each, and products of pairs if there are at most 24 features; jumps where one to three
    features pass a value are found by boosted trees. How large the functions of a feature are is
    learnt from the rows, so that idle features drop out and the average effect is not shrunk.
    Simpler and richer forms are weighed by held-out likelihood and averaged. It says in words what
    was fitted, how much people differ and how sure that is.

    Parameters
    ----------
    family : {"auto", "bernoulli", "poisson", "gaussian", "mean"}, default="auto"
        Family of the outcome's distribution. "bernoulli" for two values: base and effect are
        log-odds. "poisson" for counts and amounts: they are logarithms, so that an effect is a
        factor, and the variance is a multiple of the mean. For real outcomes "mean" assumes
        nothing but a mean,
        :math:`m(x) + (e_k(x) - \bar e(x)) u(x)`, and bounds the pull of gross values on both sides
        (Huber) where that pays; "gaussian" takes normal noise of one variance and gains from it if
        it is true. "auto" is "bernoulli", "poisson" for whole numbers of 0 or more, or "mean".
    randomised : bool, default=False
        Whether chance decided who is in which population, as with an offer that some were made
        and others not. People may take it up for any reason then: uplift is that of those who do
        because of the offer. "auto" is "mean", as outcomes with and without treatment are those
        of different people; ``compliers_`` is the average. ``predict_gain`` is what the offer
        brings, by which people are ranked, and ``gain_`` what it brings to any list.
    categorical_features : sequence of str or int, default=()
        Names or positions of columns whose numbers are codes of categories. Each is one block of
        indicators with one scale; a code that ``fit`` has not seen counts as average.
    shift : None, "classifier" or scikit-learn classifier, default=None
        Weight the tables to the target's features, as in `MinMaxUplift`. Seldom needed here: the
        likelihood is conditional on x, so that tables may describe different people.
    shift_clip : float or None, default=None
        Cap on those weights.
    n_jobs : int or None, default=-1
        Threads; -1 uses all cores. Results do not depend on it.
    random_state : int, RandomState or None, default=None
        Seed for folds and samples; the same seed gives the same bits.
    verbose : bool or int, default=False
        Whether to show on stderr what the logger ``unjoined`` is told: 1 shows the steps of a fit,
        2 how far each of them is.

    Attributes
    ----------
    reason_ : str
        What was fitted, and whether the rows show that people respond differently.
    average_effect_ : Estimate
        Average uplift of the people for whom policies differ enough to tell, in units of the
        outcome. A ratio whose interval is Fieller's: it holds whatever the fitted functions are.
    relative_effect_ : Estimate or None
        The same average over the mean outcome that these people would have untreated: 0.5 is half
        as much again. Fieller's interval. None if an outcome is negative, if that mean cannot be
        told from 0, or with ``randomised``.
    gain_ : GainByScore
        What treating any list of people gains, with an interval, from their predictions alone.
    heterogeneity_ : Estimate
        By how much uplift rises from the person ranked lowest to the one ranked highest, in units
        of the outcome, by people whom the fits have not seen: the slope of ``gain_``.
    crossfit_ : CrossFit
        Policies, mean outcome and effect of the rows by fits that have not seen them, for
        ``diagnose`` and other functions that take it. It holds the rows, so it is not saved with
        the model; not of chunks.
    sampled_rows_ : int or None
        Rows of the sample that averages and gains were measured on, of a fit from chunks; None if
        on all.
    offer_ : tuple of int or None
        With ``randomised``, the places in ``populations_`` of those who took it up least and most.
    dose_weights_ : array of shape (m, 3)
        Of doses only: how much each range of them, from and to, counts in the average effect of
        one unit. Weights add up to 1; negative ones say that doses cross. Empty where only mean
        doses are known.
    effect_range_ : array of shape (2,)
        Between which the predicted uplift of nine in ten outcome rows lies, units of the outcome.
    effect_features_ : array of shape (d,)
        How far the predicted uplift varies with each feature: the standard deviation of what it
        changes by if what the feature adds is the same for all, units of the outcome.
    candidates_ : SpecificationTable
        Every form tried, its held-out loss, the difference to the likeliest with its standard
        error, and its weight in the average.
    fit_ : AdditiveAverage
        The fits that are averaged, scales, path of the objective, convergence.
    family_ : str
        The family in use.
    policies_ : tuple of ConditionalMean
        One for each population.
    scaling_, outcome_scaling_ : Scaling
        Of the features, and of the outcome.
    shift_ : ShiftReport or None
        Effective sizes, if ``shift`` was on.
    identification_ : IdentificationStrength
        How different the policies are; of several populations, those of the best pair.
    populations_ : list
        Names of the populations; any number from two.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    See Also
    --------
    EMUplift : the same likelihood with outcome models of your own.
    MinMaxUplift : models neither policies nor base.
    TwoStageUplift : two-stage least squares, with standard errors.

    Notes
    -----
    Half a minute or so for 4 x 250,000 rows of 10 features on two cores
    (``benchmarks/alternatives.py``). Time is that of eleven forms times five fits, each of at most
    about 25 passes of O(n p^2) over at most 20,000 outcome rows, where p is ten functions a
    feature and one for each pair, twice. If there are more rows, the likeliest form and the
    likeliest that contains it are fitted to all of them in a few passes, and weighed there. Of more
    than 100 features each fit uses those that go along with its own labels most.

    The treatment tables say which part is which, so the two cannot change places. If policies
    hardly differ, the answer rests on the functions' form alone: a `WeakIdentificationWarning`
    says so. ``average_effect_`` and ``gain_`` come from all rows, by fits that have not seen them;
    from chunks, from the rows of the sample, and the summary says so. Where the mean prediction
    and what was measured differ by no more than chance, the mean prediction is the average.

    Examples
    --------
    >>> from unjoined import Uplift
    >>> from unjoined.data import campaign_problem
    >>> data = campaign_problem().draw(2000, random_state=0)
    >>> model = Uplift(random_state=0).fit(**data)
    >>> print(model.summary())
    Average effect: ...
    """

    _parameters: ClassVar[dict[str, Check]] = {
        "family": one_of(AUTO, BERNOULLI, GAUSSIAN, MEAN, POISSON),
        "randomised": check_bool,
        "categorical_features": check_list,
        "shift_clip": optional(check_positive),
        "verbose": check_verbose,
    }
    _as_two_groups = False
    _takes_counts = True
    _takes_joint = True
    keeps_crossfit: ClassVar[bool] = True  # of its rows, as ``crossfit_``

    family_: str
    policies_: tuple[Callable[[Array], Array], ...]
    fit_: AdditiveAverage
    scaling_: Scaling
    outcome_scaling_: Scaling
    gain_: GainByScore
    crossfit_: CrossFit
    sampled_rows_: int | None
    shift_: ShiftReport | None
    candidates_: SpecificationTable
    heterogeneity_: Estimate
    compliers_: Estimate
    complier_share_: Estimate
    offer_: tuple[int, int] | None
    dose_weights_: Array
    effect_range_: Array
    effect_features_: Array
    _coding: OutcomeCoding

    def __init__(
        self,
        *,
        family: str = AUTO,
        randomised: bool = False,
        categorical_features: Any = (),
        shift: Any = None,
        shift_clip: float | None = None,
        n_jobs: int | None = -1,
        random_state: RandomState = None,
        verbose: bool | int = False,
    ) -> None:
        self.family = family
        self.randomised = randomised
        self.categorical_features = categorical_features
        self.shift = shift
        self.shift_clip = shift_clip
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def __getstate__(self) -> dict[str, Any]:
        """Return what copies and files hold: all but the cross-fit, which is people's rows."""
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "crossfit_"}

    def _suited(self, rows: LabelledRows) -> LabelledRows:
        """Return rows as the estimand has them: who takes an offer up is no fair comparison."""
        rows = super()._suited(rows)
        return rows.without_exposure() if self.randomised else rows

    def _fit_stream(
        self, data: SeparateLabels, checkpoint: str | os.PathLike[str] | None
    ) -> None:
        """Fit what a sample settles: policies, and base and effect, in about five passes each.

        If the sample holds all rows, they are fitted as rows in memory are.
        """
        self._check_streamed(checkpoint)
        self._forget()
        rows, census = self._look_through(data, SAMPLE_ROWS)
        census.check_complete()
        sample, fold = census.sample(SAMPLE_FOLDS)
        self.training_range_ = column_ranges(sample.X)
        sample = replace(sample, weight=sample.relative)
        if max(cell.n_rows for cell in census.cells.values()) <= SAMPLE_ROWS:
            self._fit_rows(sample, None)
        else:
            self._fit_sample(
                Sampled(sample, fold, Passes(rows, census, self.n_jobs, checkpoint))
            )
        self._conclude(sample, strength_of(sample, n_jobs=self.n_jobs), stacklevel=4)

    def _fit_sample(self, sampled: Sampled) -> None:
        """Fit to all rows what a sample has settled."""
        rng = check_random_state(self.random_state)
        rows, fold = sampled.rows, sampled.fold
        columns = self._categorical_columns()
        folded = sampled.policies(categorical=columns)
        policies = tuple(each.policy for each in folded)
        likelihood = Likelihood.of_rows(rows, self._family_of(rows), policies)
        fit, without = sampled.outcomes(likelihood, categorical=columns)
        crossfit = CrossFit.of_fits(
            rows, likelihood, fit, folded, without, fold, fold, n_jobs=self.n_jobs
        )
        self._adopt(crossfit, rng)
        self.sampled_rows_ = len(rows)
        del self.crossfit_  # it is the sample's, and the data are more

    def _fit_rows(self, rows: LabelledRows, target: tuple[Array, Array] | None) -> None:
        rng = check_random_state(self.random_state)
        self.shift_ = None
        if self.shift is not None:
            X, weight = (None, None) if target is None else target
            options = {"clip": self.shift_clip, "rng": rng, "target_weight": weight}
            rows, self.shift_ = weigh_shift(
                rows, X, self.shift, **options, stacklevel=4
            )
        crossfit = CrossFit.of_rows(
            rows,
            family=self._family_of(rows),
            categorical=self._categorical_columns(),
            n_jobs=self.n_jobs,
            rng=rng,
        )
        self._adopt(crossfit, rng)
        if not self.fit_.converged:
            warnings.warn(
                "the likelihood did not settle; see fit_.objective. Look for features that "
                "determine the outcome.",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _adopt(self, crossfit: CrossFit, rng: Rng) -> None:
        """Take over what a cross-fit says of its rows, and measure and describe it."""
        rows, likelihood = crossfit.rows, crossfit.likelihood
        self.family_, self._coding = likelihood.family, rows.coding
        self.scaling_ = Scaling.of_rows(rows.X, rows.share)
        self.outcome_scaling_ = likelihood.outcome_scaling
        self.policies_, self.fit_ = likelihood.policies, crossfit.fit
        self.sampled_rows_ = None
        self.crossfit_ = replace(crossfit, encode=lambda X: self._look(X).matrix)
        self._measure(crossfit, rng)
        at = rows.of_kind(OUTCOME)
        few = some_rows(len(at), DESCRIBED_ROWS, rng)
        self._describe(*likelihood.outcomes(rows, at[few]))

    def _family_of(self, rows: LabelledRows) -> str:
        """Return the family asked for, if the outcome can have it."""
        if self.family == BERNOULLI and not rows.coding.is_binary:
            raise InputError(
                "family='bernoulli' needs an outcome of two values; use 'mean' or 'gaussian'."
            )
        if rows.dose is not None and self.family not in (AUTO, MEAN):
            raise InputError(
                f"family={self.family!r} is that of people who are treated or not. Doses need "
                "'mean'."
            )
        if self.family == POISSON and not rows.coding.is_amount:
            raise InputError(
                "family='poisson' needs outcomes of 0 or more; use 'mean' or 'gaussian'."
            )
        if self.randomised and self.family not in (AUTO, MEAN):
            raise InputError(
                f"family={self.family!r} takes the treated and the untreated for alike, and with "
                "randomised=True they may differ. Use 'auto' or 'mean'."
            )
        return MEAN if self.randomised else self.family

    @property
    def _likelihood(self) -> Likelihood:
        return Likelihood(
            self.family_, self._coding, self.outcome_scaling_, self.policies_
        )

    def _categorical_columns(self) -> tuple[int, ...]:
        """Return the positions of the columns that hold codes of categories."""
        names = list(self._feature_names or ())
        n = self._n_columns
        columns = set(self.encoder_.codes_at) if hasattr(self, "encoder_") else set()
        for one in self.categorical_features:
            column = names.index(one) if one in names else one
            if isinstance(column, bool | str) or column not in range(n):
                known = f"one of {names}" if names else f"below {n}"
                raise InputError(f"categorical_features must be {known}, got {one!r}.")
            columns.add(int(column))
        return tuple(sorted(columns))

    def _measure(self, crossfit: CrossFit, rng: Rng) -> None:
        """Set the average effect and the gain by score, from fits that have not seen the rows.

        The average is brought to the mean prediction as far as both agree, and then predictions of
        real outcomes to that average. Intervals are as wide as those of what was measured alone.
        """
        rows = crossfit.rows
        evaluation = evaluation_of(rows, crossfit.fold, crossfit.nuisances)
        few = some_rows(len(rows), DESCRIBED_ROWS, rng)
        X = rows.X[few]
        weight = rows.people_weight[few]
        count = None if rows.count is None else rows.count[few]
        noise = ranking_noise(crossfit.models.scores(X), count)

        lacking, change = agreed_average(evaluation, crossfit)
        if self.family_ not in CURVED:  # of which a shift of log-odds would rank anew
            scale = float(self.outcome_scaling_.scale[0])
            self.fit_ = self.fit_.raised(lacking / scale)
        predicted = self._predict_rows(X)
        record = GainByScore.of_rows(
            evaluation, evaluation.effect, predicted, weight, noise, change
        )
        self.dose_weights_ = np.empty((0, 3))
        if rows.is_dose and rows.dose is not None:
            dose = np.where(rows.is_copy, np.nan, rows.dose * (0.5 + 0.5 * rows.label))
            self.dose_weights_ = evaluation.dose_weights(dose)
        self.gain_ = record
        self.average_effect_ = record.everyone()
        # Those who take an offer up are not those who do not: no base is theirs.
        self.relative_effect_ = None if self.randomised else record.relative
        self.heterogeneity_ = record.rise
        self.offer_ = None
        if self.randomised:  # nobody can be treated; people can be made the offer
            self.compliers_, self.complier_share_ = evaluation.compliers()
            self.offer_ = evaluation.arms
            offer = evaluation.offered(self.offer_)
            self.gain_ = GainByScore.of_rows(
                offer, offer.effect, predicted * self._take_up(X), weight, noise
            )

    def _describe(self, rows: ModelRows, propensity: Array) -> None:
        """Set what is said of the effect: its range, and what it varies with."""
        treated, untreated = self.fit_.means(rows.X, propensity)
        uplift = treated - untreated
        scale = float(self.outcome_scaling_.scale[0])
        self.effect_range_ = scale * weighted_quantile(
            uplift, rows.weight, (0.05, 0.95)
        )
        self.effect_features_ = scale * self.fit_.features(rows)
        self.usual_functions_ = self.fit_.usual(rows)
        self.candidates_ = self.fit_.specifications

    def _check_streamed(self, checkpoint: Any) -> None:
        """Refuse parameters that need all rows in memory."""
        if self.shift is not None:
            raise InputError(
                f"shift={self.shift!r} needs all rows in memory. Leave it out, or do not stream."
            )
        if checkpoint is not None and not isinstance(self.random_state, Integral):
            raise InputError(
                "a checkpoint needs an integer random_state, so that the fit that goes on is the "
                f"one that stopped, got {self.random_state!r}."
            )

    def _new_encoder(self) -> TableEncoder:
        """Return an encoder of categories as blocks."""
        return TableEncoder("codes")

    def _predict_rows(self, matrix: Array) -> Array:
        if self.family_ in CURVED:
            treated, untreated = self._means(matrix)
            return treated - untreated
        # The difference of two means would round, and rank people whose effect is the same.
        effect = np.concatenate(self._by_chunks(self.fit_.mean_effect, matrix))
        return float(self.outcome_scaling_.scale[0]) * effect

    def _row_errors(self, matrix: Array) -> Array:
        errors = np.concatenate(self._by_chunks(self.fit_.uplift_errors, matrix))
        return float(self.outcome_scaling_.scale[0]) * errors

    def predict_outcomes(self, X: MatrixLike) -> tuple[Array, Array]:
        """Return the estimated mean outcome with and without treatment at each row.

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            Features, with the columns seen in ``fit``.

        Returns
        -------
        treated, untreated : array of shape (n,)
            In the units of the outcome; their difference is ``predict(X)``. Of doses, with one
            unit and with none.
        """
        treated, untreated = self._means(self._check_features(X, reset=False))
        offset = float(self.outcome_scaling_.mean[0])
        if (dose := self._coding.dose) is not None:
            base = dose * (offset + untreated)
            return base + (treated - untreated), base
        return offset + treated, offset + untreated

    def predict_gain(self, X: MatrixLike) -> Array:  # noqa: D102
        if self.offer_ is None:
            return self.predict(X)
        return np.asarray(self.predict(X) * self.predict_take_up(X))

    def predict_take_up(self, X: MatrixLike) -> Array:
        """Return the share who take an offer up because of it, at each row.

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            Features, with the columns seen in ``fit``.

        Returns
        -------
        array of shape (n,)
            From 0 to 1; 1 without ``randomised``, as deciding to treat treats.
        """
        matrix = self._check_features(X, reset=False, fewest=0)
        return self._take_up(matrix) if len(matrix) else np.empty(0)

    def _take_up(self, matrix: Array) -> Array:
        if self.offer_ is None:
            return np.ones(len(matrix))
        low, high = self.offer_
        policies = self._likelihood.propensities(matrix)
        return np.maximum(policies[:, high] - policies[:, low], 0.0)

    def predict_policies(self, X: MatrixLike) -> Array:
        """Return each population's estimated probability of treatment at each row.

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            Features, with the columns seen in ``fit``.

        Returns
        -------
        array of shape (n, number of populations)
            In the order of ``populations_``.
        """
        return self._likelihood.propensities(self._check_features(X, reset=False))

    def explain(self, X: MatrixLike) -> Explanation:
        """Say what raises and lowers the uplift of people, by feature, against the average person.

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            People, with the columns seen in ``fit``.

        Returns
        -------
        Explanation
            For outcomes on the real line uplift is exactly the average and the parts. Of a curved
            one, such as a rate, what is left is in ``rest``. Each part is what the uplift changes
            by if what the feature adds was that of the average person: it describes the model, and
            does not say that changing the feature would change anybody.
        """
        matrix = self._check_features(X, reset=False)
        scale = float(self.outcome_scaling_.scale[0])
        explained = partial(self.fit_.parts, usual=self.usual_functions_)
        found = self._by_chunks(explained, matrix)
        each = scale * np.concatenate([parts for parts, _ in found])
        average = scale * found[0][1]
        names, values, at = named_columns(self, X)
        parts = np.column_stack([each[:, places].sum(axis=1) for places in at])
        uplift = self._predict_rows(matrix)
        low, high = self.predict_interval(X)
        rest = uplift - average - parts.sum(axis=1)
        return Explanation(
            names, values, uplift, low, high, average, parts, rest, self._unit
        )

    def mean_change(self, X: MatrixLike, changed: MatrixLike) -> Estimate:
        """Return by how much the mean uplift of people differs if their features do.

        With one column of ``changed`` set to a value it is a partial dependence: what that value
        adds to uplift, all other features as they are. Without pairs of features, and for real
        outcomes, it is the same for everyone.

        Parameters
        ----------
        X, changed : array or data frame of shape (n, d)
            People as they are and as they would be, with the columns seen in ``fit``.

        Returns
        -------
        Estimate
            Mean uplift at ``changed`` less that at ``X``, outcome units. The standard error is
            model uncertainty: that of the coefficients, and of the forms that are averaged. It
            takes the policies as given. Costs two predictions.
        """
        before, after = (
            self._check_features(each, reset=False) for each in (X, changed)
        )
        scale = float(self.outcome_scaling_.scale[0])
        value, error = self.fit_.mean_change(before, after)
        return Estimate(scale * value, scale * error)

    def _means(self, matrix: Array) -> tuple[Array, Array]:
        """Return both means at checked rows, less the outcome's offset."""
        parts = self._by_chunks(self._chunk_means, matrix)
        scale = float(self.outcome_scaling_.scale[0])
        treated, untreated = (
            scale * np.concatenate(part) for part in zip(*parts, strict=True)
        )
        return treated, untreated

    def _by_chunks(self, function: Callable[[Array], T], matrix: Array) -> list[T]:
        """Return what a function gives chunk by chunk; all rows at once would fill the memory."""
        starts = range(0, len(matrix), PREDICT_ROWS)
        chunks = [matrix[start : start + PREDICT_ROWS] for start in starts]
        return list(over_pieces(function, chunks, self.n_jobs))

    def _chunk_means(self, chunk: Array) -> tuple[Array, Array]:
        is_mean = self.family_ == MEAN  # whose base is that of the mean policy
        propensity = (
            self._likelihood.propensities(chunk).mean(axis=1)
            if is_mean
            else np.zeros(len(chunk))
        )
        return self.fit_.means(chunk, propensity)

    def score(
        self,
        X: MatrixLike | Mapping[str, Any],
        y: ArrayLike | None = None,
        *,
        treatment: ArrayLike | None = None,
        population: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        cluster: ArrayLike | None = None,
        count: ArrayLike | None = None,
        policy: ArrayLike | None = None,
        dose: bool | None = None,
        control: Any = None,
    ) -> float:
        """Return the mean log-likelihood of held-out outcome rows; higher is better.

        A proper score that needs no joint labels, so that `GridSearchCV` can choose among
        settings. The "mean" family is scored as if its noise were normal.

        Parameters
        ----------
        X, y, treatment, population, sample_weight, cluster, count, policy, dose, control
            Held-out rows, as in ``fit``, or a `SeparateLabels` as ``X`` alone. Only outcome rows
            are used, of populations that ``fit`` has seen.

        Returns
        -------
        float
            In nats per row of the outcome as scaled in ``fit``.
        """
        beside = (sample_weight, cluster, count, policy, dose, control)
        columns = (y, treatment, population, *beside)
        rows = OutcomesToScore.of_call(self, X, columns)
        known = None if self.randomised else rows.exposure
        outcome, exposure, _ = self._likelihood.rows(
            rows.X, rows.label, rows.population, known
        )
        scored = ModelRows(rows.X, outcome, exposure, rows.weight)
        return float(np.average(self.fit_.log_likelihood(scored), weights=rows.weight))

    @property
    def reason_(self) -> str:
        """What was fitted, and whether the rows show that people respond differently."""
        return f"{self._differ()} {self._fitted()}"

    def summary_lines(self) -> dict[str, str]:
        """Return the lines of the summary by what they are about.

        Beside those of every estimator: whom the average speaks for, whether people differ and by
        how much, and the features that the effect varies with.
        """
        low, high = self.effect_range_
        care = "" if self._rise() > PROBABLY else " Rank by it with care."
        known = f" It speaks for {self.gain_.speaks_for:.0%} of people: those treated differently."
        if self.sampled_rows_ is not None:
            known += f" It was measured on a sample of {self.sampled_rows_:,} rows."
        is_dose = self.identification_.is_dose
        effect = effect_in_words(
            self.average_effect_,
            self._largest_effect,
            self.relative_effect_,
            is_dose=is_dose,
            unit=self._unit,
        )
        average = {"average": effect + known}
        if self.randomised:
            compliers = self.compliers_, self.complier_share_
            average = {
                "compliers": compliers_in_words(
                    *compliers, only=self._is_one_sided, unit=self._unit
                ),
                "average": offer_in_words(self.gain_.everyone(), self._unit),
            }
        elif len(self.dose_weights_):
            average["doses"] = doses_in_words(self.dose_weights_)
        robust = {} if self.randomised else self._robustness()
        per = "" if self._unit is UNNAMED else f" {self._unit.per}"
        return average | {
            **robust,
            "differences": (
                f"{self._differ()}{care} For nine people in ten the estimate lies between "
                f"{self._unit.rate(low)} and {self._unit.rate(high)}{per}."
            ),
            "varies with": self._features(),
            "policies": policies_in_words(self.identification_),
            "features": self._features_in_words(),
            "fit": self._fitted(),
        }

    @property
    def _largest_effect(self) -> float:
        """The distance of an outcome's two values, by which it changes at most."""
        if self.family_ == BERNOULLI:
            return float(self.outcome_scaling_.scale[0])
        return float(np.inf)

    @property
    def _is_one_sided(self) -> bool:
        """Whether nobody could be treated without the offer."""
        known = (p for p in self.policies_ if isinstance(p, ConditionalMean))
        return any(p.model is None and p.low == 0.0 for p in known)

    def _rise(self) -> float:
        """Return by how many standard errors uplift rises with the rank; nan if none is ranked."""
        rise = self.heterogeneity_
        return rise.value / rise.standard_error if rise.standard_error > 0.0 else np.nan

    def _differ(self) -> str:
        """Say whether people respond differently, and how sure that is."""
        rise = self._rise()
        if rise > CLEARLY:
            return "People clearly respond differently."
        if rise > PROBABLY:
            return "People probably respond differently."
        return "The rows do not show that people respond differently."

    def _features(self) -> str:
        """Name the features that the effect varies with, the first ones first."""
        spread = self.effect_features_
        total = float(np.sum(spread**2))
        what = "effect" if self._rise() > PROBABLY else "estimate"
        if total == 0.0:
            return f"The {what} varies with no feature."
        names = self._feature_names or [f"feature {j}" for j in range(len(spread))]
        order = [
            j
            for j in np.argsort(-spread, kind="stable")
            if spread[j] ** 2 >= 0.01 * total
        ]
        shares = [
            f"{names[j]} ({spread[j] ** 2 / total:.0%})" for j in order[:MOST_NAMED]
        ]
        return f"The {what} varies with {', '.join(shares)}."

    def _fitted(self) -> str:
        """Say which form of base and effect carries most weight."""
        kept = self.candidates_.kept
        name = next(iter(kept))
        specification = in_words(name, is_curved=self.family_ in CURVED)
        others = len(kept) - 1
        also = f"; it is averaged with {others} other form{'s' * (others > 1)}"
        rest = also if others else ""
        return f"In the likeliest form {specification}{rest}."


class OutcomesToScore(NamedTuple):
    """Held-out outcome rows in the coding of a fit."""

    X: Array
    label: Array
    population: IntArray
    weight: Array
    exposure: Array | None  # treatment or its probability where it is known, else NaN

    @classmethod
    def of_call(cls, model: Any, X: Any, columns: tuple[Any, ...]) -> OutcomesToScore:
        """Check rows that ``score`` was called with, and return those with an outcome.

        ``columns`` are y, treatment, population and the others beside ``X``.
        """
        features, rows = columns_of(X, columns, method="score")
        if rows is not None:
            columns = tuple(X.get(name) for name in COLUMNS[1:])
        y, treatment, population, sample_weight, _, count, policy, dose, _ = columns
        matrix = model._check_features(features, reset=False)
        label, code, joint = check_labels(y, treatment, len(matrix))
        coding: OutcomeCoding = model._coding
        if (coding.dose is not None) != bool(dose):
            raise InputError(
                "the model was fitted to doses and these rows have none, or the other way round. "
                "Pass dose=True as in fit."
            )
        exposure = check_known_policy(policy, len(matrix), is_dose=bool(dose))
        if joint is not None:
            both = ~np.isnan(joint)
            exposure = joint if exposure is None else exposure
            exposure[both] = (
                joint[both] if dose else 0.5 + 0.5 * check_treatment(joint[both])
            )
        exposure = None if exposure is None else exposure / (coding.dose or 1.0)
        names = check_population(population, code)
        weight = check_weight(sample_weight, len(matrix))
        if count is not None:
            weight = weight * np.asarray(count, dtype=np.float64)
        used = (code == KINDS.index(OUTCOME)) & (weight > 0.0)
        index = check_scored(model.populations_, coding, names[used], label[used])
        return cls(
            matrix[used],
            coding.encode(label[used]),
            index,
            weight[used],
            None if exposure is None else exposure[used],
        )


def check_scored(
    known: list[Any], coding: OutcomeCoding, names: Any, label: Array
) -> IntArray:
    """Return the population of each outcome row to score as its place among the known ones."""
    if len(label) == 0:
        raise LabelError(
            "there are no outcome rows to score; pass some with their labels."
        )
    index = np.full(len(names), -1, dtype=np.int64)
    for k, name in enumerate(known):
        index[names == name] = k
    if (index < 0).any():
        raise LabelError(
            "outcome rows of populations that fit has not seen: "
            f"{sorted({*names[index < 0].tolist()})}; known are {known}."
        )
    if coding.is_binary:
        other = (
            np.abs(np.abs(label - coding.offset) - coding.scale) > 1e-9 * coding.scale
        )
        if other.any():
            low = coding.offset - coding.scale
            high = coding.offset + coding.scale
            raise LabelError(
                f"fit has seen the outcomes {low:g} and {high:g} only, but y holds "
                f"{float(label[other][0]):g} in an outcome row. Score the outcome that was fitted."
            )
    return index
