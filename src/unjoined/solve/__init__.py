"""Solvers of the min-max problem, pure functions of trusted arrays."""

from unjoined.solve._closed_form import (
    MinMaxSolution,
    RidgePath,
    objective,
    ridge_path,
    solve_minmax,
)

__all__ = ["MinMaxSolution", "RidgePath", "objective", "ridge_path", "solve_minmax"]
