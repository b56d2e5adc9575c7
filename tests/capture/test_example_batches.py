"""Batches on which a program is tried: of a data set that draws random numbers, the same ones each time."""

import random
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, default_collate

from nfold.capture.capture import capture, capture_program
from nfold.capture.computing.random import RandomState
from nfold.capture.example_batches import program_batches, sample_batches
from nfold.errors import ProgramError
from nfold.program import Program


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


def bucketed(lengths: list[int]) -> list[tuple[torch.Tensor, int]]:
    return [(torch.full((length,), float(index)), index % 2) for index, length in enumerate(lengths)]


BUCKETS = [index for residue in range(3) for index in range(residue, 30, 3)]
"""Lengths of the data below go 2, 3, 4, 2, 3, 4 ..; the sampler gives 10 of each in a row."""


def of_buckets(**changes: Any) -> Program:
    data = bucketed([2 + index % 3 for index in range(30)])
    arguments: dict[str, Any] = {
        "model": lambda: Longer(),
        "loss": F.cross_entropy,
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        "train_data": lambda: data,
        "batch_size": 10,
        "sampler": lambda dataset, epoch, generator: BUCKETS,
    }
    return Program(**(arguments | changes))


class Longer(nn.Module):
    """Has a layer for rows of more than 3."""

    def __init__(self, *, branches: bool = True) -> None:
        super().__init__()
        self.short = nn.Linear(1, 4)
        self.long = nn.Linear(1, 4) if branches else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        layer = self.long if self.long is not None and x.shape[1] > 3 else self.short
        return layer(x.mean(1, keepdim=True))


@pytest.mark.parametrize("collate", [None, default_collate])
def test_items_of_one_length_make_a_batch_where_the_sampler_gives_them_so(collate) -> None:
    program = of_buckets(collate=collate)
    example = program_batches(program, program.train_data())
    batches = [example.batch(5, which)[0] for which in range(6)]
    assert {batch.shape[1] for batch in batches} == {2, 3, 4}
    assert all({int(index) % 3 for index in batch[:, 0]} == {batch.shape[1] - 2} for batch in batches)
    assert example.varying.startswith("item 0 alone becomes (float32[1, 2], int64[1])")
    joined = example.parts((2, 3), 0)
    assert (joined is None) == (collate is None)
    if joined is not None:
        whole, parts = joined
        assert [part[0].shape for part in parts] == [(2, whole[0].shape[1]), (3, whole[0].shape[1])]


def test_buckets_are_captured_and_told_where_they_train_other_weights() -> None:
    program = of_buckets()
    graph = capture_program(Longer(), program, program.train_data()).graph
    assert graph.indivisible.startswith("4 parameters, 'long.bias' among them, got a gradient from batches of some")
    plain = capture_program(Longer(branches=False), program, program.train_data()).graph
    assert plain.indivisible == ""
    assert "unlike shapes" in plain.notes[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"sampler": lambda dataset, epoch, generator: range(30)},
            r"do not fit into one batch: .*\. Program\(sampler=\.\.\.\) puts these into one batch of 10",
        ),
        (
            {"sampler": None, "collate": default_collate},
            r"collate=\.\.\.\) raised RuntimeError.*item .* is \(float32\[3\], int\).* may pad them, or give each",
        ),
        (
            {"sampler": None},
            r"Give every item the same shape, pad them in .*collate=\.\.\.\), or give each batch items",
        ),
    ],
)
def test_unlike_items_in_one_batch_are_told_with_what_puts_them_there(changes, words) -> None:
    program = of_buckets(**changes)
    with pytest.raises(ProgramError, match=words):
        program_batches(program, program.train_data()).batch(7)


def test_items_that_the_sampler_leaves_out_are_not_read() -> None:
    data = [(torch.zeros(2), 0) if index % 2 == 0 else None for index in range(30)]
    evens = list(range(0, 30, 2))
    program = of_buckets(train_data=lambda: data, sampler=lambda dataset, epoch, generator: evens)
    example = program_batches(program, data)
    assert [example.batch(size, which)[0].shape for size, which in ((3, 0), (7, 2))] == [(3, 2), (7, 2)]
    assert example.varying == ""


def test_a_whole_batch_is_one_of_the_samplers():
    rows = TensorDataset(torch.arange(24.0).reshape(24, 1), torch.arange(24) // 6)
    own = [[0, 1, 6, 7], [12, 13, 18, 19]]
    example = sample_batches(rows, batches=lambda: own, whole=4)
    for which in range(3):
        assert example.batch(4, which)[0].flatten().tolist() in own
    assert example.batch(3, 0)[0].flatten().tolist() not in own
