"""What tests of several folders call when they are read, which fixtures cannot serve."""

import numpy as np

from unjoined.model.centring import cross_fit_means


def fit_centring(rows, rng, **options):
    """Fit the means of the cells to all rows: a single fold leaves nothing out."""
    fold = np.zeros(len(rows.label), dtype=np.int64)
    return cross_fit_means(rows, fold, rng, **options)[0]
