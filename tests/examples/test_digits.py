"""The digits: a fixed split of real scans, and a net that learns them."""

from collections.abc import Callable
from types import ModuleType

import pytest
import torch

Load = Callable[[str], ModuleType]


def test_split_covers_every_scan_once_and_keeps_the_classes_even(example: Load) -> None:
    digits = example("digits")
    train, test = digits.load_train(), digits.load_test()
    assert len(train) + len(test) == 1797
    scans = {bytes(image.numpy().tobytes()) for image, _ in [*train, *test]}
    assert len(scans) == 1797
    counts = torch.bincount(torch.stack([label for _, label in test]), minlength=10)
    assert counts.min() >= 34
    assert counts.max() <= 37


def test_split_is_the_same_each_time(example: Load) -> None:
    first, second = example("digits").load_test(), example("digits").load_test()
    assert all(torch.equal(a[0], b[0]) and a[1] == b[1] for a, b in zip(first, second, strict=True))


def test_inputs_are_normalised(example: Load) -> None:
    images = torch.stack([image for image, _ in example("digits").load_train()])
    assert images.shape[1:] == (1, 8, 8)
    assert images.dtype == torch.float32
    assert abs(images.mean()) < 0.02
    assert abs(images.std() - 1) < 0.02


def test_same_seed_builds_the_same_weights(example: Load) -> None:
    digits = example("digits")
    states = []
    for _ in range(2):
        torch.manual_seed(3)
        states.append(digits.make_cnn().state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_accuracy_is_a_mean_over_samples(example: Load) -> None:
    outputs = torch.tensor([[2.0, 1.0], [0.0, 3.0], [5.0, 4.0], [1.0, 0.0]])
    assert example("digits").accuracy(outputs, torch.tensor([0, 1, 1, 1])).item() == pytest.approx(0.5)
