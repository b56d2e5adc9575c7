"""The bundled handwritten digits, enlarged to 32 x 32: real data of a size that networks for photographs take."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

NUM_TEST = 360


def batch_size(usual: int) -> int:
    """Return the batch size that the environment asks for (`BATCH_SIZE`), else the usual one."""
    return int(os.environ.get("BATCH_SIZE", usual))


def images() -> tuple[torch.Tensor, torch.Tensor]:
    """Return all images, 1 x 32 x 32 and between 0 and 1, in a fixed random order, and their digits."""
    digits = load_digits()
    small = torch.tensor(digits.images / 16, dtype=torch.float32).unsqueeze(1)
    order = torch.randperm(len(small), generator=torch.Generator().manual_seed(0))
    large = nn.functional.interpolate(small, size=32, mode="bilinear", align_corners=False)
    return large[order], torch.tensor(digits.target)[order]


def load_train() -> TensorDataset:
    """Return all but the last images."""
    inputs, targets = images()
    return TensorDataset(inputs[:-NUM_TEST], targets[:-NUM_TEST])


def load_test() -> TensorDataset:
    """Return the last images."""
    inputs, targets = images()
    return TensorDataset(inputs[-NUM_TEST:], targets[-NUM_TEST:])
