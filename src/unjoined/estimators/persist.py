"""Models on disk, as skops files: loading one runs no code from it."""

from __future__ import annotations

import io
import os
import sys
import zipfile
from collections.abc import Iterable
from dataclasses import is_dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from unjoined._support import import_extra
from unjoined._validation import OutcomeCoding, check_count
from unjoined.data.encode import ColumnCode, TableEncoder
from unjoined.data.write import replace_file
from unjoined.errors import InputError, MissingExtraError, TableError
from unjoined.estimators.arms import ArmUplift
from unjoined.estimators.base import UpliftEstimator
from unjoined.estimators.em import EMFit, EMUplift
from unjoined.estimators.minmax import MinMaxSearch, MinMaxUplift
from unjoined.estimators.minmax_problem import BoundsReport, LossReport
from unjoined.estimators.model_file import (
    CHECKSUM,
    RECORD,
    SCHEMA,
    check_members,
    check_model,
    check_types,
    checksum,
    expand,
    pack,
    record_of,
    with_names,
)
from unjoined.estimators.uplift import Uplift
from unjoined.estimators.weighted import RiskPath, WeightedUplift
from unjoined.evaluate.estimate import Estimate, Ratio
from unjoined.evaluate.strength import GainByScore, IdentificationStrength
from unjoined.evaluate.verdict import Finding, Verdict
from unjoined.model.additive_basis import AdditiveBasis, Curve
from unjoined.model.arms import ArmPolicy
from unjoined.model.basis import (
    FourierBasis,
    GaussianBasis,
    LinearBasis,
    Scaling,
    StackedBasis,
)
from unjoined.model.draw import PrincipalBasis
from unjoined.model.families import (
    BernoulliFamily,
    GaussianFamily,
    MeanFamily,
    PoissonFamily,
)
from unjoined.model.losses import AbsoluteLoss, HuberLoss, PinballLoss, SquaredLoss
from unjoined.model.newton import AdditiveFit, Parts, Scales
from unjoined.model.regressors import AdditiveMean, ConditionalMean
from unjoined.model.shift import CellShift, ShiftReport
from unjoined.model.specifications import AdditiveAverage, Member, SpecificationTable
from unjoined.paper.density import ConditionalDensity, DensitySearch, DensityUplift
from unjoined.paper.neural import NeuralMinMaxUplift
from unjoined.paper.plugin import PlugInUplift, TwoStageCoefficients, TwoStageUplift

