"""Curves, areas, rules and scores; nothing here imports an estimator."""

from unjoined.evaluate._area import auuc, qini, rank_score, uplift_at_k
from unjoined.evaluate._bound import ErrorBound, error_bound
from unjoined.evaluate._conditional_mean import ConditionalMean, fit_conditional_mean
from unjoined.evaluate._conventions import (
    causalml_auuc,
    causalml_qini,
    pylift_q,
    sklift_qini_auc,
    sklift_uplift_at_k,
    sklift_uplift_auc,
)
from unjoined.evaluate._curve import UpliftCurve, perfect_curve, random_curve, uplift_curve
from unjoined.evaluate._estimate import Estimate
from unjoined.evaluate._gain import Gain, expected_gain, profit_rule
from unjoined.evaluate._held_out import HeldOutRows
from unjoined.evaluate._identification import (
    IdentificationStrength,
    identification_strength,
    strength_of,
    strength_of_sums,
    warn_if_weak,
)
from unjoined.evaluate._rules import budget_rule, optimal_rule, top_share_rule, treatment_rank
from unjoined.evaluate._scorer import UpliftScorer, uplift_scorer
from unjoined.evaluate._separate import (
    fixed_critic_score,
    minmax_objective,
    outcome_risk,
    weighted_risk,
)
from unjoined.evaluate._value import average_uplift, joint_values, treat_all

__all__ = [
    "ConditionalMean",
    "ErrorBound",
    "Estimate",
    "Gain",
    "HeldOutRows",
    "IdentificationStrength",
    "UpliftCurve",
    "UpliftScorer",
    "auuc",
    "average_uplift",
    "budget_rule",
    "causalml_auuc",
    "causalml_qini",
    "error_bound",
    "expected_gain",
    "fit_conditional_mean",
    "fixed_critic_score",
    "identification_strength",
    "joint_values",
    "minmax_objective",
    "optimal_rule",
    "outcome_risk",
    "perfect_curve",
    "profit_rule",
    "pylift_q",
    "qini",
    "random_curve",
    "rank_score",
    "sklift_qini_auc",
    "sklift_uplift_at_k",
    "sklift_uplift_auc",
    "strength_of",
    "strength_of_sums",
    "top_share_rule",
    "treat_all",
    "treatment_rank",
    "uplift_at_k",
    "uplift_curve",
    "uplift_scorer",
    "warn_if_weak",
    "weighted_risk",
]
