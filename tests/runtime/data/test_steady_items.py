"""Items that depend on what was read before them are refused before the first step, or where they first show it."""

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, Subset

from nfold.errors import ProgramError
from nfold.program import Program
from nfold.runtime.data.chunk_loader import ChunkLoader, ChunkSamples
from nfold.runtime.data.loaded_program import facts_of
from nfold.runtime.data.sample_reader import SampleReader

GLOBAL, JOINING = np.random.default_rng(0), np.random.default_rng(1)
RESEEDED = torch.Generator()
COUNT = 42


class Made(Dataset):
    """Pairs of what a function makes of the data set and an index, and of the index."""

    def __init__(self, make, **held):
        self.make = make
        self.__dict__.update(held)

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return self.make(self, index), index % 2


class Noise:
    """A transform."""

    def __init__(self):
        self.generator = torch.Generator().manual_seed(0)

    def __call__(self, x):
        return x + torch.randn(3, generator=self.generator)


def counted(own, index):
    own.calls += 1
    return torch.ones(3)


def seeded_late(own, index):
    own.rng = own.rng or random.Random(0)
    return torch.ones(3) * own.rng.random()


def remembered(own, index):
    own.last = index
    return own.memory.setdefault(index, torch.ones(3))


def reseeded(own, index):
    RESEEDED.manual_seed(index)
    return torch.randn(3, generator=RESEEDED)


def seeded_by_torch(own, index):
    return torch.tensor(np.random.default_rng(int(torch.randint(2**40, ()))).random(3)).float()


def seeded_anew(own, index):
    own.rng.manual_seed(int(torch.randint(2**62, ())))  # as the refusal says
    return torch.randn(3, generator=own.rng)


def now_and_then(own, index):
    return torch.randn(3, generator=own.rng) if index % 7 == 5 else torch.ones(3)


def one_in_all(own, index):
    return torch.randn(3, generator=own.rng) if index == 2 else torch.ones(3)


def nothing_but(state):
    return lambda own, index: torch.ones(3) * state(own)


def joined_with_noise(items):
    inputs, targets = zip(*items, strict=True)
    return torch.stack(inputs) + float(JOINING.random()), torch.tensor(targets)


def doubled(array):
    array *= 2.0
    return array


def mirrored(own, index):
    row = own.rows[index]
    return row.mul_(-1.0) if random.random() < own.share else row


def kept_in_memory(own, index):
    if not own.read[index]:
        own.read[index] = True
        own.rows[index] = index + 1.0
    return own.rows[index]


def held():
    return torch.Generator().manual_seed(0)


MOVED = {
    "generator rng": lambda: Made(nothing_but(lambda own: own.rng.random()), rng=random.Random(0)),
    "generator rng ": lambda: Made(nothing_but(lambda own: own.rng.normal()), rng=np.random.default_rng(0)),
    "generator rng  ": lambda: Made(seeded_late, rng=None),
    "generator GLOBAL": lambda: Made(lambda own, index: torch.tensor(GLOBAL.random(3)).float()),
    "generator steps[0].generator": lambda: Made(lambda own, index: own.steps[0](torch.ones(3)), steps=[Noise()]),
    "generator dataset.rng": lambda: Subset(Made(now_and_then, rng=held()), range(COUNT)),
    "generator rng   ": lambda: Made(now_and_then, rng=held()),
    "iterator weights": lambda: Made(nothing_but(lambda own: next(own.weights)), weights=itertools.cycle([1.0, 1.0])),
    "counter calls": lambda: Made(counted, calls=0),
}
OTHER = {
    "no seed": lambda: Made(lambda own, index: torch.tensor(np.random.default_rng().random(3)).float()),
}
IN_PLACE = {
    "always": lambda: Made(lambda own, index: own.rows[index].mul_(2.0), rows=torch.ones(COUNT, 3)),
    "an array": lambda: Made(lambda own, index: torch.from_numpy(doubled(own.rows[index])), rows=np.ones((COUNT, 3))),
    "noise": lambda: Made(lambda own, index: own.rows[index].add_(torch.randn(3)), rows=torch.ones(COUNT, 3)),
    "now and then": lambda: Made(mirrored, rows=torch.ones(COUNT, 3), share=0.5),
}
STEADY = {
    "drawn when built": lambda: Made(lambda own, index: own.rows[index], rows=torch.randn(COUNT, 3), rng=held()),
    "a cache of rows": lambda: Made(kept_in_memory, rows=torch.zeros(COUNT, 3), read=[False] * COUNT),
    "limited in place": lambda: Made(lambda own, index: own.rows[index].clamp_(-1, 1), rows=torch.randn(COUNT, 3)),
    "a cache": lambda: Made(remembered, memory={}),
    "seeded from the index": lambda: Made(reseeded),
    "seeded by torch": lambda: Made(seeded_by_torch),
    "seeded anew": lambda: Made(seeded_anew, rng=held()),
    "drawn from torch": lambda: Made(lambda own, index: torch.randn(3)),
}


