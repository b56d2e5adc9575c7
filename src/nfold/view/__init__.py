"""What people look at in a terminal: progress, tables, explanations."""

from nfold.view.explain import brief_text, why_text
from nfold.view.progress_line import BesideLine, ProgressLine, RunProgress
from nfold.view.rendering import Look
from nfold.view.tables import compare_table, plan_table, threads_of

__all__ = [
    "BesideLine",
    "Look",
    "ProgressLine",
    "RunProgress",
    "brief_text",
    "compare_table",
    "plan_table",
    "threads_of",
    "why_text",
]
