"""The compiled library is there, or numpy does its work."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from unjoined._compiled import (
    kernels as _gaussians,
)
from unjoined._compiled import (
    kernels as _labels,
)
from unjoined._compiled import (
    kernels as _ridges,
)
from unjoined._compiled import (
    library as _library,
)

KERNELS = Path(_library.__file__).parent / "kernels.c"
COMPILER = shutil.which("cc")
POSSIBLE = platform.machine() == "x86_64" and sys.platform != "win32" and COMPILER is not None

FIT = """
import numpy as np
from unjoined import MinMaxUplift
from unjoined.data import paper_problem
from unjoined._compiled.library import library

model = MinMaxUplift(n_centers=20, random_state=0).fit(**paper_problem().draw(300, random_state=0))
print(library() is None, *model.predict(np.ones((3, 2)) * np.arange(3)[:, None]))
"""


@pytest.mark.skipif(not POSSIBLE, reason="no compiler for this machine")
def test_it_compiles_without_a_warning_and_was_built():
    """An install goes on without it if it does not, and says nothing."""
    command = [COMPILER, "-O2", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", str(KERNELS)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert _library.find_spec("unjoined._compiled._kernels") is not None


@pytest.fixture
def load(monkeypatch):
    """Load anew, whatever was loaded before."""
    monkeypatch.delenv("UNJOINED_COMPILED", raising=False)
    return _library.library.__wrapped__


def test_it_can_be_done_without(load, monkeypatch):
    monkeypatch.setenv("UNJOINED_COMPILED", "0")
    assert load() is None


def test_a_machine_on_which_it_was_not_built_has_none(load, monkeypatch):
    monkeypatch.setattr(_library, "find_spec", lambda name: None)
    assert load() is None


@pytest.mark.skipif(_library.library() is None, reason="nothing is compiled on this machine")
def test_an_older_processor_has_none(load, monkeypatch):
    old = SimpleNamespace(unjoined_level=lambda: 0)
    monkeypatch.setattr(_library.ctypes, "CDLL", lambda path: old)
    assert load() is None


@pytest.mark.skipif(_library.library() is None, reason="nothing is compiled on this machine")
def test_it_is_loaded_otherwise(load):
    assert load().level in (1, 2)


def test_without_it_there_are_no_kernels(monkeypatch):
    for module in (_gaussians, _labels, _ridges):
        monkeypatch.setattr(module, "library", lambda: None)
    column = np.zeros(3)
    assert _gaussians.gaussian_kernel(column, column, np.zeros((5, 20)), None) is None
    assert _labels.label_kernel(column, column, column, ("a", "b"), (0, 1)) is None
    assert _ridges.ridge_paths(np.eye(3)[None], column[None], np.ones(1)) is None


def test_a_fit_without_it_is_the_same_but_for_rounding():
    found = {}
    for value in ("0", "1"):
        environment = {**os.environ, "UNJOINED_COMPILED": value}
        run = subprocess.run(
            [sys.executable, "-c", FIT], env=environment, capture_output=True, text=True, check=True
        )
        without, *uplift = run.stdout.split()
        assert without == "True" or value == "1"
        found[value] = [float(number) for number in uplift]
    assert found["1"] == pytest.approx(found["0"], abs=1e-8)
