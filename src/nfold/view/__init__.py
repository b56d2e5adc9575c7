"""What people look at in a terminal: progress, tables (`tables.py`: of plan and compare), explanations."""

from nfold.view.explain import brief_text, why_text
from nfold.view.progress_line import BesideLine, ProgressLine, RunProgress
from nfold.view.rendering import Look
from nfold.view.runs_table import runs_table
from nfold.view.tables import compare_table, plan_table, threads_of
from nfold.view.top_text import top_text

__all__ = [
    "BesideLine",
    "Look",
    "ProgressLine",
    "RunProgress",
    "brief_text",
    "compare_table",
    "plan_table",
    "runs_table",
    "threads_of",
    "top_text",
    "why_text",
]
