"""A program whose activations take hundreds of megabytes and next to no time."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

import nfold


def make_model():
    return nn.Sequential(
        nn.Linear(64, 16384), nn.Sigmoid(), nn.Tanh(), nn.Sigmoid(), nn.Linear(16384, 128), nn.Linear(128, 5)
    )


def program():
    generator = torch.Generator().manual_seed(1)
    data = TensorDataset(torch.randn(1024, 64, generator=generator), torch.arange(1024) % 5)
    return nfold.Program(
        model=make_model,
        loss=nn.functional.cross_entropy,
        optimizer=lambda params: torch.optim.SGD(params, lr=0.01, momentum=0.9),
        train_data=lambda: data,
        batch_size=1024,
        epochs=3,
    )
