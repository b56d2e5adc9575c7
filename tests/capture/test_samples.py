"""Batches on which a program is tried: of a data set that draws random numbers, the same ones each time."""

import random

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from nfold.capture.capture import capture
from nfold.capture.random import RandomState
from nfold.capture.samples import sample_batches
from nfold.errors import ProgramError


class Augmented(Dataset[tuple[torch.Tensor, int]]):
    """Shifts, scales and blurs as transforms do: each by another generator."""

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        noise = torch.randn(12) + random.random() + float(numpy.random.rand())
        return index + noise, index % 4


def test_an_item_that_draws_is_the_same_each_time() -> None:
    example = sample_batches(Augmented())
    first, again, other = (example.batch(3, which)[0] for which in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    noise = first - first.round()
    assert len({float(row[0]) for row in noise}) == 3, "and no two items draw the same"


def test_reading_a_batch_draws_nothing_for_others() -> None:
    example = sample_batches(Augmented())
    before = RandomState()
    example.batch(3)
    assert not before.torch_moved()
    assert not before.others_moved()


def test_a_program_on_augmented_data_is_captured() -> None:
    model = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 4))
    graph = capture(model, F.cross_entropy, sample_batches(Augmented())).graph
    assert [operator.name for operator in graph.operators] == ["0", "1", "2", "loss"]
    assert graph.notes == ()
    assert graph.indivisible == ""


def test_sparse_items_are_refused_with_what_to_give_instead() -> None:
    items = [(torch.eye(3).to_sparse(), 0), (torch.eye(3).to_sparse(), 1)]
    with pytest.raises(ProgramError, match=r"do not fit into one batch.* Give dense rows \(\.to_dense\(\)\)"):
        sample_batches(items).batch(2)
