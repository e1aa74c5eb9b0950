"""What is estimated on the way: policies, conditional means, density ratios."""

from unjoined.nuisance.centring import (
    CROSS_FIT_ROWS,
    N_FOLDS,
    CenteredRows,
    ModelMeans,
    center_rows,
    check_center,
    cross_fit_centring,
    deal_folds,
    fit_centring,
    subtract_means,
)
from unjoined.nuisance.crossfit import (
    Nuisances,
    cross_fit,
    cross_fitted_gap,
    deal_evaluation_folds,
    smooth_basis,
)
from unjoined.nuisance.models import (
    ConditionalMean,
    fit_conditional_mean,
    fit_weighted,
    seeded_clone,
    takes_weights,
)
from unjoined.nuisance.policies import PolicyFit, fit_policies
from unjoined.nuisance.shift import CellShift, ShiftReport, weigh_shift

__all__ = [
    "CROSS_FIT_ROWS",
    "N_FOLDS",
    "CellShift",
    "CenteredRows",
    "ConditionalMean",
    "ModelMeans",
    "Nuisances",
    "PolicyFit",
    "ShiftReport",
    "center_rows",
    "check_center",
    "cross_fit",
    "cross_fit_centring",
    "cross_fitted_gap",
    "deal_evaluation_folds",
    "deal_folds",
    "fit_centring",
    "fit_conditional_mean",
    "fit_policies",
    "fit_weighted",
    "seeded_clone",
    "smooth_basis",
    "subtract_means",
    "takes_weights",
    "weigh_shift",
]
