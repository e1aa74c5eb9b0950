"""The estimator to start with: nothing to choose, and what it found in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from unjoined._typing import RandomState
from unjoined.estimators.mixture import MixtureUplift
from unjoined.estimators.mixture_rows import BERNOULLI
from unjoined.estimators.words import MOST_NAMED, effect_in_words, policies_in_words
from unjoined.nuisance import ALONE

# Weight of the forms in which people differ. Chosen so that "probably" is right nine times in ten
# if people differ in half of the problems (`benchmarks/words.py --first 1000 --problems 33`).
PROBABLY, CLEARLY = 0.9, 0.98
SAME = "the effect is the same for all, so that people are ranked by their base alone"
FORMS = {
    "lines": "the base and the effect are straight lines in the features",
    **dict.fromkeys(ALONE, SAME),
    "linear effect": "the base bends with the features, the effect is a straight line in them",
    "curved effect": "the base and the effect bend with single features",
    "pairs": "the base and the effect bend with the features and with pairs of them",
}


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
        By how many nats of held-out likelihood the likeliest form beats one in which the effect is
        the same for all.
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
        known = f" It speaks for {self.gain_.speaks_for:.0%} of people: those treated differently."
        return "\n".join(
            [
                effect_in_words(self.average_effect_, most) + known,
                f"{self._differ()} For nine people in ten the estimate lies between {low:+.4g} "
                f"and {high:+.4g}.",
                self._features(),
                policies_in_words(self.identification_),
                self._features_in_words(),
                self._fitted(),
            ]
        )

    def _differ(self) -> str:
        """Say whether people respond differently, and how sure that is."""
        weight = self.candidates_.differ
        if weight > CLEARLY:
            return "People clearly respond differently."
        if weight > PROBABLY:
            return "People probably respond differently."
        return "The rows do not show that people respond differently: rank by it with care."

    def _features(self) -> str:
        """Name the features that the effect varies with, the first ones first."""
        spread = self.effect_features_
        total = float(np.sum(spread**2))
        what = "effect" if self.candidates_.differ > PROBABLY else "estimate"
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
        others = len(kept) - 1
        rest = f"; {others} other form{'s' * (others > 1)} had a say" if others else ""
        return f"In the likeliest form {FORMS[name]}{rest}."
