"""What is estimated on the way: policies, conditional means, density ratios."""

from unjoined.nuisance.additive import (
    HeldOutForms,
    average_forms,
    hold_out_forms,
    levelled,
    more_steps,
)
from unjoined.nuisance.centring import (
    CROSS_FIT_ROWS,
    N_FOLDS,
    ModelMeans,
    center_sums,
    check_center,
    cross_fit_centring,
    cut_down,
    deal_folds,
    smooth_coef,
    subtract_means,
)
from unjoined.nuisance.crossfit import (
    AUTO,
    BERNOULLI,
    GAUSSIAN,
    MEAN,
    CrossFit,
    EffectModels,
    EffectNuisances,
    Likelihood,
    folds_of_fits,
    outcome_scaling,
)
from unjoined.nuisance.forms import (
    ALONE,
    EFFECT_FORMS,
    GROWING_FORMS,
    AdditiveAverage,
    FormTable,
    Member,
    ModelRows,
    in_words,
)
from unjoined.nuisance.linear import cross_fit_linear
from unjoined.nuisance.models import (
    AdditiveMean,
    ConditionalMean,
    FoldedPolicy,
    Nuisances,
    check_folds,
    cross_fit,
    cross_fitted_gap,
    cross_fitted_mean,
    deal,
    deal_evaluation_folds,
    deal_rows,
    fit_conditional_mean,
    fit_policies,
    fit_weighted,
    hold_out_mean,
    last_step,
    seeded_clone,
    takes_weights,
)
from unjoined.nuisance.shift import CellShift, ShiftReport, effective_size, weigh_shift
