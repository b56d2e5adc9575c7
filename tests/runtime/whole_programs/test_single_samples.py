"""Chunks of one sample, where a batch is so small that some worker would have none else."""

import pytest
import torch
from harness import difference, graph_of, make_plan, plain_loop, play
from torch import nn

from nfold.program import Program
from nfold.runtime.data.chunk_loader import ChunkSamples


def _maps():
    generator = torch.Generator().manual_seed(3)
    return [(torch.randn(1, 6, 6, generator=generator, dtype=torch.float64), index % 2) for index in range(10)]


def _model():
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2)
    return nn.Sequential(*layers).double()


def _program():
    return Program(
        model=_model,
        loss=nn.functional.cross_entropy,
        optimizer=lambda weights: torch.optim.SGD(weights, lr=0.1),
        train_data=_maps,
        batch_size=4,
    )


@pytest.fixture(scope="module")
def graph():
    return graph_of(_program())


@pytest.mark.parametrize(("strategy", "workers", "servers"), [("ring", 4, 0), ("ps", 4, 1), ("pipeline", 2, 0)])
def test_batch_statistics_of_maps_are_those_of_a_plain_loop_over_single_samples(graph, strategy, workers, servers):
    chosen = make_plan(_program(), graph, strategy, workers, servers, chunks=4)
    played = play(_program(), graph, chosen, 4)
    assert difference(played.state, plain_loop(_program(), 4, 4, least=1).state_dict()) <= 1e-9
    assert difference(played.state, plain_loop(_program(), 4, 4).state_dict()) > 1e-6, "pairs are another result"


def test_only_batches_that_need_it_are_cut_into_single_samples():
    assert ChunkSamples(10, 4, 4, 0, least_chunk=1).sizes(0) == (1, 1, 1, 1)
    assert ChunkSamples(10, 4, 4, 0, least_chunk=1).sizes(2) == (1, 1, 0, 0)
    assert ChunkSamples(13, 8, 4, 0, least_chunk=1).sizes(1) == (3, 2, 0, 0)
    assert ChunkSamples(10, 4, 4, 0).sizes(0) == (2, 2, 0, 0)
