"""A rank's parameters by the names of its graph, where operators in parts have rows of the module's parameters.

Rows are leaves of their own in the memory of the module's parameter. So gradients, buckets and optimizers know nothing
of parts, and the module holds what was trained. What leaves the rank for a checkpoint is the whole parameter's.
"""

from dataclasses import dataclass

from torch import nn

from nfold.core.graph import ModelGraph, Parameter


@dataclass(frozen=True, slots=True)
class Place:
    """Where a parameter of the graph lies in the module's parameters."""

    name: str
    """Of the module's parameter."""
    shape: tuple[int, ...]
    """Of that."""
    start: int
    """First element, counted flat."""


class Weights:
    """The parameters of one model.

    Attributes:
        model: the module.
        parameters: by the names of the graph, in its order.
        rows: which of them are rows of a parameter of the module.
    """

    def __init__(self, model: nn.Module, graph: ModelGraph) -> None:
        self.model = model
        self._whole = dict(model.named_parameters())
        self.rows = {parameter.name: parameter.rows for parameter in graph.parameters if parameter.rows}
        self.parameters = {parameter.name: self._tensor(parameter) for parameter in graph.parameters}

    def place(self, name: str) -> Place:
        """Return where a parameter of the graph lies in the module's own, of which it may be rows."""
        rows = self.rows.get(name)
        whole = self._whole[name if rows is None else rows.parameter]
        start = 0 if rows is None else rows.start * (whole.numel() // whole.shape[0])
        return Place(name if rows is None else rows.parameter, tuple(whole.shape), start)

    def unneeded(self, foreign: frozenset[str]) -> tuple[nn.Parameter, ...]:
        """Return the module's parameters that a rank does not need if it does not need these of the graph."""
        needed = {self.place(name).name for name in self.parameters if name not in foreign}
        gone = {self.place(name).name for name in foreign} - needed
        return tuple(self._whole[name] for name in sorted(gone))

    def _tensor(self, parameter: Parameter) -> nn.Parameter:
        if parameter.rows is None:
            return self._whole[parameter.name]
        whole, rows = self._whole[parameter.rows.parameter], parameter.rows
        return nn.Parameter(whole.data[rows.start : rows.stop], requires_grad=whole.requires_grad)
