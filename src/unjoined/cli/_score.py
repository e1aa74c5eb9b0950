"""From a model and a table to a targeting list."""

from __future__ import annotations

import narwhals as nw
import numpy as np

from unjoined._optional import import_extra
from unjoined._typing import Frame
from unjoined.cli._inputs import select_columns
from unjoined.errors import InputError
from unjoined.estimators import UpliftEstimator
from unjoined.evaluate import treatment_rank

__all__ = ["check_kept", "targeting_list"]

OWN = ("uplift", "rank", "treat", "row")  # columns that the list itself writes


def check_kept(keep: list[str]) -> None:
    """Refuse to copy columns under names that the list writes itself."""
    if taken := [name for name in keep if name in OWN]:
        raise InputError(
            f"--keep cannot copy the column {taken[0]!r}, as the list has a column of that name "
            "of its own. Rename yours in the table."
        )


def targeting_list(
    model: UpliftEstimator,
    table: Frame,
    *,
    title: str,
    keep: list[str],
    share: float | None,
) -> Frame:
    """Return a pyarrow table, best first: kept columns, uplift, rank and whom to treat.

    Parameters
    ----------
    model : UpliftEstimator
        Fitted on a table, so that it knows its columns' names.
    table : pyarrow.Table
        People to be scored; columns are found by name, further ones do not matter.
    title : str
        What messages call the table.
    keep : list of str
        Columns to copy into the list; with none, the row number (from 0) under ``row``.
    share : float or None
        Treat this share of the rows, rounded down; None treats whoever has an uplift of 0 or
        more, the optimal rule if treatment costs nothing.
    """
    pyarrow = import_extra("pyarrow", extra="cli")
    if not hasattr(model, "feature_names_in_"):
        raise InputError(
            "the model was fitted to plain arrays, so it does not know the names of its features. "
            "Fit it to tables, or call its predict with an array."
        )
    names = [str(name) for name in model.feature_names_in_]
    rows = nw.from_native(table, eager_only=True)
    if len(rows) == 0:
        raise InputError(f"{title} is empty: there is nobody to score.")
    uplift = model.predict(select_columns(table, names, table=title))
    rank = treatment_rank(uplift)
    treat = uplift >= 0.0 if share is None else rank <= int(share * len(rank) + 1e-9)
    kept = select_columns(table, keep, table=title) if keep else None
    columns = (
        {"row": np.arange(len(rank))}
        if kept is None
        else {name: kept.column(name) for name in keep}
    )
    scored = pyarrow.table({**columns, "uplift": uplift, "rank": rank, "treat": treat})
    return scored.take(np.argsort(rank))
