"""The page about the paper's experiments says what its results file says."""

import json
import re
from pathlib import Path

from unjoined.reproduce import check_claims, paper_page

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = json.loads((DOCS / "paper-results.json").read_text(encoding="utf-8"))
PAGE = (DOCS / "paper.md").read_text(encoding="utf-8")


def test_the_page_is_made_from_the_results_to_the_letter():
    assert paper_page(RESULTS) == PAGE


def test_every_number_of_the_areas_is_that_of_the_file():
    """Independent of how the page is made: look for the numbers themselves."""
    for name in ("email", "jobs", "criteo"):
        for method, row in RESULTS["studies"][name]["methods"].items():
            lines = [line for line in PAGE.splitlines() if line.startswith(f"| {method} |")]
            shown = [re.findall(r"[-+]?[\d,]*\.?\d+(?:e[-+]?\d+)?", line) for line in lines]
            values = [float(x.replace(",", "")) for numbers in shown for x in numbers]
            error = row["above_random_se"]
            assert any(abs(value - row["above_random"]) <= 0.06 * error for value in values)


def test_the_verdicts_are_those_of_the_numbers():
    again = json.loads(json.dumps(check_claims(RESULTS["studies"])))
    assert again == RESULTS["claims"]


def test_the_study_has_the_size_of_the_paper():
    assert list(RESULTS["studies"]) == ["synthetic", "email", "jobs", "criteo"]
    for block in RESULTS["studies"].values():
        assert (block["trials"], block["small"]) == (50, False)
    assert len(RESULTS["studies"]["synthetic"]["by_b"]) == 26  # 25, and 1 for Figure 2


def test_figures_and_links_of_the_page_exist():
    targets = re.findall(r"\]\(([^)]+)\)", PAGE)
    assert len([target for target in targets if target.endswith(".png")]) == 5
    for target in targets:
        assert (DOCS / target).exists(), target
