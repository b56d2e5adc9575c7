"""Finds weights that a loss reads past the outputs of the model: through a global, a closure, an object of its own."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from nfold.capture.computing.backward_history import backward_nodes
from nfold.capture.computing.random import LOCK, RandomState
from nfold.capture.program.calling import call
from nfold.capture.program.program_graph import Loss
from nfold.capture.side_effects.module_states import fresh_copies
from nfold.errors import ProgramError


def weights_beside(model: nn.Module, loss: Loss, batch: tuple[Any, Any]) -> list[str]:
    """Return the names of the model's weights that the loss reads itself. One pass of a copy, forward only.

    Args:
        model: is trained.
        loss: (outputs, targets) -> scalar.
        batch: inputs and targets.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    with LOCK, torch.enable_grad():
        before = RandomState()
        try:
            found = loss(call(fresh_copies(model, None, lazy=True)(), batch[0]), batch[1])
        except ProgramError:  # the model cannot be copied
            return []
        finally:
            before.restore()
    return list(dict.fromkeys(names[id(leaf)] for leaf in _leaves(found) if id(leaf) in names))


def _leaves(loss: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the leaves of a loss that want a gradient."""
    for node in backward_nodes(loss):
        if (leaf := getattr(node, "variable", None)) is not None:
            yield leaf
