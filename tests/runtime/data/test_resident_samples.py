"""Which samples a chunk holds where they live on several ranks, and that nobody reads those of others."""

import numpy as np
import pytest
import torch

from nfold.core.residency import EpochSamples, PlacedRun, RankSamples
from nfold.errors import InternalError, ProgramError
from nfold.planning.residency.resident_order import resident_order
from nfold.program import Program
from nfold.runtime.data import resident_samples
from nfold.runtime.data.chunk_loader import ChunkLoader
from nfold.runtime.data.ordering import sampler_of
from nfold.runtime.data.resident_samples import ResidentSamples
from nfold.runtime.data.sample_reader import SampleReader

HOLDS = (RankSamples(own=((0, 12), (16, 20))), RankSamples(own=((12, 16),)))


def placed(samples=HOLDS, first_step=0):
    ranks = tuple(range(len(samples)))
    epochs = (EpochSamples(from_epoch=0, by_rank=samples),)
    return PlacedRun(first_step=first_step, members=ranks, nodes=tuple(map(str, ranks)), epochs=epochs)


def test_a_batch_has_the_next_samples_of_the_order_rank_after_rank():
    sampler, order = ResidentSamples([placed()], 6, 9), resident_order(HOLDS, 9, 1)
    assert sampler.steps_per_epoch == 4
    for step in range(4, 8):
        batch = slice(6 * (step - 4), 6 * (step - 3))
        for chunk in range(2):
            mine = order.number[batch][order.rank[batch] == chunk].tolist()
            part = sampler.part(step, chunk)
            assert (part.indices, part.epoch, part.step, part.chunk) == (mine, 1, step, chunk)
            assert sampler.sizes(step)[chunk] == len(mine)
    assert [sum(sampler.sizes(step)) for step in range(4)] == [6, 6, 6, 2]


def test_a_step_has_as_many_chunks_as_ranks_train_then():
    three = (RankSamples(own=((0, 8),)), RankSamples(own=((8, 10),)), RankSamples(own=((10, 20),)))
    sampler = ResidentSamples([placed(three), placed(first_step=2)], 6, 9)
    assert [len(sampler.sizes(step)) for step in range(6)] == [3, 3, 2, 2, 2, 2]
    visited = [
        n for step in range(4) for chunk in range(len(sampler.sizes(step))) for n in sampler.indices(step, chunk)
    ]
    assert sorted(visited) == list(range(20))


def test_an_order_is_made_once_although_the_next_epoch_is_read_ahead(monkeypatch):
    made = []
    placed_order = resident_samples.placed_order
    monkeypatch.setattr(resident_samples, "placed_order", lambda *a, **k: made.append(a[2]) or placed_order(*a, **k))
    sampler = ResidentSamples([placed()], 6, 9)
    for step in range(1, 9):
        sampler.part(step, 0)
        sampler.sizes(step - 1)
    assert made == [0, 1, 2]


class Elsewhere(torch.utils.data.Dataset):
    """What lives on the second rank."""

    def __getitem__(self, number):
        assert 12 <= number < 16, f"sample {number} lives elsewhere"
        return torch.tensor([float(number)]), number


def test_a_rank_reads_its_own_chunks_alone():
    """Samples of other chunks are read to compare them with one's own, where all can be read."""
    loader = ChunkLoader(SampleReader(Elsewhere(), 9), ResidentSamples([placed()], 6, 9), (1,), 4)
    loader.begin(0)
    size = ResidentSamples([placed()], 6, 9).sizes(0)[1]
    assert loader.num_elsewhere == 1
    inputs, targets = loader.read_apart(0, 1, [*range(size), size], [size, 1])[0]
    assert np.isin(targets.tolist(), range(12, 16)).all()
    assert len(inputs) == size + 1
    loader.close()


def test_a_rank_without_samples_has_nothing_to_read():
    nothing = (RankSamples(own=()), RankSamples(own=((0, 20),)))
    loader = ChunkLoader(SampleReader(Elsewhere(), 9), ResidentSamples([placed(nothing)], 6, 9), (0,), 4)
    loader.begin(0)
    assert loader.num_elsewhere == 0
    loader.close()


def test_placements_that_lose_a_sample_are_refused():
    with pytest.raises(InternalError, match="not each of 19 samples"):
        ResidentSamples([placed((RankSamples(own=((0, 12), (16, 20))), RankSamples(own=((12, 15),))))], 6, 9)


def test_a_sampler_of_the_programs_own_is_refused():
    given = dict.fromkeys(("model", "loss", "optimizer", "train_data"), print)
    mine = Program(**given, batch_size=6, epochs=1, seed=0, sampler=lambda data, epoch, generator: range(20))
    with pytest.raises(ProgramError, match="Leave the sampler out"):
        sampler_of(mine, None, 6, 2, 1, [placed()])
