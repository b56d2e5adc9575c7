"""Builds the user's module: the same weights every time, and a new module every time."""

import torch
from torch import nn

from nfold.capture.computing.random import LOCK, seed_all
from nfold.capture.program.calling import told_keywords
from nfold.capture.program.trial import check_model
from nfold.errors import ProgramError
from nfold.program import Program, describe

_TAKEN = "nfold_taken"
"""Attribute of parameters that some model already has."""
_SET_TO_TRAIN = "nfold_set_to_train"
"""Attribute of a model of which parts were built in eval mode."""
_MODAL = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._NormBase)
"""What computes other things in eval mode."""


def build_model(program: Program, device: torch.device) -> nn.Module:
    """Build the user's module from the program's seed, in training mode.

    Raises:
        ProgramError: model() raised, returned something else, or a module of which it has given parts before.
    """
    with LOCK:
        seed_all(program.seed)
        try:
            model = program.model()
        except Exception as error:
            raise ProgramError(f"Program(model=...) raised {describe(error)}") from error
        _take(check_model(model))
        told_keywords(model, program.keywords)
    return _put_to_train(model.to(device))


def set_to_train(model: nn.Module) -> tuple[str, ...]:
    """Return the parts of a built model that the program had put into eval mode, and that training puts out of it.

    Parts that forward puts back are none of them, once it has been called.
    """
    found: tuple[str, ...] = getattr(model, _SET_TO_TRAIN, ())
    return tuple(name for name in found if model.get_submodule(name).training)


def _put_to_train(model: nn.Module) -> nn.Module:
    rested = [name for name, module in model.named_modules() if not module.training]
    was_whole = not model.training  # as libraries return models that they have loaded
    model.train()
    parts = dict(model.named_modules())
    lost = [
        name for name in rested if parts[name].training and any(isinstance(m, _MODAL) for m in parts[name].modules())
    ]
    outermost = [name for name in lost if not any(name.startswith(f"{other}.") for other in lost)]
    if outermost and not was_whole:
        setattr(model, _SET_TO_TRAIN, tuple(outermost))
    return model


def _take(model: nn.Module) -> None:
    """Refuse weights that lie in another model too: timing one model would train the other."""
    for name, parameter in model.named_parameters():
        if hasattr(parameter, _TAKEN):
            raise ProgramError(
                f"Program(model=...) returned {name} for the second time. It is called several times, to check, time "
                "and train, and must build new weights each time. Build the module inside of the function: "
                "def model(): return Net()."
            )
        setattr(parameter, _TAKEN, True)
