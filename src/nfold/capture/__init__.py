"""From the user's program to a graph that may be cut, checked against the program itself."""

from nfold.capture.capture import capture, capture_program, recapture
from nfold.capture.captured import BoundSegment, Captured
from nfold.capture.example import Example
from nfold.capture.random import CellRandom
from nfold.capture.samples import program_batches
from nfold.capture.statistics import StatisticsRecorder

__all__ = [
    "BoundSegment",
    "Captured",
    "CellRandom",
    "Example",
    "StatisticsRecorder",
    "capture",
    "capture_program",
    "program_batches",
    "recapture",
]
