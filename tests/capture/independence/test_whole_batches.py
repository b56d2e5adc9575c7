"""Programs that compute on batches of one size alone: one device trains them, and nobody cuts their batches."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from nfold.capture.batches.example import Example
from nfold.capture.capture import capture
from nfold.errors import ProgramError

BATCH = 8


class _Queue(nn.Module):
    """Keeps what it has computed in a ring that whole batches fill."""

    def __init__(self, length=32):
        super().__init__()
        self.linear = nn.Linear(6, 4)
        self.register_buffer("queue", torch.randn(4, length))
        self.register_buffer("place", torch.zeros(1, dtype=torch.long))

    def forward(self, rows):
        queries = self.linear(rows)
        scores = queries @ self.queue.clone()
        length, place = self.queue.shape[1], int(self.place)
        assert length % len(rows) == 0
        self.queue[:, place : place + len(rows)] = queries.detach().T
        self.place[0] = (place + len(rows)) % length
        return scores


class _Fixed(nn.Module):
    """Has the size of its batch in a number."""

    def __init__(self, size=BATCH):
        super().__init__()
        self.linear, self.size = nn.Linear(6, 4), size

    def forward(self, rows):
        return self.linear(rows).view(self.size, 2, 2).flatten(1)


class _One(nn.Linear):
    """Takes the only sample out of its batch."""

    def forward(self, rows):
        return super().forward(rows.squeeze(0).reshape(6)).unsqueeze(0)


def _example(largest, last=0):
    def make(size, which):
        generator = torch.Generator().manual_seed(which)
        return torch.randn(size, 6, generator=generator), (torch.arange(size) + which) % 4

    return Example(make=make, largest=largest, last=lambda: last)


@pytest.mark.parametrize(
    ("build", "size", "last", "least", "why"),
    [
        (_Queue, BATCH, 4, 4, "forward changes queue, place"),
        (_Queue, BATCH, 5, BATCH, "forward changes queue, place"),
        (lambda: _Queue(48), 16, 0, 16, "forward changes queue, place"),  # two and three samples fit
        (_Fixed, BATCH, 0, BATCH, "computes on all 8 samples of a batch, and raises on others: RuntimeError: shape"),
        (lambda: _One(6, 4), 1, 0, 1, "computes on all 1 sample of a batch, and raises on others"),
    ],
)
def test_the_batch_stays_whole_and_the_last_one_may_be_what_was_tried(build, size, last, least, why):
    graph = capture(build(), nn.functional.cross_entropy, _example(size, last)).graph
    assert why in graph.indivisible
    assert (graph.capture, graph.only_samples, graph.least_samples) == ("opaque", size, least)


def test_a_program_that_computes_on_no_batch_is_refused_as_before():
    for example in (_example(BATCH), replace(_example(BATCH), largest=0)):
        with pytest.raises(ProgramError, match=r"_Fixed.forward raised .* Its input was float32\[3, 6\]"):
            capture(_Fixed(9), nn.functional.cross_entropy, example)
