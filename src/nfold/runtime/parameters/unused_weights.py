"""Frees the weights that a rank of a cut model never uses.

Every rank builds the user's whole module, since only the user's code can. What only other ranks compute with is then
freed: such a parameter keeps its name, shape and identity, and reads as not a number everywhere, in the memory of one
element. So nothing that holds on to a parameter needs to know, and a use by mistake shows in the loss.
"""

from collections.abc import Mapping

import torch
from torch import nn

from nfold.core.graph import ModelGraph


def free_unused(
    model: nn.Module, graph: ModelGraph, parameters: Mapping[str, nn.Parameter], foreign: frozenset[str]
) -> None:
    """Free foreign parameters.

    Args:
        model: the rank's.
        graph: with its operators in parts, if they are.
        parameters: by the names of the graph; rows lie in the memory of the module's own.
        foreign: see `planning/costs/peak_memory.py`.
    """
    wholes = dict(model.named_parameters())
    broken = {each.rows.parameter for each in graph.parameters if each.rows and each.name in foreign}
    for each in graph.parameters:
        if each.name in foreign:
            _empty(parameters[each.name])
        elif each.rows and each.rows.parameter in broken:
            _move_out(parameters[each.name], wholes[each.rows.parameter])
    for name in broken:
        _empty(wholes[name])


def _empty(parameter: nn.Parameter) -> None:
    is_number = parameter.is_floating_point() or parameter.is_complex()
    value = torch.full((), float("nan") if is_number else 0, dtype=parameter.dtype, device=parameter.device)
    parameter.data = value.expand(parameter.shape)


def _move_out(rows: nn.Parameter, whole: nn.Parameter) -> None:
    """Copy rows out of a parameter that is freed."""
    if rows.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr():
        rows.data = rows.data.clone()
