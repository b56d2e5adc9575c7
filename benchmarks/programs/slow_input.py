"""The small network fed by data sets that take their time for each item, as decoding a large image would."""

import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch.utils.data import Dataset, TensorDataset

import nfold

sys.path.insert(0, str(Path(__file__).parent))
from digits32 import load_train
from small import program as fast


class Slow(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Another data set's items, each after a while; on every host, or on one."""

    def __init__(self, items: TensorDataset, item_s: float, host: str = "") -> None:
        self._items, self._item_s = items, item_s if host in ("", socket.gethostname()) else 0.0

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self._item_s:
            time.sleep(self._item_s)
        inputs, target = self._items[index]
        return inputs, target


def slow() -> nfold.Program:
    """Items take 5 ms."""
    return replace(fast(), train_data=lambda: Slow(load_train(), 5e-3), test_data=None)


def slower() -> nfold.Program:
    """Items take 12 ms."""
    return replace(fast(), train_data=lambda: Slow(load_train(), 12e-3), test_data=None)


def slow_on_n1() -> nfold.Program:
    """Items take 8 ms on the host n1."""
    return replace(fast(), train_data=lambda: Slow(load_train(), 8e-3, "n1"), test_data=None)