PLAIN = Program(
    model=lambda: torch.nn.Linear(3, 2),
    loss=torch.nn.functional.cross_entropy,
    optimizer=lambda params: torch.optim.SGD(params, lr=0.1),
    train_data=list,
    batch_size=4,
)


def found(data, **more):
    return facts_of(replace(PLAIN, train_data=data, **more), {"train": data()})


@pytest.mark.parametrize("name", MOVED)
def test_what_reading_moves_is_named_before_the_first_step(name):
    with pytest.raises(
        ProgramError, match=rf"moves the {name.strip()} of train_data\(\), so an item".replace("[0]", r"\[0\]")
    ):
        found(MOVED[name])


def test_test_data_are_looked_at_too():
    mine = replace(PLAIN, train_data=STEADY["a cache"])
    datasets = {"train": STEADY["a cache"](), "test": MOVED["generator rng"]()}
    with pytest.raises(ProgramError, match=r"reading item 0 of test_data\(\) moves the generator rng of test_data\(\)"):
        facts_of(mine, datasets)


@pytest.mark.parametrize("name", OTHER)
def test_an_item_that_is_another_when_it_is_read_again_is_refused(name):
    with pytest.raises(ProgramError, match=r"item 0 of train_data.* is another one when it is read again"):
        found(OTHER[name])


def test_a_collate_that_mixes_in_the_batch_before_is_named():
    before = []

    def collate(items):
        rows = torch.stack([row for row, _ in items])
        before.append(rows)
        return 0.8 * rows + 0.2 * before[-2:][0], torch.tensor([label for _, label in items])

    stored = lambda: Made(lambda own, index: own.rows[index], rows=torch.arange(COUNT * 3.0).view(COUNT, 3))  # noqa: E731
    with pytest.raises(ProgramError, match=r"item \d+ of train_data\(\), joined by Program\(collate=...\), is another"):
        found(stored, collate=collate)


@pytest.mark.parametrize("name", IN_PLACE)
def test_what_changes_the_data_set_in_place_is_named_before_the_first_step(name):
    words = (
        r"reading item \d+ of train_data\(\) changes in place what the data set keeps, .* x = self.data\[i\].clone\(\)"
    )
    with pytest.raises(ProgramError, match=words):
        found(IN_PLACE[name])


def test_joining_that_changes_the_data_set_in_place_is_named():
    def collate(items):
        return torch.stack([row.add_(1.0) for row, _ in items]), torch.tensor([label for _, label in items])

    stored = lambda: Made(lambda own, index: own.rows[index], rows=torch.ones(COUNT, 3))  # noqa: E731
    with pytest.raises(ProgramError, match=r"Program\(collate=...\), given item 0 of train_data\(\), changes in place"):
        found(stored, collate=collate)


def test_an_item_that_changes_the_data_set_seldom_is_refused_when_it_is_read():
    def seldom(own, index):
        return own.rows[index].mul_(-1.0) if index == 2 else own.rows[index]

    dataset = Made(seldom, rows=torch.ones(COUNT, 3))
    found(lambda: dataset)
    with pytest.raises(ProgramError, match=r"reading item 2 of train_data\(\) changes in place"):
        read_all(dataset)


def test_joining_that_draws_by_itself_is_refused():
    with pytest.raises(ProgramError, match=r"moves the generator JOINING of Program\(collate=...\)"):
        found(STEADY["a cache"], collate=joined_with_noise)


@pytest.mark.parametrize("name", STEADY)
def test_data_that_follow_from_index_and_seed_are_read(name):
    assert found(STEADY[name])["num_samples"] == COUNT
    assert len(read_all(STEADY[name]())) == 2 * COUNT


def read_all(dataset):
    """Read two epochs as a rank does."""
    steps = 2 * COUNT // 6
    loader = ChunkLoader(SampleReader(dataset, 3), ChunkSamples(COUNT, 6, 1, 3), (0,), steps)
    try:
        samples = []
        for step in range(steps):
            loader.begin(step)
            samples += loader.get(step, 0)[0]
        return samples
    finally:
        loader.close()


def test_an_item_that_was_not_tried_is_refused_when_it_is_read():
    dataset = Made(one_in_all, rng=held())
    found(lambda: dataset)
    with pytest.raises(ProgramError, match=r"reading item 2 of train_data\(\) moves the generator rng"):
        read_all(dataset)


def test_chunks_are_read_once_where_items_seed_what_they_draw_from():
    read = []
    dataset = Made(lambda own, index: read.append(index) or reseeded(own, index))
    read_all(dataset)
    assert len(read) <= 2 * COUNT + 2 * 6
