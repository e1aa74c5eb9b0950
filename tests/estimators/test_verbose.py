"""What estimators say while they work: to a logger, and to stderr if they are asked to."""

import logging

import numpy as np
import pandas as pd
import pytest

from unjoined import MinMaxUplift, SeparateLabels, Uplift
from unjoined.data import paper_problem
from unjoined.errors import InputError

DATA = paper_problem(b=5.0).draw(100, random_state=0)
FAST = {
    "min-max": lambda **words: MinMaxUplift(
        n_centers=5, ridge_f=1.0, ridge_g=1.0, **words
    ),
    "default": Uplift,
}


@pytest.mark.parametrize("name", FAST)
def test_a_fit_is_silent_unless_it_is_verbose(name, capsys):
    FAST[name](random_state=0).fit(DATA)
    assert capsys.readouterr() == ("", "")
    FAST[name](random_state=0, verbose=True).fit(DATA)
    told = capsys.readouterr()
    assert told.out == ""
    assert "is fitted to 400 rows" in told.err
    assert "seconds" in told.err
    assert logging.getLogger("unjoined").level == logging.NOTSET  # as it was before


def test_verbose_2_says_how_far_each_step_is(capsys):
    Uplift(random_state=0, verbose=2).fit(DATA)
    assert "models of outcomes: 1 of " in capsys.readouterr().err


def test_the_logger_hears_a_fit_without_verbose(caplog):
    with caplog.at_level(logging.INFO, logger="unjoined"):
        FAST["min-max"]().fit(DATA)
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO"]


def test_passes_over_files_say_how_many_rows_there_are(caplog, tmp_path):
    rng, files = np.random.default_rng(0), {}
    for label in ("y", "t"):
        for name in "ab":
            files[label, name] = tmp_path / f"{label}{name}.csv"
            frame = pd.DataFrame(
                {"x": rng.normal(size=200), label: rng.integers(0, 2, 200)}
            )
            frame.to_csv(files[label, name], index=False)
    tables = [{name: files[label, name] for name in "ab"} for label in ("y", "t")]
    source = SeparateLabels.from_tables(*tables, outcome="y", treatment="t", stream=90)
    with caplog.at_level(logging.DEBUG, logger="unjoined.progress"):
        assert sum(len(chunk) for chunk in source.chunks()) == 800
    jobs = [record.args for record in caplog.records]
    assert {job for job, _, _ in jobs} == {"reading rows"}
    assert jobs[-1][1] == 800
    assert all(done <= total for _, done, total in jobs)
    assert jobs[0][2] == pytest.approx(800, rel=0.1)


def test_verbose_must_be_a_flag_or_a_number():
    for verbose in (-1, "yes", None, 0.5):
        with pytest.raises(
            InputError, match="verbose must be True, False or a whole number"
        ):
            Uplift(verbose=verbose).fit(DATA)
