"""How good an estimate is, and whether the tables identify it, without joint labels."""

from unjoined.evaluate.arms import ArmEvaluation, evaluate_arms
from unjoined.evaluate.bounds import Bounds, uplift_bounds
from unjoined.evaluate.curves import (
    UpliftCurve,
    auuc,
    average_uplift,
    joint_values,
    qini,
    rank_score,
    uplift_at_k,
    uplift_curve,
)
from unjoined.evaluate.diagnosis import Diagnosis, diagnose
from unjoined.evaluate.effects import effect_summary
from unjoined.evaluate.estimate import Estimate
from unjoined.evaluate.evaluate import (
    Evaluation,
    compare_uplift,
    cross_evaluate,
    evaluate_uplift,
    record_gain,
    sensitivity,
)
from unjoined.evaluate.planner import StudyGuess, plan_study
from unjoined.evaluate.scores import (
    HeldOutRows,
    fixed_critic_score,
    minmax_objective,
    outcome_risk,
    uplift_scorer,
    weighted_risk,
)
from unjoined.evaluate.sensitivity import Sensitivity
from unjoined.evaluate.strength import identification_strength
from unjoined.evaluate.tables import cross_fit

__all__ = [
    "ArmEvaluation",
    "Bounds",
    "Diagnosis",
    "Estimate",
    "Evaluation",
    "HeldOutRows",
    "Sensitivity",
    "StudyGuess",
    "UpliftCurve",
    "auuc",
    "average_uplift",
    "compare_uplift",
    "cross_evaluate",
    "cross_fit",
    "diagnose",
    "effect_summary",
    "evaluate_arms",
    "evaluate_uplift",
    "fixed_critic_score",
    "identification_strength",
    "joint_values",
    "minmax_objective",
    "outcome_risk",
    "plan_study",
    "qini",
    "rank_score",
    "record_gain",
    "sensitivity",
    "uplift_at_k",
    "uplift_bounds",
    "uplift_curve",
    "uplift_scorer",
    "weighted_risk",
]
