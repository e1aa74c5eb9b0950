"""Arithmetic of rows that is compiled, and the same in numpy."""

import pytest

from unjoined._compiled import _gaussians, _labels
from unjoined._compiled._library import library


@pytest.fixture(scope="module", params=["compiled", "numpy"])
def arithmetic(request):
    """Run every test of a module twice, with compiled arithmetic and without."""
    if request.param == "compiled" and library() is None:
        pytest.skip("there is no compiled arithmetic for this machine")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "numpy":
            patch.setattr(_gaussians, "library", lambda: None)
            patch.setattr(_labels, "library", lambda: None)
        yield request.param
