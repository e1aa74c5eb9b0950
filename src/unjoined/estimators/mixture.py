"""Uplift by the likelihood of the tables; with its defaults it is the estimator to start with."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from unjoined._support import in_digits, narrated
from unjoined._typing import Array, IntArray, RandomState
from unjoined._validation import OUTCOME, check_count, check_positive
from unjoined.basis import weighted_quantile
from unjoined.data import LabelledRows, TableEncoder
from unjoined.errors import InputError
from unjoined.estimators.base import (
    Check,
    check_flag,
    check_model,
    check_verbose,
    count_from,
    one_of,
    optional,
)
from unjoined.estimators.em import EMFit, fit_em
from unjoined.estimators.inputs import MOST_NAMED, column_ranges, effect_in_words, policies_in_words
from unjoined.estimators.likelihood import DESCRIBED_ROWS, EM, LIKELIHOOD, LikelihoodEstimator
from unjoined.estimators.mixture_rows import BERNOULLI, GAUSSIAN, MEAN, Passes, Sampled
from unjoined.metrics import Estimate, strength_of
from unjoined.nuisance import (
    EFFECT_FORMS,
    GROWING_FORMS,
    AdditiveAverage,
    FormTable,
    ModelRows,
    ShiftReport,
    average_forms,
    deal,
    fit_policies,
    in_words,
    weigh_shift,
)

SAMPLE_ROWS = 10_000  # of each table, kept from the first pass over chunks


def _check_columns(name: str, value: Any) -> None:
    """Allow a list of columns; whether they are there, the rows will tell."""
    if not isinstance(value, list | tuple | np.ndarray):
        raise InputError(f"{name} must be a list of columns, by name or position, got {value!r}.")


class MixtureUplift(LikelihoodEstimator):
    r"""Uplift from separate labels by the likelihood of the tables.

    Among outcome rows of population :math:`k` at :math:`x`, a share :math:`e_k(x)` was treated,
    and nobody knows which rows. Their outcomes are a mixture,

    .. math::

        p_k(y \mid x) = e_k(x) \, p(y \mid x, 1) + (1 - e_k(x)) \, p(y \mid x, 0),

    whose shares come from the treatment tables and whose two parts are the same in every
    population. The likelihood of the outcomes needs no row with both labels. It is written with a
    base and an effect, which are sums of functions of single features: a line, a square and a
    curve each, and products of pairs if there are at most 24 features. How large the functions
    of a feature are is learnt from the rows, so that idle features drop out and the average effect
    is not shrunk. Simpler and richer forms are weighed by held-out likelihood and averaged.

    Parameters
    ----------
    engine : {"likelihood", "em"}, default="likelihood"
        "likelihood" is the additive model above. "em" fits ``outcome_model`` to the treated and
        to the untreated by expectation-maximisation.
    family : {"auto", "bernoulli", "gaussian", "mean"}, default="auto"
        Law of the outcome. "bernoulli" for two values: base and effect are log-odds. For real
        outcomes "mean" assumes nothing but a mean, :math:`m(x) + (e_k(x) - \bar e(x)) u(x)`, and
        bounds the pull of gross values on both sides (Huber) where that pays; "gaussian" takes
        normal noise of one variance and gains from it if it is true. "auto" is "bernoulli" or
        "mean", for "em" "gaussian".
    outcome_model : scikit-learn classifier or regressor, default=None
        For ``engine="em"``: must take ``sample_weight``; a classifier if the outcome has two
        values.
    policy_model : scikit-learn classifier or None, default=None
        Model of each population's policy; None for the same additive model, without an effect.
    categorical_features : sequence of str or int, default=()
        Names or positions of columns whose numbers are codes of categories. Each is one block of
        indicators with one scale; a code that ``fit`` has not seen counts as average.
    average : bool, default=True
        Whether forms that held-out rows cannot tell apart are averaged; otherwise the likeliest
        is used alone.
    n_folds : int, default=5
        Folds of the held-out likelihood.
    n_starts : int, default=2
        Starts of EM, whose likelihood has more than one peak; the highest is kept.
    shift : None, "classifier", "rulsif" or scikit-learn classifier, default=None
        Weight the tables to the target's features, as in `MinMaxUplift`. Seldom needed here: the
        likelihood is conditional on x, so that tables may describe different people.
    shift_clip : float or None, default=None
        Cap on those weights.
    n_jobs : int or None, default=-1
        Threads; -1 uses all cores. Results do not depend on it.
    random_state : int, RandomState or None, default=None
        Seed for folds, samples and starts; the same seed gives the same bits.
    verbose : bool or int, default=False
        Whether to show on stderr what the logger ``unjoined`` is told: 1 shows the steps of a fit,
        2 how far each of them is.

    Attributes
    ----------
    family_ : str
        The law in use.
    policies_ : tuple of ConditionalMean
        One for each population.
    fit_ : AdditiveAverage or EMFit
        The fits that are averaged, scales, path of the objective, convergence.
    candidates_ : FormTable
        Every form tried, its held-out loss, the difference to the likeliest with its standard
        error, and its weight in the average. This and the next four not for EM.
    heterogeneity_ : Estimate
        By how much uplift rises from the person ranked lowest to the one ranked highest, in units
        of the outcome, by people whom the fits have not seen: the slope of ``gain_``.
    average_effect_ : Estimate
        Average uplift of the people for whom policies differ enough to tell, in units of the
        outcome. A ratio whose interval is Fieller's: it holds whatever the fitted functions are.
    gain_ : GainByScore
        What treating any list of people gains, with an interval, from their predictions alone.
    crossfit_ : CrossFit
        Policies, mean outcome and effect of the rows by fits that have not seen them, for
        ``diagnose`` and other functions that take it. It holds the rows, so it is not saved with
        the model. Not for ``policy_model`` and chunks.
    sampled_rows_ : int or None
        Rows of the sample that both were measured on, of a fit from chunks; None if on all.
    effect_range_ : array of shape (2,)
        Between which the predicted uplift of nine in ten outcome rows lies, units of the outcome.
    effect_features_ : array of shape (d,)
        How far the predicted uplift varies with each feature: the standard deviation of what it
        changes by if what the feature adds is the same for all, units of the outcome.
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
    Uplift : the same, with nothing to choose and a summary in words.
    MinMaxUplift : models neither policies nor base.
    TwoStageUplift : two-stage least squares, with standard errors.

    Notes
    -----
    Time is that of nine forms times ``n_folds`` fits, each of at most about 25 passes of O(n p^2)
    over at most 20,000 outcome rows, where p is ten functions a feature and one for each pair,
    twice. If there are more rows, the likeliest form and the likeliest that contains it are fitted
    to all of them in ten passes or so, and weighed there. Of more than 100 features each fit uses
    those that go along with its own labels most.

    The treatment tables say which part is which, so the two cannot change places. If policies
    hardly differ, the answer rests on the functions' form alone: a `WeakIdentificationWarning`
    says so. ``average_effect_`` and ``gain_`` come from all rows, by fits that have not seen them;
    from chunks, from the rows of the sample, and the summary says so. Where the mean prediction
    and what was measured differ by no more than chance, the mean prediction is the average.

    Examples
    --------
    >>> import numpy as np
    >>> from unjoined import MixtureUplift
    >>> from unjoined.data import paper_problem
    >>> problem = paper_problem(b=2.0)
    >>> model = MixtureUplift(random_state=0).fit(**problem.draw(1000, random_state=0))
    >>> X_new = problem.draw_joint(5000, random_state=1).X
    >>> bool(np.corrcoef(model.predict(X_new), problem.uplift(X_new))[0, 1] > 0.95)
    True
    """

    _parameters: ClassVar[dict[str, Check]] = {
        "engine": one_of(LIKELIHOOD, EM),
        "family": one_of("auto", BERNOULLI, GAUSSIAN, MEAN),
        "outcome_model": check_model,
        "policy_model": check_model,
        "categorical_features": _check_columns,
        "average": check_flag,
        "n_folds": count_from(2),
        "n_starts": check_count,
        "shift_clip": optional(check_positive),
        "verbose": check_verbose,
    }

    shift_: ShiftReport | None
    candidates_: FormTable
    heterogeneity_: Estimate
    effect_range_: Array
    effect_features_: Array

    def __init__(
        self,
        *,
        engine: str = LIKELIHOOD,
        family: str = "auto",
        outcome_model: Any = None,
        policy_model: Any = None,
        categorical_features: Any = (),
        average: bool = True,
        n_folds: int = 5,
        n_starts: int = 2,
        shift: Any = None,
        shift_clip: float | None = None,
        n_jobs: int | None = -1,
        random_state: RandomState = None,
        verbose: bool | int = False,
    ) -> None:
        self.engine = engine
        self.family = family
        self.outcome_model = outcome_model
        self.policy_model = policy_model
        self.categorical_features = categorical_features
        self.average = average
        self.n_folds = n_folds
        self.n_starts = n_starts
        self.shift = shift
        self.shift_clip = shift_clip
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit_chunks(
        self,
        source: Any,
        *,
        sample_rows: int = SAMPLE_ROWS,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Estimate the uplift from rows that come in chunks, in a few passes.

        The first pass looks at the labels and keeps a sample, which settles functions, forms and
        scales. About five passes each over the rows then fit the policies, all of them together,
        and base and effect. If the sample holds all rows, they are fitted as ``fit`` does.

        Parameters
        ----------
        source : ChunkSource, mapping or callable
            A `TableSource` (files, folders, queries, data frames), a `SeparateLabels`, a
            function that returns an iterable of chunks, or a `DaskSource`. Each pass goes through
            it once.
        sample_rows : int, default=10000
            Distinct rows of each table that are kept from the first pass.
        checkpoint : path, optional
            A file that is written after each pass and removed at the end. If it exists, passes
            that it holds are not made again. Needs an integer ``random_state``.

        Returns
        -------
        MixtureUplift
            Itself.

        Raises
        ------
        TableError, LabelError, InputError
            A chunk is malformed (the message names file and row), a cell is missing, or a
            parameter needs all rows in memory: ``engine="em"``, ``policy_model`` or ``shift``.

        Notes
        -----
        Memory is the sample, one chunk and O(p^2), whatever the number of rows. The result does
        not depend on the order of rows or on chunks but for rounding. ``identification_`` is
        that of the sample.
        """
        self._check_parameters()
        self._check_streamed(checkpoint)
        self._forget()
        size = check_count("sample_rows", sample_rows)
        with narrated(self, "rows in chunks"):
            rows, census = self._look_through(source, size)
            census.check_complete()
            sample, fold = census.sample(self.n_folds)
            self.training_range_ = column_ranges(sample.X)
            sample = replace(sample, weight=sample.relative)
            if max(cell.n_rows for cell in census.cells.values()) <= size:
                self._fit_rows(sample, None)
            else:
                self._settle(sample)
                passes = Passes(rows, census, self.n_jobs, checkpoint)
                sampled = Sampled(sample, fold, passes)
                columns = self._categorical_columns()
                rng = check_random_state(self.random_state)
                policies = sampled.policies(rng, categorical=columns)
                self.policies_ = tuple(each.policy for each in policies)
                self.fit_, few, chance, held = sampled.outcomes(
                    self._likelihood, categorical=columns, average=self.average
                )
                without = tuple(held.without(j) for j in range(held.n_folds))
                fold = fold[sample.of_kind(OUTCOME)]
                self._measure(self._cross_fit(sample, policies, without, fold, rng), rng)
                self.sampled_rows_ = len(sample)
                self._describe(self.fit_, few, chance)
        self._conclude(sample, strength_of(sample, n_jobs=self.n_jobs), stacklevel=3)
        if checkpoint is not None:
            Path(checkpoint).unlink(missing_ok=True)
        return self

    def _fit_rows(self, rows: LabelledRows, target: tuple[Array, Array] | None) -> None:
        rng = check_random_state(self.random_state)
        self.shift_ = None
        if self.shift is not None:
            X, weight = (None, None) if target is None else target
            options = {"clip": self.shift_clip, "rng": rng, "target_weight": weight}
            rows, self.shift_ = weigh_shift(rows, X, self.shift, **options, stacklevel=4)
        self._settle(rows)
        policies = fit_policies(
            rows.X if self.policy_model is None else self.scaling_(rows.X),
            rows,
            self.policy_model,
            rng=rng,
            n_jobs=self.n_jobs,
            categorical=self._categorical_columns(),
        )
        self.policies_ = tuple(each.policy for each in policies)
        at = rows.of_kind(OUTCOME)
        X, population = rows.X[at], rows.population[at]
        y, exposure, chance = self._likelihood.rows(X, rows.label[at], population)
        outcomes = ModelRows.of_weights(X, y, exposure, rows.weight[at])
        if self.engine == EM:
            self.fit_ = self._fit_em(outcomes, rng)
        else:
            fold = deal(population, self.n_folds, rng)
            self.fit_, without, fold = self._fit_forms(outcomes, chance, fold, rng)
            if self.policy_model is None:
                self.crossfit_ = self._cross_fit(rows, policies, without, fold, rng)
                self._measure(self.crossfit_, rng)
            few = np.sort(rng.permutation(len(outcomes.y))[:DESCRIBED_ROWS])
            self._describe(self.fit_, outcomes.take(few), chance[few])
        if not self.fit_.converged:
            warnings.warn(
                "the mixture likelihood did not settle; see fit_.objective or fit_.path. Look for "
                "features that determine the outcome.",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _fit_em(self, rows: ModelRows, rng: np.random.RandomState) -> EMFit:
        return fit_em(
            self.scaling_(rows.X),
            rows.y,
            rows.exposure,
            rows.weight,
            self.outcome_model,
            family=self.family_,
            n_starts=self.n_starts,
            rng=rng,
        )

    def _fit_forms(
        self, rows: ModelRows, chance: Array, fold: IntArray, rng: np.random.RandomState
    ) -> tuple[AdditiveAverage, tuple[AdditiveAverage, ...], IntArray]:
        return average_forms(
            rows,
            self._likelihood.law(chance, rows.weight),
            EFFECT_FORMS + GROWING_FORMS,
            fold,
            categorical=self._categorical_columns(),
            average=self.average,
            n_jobs=self.n_jobs,
            rng=rng,
        )

    def _describe(self, fit: AdditiveAverage, rows: ModelRows, chance: Array) -> None:
        """Set what is said of the effect: its range, and what it varies with."""
        treated, untreated = fit.means(rows.X, chance)
        uplift, scale = treated - untreated, float(self.outcome_scaling_.scale[0])
        self.effect_range_ = scale * weighted_quantile(uplift, rows.weight, (0.05, 0.95))
        self.effect_features_ = scale * fit.features(rows)
        self.candidates_ = fit.forms

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.engine == EM and self.outcome_model is None:
            raise InputError(
                "engine='em' needs outcome_model, a scikit-learn estimator that takes "
                "sample_weight, such as LogisticRegression()."
            )
        if self.engine == EM and self.family == MEAN:
            raise InputError("family='mean' has no likelihood for EM; use engine='likelihood'.")
        if self.engine == LIKELIHOOD and self.outcome_model is not None:
            raise InputError("outcome_model is for engine='em'; leave it out, or set the engine.")
        if self.policy_model is not None and not is_classifier(self.policy_model):
            raise InputError(
                f"policy_model must be None or a classifier, got {self.policy_model!r}."
            )

    def _check_streamed(self, checkpoint: Any) -> None:
        """Refuse parameters that need all rows in memory."""
        given = {"engine": self.engine == EM, "policy_model": self.policy_model is not None}
        given["shift"] = self.shift is not None
        for name, wrong in given.items():
            if wrong:
                raise InputError(
                    f"{name}={getattr(self, name)!r} needs all rows in memory. Leave it out, or "
                    "use fit."
                )
        if checkpoint is not None and not isinstance(self.random_state, Integral):
            raise InputError(
                "a checkpoint needs an integer random_state, so that the fit that goes on is the "
                f"one that stopped, got {self.random_state!r}."
            )

    def _new_encoder(self) -> TableEncoder:
        """Return an encoder of categories as blocks, unless models are given that know of none."""
        own = self.engine == LIKELIHOOD and self.policy_model is None
        return TableEncoder("codes" if own else "one-hot")


# Standard errors by which uplift rises with the rank, by people whom the fits have not seen.
PROBABLY, CLEARLY = 2.2, 3.0


class Uplift(MixtureUplift):
    """Uplift from separate labels, with nothing to choose.

    It is `MixtureUplift` with its defaults: the likelihood of the tables, with a base and an
    effect that are sums of functions of the features, as large as the rows support. It says in
    words what was fitted, how much people differ and how sure that is.

    Parameters
    ----------
    categorical_features : sequence of str or int, default=()
        Names or positions of columns whose numbers are codes of categories.
    n_jobs : int or None, default=-1
        Threads; -1 uses all cores. Results do not depend on it.
    random_state : int, RandomState or None, default=None
        Seed; the same seed gives the same bits.
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
    gain_ : GainByScore
        What treating any list of people gains, with an interval, from their predictions alone.
    heterogeneity_ : Estimate
        By how much uplift rises from the person ranked lowest to the one ranked highest, in units
        of the outcome, by people whom the fits have not seen: the slope of ``gain_``.
    candidates_ : FormTable
        The forms that were weighed.
    identification_ : IdentificationStrength
        How different the policies are.
    populations_ : list
        Names of the populations.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    See Also
    --------
    MixtureUplift : the same with its parameters, and the other attributes.
    UpliftSearchCV : choose among estimators of your own.

    Notes
    -----
    Half a minute or so for 4 x 250,000 rows of 10 features on two cores
    (``benchmarks/alternatives.py``). See `MixtureUplift` for what it costs.

    Examples
    --------
    >>> from unjoined import Uplift
    >>> from unjoined.data import campaign_problem
    >>> data = campaign_problem().draw(2000, random_state=0)
    >>> model = Uplift(random_state=0).fit(**data)
    >>> print(model.summary())
    Average effect: ...
    """

    def __init__(
        self,
        *,
        categorical_features: Any = (),
        n_jobs: int | None = -1,
        random_state: RandomState = None,
        verbose: bool | int = False,
    ) -> None:
        super().__init__(
            categorical_features=categorical_features,
            n_jobs=n_jobs,
            random_state=random_state,
            verbose=verbose,
        )

    @property
    def reason_(self) -> str:
        """What was fitted, and whether the rows show that people respond differently."""
        return f"{self._differ()} {self._fitted()}"

    def summary(self) -> str:
        """Return what was found, in a few lines of words.

        Returns
        -------
        str
            The average effect with its 95 % interval, in units of the outcome; whether people
            differ and by how much; the features that the effect varies with; how different the
            policies are; the features used; and what was fitted.
        """
        low, high = self.effect_range_
        # An outcome of two values changes by their distance at most.
        most = float(self.outcome_scaling_.scale[0]) if self.family_ == BERNOULLI else np.inf
        care = "" if self._rise() > PROBABLY else " Rank by it with care."
        known = f" It speaks for {self.gain_.speaks_for:.0%} of people: those treated differently."
        if self.sampled_rows_ is not None:
            known += f" It was measured on a sample of {self.sampled_rows_:,} rows."
        return "\n".join(
            [
                effect_in_words(self.average_effect_, most) + known,
                f"{self._differ()}{care} For nine people in ten the estimate lies between "
                f"{in_digits(low, sign=True)} and {in_digits(high, sign=True)}.",
                self._features(),
                policies_in_words(self.identification_),
                self._features_in_words(),
                self._fitted(),
            ]
        )

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
        order = [j for j in np.argsort(-spread, kind="stable") if spread[j] ** 2 >= 0.01 * total]
        shares = [f"{names[j]} ({spread[j] ** 2 / total:.0%})" for j in order[:MOST_NAMED]]
        return f"The {what} varies with {', '.join(shares)}."

    def _fitted(self) -> str:
        """Say which form of base and effect carries most weight."""
        kept = self.candidates_.kept
        name = next(iter(kept))
        form, others = in_words(name, in_odds=self.family_ == BERNOULLI), len(kept) - 1
        rest = f"; {others} other form{'s' * (others > 1)} had a say" if others else ""
        return f"In the likeliest form {form}{rest}."