# What a file may hold of ours: any other type is refused. Files call a type by its name alone, so
# that they can be read wherever it lives.
STORED: tuple[type, ...] = (
    *(
        ArmPolicy,
        ArmUplift,
        DensityUplift,
        EMUplift,
        MinMaxUplift,
        NeuralMinMaxUplift,
        PlugInUplift,
        TwoStageUplift,
    ),
    *(Uplift, WeightedUplift),
    *(BoundsReport, EMFit, LossReport, MinMaxSearch, RiskPath, TwoStageCoefficients),
    *(
        AdditiveBasis,
        Curve,
        FourierBasis,
        GaussianBasis,
        LinearBasis,
        PrincipalBasis,
        Scaling,
    ),
    *(StackedBasis, AbsoluteLoss, HuberLoss, PinballLoss, SquaredLoss),
    *(Estimate, Finding, GainByScore, IdentificationStrength, Ratio, Verdict),
    *(
        AdditiveAverage,
        AdditiveMean,
        CellShift,
        ConditionalMean,
        SpecificationTable,
        Member,
        ShiftReport,
    ),
    *(
        AdditiveFit,
        BernoulliFamily,
        ConditionalDensity,
        DensitySearch,
        GaussianFamily,
        MeanFamily,
        Parts,
    ),
    *(PoissonFamily, Scales, ColumnCode, OutcomeCoding, TableEncoder),
)
LIVES_AT = {
    f"unjoined.{kind.__name__}": f"{kind.__module__}.{kind.__name__}" for kind in STORED
}
# Networks and boosted trees of scikit-learn that skops does not know to be harmless: they hold
# numbers.
HARMLESS = frozenset(
    {
        "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
        "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    }
)


def _import_skops() -> Any:
    """Return skops, imported without torch and dask.

    It walks through all of scikit-learn, adapters to these two included, which takes two seconds.
    """
    adapters = [
        f"sklearn.externals.array_api_compat.{name}" for name in ("torch", "dask")
    ]
    hidden = dict.fromkeys(set(adapters) - set(sys.modules))
    sys.modules.update(hidden)  # type: ignore[arg-type]  # None makes the import fail
    try:
        return import_extra("skops.io", extra="cli")
    finally:
        for name in hidden:
            del sys.modules[name]


def save_model(
    model: UpliftEstimator | Pipeline,
    path: str | os.PathLike[str],
    *,
    trusted: Iterable[str] = (),
) -> Path:
    """Write a fitted model to a file that `load_model` reads.

    Parameters
    ----------
    model : UpliftEstimator or Pipeline
        Fitted. A scikit-learn pipeline must end in an uplift estimator.
    path : path
        The file, by custom ending in ``.skops``; an older model there is replaced as a whole.
    trusted : iterable of str, optional
        Further types that `load_model` will be told to allow.

    Returns
    -------
    Path
        The file written. What it holds was read back and checked first.

    Raises
    ------
    TableError
        `load_model` would refuse the file, or there is a file that is not a model. Nothing is
        written then.
    """
    skops_io = _import_skops()
    check_is_fitted(model)
    file = Path(path)
    if file.is_file() and file.stat().st_size and not is_model_file(file):
        raise TableError(
            f"{str(path)!r} exists and is not a model, so it is not replaced. Name another file."
        )
    for name, value in model.get_params().items():
        if function := _nameless_function(value):
            raise TableError(
                f"the parameter {name} holds a function without an importable name ({function}), "
                "which no other program could load. Define it in a module of yours."
            )

    def write(file: Path) -> None:
        skops_io.dump(model, stored := io.BytesIO())
        with zipfile.ZipFile(stored) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        public = {private: name for name, private in LIVES_AT.items()}
        members[SCHEMA] = with_names(members[SCHEMA], public)
        members[RECORD] = record_of(model, version("unjoined"))
        members[CHECKSUM] = checksum(members).encode()
        try:
            _model_of(members, set(trusted))
        except (TableError, InputError) as error:
            foreign = "not trusted" in str(error)
            remedy = (
                " Name them in save_model(trusted=...) too, to save it so."
                if foreign
                else ""
            )
            raise TableError(
                f"the model was not saved, because load_model would refuse its file, which "
                f"{error}{remedy}"
            ) from error
        file.write_bytes(pack(members))

    return replace_file(path, write)


def is_model_file(file: Path) -> bool:
    """Tell whether a file looks like a model; workbooks and sums are zip files, too."""
    if not zipfile.is_zipfile(file):
        return False
    with zipfile.ZipFile(file) as archive:
        return SCHEMA in archive.namelist()


def _model_of(members: dict[str, bytes], trusted: set[str]) -> Any:
    """Return the model that the parts of a file hold, checked."""
    skops_io = _import_skops()
    check_members(members)
    raw = pack(members | {SCHEMA: with_names(members[SCHEMA], LIVES_AT)})
    unknown = set(skops_io.get_untrusted_types(file=io.BytesIO(raw)))
    check_types(unknown - HARMLESS - trusted - set(LIVES_AT.values()))
    model = skops_io.load(io.BytesIO(raw), trusted=sorted(unknown))
    check_model(model)
    return model


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
    path: str | os.PathLike[str],
    *,
    trusted: Iterable[str] = (),
    max_bytes: int | None = None,
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
    UpliftEstimator, or the Pipeline that was saved

    Raises
    ------
    TableError
        The file does not exist, was damaged, is not a model, would expand to more than
        ``max_bytes``, was written by another version, or holds types that are not trusted.

    Notes
    -----
    A checksum tells of damage, not of malice: who can write the file can write its checksum.
    """
    _import_skops()
    file = Path(path)
    if not file.is_file():
        raise TableError(
            f"there is no model file {str(file)!r}. Write one with `unjoined fit`."
        )
    raw = file.read_bytes()  # once: what is checked is what is loaded
    limit = None if max_bytes is None else check_count("max_bytes", max_bytes)
    try:
        model = _model_of(expand(raw, limit), set(trusted))
    except MissingExtraError:
        raise
    except TableError as error:
        raise TableError(f"{str(file)!r} {error}") from error
    # Whatever else goes wrong in a file that somebody else made, or that was damaged, is its fault.
    except Exception as error:
        why = (
            ""
            if isinstance(error, zipfile.BadZipFile)
            else f" ({type(error).__name__}: {error})"
        )
        raise TableError(
            f"{str(file)!r} is not a model file of this program{why}."
        ) from error
    return cast(UpliftEstimator, model)
