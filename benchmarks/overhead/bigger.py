"""A CNN with steps of some hundred milliseconds on synthetic images: what overhead weighs when there is work to do."""

from itertools import pairwise

import torch
from torch import nn
from torch.utils.data import TensorDataset

import nfold

NUM_SAMPLES = 1024


def make_cnn() -> nn.Module:
    """Build six convolutions and a linear layer: about 4.1 MB of parameters."""
    widths = (3, 32, 32, 64, 128, 256, 256)
    layers: list[nn.Module] = []
    for index, (before, after) in enumerate(pairwise(widths)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if index % 2 else []
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256 * 4 * 4, 10))


def load() -> TensorDataset:
    """Return random images of the size of CIFAR-10's: values do not change how long a step takes."""
    generator = torch.Generator().manual_seed(0)
    return TensorDataset(
        torch.randn(NUM_SAMPLES, 3, 32, 32, generator=generator),
        torch.randint(10, (NUM_SAMPLES,), generator=generator),
    )


def program() -> nfold.Program:
    """Return what runs on one device."""
    return nfold.Program(
        model=make_cnn,
        loss=nn.functional.cross_entropy,
        optimizer=lambda params: torch.optim.SGD(params, lr=0.01, momentum=0.9),
        train_data=load,
        batch_size=64,
        epochs=100,
        seed=0,
    )
