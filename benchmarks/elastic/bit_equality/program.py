"""A net of the tests whose samples take a while to be read. NET says which one, READ_S how long."""

import os
import time
from dataclasses import replace

import nets  # beside this file where it is trained
import torch
from torch.utils.data import Dataset

import nfold


class SlowlyRead(Dataset):  # type: ignore[type-arg]
    """The nets' images."""

    def __init__(self) -> None:
        self._images = nets.images()
        self._read_s = float(os.environ["READ_S"])

    def __len__(self) -> int:
        return nets.NUM_SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self._read_s:
            time.sleep(self._read_s)
        return self._images[index]


def program() -> nfold.Program:
    """Return what runs on one device."""
    return replace(nets.program(os.environ["NET"]), train_data=SlowlyRead, epochs=10**6)
