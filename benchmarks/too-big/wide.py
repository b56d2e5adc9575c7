"""One layer whose training state no node has room for, although its weights fit each: it trains in parts only."""

import torch
from torch import nn

import nfold

NUM_FEATURES = 8192
WIDTH = 10240
NUM_CLASSES = 10
NUM_SAMPLES = 256
NUM_TESTED = 96


def model() -> nn.Module:
    """Return a layer of 320 MiB, and four times that with its gradient and Adam's state, before a small one."""
    return nn.Sequential(nn.Linear(NUM_FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, NUM_CLASSES))


def samples(count: int, seed: int) -> torch.utils.data.TensorDataset:
    """Return random inputs with a class that depends on them."""
    inputs = torch.randn(count, NUM_FEATURES, generator=torch.Generator().manual_seed(seed))
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
