"""Tells whether a sample's output depends on how far its batch is padded, since each chunk is padded by itself."""

from collections.abc import Callable

import torch
from torch import nn

from nfold.capture.batches.example import Example
from nfold.capture.batches.tree import paths_of
from nfold.capture.computing.random import RandomState, seed_all
from nfold.capture.computing.step_outcome import close
from nfold.capture.independence.batch_cut import PARTS
from nfold.capture.program.trial import try_forward
from nfold.errors import ProgramError

_TOLD = (
    "an output of the model depends on the other samples of its batch, most likely on the length to which they are "
    "padded (attention, a mean or a softmax over padded places without a mask does that), and each chunk is padded by "
    "itself"
)
WHICH = 2
"""The batch that is compared with its parts, as where a batch is tried."""


def why_padding(fresh: Callable[[], nn.Module], example: Example) -> str:
    """Compare the outputs of a batch with those of its parts, which are joined by themselves.

    Args:
        fresh: makes copies of the model.
        example: where batches come from.

    Returns:
        That outputs differ, in the user's words; empty if batches are of one shape, or outputs agree or have no rows.
    """
    joined = example.parts(PARTS, WHICH) if example.varying else None
    if joined is None:
        return ""
    model, before = fresh().eval(), RandomState()
    try:
        seed_all(0)
        with torch.no_grad():
            whole, *parts = (dict(paths_of(try_forward(model, inputs))) for inputs, _ in (joined[0], *joined[1]))
    except ProgramError:
        return ""  # it needs gradients, or to train: then nothing is said of why
    finally:
        before.restore()
    for path, tensor in whole.items():
        pieces = [part[path] for part in parts if path in part]
        shapes = [tuple(piece.shape) for piece in pieces]
        is_by_row = tensor.ndim and shapes == [(size, *tensor.shape[1:]) for size in PARTS]
        if is_by_row and not close(tensor, torch.cat(pieces)):
            return _TOLD
    return ""
