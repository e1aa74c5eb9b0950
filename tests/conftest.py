"""Arithmetic that is compiled, and the same in numpy."""

import contextlib

import pytest

from unjoined._compiled import kernels as _gaussians
from unjoined._compiled import kernels as _labels
from unjoined._compiled import kernels as _ridges
from unjoined._compiled.library import library


@pytest.fixture(scope="module", params=["compiled", "numpy"])
def arithmetic(request):
    """Run every test of a module twice, with compiled arithmetic and without."""
    if request.param == "compiled" and library() is None:
        pytest.skip("there is no compiled arithmetic for this machine")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "numpy":
            for module in (_gaussians, _labels, _ridges):
                patch.setattr(module, "library", lambda: None)
        yield request.param


@pytest.fixture
def here(tmp_path):
    """The folder of the test, made the working folder."""
    with contextlib.chdir(tmp_path):
        yield tmp_path
