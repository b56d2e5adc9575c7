"""A program whose samples live on one of three nodes, as files or as items that take a while to read."""

import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import nfold

KIND = os.environ.get("EXACTLY_ONCE_KIND", "items")
PHOTOS = Path(os.environ.get("EXACTLY_ONCE_FILES", "photos"))
HELD = {"local-0": range(300), "local-1": range(300, 308), "local-2": range(308, 316)}
"""By node; those that hold a few are measured without loans, so what comes to them is what the plan moves."""
READ_S = 0.01
FILE_NUMBERS = 250_000
"""In each file, so that files too are on their way for a while."""


class Items:
    """Items of unlike sizes, whose reading takes as long as that of a small photo."""

    def __init__(self, numbers: range) -> None:
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> Any:
        number = self._numbers[index]
        time.sleep(READ_S)
        return item(number)


def item(number: int, least: int = 32) -> tuple[torch.Tensor, int]:
    """Return a sample: 32 numbers, and zeros that make sizes differ."""
    inputs = torch.zeros(least + number % 50)
    inputs[:32] = torch.randn(32, generator=torch.Generator().manual_seed(number))
    return inputs, number % 2


def write_photos(folder: Path) -> None:
    """Write the samples as files, a folder for each node."""
    for node, numbers in HELD.items():
        (folder / node).mkdir(parents=True)
        for number in numbers:
            torch.save(item(number, FILE_NUMBERS), folder / node / f"{number}.pt")


def program() -> nfold.Program:
    """Return the program."""
    files = nfold.local_data(lambda node: PHOTOS / node, read=torch.load)
    items = nfold.local_data(lambda node: Items(HELD[node]))
    torch.manual_seed(3)
    return nfold.Program(
        model=lambda: nn.Linear(32, 2),
        loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        train_data=files if KIND == "files" else items,
        collate=lambda batch: (torch.stack([x[:32] for x, _ in batch]), torch.tensor([y for _, y in batch])),
        batch_size=79,
        epochs=1,
        seed=1,
    )
