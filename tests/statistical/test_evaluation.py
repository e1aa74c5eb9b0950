"""Intervals of evaluations cover the truth as often as they say, in a few draws of one design."""

import runpy
from pathlib import Path

import pytest

DRAWS = 40


@pytest.mark.slow
def test_intervals_cover_in_as_many_draws_as_they_say():
    """Of 40 draws at 95 %, fewer than 33 cover by chance in 1 of 1,000 studies."""
    script = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "coverage.py"))
    found = script["study"](DRAWS, None, (400,), ["covariate shift"])
    (row,) = found.values()
    for what in ("average", "top share", "auuc", "qini", "uniform band"):
        assert row[what] >= 33 / DRAWS, what
    assert 0.90 <= row["deciles"] <= 0.99
