"""Small nets in float64 whose distributed training must equal a plain loop: one per way in which it could go wrong."""

from collections.abc import Callable

import torch
from torch import nn
from torch.utils.data import TensorDataset

import nfold

NUM_SAMPLES, BATCH_SIZE, NUM_CHUNKS = 250, 24, 6
TORCH_TYPE = torch.float64


class Residual(nn.Module):
    """Batch norm around a short cut."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(8)
        self.body = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.body_norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8 * 16, 10)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return class scores."""
        hidden = nn.functional.relu(self.stem_norm(self.stem(inputs)))
        hidden = nn.functional.relu(self.body_norm(self.body(hidden)) + hidden)
        return self.head(nn.functional.max_pool2d(hidden, 2).flatten(1))


class Tied(nn.Module):
    """One weight used twice: to encode, and transposed to decode."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(64, 32)
        self.decoder_bias = nn.Parameter(torch.zeros(64))
        self.classifier = nn.Linear(64, 10)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return class scores."""
        hidden = torch.tanh(self.encoder(inputs.flatten(1)))
        decoded = nn.functional.linear(hidden, self.encoder.weight.t(), self.decoder_bias)
        return self.classifier(torch.tanh(decoded))


def make_plain() -> nn.Module:
    """Build a plain CNN."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, 10),
    ).to(TORCH_TYPE)


def make_dropout() -> nn.Module:
    """Build a CNN that draws random numbers twice in a forward pass."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 32),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(32, 10),
    ).to(TORCH_TYPE)


def make_residual() -> nn.Module:
    """Build the residual net."""
    return Residual().to(TORCH_TYPE)


def make_tied() -> nn.Module:
    """Build the net with tied weights."""
    return Tied().to(TORCH_TYPE)


def make_integer() -> nn.Module:
    """Build a linear map whose weights are whole numbers."""
    model = nn.Linear(8, 4).to(TORCH_TYPE)
    with torch.no_grad():
        model.weight.copy_(torch.randint(-2, 3, (4, 8)))
        model.bias.copy_(torch.randint(-2, 3, (4,)))
    return model


def weighted_sum(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return a mean over samples whose gradient by the weights does not depend on them, so values stay small."""
    return (outputs * targets).sum(1).mean()


def load_images() -> TensorDataset:
    """Return random images with random labels; the last batch of an epoch is a short one."""
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(NUM_SAMPLES, 1, 8, 8, dtype=TORCH_TYPE, generator=generator)
    return TensorDataset(images, torch.randint(10, (NUM_SAMPLES,), generator=generator))


def load_integers() -> TensorDataset:
    """Return whole numbers in pairs of batches that divide evenly, so that every mean is exact in binary."""
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randint(-4, 5, (256, 8), generator=generator).to(TORCH_TYPE)
    return TensorDataset(inputs, torch.randint(-4, 5, (256, 4), generator=generator).to(TORCH_TYPE))


def plain() -> nfold.Program:
    """Return the plain CNN's program."""
    return _on_images(make_plain)


def residual() -> nfold.Program:
    """Return the residual net's program."""
    return _on_images(make_residual)


def dropout() -> nfold.Program:
    """Return the program of the net with dropout."""
    return _on_images(make_dropout)


def tied() -> nfold.Program:
    """Return the program of the net with tied weights."""
    return _on_images(make_tied)


def integer() -> nfold.Program:
    """Return a program whose every sum is exact: whole numbers over powers of two."""
    return nfold.Program(
        model=make_integer,
        loss=weighted_sum,
        optimizer=lambda params: torch.optim.SGD(params, lr=0.5),
        train_data=load_integers,
        batch_size=32,
        chunks=8,
        epochs=100,
        seed=0,
    )


def _on_images(make: Callable[[], nn.Module]) -> nfold.Program:
    return nfold.Program(
        model=make,
        loss=nn.functional.cross_entropy,
        optimizer=lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9),
        train_data=load_images,
        batch_size=BATCH_SIZE,
        chunks=NUM_CHUNKS,
        epochs=100,
        seed=0,
    )
