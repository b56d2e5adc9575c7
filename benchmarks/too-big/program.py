"""A deep stack of wide layers: nearly all of its training state is weights, of which data parallelism needs all."""

import torch
from torch import nn

import nfold

WIDTH = 1536
NUM_LAYERS = 12
NUM_CLASSES = 10
NUM_SAMPLES = 256
NUM_TESTED = 96


def model() -> nn.Module:
    """Return 12 layers of 1536 x 1536: 108 MiB of weights, and four times that with gradients and Adam's state."""
    layers: list[nn.Module] = []
    for _ in range(NUM_LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, NUM_CLASSES))


def samples(count: int, seed: int) -> torch.utils.data.TensorDataset:
    """Return random inputs with a class that depends on them."""
    inputs = torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(seed))
    return torch.utils.data.TensorDataset(inputs, inputs[:, :NUM_CLASSES].argmax(1))


def accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the share of samples that are classified rightly."""
    return float((outputs.argmax(1) == targets).float().mean())


def program() -> nfold.Program:
    """Return the program."""
    return nfold.Program(
        model=model,
        loss=nn.functional.cross_entropy,
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=1e-4),
        train_data=lambda: samples(NUM_SAMPLES, 1),
        test_data=lambda: samples(NUM_TESTED, 2),
        metrics={"accuracy": accuracy},
        batch_size=32,
        epochs=1,
        seed=0,
    )
