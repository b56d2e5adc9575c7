"""What is new in a chunk's targets."""

import pytest
import torch

from nfold.runtime.guards.seen_targets import SeenTargets

NAN = float("nan")


def new_after(before: list[torch.Tensor], targets: torch.Tensor) -> list[int]:
    seen = SeenTargets()
    for each in before:
        seen.new_samples(each, len(each))
    return seen.new_samples(targets, len(targets))


def test_all_is_new_at_first_and_nothing_the_second_time():
    for targets in (torch.tensor([3, 1, 4]), torch.tensor([0.5, NAN]), torch.tensor([[True, False], [True, True]])):
        assert new_after([], targets) == list(range(len(targets)))
        assert new_after([targets], targets) == []


@pytest.mark.parametrize(
    ("before", "now", "new"),
    [
        ([0, 5, 9], [0, 4, 9, 4], [1, 3]),
        ([0, 5, 9], [5, -100, 0], [1]),
        ([0, 5, 9], [9, 9, 10**9], [2]),
        ([[0, 1], [1, 2]], [[1, 1], [2, 0]], []),
        ([[0, 1], [1, 2]], [[0, 0], [2, 0]], [0]),
        ([[-1, 1], [-1, 2]], [[-1, 1], [2, 1]], [1]),
        ([[7, 1], [7, 2]], [[7, 1], [2, 1]], [1]),
        ([[True, False]], [[True, True], [False, True]], [0]),
        ([0.5, 0.1], [0.3, 0.2], []),
        ([0.5, 0.1], [0.3, NAN], [1]),
        ([0.5, NAN], [0.5, NAN], []),
        ([[NAN, 0.5]], [[NAN, 0.5], [NAN, NAN], [0.5, 0.4]], [1, 2]),
        ([0.5, 0.1], [0.3, -999.0], [1]),
        ([[0.0, 1.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 0.0]], [1]),
    ],
)
def test_what_no_sample_before_had(before, now, new):
    assert new_after([torch.tensor(before)], torch.tensor(now)) == new


def test_a_new_extreme_counts_from_none():
    # No row had a -1 until the second chunk, so a row with none is nothing new, and one with three is.
    assert new_after([torch.tensor([[0, 1, 1]]), torch.tensor([[-1, -1, 0]])], torch.tensor([[0, 1, 0]])) == []
    assert new_after([torch.tensor([[0, 1, 1]]), torch.tensor([[-1, -1, 0]])], torch.tensor([[-1, -1, -1]])) == [0]


def test_whatever_targets_are_made_of():
    seen = SeenTargets()
    targets = {"a": torch.zeros(2, 0), "b": (torch.tensor([1j, 2j]), torch.tensor([1, 2], dtype=torch.uint8))}
    assert seen.new_samples(targets, 2) == [0, 1]
    assert seen.new_samples(targets, 2) == []


def test_numbers_far_apart_take_no_more_memory():
    seen = SeenTargets()
    seen.new_samples(torch.tensor([0, 1 << 40, -(1 << 62)]), 3)
    (state,) = seen._tensors.values()
    assert state._numbers is not None
    assert state._numbers.nbytes == 1 << 20
