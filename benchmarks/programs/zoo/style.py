"""What makes a net of the zoo a program: its model, its data, its loss and its optimizer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, StackDataset, TensorDataset

from nfold import Program

NUM_SAMPLES, BATCH_SIZE, CHUNKS = 40, 14, 4
"""Batches of 14, 14 and 12 samples: chunks of 4, 4, 3 and 3, and an epoch that ends with a shorter batch."""
CLASSES, WORDS, LENGTH = 4, 11, 6


def sgd(parameters: Any) -> torch.optim.Optimizer:
    """Momentum, and weight decay, which also moves weights whose gradient is zero."""
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-3)


def adam(parameters: Any) -> torch.optim.Optimizer:
    """With a large eps: Adam divides a gradient that is zero but for rounding (a bias before batch norm) by itself."""
    return torch.optim.Adam(parameters, lr=2e-3, eps=1e-2)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    """As `adam`; its weight decay tells a gradient of zero from one that is not there."""
    return torch.optim.AdamW(parameters, lr=2e-3, eps=1e-2)


def images() -> Dataset[Any]:
    """Return pictures of 2 x 8 x 8 with classes."""
    draw = torch.Generator().manual_seed(7)
    pictures = torch.randn(NUM_SAMPLES, 2, 8, 8, generator=draw, dtype=torch.float64)
    return TensorDataset(pictures, torch.randint(CLASSES, (NUM_SAMPLES,), generator=draw))


def labelled_pixels() -> Dataset[Any]:
    """Return pictures with a class for each pixel."""
    draw = torch.Generator().manual_seed(8)
    pictures = torch.randn(NUM_SAMPLES, 2, 8, 8, generator=draw, dtype=torch.float64)
    return TensorDataset(pictures, torch.randint(CLASSES, (NUM_SAMPLES, 8, 8), generator=draw))


def themselves() -> Dataset[Any]:
    """Return pictures whose target they are themselves."""
    pictures = images()[:][0]
    return TensorDataset(pictures, pictures)


def sentences() -> Dataset[Any]:
    """Return sentences with classes."""
    draw = torch.Generator().manual_seed(9)
    words = torch.randint(WORDS, (NUM_SAMPLES, LENGTH), generator=draw)
    return TensorDataset(words, torch.randint(CLASSES, (NUM_SAMPLES,), generator=draw))


def next_words() -> Dataset[Any]:
    """Return sentences with, for each word, the next one."""
    draw = torch.Generator().manual_seed(10)
    words = torch.randint(WORDS, (NUM_SAMPLES, LENGTH + 1), generator=draw)
    return TensorDataset(words[:, :-1], words[:, 1:])


def pairs() -> Dataset[Any]:
    """Return pairs of pictures, and whether they are of one kind."""
    draw = torch.Generator().manual_seed(11)
    left, right = torch.randn(2, NUM_SAMPLES, 2, 8, 8, generator=draw, dtype=torch.float64)
    alike = torch.randint(2, (NUM_SAMPLES,), generator=draw).double()
    return StackDataset(StackDataset(left, right), alike)  # type: ignore[arg-type]


def rows() -> Dataset[Any]:
    """Return rows of a table, as a dict of numbers and of categories, with a class and a number to predict."""
    draw = torch.Generator().manual_seed(12)
    return StackDataset(
        StackDataset(
            numbers=torch.randn(NUM_SAMPLES, 5, generator=draw, dtype=torch.float64),  # type: ignore[arg-type]
            kinds=torch.randint(WORDS, (NUM_SAMPLES, 3), generator=draw),  # type: ignore[arg-type]
        ),
        StackDataset(
            kind=torch.randint(CLASSES, (NUM_SAMPLES,), generator=draw),  # type: ignore[arg-type]
            value=torch.randn(NUM_SAMPLES, generator=draw, dtype=torch.float64),  # type: ignore[arg-type]
        ),
    )


def whole_numbers() -> Dataset[Any]:
    """Return whole numbers in batches that divide evenly, so that every mean is exact in binary."""
    draw = torch.Generator().manual_seed(2)
    inputs = torch.randint(-4, 5, (64, 8), generator=draw).double()
    return TensorDataset(inputs, torch.randint(-4, 5, (64, 4), generator=draw).double())


def halving(parameters: Any) -> torch.optim.Optimizer:
    """Plain SGD with a power of two."""
    return torch.optim.SGD(parameters, lr=0.5)


def word_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean cross entropy over words; every sentence is equally long, so it is one over sentences too."""
    return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())


@dataclass(frozen=True, kw_only=True, slots=True)
class Style:
    """One net of the zoo."""

    model: Callable[[], nn.Module]
    data: Callable[[], Dataset[Any]] = images
    loss: Callable[[Any, Any], torch.Tensor] = F.cross_entropy
    optimizer: Callable[[Any], torch.optim.Optimizer] = sgd
    batch_size: int = BATCH_SIZE
    draws: bool = False
    """Whether it draws random numbers: a plain loop would draw others than chunks do."""
    tolerance: float = 1e-9
    """Largest difference allowed, relative to each tensor."""

    def program(self) -> Program:
        """Return the program, in float64."""
        return Program(
            model=lambda: self.model().double(),
            loss=self.loss,
            optimizer=self.optimizer,
            train_data=self.data,
            batch_size=self.batch_size,
            epochs=100,
            seed=3,
            chunks=CHUNKS,
        )
