"""What people look at in a terminal: progress, tables, explanations. Pages are in `html`.

progress_line                 one line while a run goes on
explain                       a report as text: what a run ends with, and what `nfold why` says
tables, runs_table            runs side by side, a plan and what lost to it; the user's runs
top_text                      `nfold top`
comparison_text, advice_text, place_text    what `compare`, `advise` and `place` say
grid                          a placement as a picture
timeline, chrome_trace        a trace as bars on lanes; the same for trace viewers
prometheus_text               figures for Prometheus
rendering                     cells of tables
"""

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
