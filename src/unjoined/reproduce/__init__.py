"""The experiments of the paper, run again."""

from unjoined.reproduce.claims import check_claims
from unjoined.reproduce.page import paper_page
from unjoined.reproduce.raw import REGIONS, raw_customers, write_raw_files, write_shop
from unjoined.reproduce.results import PaperFiles, reproduce_paper, summarise_study, write_paper
from unjoined.reproduce.runner import run_task, score_estimates
from unjoined.reproduce.studies import OURS, STUDIES, Task, draw_rows, study_tasks
