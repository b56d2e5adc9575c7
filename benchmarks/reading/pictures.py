"""A data set of JPEG files that are decoded and cropped as they are read, and a network whose step is shorter."""

import os
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import Dataset

import nfold

FOLDER = "NFOLD_PICTURES"
"""Where the files lie."""
NUM_FILES, SIDE, CROP, CLASSES, BATCH_SIZE = 1000, 320, 224, 10, 32


def make(folder: Path, num_files: int = NUM_FILES) -> None:
    """Write the files: smooth noise, so that they are as large as photographs of that size are (30 KB)."""
    generator = np.random.default_rng(3)
    for number in range(num_files):
        coarse = generator.integers(0, 256, (SIDE // 4, SIDE // 4, 3), dtype=np.uint8)
        picture = Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
        picture.save(folder / f"{number:04}.jpg", quality=85)


class Pictures(Dataset):
    """Random crops, half of them mirrored, and the class that a file's name gives."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.glob("*.jpg"))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with Image.open(self.files[index]) as picture:
            pixels = torch.from_numpy(np.array(picture.convert("RGB")))
        top, left = torch.randint(SIDE - CROP, (2,)).tolist()
        crop = pixels[top : top + CROP, left : left + CROP].permute(2, 0, 1).float() / 255
        return (crop.flip(2) if torch.rand(()) < 0.5 else crop), index % CLASSES


class Net(nn.Module):
    """Three convolutions with large steps."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Conv2d(3, 16, 7, 4), nn.Conv2d(16, 32, 5, 4), nn.Conv2d(32, 64, 3, 2)
        self.last = nn.Linear(64, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the scores of the classes."""
        found = self.third(self.second(self.first(inputs).relu()).relu()).relu()
        return self.last(found.mean((2, 3)))


def program() -> nfold.Program:
    """Describe the training."""
    return nfold.Program(
        model=Net,
        loss=nn.functional.cross_entropy,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01),
        train_data=lambda: Pictures(Path(os.environ[FOLDER])),
        batch_size=BATCH_SIZE,
        epochs=3,
    )
