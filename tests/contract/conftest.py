"""Estimators that take long for scikit-learn's checks go through them in the slow run."""

import pytest

LONG = ("MLP", "RowwiseUplift", "RowwiseLikelihood", "RowwiseNeural", "RowwiseMixture", "fourier")
LONG += ("clip=True", "rule='average'", "quadratic='gap'", "'kernel'", "critic_basis")


def pytest_collection_modifyitems(items):
    for item in items:
        if "contract" in item.path.parts and any(name in item.name for name in LONG):
            item.add_marker(pytest.mark.slow)
