"""A verdict says no more than its interval shows: of four, "not shown" is not "contradicted"."""

import copy
import json
import re
from pathlib import Path

import pytest

from studies.paper import write_paper

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = json.loads((DOCS / "paper-results.json").read_text(encoding="utf-8"))
WIDE, NARROW = "MinMaxGau, width 25", "MinMaxGau, width 5"
ABOVE, BELOW, ACROSS = (
    (3.0, 1.0),
    (-3.0, 1.0),
    (-1.0, 1.0),
)  # means and their standard errors
NONE = (3.0, None)  # one trial: no standard error


def claim_on_jobs(folder, wide, narrow):
    """Return the claim "better than networks" for given differences of the two widths."""
    block = copy.deepcopy(RESULTS["studies"]["jobs"])
    for method, difference in ((WIDE, wide), (NARROW, narrow)):
        block["methods"][method]["minus"]["FourNNR"] = list(difference)
    files = write_paper({"jobs": block}, folder)
    (claim,) = json.loads(files.results.read_text(encoding="utf-8"))["claims"]
    assert f"**{claim['verdict']}**" in files.page.read_text(encoding="utf-8")
    return claim


@pytest.mark.parametrize(
    ("wide", "narrow", "verdict"),
    [
        (ABOVE, ABOVE, "holds"),
        (ABOVE, ACROSS, "holds partly"),
        (ACROSS, ACROSS, "not shown"),
        (NONE, NONE, "not shown"),
        (BELOW, ACROSS, "contradicted"),
        (ABOVE, BELOW, "contradicted"),
    ],
)
def test_a_difference_that_is_not_clear_is_not_a_contradiction(
    tmp_path, wide, narrow, verdict
):
    assert claim_on_jobs(tmp_path, wide, narrow)["verdict"] == verdict


def test_every_check_shows_the_interval_it_rests_on(tmp_path):
    claim = claim_on_jobs(tmp_path, (3.0, 1.0), (-250.0, 60.0))
    assert [(check["verdict"], check["found"]) for check in claim["checks"]] == [
        ("holds", "+1.0 to +5.0"),
        ("contradicted", "-370 to -130"),
    ]


def test_the_page_in_the_docs_calls_nothing_wrong_that_is_only_not_shown():
    """By the numbers of the tables, not by the code that made the page."""
    for claim in RESULTS["claims"]:
        if claim["study"] == "synthetic":
            continue
        methods = RESULTS["studies"][claim["study"]]["methods"]
        for check in claim["checks"]:
            winner, loser = re.fullmatch(r"(.+), above (\w+)", check["what"]).groups()
            value, error = methods[winner]["minus"][loser]
            covers = value - 2.0 * error <= 0.0 <= value + 2.0 * error
            expected = (
                "not shown" if covers else "holds" if value > 0.0 else "contradicted"
            )
            assert check["verdict"] == expected
    assert "does not hold" not in (DOCS / "paper.md").read_text(encoding="utf-8")


def test_what_holds_at_some_b_and_fails_at_none_holds_partly(tmp_path):
    block = copy.deepcopy(RESULTS["studies"]["synthetic"])
    for point in block["by_b"]:
        for method in (WIDE, NARROW):
            row = point["methods"][method]
            row["share"], row["share_se"] = (0.9 if point["b"] > 3.0 else 0.8), 0.01
            row["minus"] |= {"FourLogistic": [0.1, 0.01], "FourNNC": [0.1, 0.01]}
    files = write_paper({"synthetic": block}, tmp_path)
    claims = json.loads(files.results.read_text(encoding="utf-8"))["claims"]
    longer = next(claim for claim in claims if "longer" in claim["claim"])
    assert longer["verdict"] == "holds partly"
    assert {check["verdict"] for check in longer["checks"]} == {"holds", "holds partly"}
