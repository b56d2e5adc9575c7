"""What both programs train on: random inputs, with a class that depends on them."""

from collections.abc import Callable

import torch
from torch import nn

import nfold

NUM_CLASSES = 10
NUM_SAMPLES, NUM_TESTED = 256, 96


def samples(num_features: int, count: int, seed: int) -> torch.utils.data.TensorDataset:
    """Return random inputs with a class that depends on them."""
    inputs = torch.randn(count, num_features, generator=torch.Generator().manual_seed(seed))
    return torch.utils.data.TensorDataset(inputs, inputs[:, :NUM_CLASSES].argmax(1))


def accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the share of samples that are classified rightly."""
    return float((outputs.argmax(1) == targets).float().mean())


def program_of(model: Callable[[], nn.Module], num_features: int) -> nfold.Program:
    """Return a program that trains a model of so many inputs."""
    return nfold.Program(
        model=model,
        loss=nn.functional.cross_entropy,
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=1e-4),
        train_data=lambda: samples(num_features, NUM_SAMPLES, 1),
        test_data=lambda: samples(num_features, NUM_TESTED, 2),
        metrics={"accuracy": accuracy},
        batch_size=32,
        epochs=1,
        seed=0,
    )
