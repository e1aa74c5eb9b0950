"""The experiments of the paper, run again."""

from unjoined.reproduce.claims import check_claims
from unjoined.reproduce.page import paper_page
from unjoined.reproduce.results import PaperFiles, reproduce_paper, write_paper
from unjoined.reproduce.runner import run_task
from unjoined.reproduce.studies import STUDIES, Task, draw_customers, draw_rows, write_campaign

__all__ = [
    "STUDIES",
    "PaperFiles",
    "Task",
    "check_claims",
    "draw_customers",
    "draw_rows",
    "paper_page",
    "reproduce_paper",
    "run_task",
    "write_campaign",
    "write_paper",
]
