"""Solvers of the min-max problem, pure functions of trusted arrays."""

from unjoined.solve._bounded import solve_bounded
from unjoined.solve._box_qp import BoxQPSolution, RowOracle, solve_box_qp
from unjoined.solve._closed_form import (
    MinMaxSolution,
    RidgePath,
    objective,
    ridge_path,
    solve_minmax,
)
from unjoined.solve._gaussian_mixture import GaussianMixture
from unjoined.solve._general_loss import LossSolution, solve_box_loss, solve_smooth_loss
from unjoined.solve._log_cosh import solve_log_cosh
from unjoined.solve._losses import (
    LOSSES,
    AbsoluteLoss,
    BoxLoss,
    HuberLoss,
    LogCoshLoss,
    PinballLoss,
    SmoothLoss,
    SquaredLoss,
    check_conjugate,
)
from unjoined.solve._mixture_terms import BernoulliTerms, MeanTerms, OutcomeTerms, RowTerms
from unjoined.solve._scoring import BaseEffectFit, BaseEffectRows, Scoring
from unjoined.solve._select import (
    RIDGES_F,
    RIDGES_G,
    FoldScores,
    RidgeChoice,
    choose_ridges,
    score_folds,
)
from unjoined.solve._three_player import ThreePlayerLoss, check_conjugates, solve_three_player

__all__ = [
    "LOSSES",
    "RIDGES_F",
    "RIDGES_G",
    "AbsoluteLoss",
    "BaseEffectFit",
    "BaseEffectRows",
    "BernoulliTerms",
    "BoxLoss",
    "BoxQPSolution",
    "FoldScores",
    "GaussianMixture",
    "HuberLoss",
    "LogCoshLoss",
    "LossSolution",
    "MeanTerms",
    "MinMaxSolution",
    "OutcomeTerms",
    "PinballLoss",
    "RidgeChoice",
    "RidgePath",
    "RowOracle",
    "RowTerms",
    "Scoring",
    "SmoothLoss",
    "SquaredLoss",
    "ThreePlayerLoss",
    "check_conjugate",
    "check_conjugates",
    "choose_ridges",
    "objective",
    "ridge_path",
    "score_folds",
    "solve_bounded",
    "solve_box_loss",
    "solve_box_qp",
    "solve_log_cosh",
    "solve_minmax",
    "solve_smooth_loss",
    "solve_three_player",
]
