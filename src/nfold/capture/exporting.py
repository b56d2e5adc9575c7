"""Turns a model into a graph with torch.export, for programs that torch.fx refuses."""

from torch import nn

from nfold.capture.example import Example
from nfold.capture.program_graph import Loss, Traced
from nfold.capture.tracing import TraceRefused


def export(model: nn.Module, loss: Loss, example: Example) -> Traced:
    """Not there yet.

    Raises:
        TraceRefused: always.
    """
    raise TraceRefused("not yet")
