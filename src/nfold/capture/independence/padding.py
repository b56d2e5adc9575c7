"""Tells whether a sample's output depends on how far its batch is padded, since each chunk is padded by itself."""

from collections.abc import Callable

import torch
from torch import nn

from nfold.capture.batches.example import Example
from nfold.capture.computing.random import RandomState, seed_all
from nfold.capture.computing.whole_and_parts import unlike_rows
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
    model, before = fresh(), RandomState()
    model.eval()
    try:
        seed_all(0)
        with torch.no_grad():
            whole, *parts = (try_forward(model, inputs) for inputs, _ in (joined[0], *joined[1]))
    except ProgramError:
        return ""  # it needs gradients, or to train: then nothing is said of why
    finally:
        before.restore()
    return _TOLD if unlike_rows(whole, parts, PARTS) else ""
