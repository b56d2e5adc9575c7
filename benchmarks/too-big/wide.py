"""One layer whose training state no node has room for, although its weights fit each: it trains in parts only."""

import sys
from pathlib import Path

from torch import nn

import nfold

sys.path.insert(0, str(Path(__file__).parent))
from random_classes import NUM_CLASSES, program_of

NUM_FEATURES = 8192
WIDTH = 10240


def model() -> nn.Module:
    """Return a layer of 320 MiB, and four times that with its gradient and Adam's state, before a small one."""
    return nn.Sequential(nn.Linear(NUM_FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, NUM_CLASSES))


def program() -> nfold.Program:
    """Return the program."""
    return program_of(model, NUM_FEATURES)
