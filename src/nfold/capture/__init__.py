"""From the user's program to a graph that may be cut, checked against the program itself."""

from nfold.capture.batches.example import Example
from nfold.capture.capture import capture, capture_program, recapture
from nfold.capture.computing.batch_norm import StatisticsRecorder
from nfold.capture.computing.random import CellRandom
from nfold.capture.cutting.captured import BoundSegment, Captured
from nfold.capture.example_batches import program_batches

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
