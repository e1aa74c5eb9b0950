"""What the page about public data sets shows is true of the real files."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guide" / "datasets.md"
REAL = ROOT.parent / "shared" / "data"


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_dir(), reason="the data sets are not here")
def test_examples_that_need_data_run_on_it(cache):
    cache.mkdir()
    for folder in ("hillstrom", "nsw"):
        for file in (REAL / folder).iterdir():
            (cache / file.name).symlink_to(file)
    blocks = re.findall(r"^```py\n(.*?)^```", PAGE.read_text(), flags=re.M | re.S)
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), {})  # noqa: S102 - our own page
    assert len(blocks) == 1
