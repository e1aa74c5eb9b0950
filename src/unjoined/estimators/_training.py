"""What surrounds a training loop: held-out rows, their risk, a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from sklearn.linear_model import LogisticRegression

from unjoined._optional import import_extra
from unjoined._typing import Array, IntArray
from unjoined._validation import OUTCOME, TREATMENT
from unjoined.errors import InputError
from unjoined.evaluate import fit_conditional_mean
from unjoined.features import Scaling
from unjoined.moments import LabelledRows

__all__ = [
    "CELLS",
    "held_out_risk",
    "progress_bar",
    "split_cells",
]

CELLS = [(kind, k) for kind in (TREATMENT, OUTCOME) for k in (0, 1)]


def split_cells(
    rows: LabelledRows, share: float, rng: np.random.RandomState
) -> tuple[IntArray, IntArray]:
    """Return positions to train on, ordered by `CELLS`, and a share of each cell held out."""
    train, held = [], []
    for kind, k in CELLS:
        at = rows.at(kind, k)
        if share == 0.0:
            train.append(at)
            continue
        if len(at) < 2:
            raise InputError(
                f"population {rows.names[k]!r} has only one {kind} row, so none can be held out "
                f"to choose the epoch (n_samples={len(rows.label)} labelled rows in all). Set "
                "validation_share=0 to train on all rows."
            )
        shuffled = rng.permutation(at)
        n_held = min(max(1, round(share * len(at))), len(at) - 1)
        held.append(shuffled[:n_held])
        train.append(np.sort(shuffled[n_held:]))
    empty = np.empty(0, dtype=np.int64)
    return np.concatenate(train), np.concatenate([empty, *held])


def held_out_risk(train: LabelledRows, held: LabelledRows) -> Callable[[Array], float]:
    r"""Return the weighted risk on held-out rows as a function of f's values there.

    :math:`R(f) = E[w \nu f^2] - 4 E[z \nu f]` as in `weighted_risk`. The policy gap
    :math:`\nu` is fitted once, to the training rows: for the held-out rows it is then a given
    function, no folds are needed, and an epoch costs one pass over the values of f.
    """
    scaling = Scaling.of_rows(train.X, train.share)
    chance = []
    for k in (0, 1):
        at = train.at(TREATMENT, k)
        mean = fit_conditional_mean(
            LogisticRegression(), scaling(train.X[at]), train.label[at], train.weight[at]
        )
        chance.append((mean(scaling(held.X)) + 1.0) / 2.0)
    signed = held.share * held.sign * (chance[0] - chance[1])
    treatment, outcome = held.of_kind(TREATMENT), held.of_kind(OUTCOME)
    mean_outcome = (held.share * held.label)[outcome].sum()
    square = (signed * held.label)[treatment]
    linear = (signed * (held.label - mean_outcome))[outcome]

    def risk(f: Array) -> float:
        return float(square @ f[treatment] ** 2 - 4.0 * linear @ f[outcome])

    return risk


@contextmanager
def progress_bar(
    verbose: bool, max_epochs: int
) -> Iterator[Callable[[int, float, float], None] | None]:
    """Yield what to call after each epoch: it moves a progress bar, if one is wanted."""
    if not verbose:
        yield None
        return
    with import_extra("rich.progress", extra="cli").Progress() as bar:
        task = bar.add_task("training", total=max_epochs)

        def show(epoch: int, objective: float, risk: float) -> None:
            said = f"epoch {epoch}, objective {objective:.4f}"
            said += "" if np.isnan(risk) else f", held-out risk {risk:.4f}"
            bar.update(task, completed=epoch, description=said)

        yield show
