"""A small convolutional network: 23 thousand parameters, so that rounds cost more than bytes."""

import sys
from pathlib import Path

import torch
from torch import nn

import nfold

sys.path.insert(0, str(Path(__file__).parent))
from digits32 import load_test, load_train


def make_model() -> nn.Module:
    """Return the network."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def program() -> nfold.Program:
    """Return the program."""
    return nfold.Program(
        model=make_model,
        loss=nn.functional.cross_entropy,
        optimizer=lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9),
        train_data=load_train,
        test_data=load_test,
        batch_size=96,
        epochs=10,
    )
