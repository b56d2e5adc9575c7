"""Digits as 28 x 28 pictures of 3 KB, each scan several times with other noise: as many samples as SAMPLES says."""

import os
from functools import cache

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import nfold

NUM_SAMPLES = int(os.environ.get("SAMPLES", "6000"))
WIDTH = int(os.environ.get("WIDTH", "64"))
"""Of the layer before the last; nearly all parameters are in front of it."""


@cache
def data() -> TensorDataset:
    """Return the pictures."""
    digits = load_digits()
    scans = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16.0
    which = torch.arange(NUM_SAMPLES) % len(scans)
    pictures = F.interpolate(scans, size=(28, 28), mode="bilinear")[which]
    noise = 0.2 * torch.randn(pictures.shape, generator=torch.Generator().manual_seed(0))
    return TensorDataset(pictures + noise, torch.tensor(digits.target)[which])


def program() -> nfold.Program:
    """Return what runs on one device."""
    return nfold.Program(
        model=lambda: nn.Sequential(
            nn.Conv2d(1, 16, 5, stride=2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(800, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, 10),
        ),
        loss=F.cross_entropy,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
        train_data=data,
        batch_size=int(os.environ.get("BATCH", "256")),
        epochs=int(os.environ.get("EPOCHS", "5")),
    )
