"""What a process makes of its program once for all generations: its graph, a loss that is checked, and a trace.

A trace takes nearly all of the time that a cut model takes to be built. It names modules and tensors by their paths, so
it is bound to the model of each generation.
"""

from collections.abc import Callable
from typing import Any

from torch import nn

from nfold.capture.cutting.captured import Captured, Layout
from nfold.core import codec
from nfold.core.graph import ModelGraph
from nfold.program import Program
from nfold.runtime.guards.checked_loss import with_checked_loss


class KeptProgram:
    """What was made of a process's program so far."""

    def __init__(self) -> None:
        self._checked: tuple[Program, ModelGraph, int, Program] | None = None
        self._traced: tuple[Program, ModelGraph, Layout] | None = None
        self._graph: tuple[Any, ModelGraph] | None = None

    def graph(self, document: Any) -> ModelGraph:
        """Return the graph that a document describes, the same one for the same document."""
        if self._graph is None or self._graph[0] != document:
            self._graph = document, codec.decode(ModelGraph, document)
        return self._graph[1]

    def checked(self, program: Program, graph: ModelGraph, chunks: int) -> Program:
        """Return the program with a loss that is checked, the same one for the same program, graph and chunks."""
        if self._checked is None or self._checked[:3] != (program, graph, chunks):
            self._checked = (program, graph, chunks, with_checked_loss(program, graph, chunks))
        return self._checked[3]

    def bound(self, program: Program, graph: ModelGraph, model: nn.Module, trace: Callable[[], Captured]) -> Captured:
        """Return the program bound to a model.

        Args:
            program: with the loss that is traced.
            graph: of the program, before operators are cut into parts.
            model: built by the program; it may be a later one than that which was traced.
            trace: traces the program; called where that was not done yet.
        """
        if self._traced is None or self._traced[:2] != (program, graph):
            self._traced = (program, graph, trace().layout)
        return Captured(graph, self._traced[2], model)
