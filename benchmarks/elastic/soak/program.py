"""A small classifier of the 1,797 handwritten digits, in double precision: whoever takes part, sums hardly differ."""

import os
import time

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import Dataset

import nfold

NUM_TEST = 360


def accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the share of samples whose largest output is the right one."""
    return (outputs.argmax(1) == targets).double().mean()


def program() -> nfold.Program:
    """Return what runs on one device."""
    return nfold.Program(
        model=lambda: nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Dropout(0.1), nn.Linear(128, 10)).double(),
        loss=nn.functional.cross_entropy,
        optimizer=lambda params: torch.optim.SGD(params, lr=0.01, momentum=0.9, weight_decay=1e-4),
        train_data=lambda: SlowlyRead(slice(None, -NUM_TEST), float(os.environ.get("READ_S", "0"))),
        test_data=lambda: SlowlyRead(slice(-NUM_TEST, None)),
        metrics={"accuracy": accuracy},
        batch_size=60,
        epochs=10**4,
        seed=0,
    )


class SlowlyRead(Dataset):  # type: ignore[type-arg]
    """Digits that take a while to be read, so that a step does: shorter, the more hosts share it."""

    def __init__(self, rows: slice, read_s: float = 0.0) -> None:
        digits = load_digits()
        self._images = torch.tensor(digits.data[rows] / 16, dtype=torch.float64)
        self._labels, self._read_s = torch.tensor(digits.target[rows]), read_s

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self._read_s:  # even no time at all gives the processor to others
            time.sleep(self._read_s)
        return self._images[index], self._labels[index]
