"""Arithmetic that is compiled, and the same in numpy."""

import pytest

import unjoined._compiled as compiled


@pytest.fixture(scope="module", params=["compiled", "numpy"])
def arithmetic(request):
    """Run every test of a module twice, with compiled arithmetic and without."""
    if request.param == "compiled" and compiled.extension() is None:
        pytest.skip("there is no compiled arithmetic for this machine")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "numpy":
            patch.setattr(compiled, "extension", lambda: None)
        yield request.param
