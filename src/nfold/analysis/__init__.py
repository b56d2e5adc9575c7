"""A trace explained: where the time of a step goes, why, and what would win it back."""

from nfold.analysis.breakdown import time_parts
from nfold.analysis.report import report
from nfold.analysis.what_if import what_if

__all__ = ["report", "time_parts", "what_if"]
