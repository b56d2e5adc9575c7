"""A program whose step is short and sends much: for links that are slow, or become so."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

import nfold


def program():
    return nfold.Program(
        model=lambda: nn.Sequential(nn.Linear(32, 500), nn.ReLU(), nn.Linear(500, 10)),
        loss=nn.functional.cross_entropy,
        optimizer=lambda params: torch.optim.SGD(params, lr=0.05),
        train_data=lambda: TensorDataset(torch.randn(576, 32), torch.randint(0, 10, (576,))),
        batch_size=48,
        epochs=20,
    )
