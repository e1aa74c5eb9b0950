"""The table of ridges covers where the claims are decided, and its grid is wide enough there."""

import json
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = json.loads((DOCS / "paper-results.json").read_text(encoding="utf-8"))
SYNTHETIC = RESULTS["ridges"]["synthetic"]


def test_the_table_has_the_b_near_2_that_the_papers_claim_is_decided_at():
    decided = min(p["b"] for p in RESULTS["studies"]["synthetic"]["by_b"] if p["b"] >= 2.0)
    assert decided in {row["b"] for row in SYNTHETIC["rows"]}
    page = (DOCS / "paper.md").read_text(encoding="utf-8")
    assert f"| synthetic, b = {decided:.3g} | MinMaxGau, width 25 |" in page


@pytest.mark.parametrize("row", SYNTHETIC["rows"], ids=lambda row: f"{row['method']}, {row['b']}")
def test_no_best_pair_of_the_synthetic_study_lies_at_an_edge_of_the_grid(row):
    f, g = row["best_pair"]
    assert f in SYNTHETIC["ridges_f"][1:-1]
    assert g in SYNTHETIC["ridges_g"][1:-1]


@pytest.mark.parametrize("name", list(RESULTS["ridges"]))
def test_with_the_pairs_of_the_study_the_ridge_study_finds_its_numbers(name):
    """Same rows, same rule, same pairs: equal to the five digits that the file has."""
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
