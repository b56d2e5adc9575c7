"""Takes weights and optimizer state from a checkpoint into a model and optimizers that were just built."""

from collections.abc import Collection, Iterable

import torch
from torch import nn

from nfold.errors import ProgramError, one_line
from nfold.runtime.checkpoint.checkpoint_format import Checkpoint
from nfold.runtime.parameters.buffers import Piece
from nfold.runtime.parameters.optimizer_state import OptimizerState
from nfold.runtime.parameters.optimizer_updates import Updater
from nfold.runtime.parameters.weights import Weights


def take_model(model: nn.Module, checkpoint: Checkpoint, unneeded: Collection[nn.Parameter] = ()) -> None:
    """Give a module the parameters of a checkpoint.

    Args:
        model: the rank's.
        checkpoint: where they are.
        unneeded: parameters that stay as they are, so that nobody reads what nobody uses.

    Raises:
        ProgramError: they are another module's.
    """
    skipped = {id(parameter) for parameter in unneeded}
    state = {name: each for name, each in model.state_dict(keep_vars=True).items() if isinstance(each, torch.Tensor)}
    alike = {name: value.detach() for name, value in state.items() if checkpoint.shape(name) == tuple(value.shape)}
    needed = [name for name in alike if id(state[name]) not in skipped]
    try:
        # Other names and shapes are found before anything is read.
        model.load_state_dict({**alike, **checkpoint.model(checkpoint.names - alike.keys()), **checkpoint.extras})
        for name in needed:
            checkpoint.copy_into(alike[name], name)
        model.load_state_dict(alike, strict=False)  # for modules that make something else of what they load
    except RuntimeError as error:
        raise ProgramError(
            f"model() does not build the module of which the checkpoint of step {checkpoint.step} was taken: "
            f"{one_line(str(error))}. Put it back, or begin a new run."
        ) from error


def take_states(updaters: Iterable[Updater], checkpoint: Checkpoint, weights: Weights) -> None:
    """Load optimizer state from a checkpoint, for the parts of parameters that each optimizer holds.

    Raises:
        ProgramError: they are another optimizer's.
    """

    def read(piece: Piece) -> tuple[str, OptimizerState]:
        place = weights.place(piece.name)
        first, last = place.start + piece.start, place.start + piece.stop
        return place.name, checkpoint.piece(place.name, place.shape, first, last)

    for updater in updaters:
        if checkpoint.has_state_dict:
            updater.restore_whole(checkpoint.state_dict(), checkpoint.kind, checkpoint.step)
            continue
        if updater.is_kept_whole:
            raise ProgramError(
                f"the checkpoint of step {checkpoint.step} does not have what state_dict() of {updater.kind} gives: an "
                "older nfold or another program wrote it. Begin a new run."
            )
        updater.restore(read, checkpoint.step)
