"""From the user's program to a graph that may be cut, checked against the program itself.

capture            what others call: program in, `Captured` out
program_facts      decides what is true of a program: may its batch be cut, is its loss a mean, what does it keep
capture_attempt    tries one way of capture after another, and fewest_whole which modules must stay whole
gate               compares each capture with the user's module
describe           writes operators, tensors and parameters as a ModelGraph
example_batches    takes the batches that all of this is tried on
visited_samples    asks a program's own sampler which samples an epoch visits

Rooms, upper ones first: `proof`, `independence` (trials, where nothing is proved), `cutting` and `optimizers`,
`side_effects`, `tracing`, `statements`, `program`, `computing`, `batches`.
"""

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
