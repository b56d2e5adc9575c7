"""Nearly all of its training state is weights: 90 MiB, and four times that with gradients and Adam's state."""

import torch
from torch import nn

import nfold

WIDTH, LAYERS, CLASSES = 1536, 10, 10


def model():
    layers = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES))


def samples(count):
    inputs = torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(count))
    return torch.utils.data.TensorDataset(inputs, inputs[:, :CLASSES].argmax(1))


def program():
    return nfold.Program(
        model=model,
        loss=nn.functional.cross_entropy,
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=1e-4),
        train_data=lambda: samples(64),
        test_data=lambda: samples(32),
        batch_size=32,
        epochs=1,
        seed=0,
    )
