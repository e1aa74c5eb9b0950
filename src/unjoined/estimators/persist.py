"""Models on disk, as skops files: loading one runs no code from it."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterable
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted

from unjoined._optional import import_extra
from unjoined._validation import check_count
from unjoined.data import replace_file
from unjoined.errors import MissingExtraError, TableError
from unjoined.estimators.base import UpliftEstimator
from unjoined.estimators.model_file import (
    CHECKSUM,
    check_members,
    check_model,
    check_types,
    checksum,
    expand,
)

# Types of our own and of scikit-learn's networks and boosted trees that skops does not know to be
# harmless: they hold numbers. A file with any other type is refused.
TRUSTED = frozenset(
    {
        "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
        "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
        "unjoined._validation.labels.OutcomeCoding",
        "unjoined.estimators.candidates.CandidateScore",
        "unjoined.estimators.candidates.CandidateTable",
        "unjoined.estimators.density.DensityUplift",
        "unjoined.estimators.em.EMFit",
        "unjoined.estimators.minmax.MinMaxUplift",
        "unjoined.estimators.minmax_problem.BoundsReport",
        "unjoined.estimators.minmax_problem.LossReport",
        "unjoined.estimators.minmax_search.MinMaxSearch",
        "unjoined.estimators.mixture.MixtureUplift",
        "unjoined.estimators.mixture_fit.Member",
        "unjoined.estimators.mixture_fit.MixtureFit",
        "unjoined.estimators.mixture_rules.MixtureCandidates",
        "unjoined.estimators.mixture_search.Setting",
        "unjoined.estimators.neural.NeuralMinMaxUplift",
        "unjoined.estimators.plugin.PlugInUplift",
        "unjoined.nuisance.policies.PolicyFit",
        "unjoined.estimators.search.UpliftSearchCV",
        "unjoined.estimators.two_stage.TwoStageCoefficients",
        "unjoined.estimators.two_stage.TwoStageUplift",
        "unjoined.estimators.uplift.Uplift",
        "unjoined.estimators.weighted.RiskPath",
        "unjoined.estimators.weighted.WeightedUplift",
        "unjoined.nuisance.models.ConditionalMean",
        "unjoined.metrics.curves.Estimate",
        "unjoined.metrics.identification.IdentificationStrength",
        "unjoined.basis.functions.FourierBasis",
        "unjoined.basis.functions.GaussianBasis",
        "unjoined.basis.functions.LinearBasis",
        "unjoined.basis.functions.StackedBasis",
        "unjoined.basis.families.KernelBasis",
        "unjoined.basis.draw.LeadingBasis",
        "unjoined.basis.families.PrincipalBasis",
        "unjoined.basis.families.QuadraticBasis",
        "unjoined.basis.functions.Scaling",
        "unjoined.nuisance.shift.CellShift",
        "unjoined.nuisance.shift.ShiftReport",
        "unjoined.solve.density.ConditionalDensity",
        "unjoined.solve.density.DensitySearch",
        "unjoined.losses.AbsoluteLoss",
        "unjoined.losses.HuberLoss",
        "unjoined.losses.LogCoshLoss",
        "unjoined.losses.PinballLoss",
        "unjoined.losses.SquaredLoss",
    }
)


def save_model(model: UpliftEstimator, path: str | os.PathLike[str]) -> Path:
    """Write a fitted model to a file that `load_model` reads.

    Parameters
    ----------
    model : UpliftEstimator
        Fitted.
    path : path
        The file, by custom ending in ``.skops``; replaced as a whole if it exists.

    Returns
    -------
    Path
        The file written.
    """
    skops_io = import_extra("skops.io", extra="cli")
    check_is_fitted(model)
    for name, value in model.get_params().items():
        if function := _nameless_function(value):
            raise TableError(
                f"the parameter {name} holds a function without an importable name ({function}), "
                "which no other program could load. Define it in a module of yours."
            )

    def write(file: Path) -> None:
        skops_io.dump(model, file)
        with zipfile.ZipFile(file) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(file, "a") as archive:
            archive.writestr(CHECKSUM, checksum(members))

    return replace_file(path, write)


def _nameless_function(value: Any) -> str | None:
    """Return the name of a lambda or inner function among a parameter and its fields."""
    fields = list(value) if isinstance(value, tuple) else []
    if is_dataclass(value) and not isinstance(value, type):
        fields = [getattr(value, field) for field in value.__dataclass_fields__]
    for part in (value, *fields):
        name = getattr(part, "__qualname__", "")
        if callable(part) and "<" in name:
            return str(name)
    return None


def load_model(
    path: str | os.PathLike[str], *, trusted: Iterable[str] = (), max_bytes: int | None = None
) -> UpliftEstimator:
    """Read a fitted model. Nothing is unpickled and nothing in the file is run.

    Parameters
    ----------
    path : path
        A file written by `save_model`.
    trusted : iterable of str, optional
        Further types to allow, such as those of a third-party model in a `PlugInUplift`. Look
        at what they are before trusting a file you did not write.
    max_bytes : int, optional
        What the file may hold once it is expanded; by default its own size, or 100 MB if that is
        more. `save_model` does not compress, so that only files compressed since need more.

    Returns
    -------
    UpliftEstimator

    Raises
    ------
    TableError
        The file does not exist, was damaged, is not a model, would expand to more than
        ``max_bytes``, holds types that are not trusted, or parts that do not belong together.

    Notes
    -----
    A checksum tells of damage, not of malice: who can write the file can write its checksum.
    """
    skops_io = import_extra("skops.io", extra="cli")
    file = Path(path)
    if not file.is_file():
        raise TableError(f"there is no model file {str(file)!r}. Write one with `unjoined fit`.")
    raw = file.read_bytes()  # once: what is checked is what is loaded
    limit = None if max_bytes is None else check_count("max_bytes", max_bytes)
    allowed = TRUSTED | set(trusted)
    try:
        members = expand(raw, limit)
        check_members(members, allowed)
        unknown = set(skops_io.get_untrusted_types(file=io.BytesIO(raw)))
        check_types(unknown - allowed)
        model = skops_io.load(io.BytesIO(raw), trusted=sorted(unknown))
        check_model(model, sum(map(len, members.values())))
    except MissingExtraError:
        raise
    except TableError as error:
        raise TableError(f"{str(file)!r} {error}") from error
    # Whatever else goes wrong in a file that somebody else made, or that was damaged, is its fault.
    except Exception as error:
        raise TableError(
            f"{str(file)!r} is not a model file of this program ({type(error).__name__}: {error})."
        ) from error
    found: UpliftEstimator = model
    return found
