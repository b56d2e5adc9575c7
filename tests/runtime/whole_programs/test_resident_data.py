"""Each rank trains on the samples that live on it: the parameters of one device on the same samples."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from harness import difference, graph_of, make_plan, plain_loop, play, with_more
from nets import NUM_SAMPLES, Noisy, program

from nfold.core.residency import EpochSamples, PlacedRun, RankSamples
from nfold.planning.residency.placed_chunks import check_least, shares_of
from nfold.runtime.data.resident_samples import ResidentSamples

STEPS = 6
"""Two epochs of 16, 16 and 12 samples."""
HOLDS = {"two": (37, 7), "three": (30, 11, 3), "one has none": (20, 0, 24), "four": (3, 29, 2, 10)}
CASES = [
    *(("plain", strategy, holds) for strategy in ("ring", "ps") for holds in HOLDS),
    *(("residual", strategy, holds) for strategy in ("ring", "ps") for holds in ("two", "three", "four")),
    ("tied", "ring", "three"),
]
QUICK = [("plain", "ring", "three"), ("plain", "ps", "one has none"), ("residual", "ring", "three")]


class Own:
    """A data set of which a node has some samples."""

    def __init__(self, dataset, numbers):
        self._dataset, self._numbers = dataset, numbers

    def __len__(self):
        return len(self._dataset)

    def __getitem__(self, number):
        assert number in self._numbers, f"sample {number} lives elsewhere"
        return self._dataset[number]


def placed(holds, first_step=0, from_epoch=0, arriving=0, in_a_row=1):
    """Node after node has the next samples; the last so many of the first node's go to the second in that epoch."""
    ends = [sum(holds[: rank + 1]) for rank in range(len(holds))]
    own = [((end - count, end),) if count else () for end, count in zip(ends, holds, strict=True)]
    first = [RankSamples(own=each) for each in own]
    epochs = [EpochSamples(from_epoch=from_epoch, by_rank=tuple(first))]
    if arriving:
        left, moved = ((0, holds[0] - arriving),), ((holds[0] - arriving, holds[0]),)
        coming = [RankSamples(own=left), RankSamples(own=own[1], arriving=moved), *first[2:]]
        come = [RankSamples(own=left), RankSamples(own=(*own[1], *moved)), *first[2:]]
        epochs = [
            EpochSamples(from_epoch=from_epoch, by_rank=tuple(coming)),
            EpochSamples(from_epoch=from_epoch + 1, by_rank=tuple(come)),
        ]
    members = tuple(range(len(holds)))
    nodes = tuple(f"pi{rank}" for rank in members)
    return PlacedRun(first_step=first_step, members=members, nodes=nodes, epochs=tuple(epochs), in_a_row=in_a_row)


@cache
def graph(net):
    return graph_of(program(net))


def resident_plan(net, strategy, workers, run, servers=0):
    shares = shares_of(run)
    return make_plan(program(net), graph(net), strategy, workers, servers, len(shares), shares)


def own_data(runs, dataset):
    """What each rank can read: no more than it is to train on."""

    def of(rank):
        each = [epoch.by_rank[rank] for run in runs for epoch in run.epochs if rank < len(epoch.by_rank)]
        spans = [span for samples in each for span in (*samples.own, *samples.arriving)]
        return Own(dataset, {number for first, end in spans for number in range(first, end)})

    return of


def plain_state(net, runs, steps=STEPS):
    mine = program(net)
    samples = ResidentSamples(runs, mine.batch_size, mine.seed)
    return plain_loop(mine, steps, 0, samples=samples).state_dict()


@pytest.mark.parametrize(("net", "strategy", "holds"), with_more(QUICK, CASES))
def test_ranks_with_data_of_their_own_learn_what_one_device_does_on_the_same_samples(net, strategy, holds):
    runs, mine = (placed(HOLDS[holds], in_a_row=graph(net).least_chunk),), program(net)
    check_least(runs, mine.batch_size, graph(net))
    plan = resident_plan(net, strategy, len(HOLDS[holds]), runs[0])
    spread = play(mine, graph(net), plan, STEPS, placed=runs, data=own_data(runs, mine.train_data()))
    alone = play(mine, graph(net), resident_plan(net, "single", 1, runs[0]), STEPS, placed=runs)
    assert difference(spread.state, plain_state(net, runs)) <= 1e-9
    assert difference(spread.state, alone.state) <= 1e-9
    assert spread.losses == pytest.approx(alone.losses)


def test_samples_that_arrive_while_an_epoch_goes_on_are_trained_on_by_who_gets_them():
    runs, mine = (placed((26, 18), arriving=9),), program("plain")
    plan = resident_plan("plain", "ring", 2, runs[0])
    spread = play(mine, graph("plain"), plan, STEPS, placed=runs, data=own_data(runs, mine.train_data()))
    assert difference(spread.state, plain_state("plain", runs)) <= 1e-9


@pytest.mark.parametrize("change", [4, 3])
def test_a_run_goes_on_elsewhere_amid_an_epoch_or_after_one(change):
    runs = (placed((30, 11, 3), in_a_row=2), placed((9, 35), first_step=change, from_epoch=1, in_a_row=2))
    mine, whole = program("residual"), graph("residual")
    data = own_data(runs, mine.train_data())
    before = play(mine, whole, resident_plan("residual", "ring", 3, runs[0]), change, placed=runs[:1], data=data)
    went_on = {"checkpoint": before.checkpoint, "placed": runs}
    after = play(mine, whole, resident_plan("residual", "ps", 2, runs[1]), STEPS, data=data, **went_on)
    alone = play(mine, whole, resident_plan("residual", "single", 1, runs[1]), STEPS, **went_on)
    assert difference(after.state, plain_state("residual", runs)) <= 1e-9
    assert difference(after.state, alone.state) <= 1e-9


@pytest.mark.parametrize("net", ["dropping"])
def test_what_is_drawn_follows_from_samples_and_chunks_wherever_they_are_computed(net):
    """Masks of the model, noise of the data, and the norm of all gradients."""
    mine = replace(program(net), train_data=Noisy, clip_norm=0.5)
    whole, runs = graph_of(mine), (placed((24, 18, 2)),)
    plans = [make_plan(mine, whole, *asked, 3, shares_of(runs[0])) for asked in (("ps", 3, 1), ("single", 1, 0))]
    spread, alone = (play(mine, whole, plan, STEPS, placed=runs) for plan in plans)
    assert difference(spread.state, alone.state) <= 1e-9


def test_one_ranks_bits_do_not_depend_on_where_a_run_was_stopped():
    runs, mine = (placed((30, 11, 3)),), program("plain")
    plan = resident_plan("plain", "single", 1, runs[0])
    through = play(mine, graph("plain"), plan, STEPS, placed=runs)
    half = play(mine, graph("plain"), plan, 4, placed=runs)
    rest = play(mine, graph("plain"), plan, STEPS, placed=runs, checkpoint=half.checkpoint)
    assert all(torch.equal(rest.state[name], each) for name, each in through.state.items())


def test_every_sample_is_there():
    assert all(sum(holds) == NUM_SAMPLES for holds in HOLDS.values())
