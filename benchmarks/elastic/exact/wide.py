"""A net of three wide layers, so that gradients are large and computing is little."""

import os

import torch
from torch import nn
from torch.utils.data import TensorDataset

import nfold

WIDTH, INPUTS, CLASSES = int(os.environ["WIDTH"]), 64, 10


def train_data() -> TensorDataset:
    """Random samples."""
    return TensorDataset(torch.randn(1024, INPUTS), torch.randint(0, CLASSES, (1024,)))


def make_model() -> nn.Module:
    """Return the net."""
    hidden = [layer for _ in range(3) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return nn.Sequential(nn.Linear(INPUTS, WIDTH), nn.ReLU(), *hidden, nn.Linear(WIDTH, CLASSES))


def program() -> nfold.Program:
    """The program."""
    return nfold.Program(
        model=make_model,
        loss=nn.functional.cross_entropy,
        optimizer=lambda weights: torch.optim.SGD(weights, lr=0.01, momentum=0.9),
        train_data=train_data,
        batch_size=32,
        epochs=100,
    )
