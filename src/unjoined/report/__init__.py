"""A report that a manager acts on, as one HTML file."""

from unjoined.report.facts import Origin, Terms
from unjoined.report.page import report, report_with_numbers

__all__ = ["Origin", "Terms", "report", "report_with_numbers"]
