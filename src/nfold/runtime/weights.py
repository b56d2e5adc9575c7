"""A rank's parameters by the names of its graph, where operators in parts have rows of the module's parameters.

Rows are leaves of their own in the memory of the module's parameter. So gradients, buckets and optimizers know nothing
of parts, and the module holds what was trained. What leaves the rank for a checkpoint is the whole parameter's.
"""

import torch
from torch import nn

from nfold.core.graph import ModelGraph, Parameter, Rows
from nfold.runtime.updates import OptimizerState


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

    def put(self, into: dict[str, torch.Tensor], key: str, name: str, value: torch.Tensor) -> None:
        """Put the value of a parameter of the graph, or of something else of the module, where the whole one is kept.

        Args:
            into: whole tensors; rows are written into the one that is there.
            key: which one.
            name: of the parameter.
            value: its own.
        """
        rows = self.rows.get(name)
        if rows is None:
            into[key] = value.clone()
        else:
            into[key][rows.start : rows.stop] = value

    def whole_name(self, name: str) -> str:
        """Return what the module calls the parameter of which a parameter of the graph may be rows."""
        return self.rows[name].parameter if name in self.rows else name

    def cut(self, state: OptimizerState) -> OptimizerState:
        """Return an optimizer's state by the names of the graph, from one by those of the module."""
        cut = OptimizerState(dict(state.tensors), dict(state.scalars), dict(state.groups), state.kind)
        for name, rows in self.rows.items():
            whole = rows.parameter
            if whole in state.tensors:
                cut.tensors[name] = {key: self._rows_of(value, rows) for key, value in state.tensors[whole].items()}
            if whole in state.scalars:
                cut.scalars[name] = state.scalars[whole]
            if whole in state.groups:
                cut.groups[name] = state.groups[whole]
        return cut

    def join(self, state: OptimizerState) -> OptimizerState:
        """Return an optimizer's state by the names of the module; rows that this rank does not hold are zero."""
        joined = OptimizerState(kind=state.kind)
        for name, tensors in state.tensors.items():
            into = joined.tensors.setdefault(self.whole_name(name), {})
            for key, value in tensors.items():
                self._join_tensor(into, key, name, value)
        joined.scalars.update({self.whole_name(name): value for name, value in state.scalars.items()})
        joined.groups.update({self.whole_name(name): value for name, value in state.groups.items()})
        return joined

    def _tensor(self, parameter: Parameter) -> nn.Parameter:
        if parameter.rows is None:
            return self._whole[parameter.name]
        whole, rows = self._whole[parameter.rows.parameter], parameter.rows
        return nn.Parameter(whole.data[rows.start : rows.stop], requires_grad=whole.requires_grad)

    def _rows_of(self, value: torch.Tensor, rows: Rows) -> torch.Tensor:
        """Cut what the optimizer keeps for each element; a step count is everybody's."""
        same = value.shape == self._whole[rows.parameter].shape
        return value[rows.start : rows.stop] if same else value

    def _join_tensor(self, into: dict[str, torch.Tensor], key: str, name: str, value: torch.Tensor) -> None:
        rows = self.rows.get(name)
        if rows is None or value.shape != self.parameters[name].shape:
            into[key] = value
            return
        if key not in into:
            into[key] = torch.zeros(self._whole[rows.parameter].shape, dtype=value.dtype, device=value.device)
        into[key][rows.start : rows.stop] = value
