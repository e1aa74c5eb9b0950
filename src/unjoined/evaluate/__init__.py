"""How good an estimate is, and whether the tables identify it, without joint labels."""

from unjoined.evaluate.checks import Balance, Check, Sharing
from unjoined.evaluate.curves import (
    UpliftCurve,
    auuc,
    average_uplift,
    joint_values,
    perfect_curve,
    qini,
    random_curve,
    rank_score,
    treat_all,
    uplift_at_k,
    uplift_curve,
)
from unjoined.evaluate.diagnosis import Diagnosis, PolicyGap
from unjoined.evaluate.effects import Coefficient, EffectSummary, GroupEffect, effect_summary
from unjoined.evaluate.estimate import Estimate
from unjoined.evaluate.evaluate import compare_uplift, cross_evaluate, evaluate_uplift, record_gain
from unjoined.evaluate.evaluation import (
    Calibration,
    Comparison,
    CurveBand,
    Difference,
    Evaluation,
    ScoreBin,
)
from unjoined.evaluate.evidence import diagnose
from unjoined.evaluate.planner import StudyGuess, plan_study
from unjoined.evaluate.regions import Region
from unjoined.evaluate.scores import (
    HeldOutRows,
    UpliftScorer,
    fixed_critic_score,
    minmax_objective,
    outcome_risk,
    uplift_scorer,
    weighted_risk,
)
from unjoined.evaluate.strength import GainByScore, IdentificationStrength, identification_strength
from unjoined.evaluate.study_plan import PlanPoint, StudyPlan
from unjoined.evaluate.tables import cross_fit
from unjoined.evaluate.verdict import Finding

__all__ = [
    "Balance",
    "Calibration",
    "Check",
    "Coefficient",
    "Comparison",
    "CurveBand",
    "Diagnosis",
    "Difference",
    "EffectSummary",
    "Estimate",
    "Evaluation",
    "Finding",
    "GainByScore",
    "GroupEffect",
    "HeldOutRows",
    "IdentificationStrength",
    "PlanPoint",
    "PolicyGap",
    "Region",
    "ScoreBin",
    "Sharing",
    "StudyGuess",
    "StudyPlan",
    "UpliftCurve",
    "UpliftScorer",
    "auuc",
    "average_uplift",
    "compare_uplift",
    "cross_evaluate",
    "cross_fit",
    "diagnose",
    "effect_summary",
    "evaluate_uplift",
    "fixed_critic_score",
    "identification_strength",
    "joint_values",
    "minmax_objective",
    "outcome_risk",
    "perfect_curve",
    "plan_study",
    "qini",
    "random_curve",
    "rank_score",
    "record_gain",
    "treat_all",
    "uplift_at_k",
    "uplift_curve",
    "uplift_scorer",
    "weighted_risk",
]
