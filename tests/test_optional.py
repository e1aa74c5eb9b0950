"""Optional dependencies: the module, or the command that brings it."""

import json
import sys

import pytest

from unjoined._optional import import_extra
from unjoined.errors import MissingExtraError


def test_an_installed_module_is_returned_itself():
    assert import_extra("json", extra="cli") is json


def test_a_submodule_is_returned_rather_than_its_package():
    assert import_extra("json.decoder", extra="cli") is json.decoder


@pytest.mark.parametrize("module", ["no_such_package", "no_such_package.part"])
def test_a_missing_package_names_itself_and_the_extra_that_brings_it(module):
    with pytest.raises(
        MissingExtraError,
        match=r"'no_such_package', which is not installed\. "
        r'Install it with: pip install "unjoined\[plot\]"',
    ) as caught:
        import_extra(module, extra="plot")
    assert caught.value.name == "no_such_package"
    assert isinstance(caught.value, ImportError)


def test_a_missing_part_of_an_installed_package_is_no_missing_extra():
    with pytest.raises(ModuleNotFoundError) as caught:
        import_extra("json.no_such_part", extra="cli")
    assert not isinstance(caught.value, MissingExtraError)


def test_an_import_error_inside_an_installed_package_is_passed_on(tmp_path, monkeypatch):
    """An install hint for the outer package would mislead: it is installed."""
    (tmp_path / "half_broken_package.py").write_text("import no_such_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency") as caught:
        import_extra("half_broken_package", extra="cli")
    assert not isinstance(caught.value, MissingExtraError)
    assert "half_broken_package" not in sys.modules
