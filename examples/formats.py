"""Reads the files that CIFAR-10 and MNIST are published in, and says plainly what is wrong with a folder.

Nothing is unpickled, so CIFAR-10 is read from its binary version.
"""

import gzip
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset

from nfold.errors import ProgramError

DATA_VARIABLE = "NFOLD_DATA"
CIFAR10_RECORD_BYTES = 1 + 3 * 32 * 32
IDX_UINT8 = 0x08


class Images(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Images kept as bytes, a quarter of their float32 size, and normalised one by one when they are read."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor, mean: torch.Tensor, spread: torch.Tensor) -> None:
        self.images, self.labels = images, labels
        self.scale, self.shift = 1 / (255 * spread), mean / spread

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.images[index] * self.scale - self.shift, self.labels[index]


def data_folder() -> Path:
    """Return the folder that the environment variable NFOLD_DATA names.

    Raises:
        ProgramError: the variable is not set, or names no folder.
    """
    name = os.environ.get(DATA_VARIABLE)
    if not name:
        raise ProgramError(f"where are the data? Set {DATA_VARIABLE}: {DATA_VARIABLE}=FOLDER nfold train FILE.py")
    folder = Path(name).expanduser()
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise ProgramError(f"{DATA_VARIABLE}={name} must name a folder, but it {what}")
    return folder


def find(folder: Path, alternatives: Sequence[str]) -> Path:
    """Return the first of several names that exists in a folder or in one folder below it.

    Raises:
        ProgramError: none of them does; the message lists what is there.
    """
    for place in (folder, *_folders_in(folder)):
        for name in alternatives:
            if (place / name).is_file():
                return place / name
    found = sorted(path.name + "/" * path.is_dir() for path in folder.iterdir())
    listing = ", ".join(found[:8]) + (f" and {len(found) - 8} more" if len(found) > 8 else "")
    raise ProgramError(
        f"{folder} holds no {' or '.join(alternatives)}; found: {listing or 'nothing'}. "
        f"Unpack the published archive there, or set {DATA_VARIABLE} to the folder that has it."
    )


def read_cifar10(paths: Sequence[Path]) -> tuple[torch.Tensor, torch.Tensor]:
    """Read records of one label byte and 3 x 32 x 32 colour bytes.

    Returns:
        images (samples, 3, 32, 32), uint8, and labels (samples,), int64.

    Raises:
        ProgramError: a file holds no whole number of records, or a label above 9.
    """
    records = np.concatenate([_read_cifar10_records(path) for path in paths])
    images = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy())
    return images, torch.from_numpy(records[:, 0].astype(np.int64))


def read_idx(path: Path, num_dimensions: int) -> torch.Tensor:
    """Read an IDX file of unsigned bytes, compressed with gzip or plain.

    Layout, numbers big-endian:

        00 00 08 D | size of dimension 1 (4 bytes) | .. | size of dimension D | the bytes, last dimension fastest

    Raises:
        ProgramError: the magic number is another one, or the file's size does not match its header.
    """
    data = _read_maybe_gzip(path)
    header_bytes = 4 + 4 * num_dimensions
    expected = bytes((0, 0, IDX_UINT8, num_dimensions))
    if data[:4] != expected:
        raise ProgramError(
            f"{path} starts with the bytes {data[:4].hex(' ') or '(none)'}, an IDX file of unsigned bytes in "
            f"{num_dimensions} dimensions with {expected.hex(' ')}. Is it another file under this name?"
        )
    if len(data) < header_bytes:
        raise ProgramError(f"{path} ends in its header, after {len(data)} of {header_bytes} bytes. Fetch it again.")
    shape = tuple(int.from_bytes(data[4 + 4 * i : 8 + 4 * i]) for i in range(num_dimensions))
    num_bytes = int(np.prod(shape, dtype=object))
    if len(data) - header_bytes != num_bytes:
        raise ProgramError(
            f"{path} promises {' x '.join(map(str, shape))} = {num_bytes} bytes and holds "
            f"{len(data) - header_bytes}. Fetch it again."
        )
    return torch.from_numpy(np.frombuffer(data, np.uint8, offset=header_bytes).reshape(shape).copy())


def _folders_in(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.iterdir()) if path.is_dir())


def _read_cifar10_records(path: Path) -> "np.ndarray[tuple[int, int], np.dtype[np.uint8]]":
    data = np.frombuffer(path.read_bytes(), np.uint8)
    if not len(data) or len(data) % CIFAR10_RECORD_BYTES:
        raise ProgramError(
            f"{path} has {len(data)} bytes, which is no whole number of records of {CIFAR10_RECORD_BYTES}. "
            "Fetch it again; it must be the binary version of CIFAR-10."
        )
    records = data.reshape(-1, CIFAR10_RECORD_BYTES)
    wrong = np.flatnonzero(records[:, 0] > 9)
    if len(wrong):
        raise ProgramError(f"{path}: record {wrong[0]} has the label {records[wrong[0], 0]}; CIFAR-10 has 0 to 9")
    return records


def _read_maybe_gzip(path: Path) -> bytes:
    if path.suffix != ".gz":
        return path.read_bytes()
    try:
        return gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise ProgramError(f"{path} cannot be decompressed ({error}). Fetch it again.") from error
