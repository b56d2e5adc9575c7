"""A deep stack of wide layers: nearly all of its training state is weights, of which data parallelism needs all."""

import sys
from pathlib import Path

from torch import nn

import nfold

sys.path.insert(0, str(Path(__file__).parent))
from random_classes import NUM_CLASSES, program_of

WIDTH = 1536
NUM_LAYERS = 12


def model() -> nn.Module:
    """Return 12 layers of 1536 x 1536: 108 MiB of weights, and four times that with gradients and Adam's state."""
    layers: list[nn.Module] = []
    for _ in range(NUM_LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, NUM_CLASSES))


def program() -> nfold.Program:
    """Return the program."""
    return program_of(model, WIDTH)
