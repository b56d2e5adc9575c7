"""Data of which some items draw random numbers: the same wherever they are read, and apart from dropout."""

import random
import threading
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from harness import difference, graph_of, make_plan, play
from nets import CLASSES, Noisy, program
from torch import nn
from torch.nn import functional as F
from torch.utils.data import ConcatDataset, Dataset, default_collate

from nfold.capture.computing.random import LOCK, CellRandom, RandomState
from nfold.errors import ProgramError
from nfold.program import Program
from nfold.runtime.data.chunk_loader import ChunkLoader, ChunkSamples
from nfold.runtime.data.sample_reader import SampleReader, read_seeded, read_undrawn

SEED, BATCH_SIZE = 5, 4
DRAWS = {
    "torch": lambda: torch.randn(3, dtype=torch.float64),
    "numpy": lambda: torch.tensor(np.random.rand(3)),
    "python": lambda: torch.tensor([random.random() for _ in range(3)], dtype=torch.float64),
}


class Items(Dataset):
    """Pairs of a function of the index, and of the index."""

    def __init__(self, make, count):
        self.make, self.count = make, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.make(index), index


def half(draw):
    """Data whose second half draws."""
    return ConcatDataset([Items(lambda index: torch.ones(3, dtype=torch.float64), 8), Items(lambda index: draw(), 8)])


def loaded(dataset, chunks, last_step=8):
    """What a rank loads for its chunks of two epochs."""
    loader = ChunkLoader(
        SampleReader(dataset, SEED), ChunkSamples(len(dataset), BATCH_SIZE, 2, SEED), chunks, last_step
    )
    found = {}
    for step in range(last_step):
        loader.begin(step)
        found.update({(step, chunk): loader.get(step, chunk) for chunk in chunks})
    loader.close()
    return found


def expected(dataset, step, chunk):
    """A chunk whose every sample is read under its seed."""
    sampler = ChunkSamples(len(dataset), BATCH_SIZE, 2, SEED)
    epoch, indices = step // sampler.steps_per_epoch, sampler.indices(step, chunk)
    return default_collate([read_seeded(CellRandom(SEED), dataset, epoch, index) for index in indices])


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_items_are_those_of_a_seeded_reading_whatever_else_a_rank_reads(draw):
    dataset = half(draw)
    for chunks in ((0, 1), (0,), (1,)):
        for (step, chunk), batch in loaded(dataset, chunks).items():
            for got, wanted in zip(batch, expected(dataset, step, chunk), strict=True):
                assert torch.equal(got, wanted), (chunks, step, chunk)


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_what_is_not_known_to_draw_leaves_the_generators_as_they_were(draw):
    dataset, before = half(draw), RandomState()
    assert read_undrawn(dataset, [1, 2, 12]) is None
    assert not before.moved()
    assert [index for _, index in read_undrawn(dataset, [1, 2])] == [1, 2]


def test_an_item_that_raises_by_chance_is_read_again_seeded():
    assert read_undrawn(Items(lambda index: 1 / (0 * random.random()), 4), [0]) is None
    with pytest.raises(ProgramError, match=r"item 0 of train_data\(\) raised ZeroDivisionError"):
        read_undrawn(Items(lambda index: 1 / 0, 4), [0])


def test_items_that_are_read_together_are_so_until_they_draw():
    class Together(Items):
        def __getitems__(self, indices):
            asked.append(indices)
            return [self[index] for index in indices]

    asked = []
    assert len(read_undrawn(Together(lambda index: 0.0, 9), [4, 2, 7])) == 3
    assert asked == [[4, 2, 7]]
    assert read_undrawn(Together(lambda index: random.random(), 9), [4, 2, 7]) is None


def test_nothing_is_read_between_a_seed_and_its_draw():
    loader = ChunkLoader(SampleReader(half(DRAWS["torch"]), SEED), ChunkSamples(16, 16, 1, SEED), (0,), 1)
    torch.manual_seed(1)
    wanted = torch.rand(4)
    with LOCK:
        torch.manual_seed(1)
        loader.begin(0)
        while not LOCK.is_wanted:
            pass
        assert torch.equal(torch.rand(4), wanted)
    loader.get(0, 0)
    loader.close()


def test_computing_that_draws_comes_between_two_items_and_is_not_taken_for_their_draws():
    reading = threading.Semaphore(0)

    def make(index):
        reading.release()
        while not LOCK.is_wanted:
            pass
        return index

    def compute():
        for _ in range(3):
            reading.acquire()
            with LOCK:
                drawn.append(torch.rand(()))

    drawn, computing = [], threading.Thread(target=compute)
    computing.start()
    assert [item for item, _ in read_undrawn(Items(make, 3), [0, 1, 2])] == [0, 1, 2]
    computing.join()
    assert len(drawn) == 3


def test_a_sample_that_an_epoch_visits_again_draws_anew_on_whatever_rank():
    dataset = Items(lambda index: torch.rand(3), 8)
    sampler = ChunkSamples(8, 4, 2, SEED, lambda epoch: [1, 1, 2, 1, 3, 2, 1, 0])
    reader = SampleReader(dataset, SEED)
    parts = [sampler.part(step, chunk) for step in (0, 1) for chunk in (0, 1)]
    assert [part.again for part in parts] == [(0, 1), (0, 2), (0, 1), (3, 0)]
    drawn = torch.cat([reader.read(part)[0] for part in parts])
    assert len(drawn.unique(dim=0)) == 8
    alone = torch.cat([SampleReader(dataset, SEED).read(part)[0] for part in parts[::-1]][::-1])
    assert torch.equal(drawn, alone)
    once = torch.stack([read_seeded(CellRandom(SEED), dataset, 0, index)[0] for index in (1, 2, 3, 0)])
    assert torch.equal(drawn[[0, 2, 4, 7]], once)


def test_who_visits_each_sample_once_counts_no_visits():
    assert ChunkSamples(8, 4, 2, SEED).part(3, 1).again == ()
    assert ChunkSamples(3, 3, 1, SEED, lambda epoch: [2, 0, 1]).part(0, 0).again == ()


# Training


def check_equal(mine: Program, strategies: tuple[str, ...]) -> None:
    """Assert that ranks end with what one alone ends with, and twice with the same bits."""
    graph = graph_of(mine)
    alone = play(mine, graph, make_plan(mine, graph, "single", 1, 0, chunks=4), 10)
    for strategy in strategies:
        chosen = make_plan(mine, graph, strategy, 2, 0, chunks=4)
        spread, again = (play(mine, graph, chosen, 10) for _ in range(2))
        assert spread.losses == again.losses, strategy
        assert spread.losses == pytest.approx(alone.losses, rel=1e-9), strategy
        assert difference(spread.state, alone.state) <= 1e-9, strategy


def test_a_model_with_dropout_learns_the_same_wherever_rare_items_draw():
    rare = partial(Noisy, lambda index, target: index >= 8 and target == CLASSES - 1)  # none of the first items
    check_equal(replace(program("dropping"), train_data=rare, batch_size=8, seed=SEED), ("ring", "pipeline"))


class Both(Dataset):
    """What is to be put out is the drawn input itself."""

    def __len__(self):
        return 32

    def __getitem__(self, index):
        image = torch.randn(16, dtype=torch.float64) if index >= 16 else torch.full((16,), index / 16.0).double()
        return image, image


def test_an_input_and_a_target_that_are_read_on_two_ranks_belong_together():
    mine = Program(
        model=lambda: nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 16)).double(),
        loss=F.mse_loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05),
        train_data=Both,
        batch_size=8,
        seed=SEED,
    )
    check_equal(mine, ("pipeline",))
