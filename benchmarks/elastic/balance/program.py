"""A model whose step is mostly computing: few weights, each used for many positions."""

import torch
from torch import nn

import nfold

SAMPLES, BATCH = 512, 128


def program() -> nfold.Program:
    """Return the program; its data are the same in each process."""
    chosen = torch.Generator().manual_seed(1)
    inputs = torch.randn(SAMPLES, 3, 16, 16, generator=chosen)
    data = torch.utils.data.TensorDataset(inputs, torch.arange(SAMPLES) % 10)
    return nfold.Program(
        model=lambda: nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 10),
        ),
        loss=nn.functional.cross_entropy,
        train_data=lambda: data,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01),
        batch_size=BATCH,
        epochs=10**6,
    )  # fmt: skip
