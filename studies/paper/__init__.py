"""The experiments of the paper, run again."""

from studies.paper.claims import check_claims
from studies.paper.draws import OURS, STUDIES, Task, draw_rows, study_tasks
from studies.paper.page import paper_page
from studies.paper.results import (
    PaperFiles,
    reproduce_paper,
    summarise_study,
    write_paper,
)
from studies.paper.runner import run_task, score_estimates

__all__ = [
    "OURS",
    "STUDIES",
    "PaperFiles",
    "Task",
    "check_claims",
    "draw_rows",
    "paper_page",
    "reproduce_paper",
    "run_task",
    "score_estimates",
    "study_tasks",
    "summarise_study",
    "write_paper",
]
