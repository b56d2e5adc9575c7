"""CIFAR-10's and MNIST's own files: tiny ones written here and read back, and every way in which they can be bad."""

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from tiny_files import idx, write_cifar10, write_mnist

from nfold.errors import ProgramError

Load = Callable[[str], ModuleType]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_mnist_is_read_back(example: Load, data: Path, suffix: str) -> None:
    write_mnist(data, suffix=suffix)
    mnist = example("mnist")
    train, test = mnist.load_train(), mnist.load_test()
    assert (len(train), len(test)) == (5, 3)
    image, label = train[4]
    assert label == 4
    assert image.shape == (1, 28, 28)
    torch.testing.assert_close(image, torch.full((1, 28, 28), (4 / 255 - 0.1307) / 0.3081))


def test_mnist_under_the_names_of_some_mirrors(example: Load, data: Path) -> None:
    write_mnist(data)
    for path in list(data.iterdir()):
        path.rename(data / path.name.replace("-idx", ".idx"))
    assert len(example("mnist").load_test()) == 3


def test_cifar10_is_read_back_in_order(example: Load, data: Path) -> None:
    write_cifar10(data)
    cifar = example("cifar10")
    train, test = cifar.load_train(), cifar.load_test()
    assert [int(label) for _, label in train] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert [int(label) for _, label in test] == [5, 5]
    image = train[2][0]
    assert image.shape == (3, 32, 32)
    green = (1 + 1024) % 256
    assert image[1, 0, 0].item() == pytest.approx((green / 255 - 0.4822) / 0.2435, abs=1e-5)


def test_data_may_lie_one_folder_below(example: Load, data: Path) -> None:
    (data / "cifar-10-batches-bin").mkdir()
    write_cifar10(data / "cifar-10-batches-bin")
    assert len(example("cifar10").load_train()) == 10


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_one_step_of_each_net(example: Load, name: str) -> None:
    torch.manual_seed(0)
    program = example(name).program()
    model = program.model()
    shape = (4, 1, 28, 28) if name == "mnist" else (4, 3, 32, 32)
    outputs = model(torch.randn(shape))
    loss = program.loss(outputs, torch.arange(4))
    loss.backward()
    program.optimizer(list(model.parameters())).step()
    assert outputs.shape == (4, 10)
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_no_folder_named(example: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NFOLD_DATA", raising=False)
    with pytest.raises(ProgramError, match="Set NFOLD_DATA"):
        example("mnist").load_train()


def test_folder_does_not_exist(example: Load, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NFOLD_DATA", str(data / "nowhere"))
    with pytest.raises(ProgramError, match="does not exist"):
        example("mnist").load_train()


def test_folder_is_a_file(example: Load, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (data / "file").touch()
    monkeypatch.setenv("NFOLD_DATA", str(data / "file"))
    with pytest.raises(ProgramError, match="it is a file"):
        example("mnist").load_train()


def test_missing_file_names_what_was_expected_and_found(example: Load, data: Path) -> None:
    write_cifar10(data)
    (data / "data_batch_3.bin").unlink()
    with pytest.raises(ProgramError, match=r"no data_batch_3\.bin; found: data_batch_1\.bin, .*test_batch\.bin"):
        example("cifar10").load_train()


def test_empty_folder(example: Load, data: Path) -> None:
    with pytest.raises(ProgramError, match="found: nothing"):
        example("mnist").load_train()


@pytest.mark.parametrize("size", [0, 100, 3073 * 2 - 1])
def test_cifar10_truncated(example: Load, data: Path, size: int) -> None:
    write_cifar10(data)
    path = data / "data_batch_2.bin"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ProgramError, match=rf"data_batch_2\.bin has {size} bytes.*records of 3073"):
        example("cifar10").load_train()


def test_cifar10_label_out_of_range(example: Load, data: Path) -> None:
    write_cifar10(data)
    (data / "test_batch.bin").write_bytes(bytes(3073) + bytes([77]) + bytes(3072))
    with pytest.raises(ProgramError, match="record 1 has the label 77"):
        example("cifar10").load_test()


IMAGES = "train-images-idx3-ubyte"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "starts with the bytes (none)"),
        (b"PK\x03\x04" + bytes(40), "starts with the bytes 50 4b 03 04"),
        (idx(np.zeros((5,), np.uint8)), "starts with the bytes 00 00 08 01"),
        (bytes((0, 0, 8, 3)) + bytes(5), "ends in its header, after 9 of 16 bytes"),
        (idx(np.zeros((5, 28, 28), np.uint8))[:-1], "promises 5 x 28 x 28 = 3920 bytes and holds 3919"),
        (idx(np.zeros((5, 28, 28), np.uint8)) + b"!", "promises 5 x 28 x 28 = 3920 bytes and holds 3921"),
        (idx(np.zeros((4, 28, 28), np.uint8)), "4 train images and 5 labels"),
        (bytes((0, 0, 8, 3)) + b"\xff" * 12, "promises 4294967295 x 4294967295 x 4294967295"),
    ],
)
def test_bad_mnist_file(example: Load, data: Path, content: bytes, message: str) -> None:
    write_mnist(data)
    (data / IMAGES).write_bytes(content)
    with pytest.raises(ProgramError, match=re.escape(message)):
        example("mnist").load_train()


@pytest.mark.parametrize("damage", ["cut", "flipped", "not gzip"])
def test_damaged_compression(example: Load, data: Path, damage: str) -> None:
    write_mnist(data, suffix=".gz")
    path = data / f"{IMAGES}.gz"
    whole = bytearray(path.read_bytes())
    if damage == "flipped":
        whole[len(whole) // 2] ^= 0xFF
    path.write_bytes({"cut": whole[:-9], "flipped": whole, "not gzip": b"hello"}[damage])
    with pytest.raises(ProgramError, match="cannot be decompressed"):
        example("mnist").load_train()
