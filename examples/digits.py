"""Trains a small CNN on the 1,797 handwritten digits (8 x 8 scans) that come with scikit-learn: nothing to download.

nfold train examples/digits.py -n 2 --strategy ring
"""

from functools import cache

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import nfold

TEST_SHARE = 0.2
SPLIT_SEED = 0
BRIGHTEST, MEAN, SPREAD = 16.0, 0.305, 0.376


def make_cnn() -> nn.Module:
    """Build three convolutions and two linear layers: 0.6 MB of parameters."""
    model = nn.Sequential(
        nn.Conv2d(1, 24, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(24, 48, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(48, 96, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(96 * 2 * 2, 256),
        nn.ReLU(),
        nn.Linear(256, 10),
    )
    _start_even(model)
    return model


def load_train() -> TensorDataset:
    """Return four fifths of the scans, the same ones each time."""
    return _load(train=True)


def load_test() -> TensorDataset:
    """Return the other fifth."""
    return _load(train=False)


def accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the share of samples whose largest output is the right one."""
    return (outputs.argmax(1) == targets).float().mean()


def program() -> nfold.Program:
    """Return what runs on one device."""
    return nfold.Program(
        model=make_cnn,
        loss=nn.functional.cross_entropy,
        optimizer=lambda params: torch.optim.SGD(params, lr=0.04, momentum=0.9, weight_decay=2e-3),
        train_data=load_train,
        test_data=load_test,
        metrics={"accuracy": accuracy},
        batch_size=128,
        epochs=10,
        seed=0,
    )


def _start_even(model: nn.Sequential) -> None:
    """Scale the weights for ReLU and begin with equal scores: ten epochs are only 120 steps, so the start counts."""
    layers = [layer for layer in model if isinstance(layer, nn.Conv2d | nn.Linear)]
    for layer in layers:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        nn.init.zeros_(layer.bias)
    nn.init.zeros_(layers[-1].weight)


def _load(*, train: bool) -> TensorDataset:
    images, labels = _scans()
    test = _test_indices(labels)
    chosen = torch.ones(len(labels), dtype=torch.bool)
    chosen[test] = False
    rows = chosen if train else ~chosen
    return TensorDataset(images[rows], labels[rows])


@cache
def _scans() -> tuple[torch.Tensor, torch.Tensor]:
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1)
    return (images / BRIGHTEST - MEAN) / SPREAD, torch.tensor(digits.target, dtype=torch.int64)


def _test_indices(labels: torch.Tensor) -> torch.Tensor:
    """Take the same share of every digit, chosen by a seeded permutation."""
    generator = torch.Generator().manual_seed(SPLIT_SEED)
    chosen = []
    for digit in range(10):
        rows = (labels == digit).nonzero().flatten()
        order = torch.randperm(len(rows), generator=generator)
        chosen.append(rows[order[: round(TEST_SHARE * len(rows))]])
    return torch.cat(chosen)
