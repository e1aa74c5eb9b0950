"""The page about the paper's experiments says what its results file says."""

import json
import re
from pathlib import Path

import pytest

from studies.paper import check_claims, paper_page

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = json.loads((DOCS / "paper-results.json").read_text(encoding="utf-8"))
PAGE = (DOCS / "paper.md").read_text(encoding="utf-8")


def test_the_page_is_made_from_the_results_to_the_letter():
    assert paper_page(RESULTS) == PAGE


def test_every_number_of_the_areas_is_that_of_the_file():
    """Independent of how the page is made: look for the numbers themselves."""
    for name in ("email", "jobs", "criteo"):
        for method, row in RESULTS["studies"][name]["methods"].items():
            lines = [
                line for line in PAGE.splitlines() if line.startswith(f"| {method} |")
            ]
            shown = [
                re.findall(r"[-+]?[\d,]*\.?\d+(?:e[-+]?\d+)?", line) for line in lines
            ]
            values = [float(x.replace(",", "")) for numbers in shown for x in numbers]
            error = row["above_random_se"]
            assert any(
                abs(value - row["above_random"]) <= 0.06 * error for value in values
            )


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
        assert (DOCS / target.partition("#")[0]).exists(), target


SYNTHETIC = RESULTS["ridges"]["synthetic"]


def test_the_table_has_the_b_near_2_that_the_papers_claim_is_decided_at():
    decided = min(
        p["b"] for p in RESULTS["studies"]["synthetic"]["by_b"] if p["b"] >= 2.0
    )
    assert decided in {row["b"] for row in SYNTHETIC["rows"]}
    page = (DOCS / "paper.md").read_text(encoding="utf-8")
    assert f"| synthetic, b = {decided:.3g} | MinMaxGau, width 25 |" in page


def test_no_best_pair_of_the_synthetic_study_lies_at_an_edge_of_the_grid():
    for row in SYNTHETIC["rows"]:
        f, g = row["best_pair"]
        assert f in SYNTHETIC["ridges_f"][1:-1]
        assert g in SYNTHETIC["ridges_g"][1:-1]


def test_with_the_pairs_of_the_study_the_ridge_study_finds_its_numbers():
    """Same rows, same rule, same pairs: equal to the five digits that the file has."""
    for name in list(RESULTS["ridges"]):
        block = RESULTS["studies"][name]
        for row in RESULTS["ridges"][name]["rows"]:
            if name == "synthetic":
                point = next(p for p in block["by_b"] if p["b"] == row["b"])
                found = point["methods"][row["method"]]
                expected = [found["share"], found["share_se"]]
            else:
                found = block["methods"][row["method"]]
                expected = [found["above_random"], found["above_random_se"]]
            assert row["study"] == pytest.approx(expected, rel=2e-4)
