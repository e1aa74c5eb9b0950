"""Four regressions and a ratio, and the paper's methods as presets."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.linear_model import LogisticRegression, Ridge, RidgeCV
from sklearn.utils import check_random_state

from unjoined._typing import Array, RandomState
from unjoined._validation import OUTCOME, TREATMENT, check_not_negative
from unjoined.data import LabelledRows
from unjoined.estimators.base import (
    Check,
    RowEstimator,
    check_flag,
    check_model,
    fit_pair,
    scale_features,
    scale_outcomes,
    warn_of_gaps,
)
from unjoined.estimators.minmax import MinMaxUplift


class PlugInUplift(RowEstimator):
    r"""Uplift from separate labels by four regressions and a ratio.

    Estimates :math:`u(x) = E[Y(1) - Y(0) \mid X = x]` by the paper's Lemma 1,

    .. math::

        u(x) = \frac{E_1[y \mid x] - E_2[y \mid x]}{P_1(t = 1 \mid x) - P_2(t = 1 \mid x)},

    each of the four conditional means being fitted to its own table. Where the policies come
    close the denominator goes through zero and the ratio explodes; see ``min_gap``.

    Parameters
    ----------
    outcome_model : scikit-learn regressor or classifier, optional
        Model of the outcome, cloned and fitted once per population. A classifier needs an
        outcome of two values. Default: logistic regression for two values, else ridge.
    treatment_model : scikit-learn classifier or regressor, optional
        Model of the policy, likewise. Default: logistic regression.
    min_gap : float, default=0.05
        A denominator closer to 0 than this difference in treatment probability is set to it,
        with its sign kept. With 0 only rows without any gap at all get the uplift 0. ``predict``
        says in a `RatioGuardWarning` how many rows were touched.
    standardize : bool, default=True
        Whether features, and outcomes of more than two values, are brought to mean 0 and
        variance 1 for the models.
    random_state : int, RandomState or None, default=None
        Seed given to models whose own ``random_state`` is None.

    Attributes
    ----------
    outcome_means_, treatment_means_ : tuple of two callables
        The fitted conditional means of each population, on scaled features: outcomes in the
        inner coding, treatments from -1 to 1.
    scaling_, outcome_scale_ : Scaling and float
        What features were scaled by, and outcome units per unit of the inner coding.
    identification_, populations_, n_features_in_, feature_names_in_
        As in `MinMaxUplift`.

    See Also
    --------
    FourLogistic, FourNNC, FourRidge, FourNNR : the paper's baselines, presets of this class.
    MinMaxUplift : avoids the ratio.

    Notes
    -----
    Costs what the four models cost. A population in which all or none were treated has a known
    policy and needs no model; if the other population is its opposite, this is the T-learner.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from unjoined import PlugInUplift
    >>> from unjoined.data import paper_problem, unjoin
    >>> trial = paper_problem().draw_joint(4000, random_state=0)
    >>> tables = unjoin(
    ...     trial.X, trial.y, trial.treatment, policies={"A": 0.9, "B": 0.2}, random_state=0
    ... )
    >>> forest = RandomForestClassifier(50, min_samples_leaf=20)
    >>> model = PlugInUplift(outcome_model=forest, random_state=0).fit(**tables.data)
    >>> new = paper_problem().draw_joint(1000, random_state=1)
    >>> bool(np.corrcoef(model.predict(new.X), new.uplift)[0, 1] > 0.8)
    True
    """

    _parameters: ClassVar[dict[str, Check]] = {
        "outcome_model": check_model,
        "treatment_model": check_model,
        "min_gap": check_not_negative,
        "standardize": check_flag,
    }

    def __init__(
        self,
        *,
        outcome_model: Any = None,
        treatment_model: Any = None,
        min_gap: float = 0.05,
        standardize: bool = True,
        random_state: RandomState = None,
    ) -> None:
        self.outcome_model = outcome_model
        self.treatment_model = treatment_model
        self.min_gap = min_gap
        self.standardize = standardize
        self.random_state = random_state

    def _fit_rows(self, rows: LabelledRows, target: tuple[Array, Array] | None) -> None:
        rng = check_random_state(self.random_state)
        scaling = scale_features(rows, standardize=self.standardize)
        Z = scaling(rows.X)
        # Networks do not learn outcomes in the thousands.
        scaled, outcome_scaling = scale_outcomes(rows, standardize=self.standardize)
        model = self.outcome_model
        if model is None and not rows.coding.is_binary:
            model = Ridge()
        self.outcome_means_ = fit_pair(model, Z, scaled, OUTCOME, rng)
        self.treatment_means_ = fit_pair(self.treatment_model, Z, rows, TREATMENT, rng)
        self.scaling_, self.outcome_scale_ = scaling, float(outcome_scaling.scale[0])

    def _predict_rows(self, matrix: Array) -> Array:
        Z = self.scaling_(matrix)
        m_1, m_2 = (mean(Z) for mean in self.outcome_means_)
        t_1, t_2 = (mean(Z) for mean in self.treatment_means_)
        uplift, n_touched = _guarded_ratio(m_1 - m_2, (t_1 - t_2) / 2.0, self.min_gap)
        warn_of_gaps(n_touched, len(Z), "the ratio is not finite", self.min_gap, stacklevel=4)
        return self.outcome_scale_ * uplift


def _guarded_ratio(numerator: Array, gap: Array, min_gap: float) -> tuple[Array, int]:
    """Divide with the denominator kept away from 0; return how many rows that touched."""
    if min_gap > 0.0:
        small = np.abs(gap) < min_gap
        return numerator / np.where(small, np.copysign(min_gap, gap), gap), int(small.sum())
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = numerator / gap
    broken = ~np.isfinite(ratio)
    return np.where(broken, 0.0, ratio), int(broken.sum())


HIDDEN = (10, 10)  # two hidden layers of ten units, as in the paper
DECAY = 1.0  # scikit-learn's alpha; ranked better than 1e-4 on small tables
MAX_EPOCHS = 5000  # the loss settles long before, and a network that has not says so
RIDGES = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
# (ridge_f, ridge_g) of MinMaxGau for the two readings of the paper's sigma. Those of width 25 lose
# a third of the area at width 5, on the paper's data at b = 5.
MINMAX_RIDGES = {25.0: (1e-4, 1e-2), 5.0: (1e-2, 1.0)}


def _preset(outcome_model: Any, treatment_model: Any, random_state: RandomState) -> PlugInUplift:
    """Return a ratio without guard, as in the paper."""
    models = {"outcome_model": outcome_model, "treatment_model": treatment_model}
    return PlugInUplift(**models, min_gap=0.0, random_state=random_state)


def FourLogistic(*, random_state: RandomState = None) -> PlugInUplift:  # noqa: N802
    """Return the paper's FourLogistic: four logistic regressions and a ratio.

    For outcomes of two values; ``random_state`` is the seed, an int or RandomState.

    Examples
    --------
    >>> FourLogistic().min_gap
    0.0
    """
    return _preset(LogisticRegression(), LogisticRegression(), random_state)


def FourNNC(*, random_state: RandomState = None) -> PlugInUplift:  # noqa: N802
    """Return the paper's FourNNC: four neural classifiers and a ratio.

    Two hidden layers of ten units each, cross-entropy loss. For outcomes of two values;
    ``random_state`` is the seed, an int or RandomState.

    Examples
    --------
    >>> FourNNC().outcome_model.hidden_layer_sizes
    (10, 10)
    """
    from sklearn.neural_network import MLPClassifier  # a third of a second saved at import

    model = MLPClassifier(hidden_layer_sizes=HIDDEN, alpha=DECAY, max_iter=MAX_EPOCHS)
    return _preset(model, model, random_state)


def FourRidge(*, random_state: RandomState = None) -> PlugInUplift:  # noqa: N802
    """Return the paper's FourRidge: four ridge regressions and a ratio.

    For real outcomes. Policies are fitted by ridge regression as well, on -1/+1.
    ``random_state`` is the seed, an int or RandomState.

    Examples
    --------
    >>> type(FourRidge().outcome_model).__name__
    'RidgeCV'
    """
    model = RidgeCV(alphas=RIDGES)
    return _preset(model, model, random_state)


def FourNNR(*, random_state: RandomState = None) -> PlugInUplift:  # noqa: N802
    """Return the paper's FourNNR: four neural regressions and a ratio.

    Two hidden layers of ten units each, squared loss. For real outcomes; ``random_state`` is the
    seed, an int or RandomState.

    Examples
    --------
    >>> FourNNR().outcome_model.hidden_layer_sizes
    (10, 10)
    """
    from sklearn.neural_network import MLPRegressor  # a third of a second saved at import

    model = MLPRegressor(hidden_layer_sizes=HIDDEN, alpha=DECAY, max_iter=MAX_EPOCHS)
    return _preset(model, model, random_state)


def MinMaxGau(  # noqa: N802
    *,
    width: float = 25.0,
    ridge_f: float | str | None = None,
    ridge_g: float | str | None = None,
    random_state: RandomState = None,
) -> MinMaxUplift:
    r"""Return `MinMaxUplift` with the settings of the paper's experiments.

    100 Gaussian centres among the training rows, width 25, features and labels as they are.

    Parameters
    ----------
    width : float, default=25.0
        The paper's :math:`\sigma` in :math:`\exp(-\|x - c\|^2 / \sigma^2)`, units of the features.
        Read as :math:`\sigma^2 = 25` the width would be 5, and results differ much.
    ridge_f, ridge_g : float, "auto" or None, default=None
        Penalties, as in `MinMaxUplift`. The paper does not state its own. None takes ridges that
        suit the width: 1e-4 and 0.01 for width 25, 0.01 and 1 for width 5, and "auto", chosen
        from the rows, for any other. Those of 25 and 5 do well on the paper's synthetic data at
        every b from 1 to 5, which is knowledge a user does not have.
    random_state : int, RandomState or None, default=None
        Seed for the centres.

    Notes
    -----
    What comes back is a plain `MinMaxUplift`: a width that is set on it later leaves the ridges
    as they are.

    Examples
    --------
    >>> MinMaxGau(width=5.0)
    MinMaxUplift(basis='gaussian', center=False, n_centers=100, ridge_f=0.01,
                 ridge_g=1.0, standardize=False, width=5.0)
    """
    suited_f, suited_g = MINMAX_RIDGES.get(width, ("auto", "auto"))
    return MinMaxUplift(
        basis="gaussian",
        n_centers=100,
        width=width,
        ridge_f=suited_f if ridge_f is None else ridge_f,
        ridge_g=suited_g if ridge_g is None else ridge_g,
        center=False,
        standardize=False,
        random_state=random_state,
    )
