"""Trains a small CNN with dropout on MNIST, read from its own IDX files in the folder that NFOLD_DATA names.

    NFOLD_DATA=FOLDER nfold train examples/mnist.py -n 2 --strategy ring

The folder holds the four published files, compressed or not: train-images-idx3-ubyte, train-labels-idx1-ubyte,
t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte.
"""

from pathlib import Path

import torch
from formats import Images, data_folder, find, read_idx
from torch import nn

import nfold
from nfold.errors import ProgramError

MEAN, SPREAD = torch.tensor(0.1307), torch.tensor(0.3081)


def make_cnn() -> nn.Module:
    """Build two convolutions and two linear layers with dropout between them."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(32 * 7 * 7, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, 10),
    )


def load(folder: Path, part: str) -> Images:
    """Read one part (`train` or `t10k`) as images and labels.

    Raises:
        ProgramError: a file is missing or damaged, or the two disagree.
    """
    images = read_idx(find(folder, _names(f"{part}-images", 3)), num_dimensions=3)
    labels = read_idx(find(folder, _names(f"{part}-labels", 1)), num_dimensions=1)
    if len(images) != len(labels):
        raise ProgramError(f"{folder}: {len(images)} {part} images and {len(labels)} labels. Are they of one set?")
    return Images(images.unsqueeze(1), labels.long(), MEAN, SPREAD)


def load_train() -> Images:
    """Read the training set."""
    return load(data_folder(), "train")


def load_test() -> Images:
    """Read the test set."""
    return load(data_folder(), "t10k")


def accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the share of samples whose largest output is the right one."""
    return (outputs.argmax(1) == targets).float().mean()


def program() -> nfold.Program:
    """Return what runs on one device."""
    return nfold.Program(
        model=make_cnn,
        loss=nn.functional.cross_entropy,
        optimizer=lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9),
        train_data=load_train,
        test_data=load_test,
        metrics={"accuracy": accuracy},
        batch_size=128,
        epochs=5,
        seed=0,
    )


def _names(stem: str, num_dimensions: int) -> tuple[str, ...]:
    """The published name, the one with a dot that some mirrors use, and both compressed."""
    plain = (f"{stem}-idx{num_dimensions}-ubyte", f"{stem}.idx{num_dimensions}-ubyte")
    return (*plain, *(f"{name}.gz" for name in plain))
