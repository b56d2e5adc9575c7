"""Refuses what keeps or makes something where copies, checkpoints and other ranks do not have it."""

from typing import NoReturn

import torch
from torch import nn

from nfold.capture.program.program_graph import dotted
from nfold.errors import ProgramError


def tensors_by_name(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the weights and buffers of a model by name."""
    return dict([*model.named_parameters(), *model.named_buffers()])


def refuse_made(names: list[str], model: nn.Module) -> None:
    """Refuse a model that has more weights or buffers after a call than before: nobody would keep or train them.

    Raises:
        ProgramError: `names`, those that are new, is not empty.
    """
    if names:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        raise ProgramError(
            f"forward of {type(model).__name__} makes {names[0]}{more} when it is called first. The optimizer is given "
            "what model() has built, and so are checkpoints and other ranks. Make it in __init__ with its shape, "
            "instead of None, or call the model once on an example inside the function that builds it."
        )


def refuse_shared(names: list[str]) -> None:
    """Refuse a forward that changes what all copies of the model share, since nfold calls copies before it trains.

    Raises:
        ProgramError: `names`, the places that have changed, is not empty.
    """
    if names:
        raise ProgramError(
            f"forward changes {', '.join(names[:3])} whenever it is called, which is no part of the model, and nfold "
            "calls copies of the model to check and to time it. Make it an attribute or a buffer of the module."
        )


def refuse_in_backward(does: str) -> NoReturn:
    """Refuse hooks that do what only an optimizer may do, or an optimizer that needs such hooks.

    Args:
        does: the sentence without its end: who does what.

    Raises:
        ProgramError: always.
    """
    raise ProgramError(
        f"{does}. Hooks on gradients are called for each chunk on each rank, before the gradients are summed. Leave "
        "them out, and let Program(optimizer=...) return one optimizer of all weights that it is given: nfold calls "
        "its step() once the gradients of the whole batch are there."
    )


def refuse_changes(changed: list[tuple[str, str]]) -> None:
    """Refuse a loss that keeps something, since it is called to be checked and timed as well, and on some ranks only.

    Raises:
        ProgramError: `changed`, places of (module path, attribute), is not empty.
    """
    if changed:
        name = dotted(changed[0])
        raise ProgramError(
            f"the loss changes {name} whenever it is called, and nfold calls it more often than once a step: to check "
            "and to time it, and for each chunk. Make it a function of (outputs, targets) alone."
        )
