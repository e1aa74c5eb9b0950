"""Solvers of the min-max problem, pure functions of trusted arrays."""

from unjoined.solve.additive import (
    AdditiveFit,
    AdditiveRows,
    Parts,
    Pass,
    Request,
    Scales,
    Steps,
    fit_additive,
    fit_steps,
    fits_without,
    pass_by_pieces,
    pass_in_memory,
    sums_of_rows,
)
from unjoined.solve.laws import (
    BernoulliLaw,
    GaussianLaw,
    Law,
    MeanLaw,
    Sums,
    choose_threshold,
    robust_deviation,
)
from unjoined.solve.losses import solve_loss
from unjoined.solve.minmax import (
    CRITIC_RIDGE,
    RIDGES_F,
    RIDGES_G,
    MinMaxSolution,
    choose_ridges,
    score_ridges,
    solve_bounded,
    solve_box_qp,
    solve_minmax,
)
from unjoined.solve.torch import (
    HeldOut,
    ModuleMaker,
    SaddleRows,
    SaddleSettings,
    Weights,
    build_module,
    check_maker,
    checked_conjugate,
    default_network,
    evaluate_module,
    import_torch,
    seeded,
    train_saddle,
)
