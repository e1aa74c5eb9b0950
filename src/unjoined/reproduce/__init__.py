"""The experiments of the paper, run again."""

from unjoined.reproduce.campaign import (
    CAMPAIGN_METHODS,
    CampaignFiles,
    MethodResult,
    compare_methods,
    draw_truth,
    read_campaign,
    write_campaign,
)
from unjoined.reproduce.page import paper_page
from unjoined.reproduce.paper import PaperFiles, reproduce_paper, write_paper
from unjoined.reproduce.studies import STUDIES

__all__ = [
    "CAMPAIGN_METHODS",
    "STUDIES",
    "CampaignFiles",
    "MethodResult",
    "PaperFiles",
    "compare_methods",
    "draw_truth",
    "paper_page",
    "read_campaign",
    "reproduce_paper",
    "write_campaign",
    "write_paper",
]
