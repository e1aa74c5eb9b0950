"""Where data sets are kept."""

import pytest


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty folder for data sets, which the environment names as a user would."""
    monkeypatch.setenv("UNJOINED_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "cache"
