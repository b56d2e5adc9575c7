"""Writes tiny files in the formats of MNIST and CIFAR-10."""

import gzip
from pathlib import Path

import numpy as np


def idx(array: "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]") -> bytes:
    """Return an array in the IDX format."""
    header = bytes((0, 0, 8, array.ndim)) + b"".join(size.to_bytes(4) for size in array.shape)
    return header + array.tobytes()


def write_mnist(folder: Path, *, suffix: str = "", num_train: int = 5, num_test: int = 3) -> None:
    """Write the four files with images whose every pixel is its label."""
    for part, num_samples in (("train", num_train), ("t10k", num_test)):
        labels = np.arange(num_samples, dtype=np.uint8) % 10
        images = np.broadcast_to(labels[:, None, None], (num_samples, 28, 28)).copy()
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            data = gzip.compress(idx(array)) if suffix else idx(array)
            (folder / f"{part}-{kind}-ubyte{suffix}").write_bytes(data)


def write_cifar10(folder: Path, *, num_each: int = 2) -> None:
    """Write the six files; a record's pixels count up from its label, red plane first."""
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    for position, name in enumerate(names):
        records = [bytes([position]) + bytes((position + i) % 256 for i in range(3072)) for _ in range(num_each)]
        (folder / name).write_bytes(b"".join(records))
