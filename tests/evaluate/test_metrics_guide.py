"""The guide to the metrics says what the code does."""

import re
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "metrics.md"


def test_python_blocks_of_the_guide_run():
    """Their assertions are the worked example's numbers."""
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), {})  # noqa: S102
