"""A collate that draws is told apart from one that mixes samples, and is no reason to refuse chunks by itself."""

import random
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nfold.capture.capture import capture
from nfold.capture.example_batches import sample_batches

DATA = [(torch.randn(6, generator=torch.Generator().manual_seed(item)), item % 3) for item in range(40)]


def joined(change, items):
    rows, kinds = torch.stack([row for row, _ in items]), torch.tensor([kind for _, kind in items])
    return change(rows), kinds


def mixed(share, rows):
    return share * rows + (1 - share) * rows[torch.randperm(len(rows))]


def one_by_one(rows):
    return torch.stack([row.flip(0) if random.random() < 0.5 else row for row in rows])


DRAWN = {
    "torch": lambda rows: rows + torch.randn_like(rows),
    "torch, a mask": lambda rows: rows * (torch.rand(len(rows), 1) < 0.7),
    "one by one": one_by_one,
    "numpy by rows": lambda rows: rows + torch.from_numpy(np.random.randn(*rows.shape)).float(),
    "one number for all": lambda rows: rows * random.uniform(0.5, 1.5),
}


def found(collate, loss=F.cross_entropy):
    torch.manual_seed(0)
    return capture(nn.Linear(6, 3), loss, sample_batches(DATA, collate=collate)).graph.indivisible


@pytest.mark.parametrize("name", DRAWN)
def test_what_collate_draws_for_each_sample_is_no_reason(name):
    assert found(partial(joined, DRAWN[name])) == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (partial(mixed, 0.7), "collate=...) makes a sample from the others of its batch too, as mixup does"),
        (lambda rows: rows - rows.mean(0), "collate=...) makes a sample from the others of its batch too"),
        (
            lambda rows: rows * torch.from_numpy(np.random.permutation(len(rows)))[:, None],
            "by what it draws from numpy's or Python's",
        ),
    ],
)
def test_what_collate_makes_of_several_samples_is_told_as_that(change, words):
    assert words in found(partial(joined, change))


def test_a_loss_that_is_no_mean_only_for_what_is_drawn_is_still_found():
    def collate(items):
        rows, kinds = joined(lambda rows: rows, items)
        return rows, torch.where(torch.rand(len(rows)) < 0.6, kinds, -100)

    assert "not a mean over samples" in found(collate)
    assert "not a mean over samples" in found(collate, lambda out, kinds: undecided(F.cross_entropy(out, kinds)))


def undecided(value):
    """A loss that nobody can follow."""
    return value * (1 if float(value.detach()) > -1 else 2)


@pytest.mark.parametrize("draw", [random.random, np.random.rand, lambda: float(torch.rand(()))])
def test_what_collate_draws_for_each_sample_is_no_reason_where_it_pads(draw):
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(1, 3)

        def forward(self, inputs):
            rows, lengths = inputs
            there = torch.arange(rows.shape[1]) < lengths[:, None]
            return (self.inner(rows[..., None]) * there[..., None]).sum(1) / lengths[:, None]

    def collate(items):
        rows = [row[: 3 + kind] + draw() for row, kind in items]
        return (
            nn.utils.rnn.pad_sequence(rows, batch_first=True),
            torch.tensor([len(row) for row in rows]),
        ), torch.tensor([kind for _, kind in items])

    torch.manual_seed(0)
    graph = capture(Masked(), F.cross_entropy, sample_batches(DATA, collate=collate)).graph
    assert graph.indivisible == ""
