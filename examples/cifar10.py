"""Trains a small residual net with batch norm on CIFAR-10, read from its binary version in the folder NFOLD_DATA.

    NFOLD_DATA=FOLDER nfold train examples/cifar10.py -n 2 --strategy ring

The folder (or one folder in it) holds data_batch_1.bin to data_batch_5.bin and test_batch.bin.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from formats import Images, data_folder, find, read_cifar10
from torch import nn

import nfold

TRAIN_FILES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST_FILES = ("test_batch.bin",)
MEAN = torch.tensor((0.4914, 0.4822, 0.4465)).view(3, 1, 1)
SPREAD = torch.tensor((0.2470, 0.2435, 0.2616)).view(3, 1, 1)


class Block(nn.Module):
    """Two 3 x 3 convolutions around which the input takes a short cut."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(out_channels)
        self.second = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(out_channels)
        same_shape = stride == 1 and in_channels == out_channels
        self.shortcut: nn.Module = nn.Identity() if same_shape else _projection(in_channels, out_channels, stride)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        hidden = nn.functional.relu(self.first_norm(self.first(inputs)))
        return nn.functional.relu(self.second_norm(self.second(hidden)) + self.shortcut(inputs))


def make_resnet() -> nn.Module:
    """Build a residual net of six blocks: about 2.8 MB of parameters."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        Block(32, 32, 1),
        Block(32, 32, 1),
        Block(32, 64, 2),
        Block(64, 64, 1),
        Block(64, 128, 2),
        Block(128, 128, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def load(folder: Path, names: Sequence[str]) -> Images:
    """Read files as images and labels.

    Raises:
        ProgramError: a file is missing or damaged.
    """
    images, labels = read_cifar10([find(folder, (name,)) for name in names])
    return Images(images, labels, MEAN, SPREAD)


def load_train() -> Images:
    """Read the 50,000 training images: 154 MB."""
    return load(data_folder(), TRAIN_FILES)


def load_test() -> Images:
    """Read the 10,000 test images."""
    return load(data_folder(), TEST_FILES)


def accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the share of samples whose largest output is the right one."""
    return (outputs.argmax(1) == targets).float().mean()


def program() -> nfold.Program:
    """Return what runs on one device."""
    return nfold.Program(
        model=make_resnet,
        loss=nn.functional.cross_entropy,
        optimizer=lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=5e-4),
        train_data=load_train,
        test_data=load_test,
        metrics={"accuracy": accuracy},
        batch_size=128,
        epochs=10,
        seed=0,
    )


def _projection(in_channels: int, out_channels: int, stride: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False), nn.BatchNorm2d(out_channels)
    )
