"""A network of as many million parameters as the environment says (MILLIONS), on random samples."""

import os
import time

import torch
from torch import nn
from torch.utils.data import Dataset

import nfold

FEATURES, CLASSES, SAMPLES, BATCH = 64, 10, 4096, 48
READ_S = float(os.environ.get("READ_S", "0.002"))
"""That reading a sample takes: unless another is given, steps are of some 0.1 s on one host and shorter on more."""


class Drawn(Dataset):  # type: ignore[type-arg]
    """Samples that are drawn by their number."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(READ_S)
        generator = torch.Generator().manual_seed(index)
        return torch.randn(FEATURES, generator=generator), torch.tensor(index % CLASSES)


def make_model() -> nn.Module:
    """Return two layers as wide as each other, and what leads in and out."""
    millions = float(os.environ.get("MILLIONS", "1"))
    width = round((millions * 1e6) ** 0.5)
    hidden = (nn.Linear(FEATURES, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, CLASSES))
    return nn.Sequential(*hidden)


def program() -> nfold.Program:
    """Return what runs on one device."""
    return nfold.Program(
        model=make_model,
        loss=nn.functional.cross_entropy,
        optimizer=lambda params: torch.optim.SGD(params, lr=0.01, momentum=0.9),
        train_data=Drawn,
        batch_size=BATCH,
        epochs=10**4,
        seed=0,
    )
