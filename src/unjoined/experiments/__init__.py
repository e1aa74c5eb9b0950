"""Studies that run the whole library on problems whose answer is known."""

from unjoined.experiments._campaign import (
    CAMPAIGN_METHODS,
    CampaignFiles,
    MethodResult,
    compare_methods,
    draw_truth,
    read_campaign,
    write_campaign,
)

__all__ = [
    "CAMPAIGN_METHODS",
    "CampaignFiles",
    "MethodResult",
    "compare_methods",
    "draw_truth",
    "read_campaign",
    "write_campaign",
]
