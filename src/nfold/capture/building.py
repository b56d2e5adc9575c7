"""Builds the user's module: the same weights every time, and a new module every time."""

import torch
from torch import nn

from nfold.capture.calling import told_keywords
from nfold.capture.random import LOCK, seed_all
from nfold.capture.trial import check_model
from nfold.errors import ProgramError
from nfold.program import Program, describe

_TAKEN = "nfold_taken"
"""Attribute of parameters that some model already has."""


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
    return model.to(device).train()


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
