"""Studies that run the whole library on problems whose answer is known."""

from unjoined.experiments._accuracy import (
    DEFAULT,
    JOINT,
    METHODS,
    PAPER,
    Trial,
    oracle_share,
    run_trial,
)
from unjoined.experiments._campaign import (
    CAMPAIGN_METHODS,
    CampaignFiles,
    MethodResult,
    compare_methods,
    draw_truth,
    read_campaign,
    write_campaign,
)
from unjoined.experiments._paper_page import paper_page
from unjoined.experiments._problems import PROBLEMS, BenchmarkProblem, binary_problem, real_problem
from unjoined.experiments._reproduce import PaperFiles, reproduce_paper, write_paper

__all__ = [
    "CAMPAIGN_METHODS",
    "DEFAULT",
    "JOINT",
    "METHODS",
    "PAPER",
    "PROBLEMS",
    "BenchmarkProblem",
    "CampaignFiles",
    "MethodResult",
    "PaperFiles",
    "Trial",
    "binary_problem",
    "compare_methods",
    "draw_truth",
    "oracle_share",
    "paper_page",
    "read_campaign",
    "real_problem",
    "reproduce_paper",
    "run_trial",
    "write_campaign",
    "write_paper",
]
