"""Curves, areas and scores; nothing here imports an estimator."""

from unjoined.metrics.bound import ErrorBound, error_bound
from unjoined.metrics.checks import Balance, Check, Sharing, warn_of_tables
from unjoined.metrics.curves import (
    TieGroups,
    UpliftCurve,
    auuc,
    average_uplift,
    fill_from_top,
    group_ties,
    joint_values,
    perfect_curve,
    qini,
    random_curve,
    rank_score,
    trapezoid,
    treat_all,
    uplift_at_k,
    uplift_curve,
)
from unjoined.metrics.diagnosis import Diagnosis, Finding, PolicyGap
from unjoined.metrics.effects import Coefficient, EffectSummary, GroupEffect, effect_summary
from unjoined.metrics.estimate import PLENTY, STRONG, Estimate, Ratio, critical_value
from unjoined.metrics.evaluate import compare_uplift, cross_evaluate, evaluate_uplift, record_gain
from unjoined.metrics.evaluation import (
    Calibration,
    Comparison,
    CurveBand,
    Difference,
    Evaluation,
    ScoreBin,
)
from unjoined.metrics.evidence import diagnose
from unjoined.metrics.identification import (
    NEARLY_ALL,
    GainByScore,
    IdentificationStrength,
    average_effect_of_sums,
    identification_strength,
    ranking_noise,
    strength_of,
    strength_of_sums,
    warn_if_weak,
    widening,
)
from unjoined.metrics.people import MANY, UNKNOWN, NamedFeatures, Region, tree_conditions
from unjoined.metrics.planner import StudyGuess, plan_study
from unjoined.metrics.rows import average_effect, evaluation_of, evaluation_rows, labelled_rows
from unjoined.metrics.scores import (
    SCORES,
    HeldOutRows,
    UpliftScorer,
    fixed_critic_score,
    minmax_objective,
    outcome_risk,
    uplift_scorer,
    weighted_risk,
)
from unjoined.metrics.study_plan import PlanPoint, StudyPlan
from unjoined.metrics.tables import cross_fit, row_fingerprint, was_fitted_to
from unjoined.metrics.verdict import verdict_of_fit

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
    "ErrorBound",
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
    "error_bound",
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
