"""Finds the user's line that takes a gradient in forward or in the loss."""

import contextlib
from typing import Any

import torch
from torch import nn

from nfold.capture.computing.replacing import replaced
from nfold.capture.program.calling import call
from nfold.capture.program.program_graph import Loss
from nfold.capture.program.users_line import users_line


def line_of_gradient(model: nn.Module, loss: Loss, batch: tuple[Any, Any]) -> str:
    """Return file, line and code of the first gradient that a program takes; empty if it takes none.

    Args:
        model: a throw-away copy.
        loss: the user's.
        batch: to call them with.
    """
    found: list[str] = []
    autograd: Any = torch.autograd
    run = autograd._engine_run_backward  # what all functions that take one call

    def noted(*args: Any, **kwargs: Any) -> Any:
        found.append(users_line())
        return run(*args, **kwargs)

    with replaced(autograd, "_engine_run_backward", noted), contextlib.suppress(Exception):  # whoever trains it is told
        loss(call(model, batch[0]), batch[1])
    return found[0] if found else ""
