"""The asynchronous parameter server on real tensors, with ranks that are threads."""

import re
from dataclasses import replace
from functools import cache

import pytest
import torch
from drifting import drift, drifting_plan
from harness import difference, graph_of, make_plan, plain_loop, play
from nets import adamw, program, sgd
from torch.utils.data import TensorDataset

from nfold.core.chunks import chunk_sizes
from nfold.errors import PeerLost, ProgramError
from nfold.planning.reductions.shares import cut_shares
from nfold.planning.scheduling.rank_schedules import rank_schedules
from nfold.runtime.asynchronous.asynchronous_replica import AsynchronousReplica
from nfold.runtime.data.chunk_loader import ChunkSamples
from nfold.transport.generations.no_way import alone

STEPS = 6
"""44 samples in batches of 16: two full steps and one of 12 an epoch."""


@pytest.fixture(scope="module")
def graphs():
    return cache(lambda net: graph_of(program(net)))


def plain_sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05)


@pytest.mark.parametrize(
    ("net", "workers", "servers"),
    [("tied", 1, 1), ("tied", 3, 2), ("residual", 2, 0), ("residual", 3, 2), ("unused", 2, 0)],
)
def test_without_staleness_training_is_synchronous(graphs, net, workers, servers):
    mine = program(net, sgd)
    plan = drifting_plan(mine, graphs(net), workers, servers, chunks=6, bound=0)
    drifted = drift(mine, graphs(net), plan, [STEPS])
    assert difference(drifted.state, plain_loop(mine, STEPS, 6).state_dict()) <= 1e-9
    assert drifted.staleness == {"0": sum(map(bool, _slices(workers)))}


def test_workers_of_which_only_some_serve_train_the_same(graphs):
    mine, graph = program("residual", sgd), graphs("residual")
    plan = drifting_plan(mine, graph, 3, chunks=6, bound=0)
    serving = tuple(replace(each, shares=cut_shares(each, {0: 1.0, 2: 1.0})) for each in plan.reductions)
    drifted = drift(mine, graph, replace(plan, reductions=serving), [3, STEPS])
    assert difference(drifted.state, plain_loop(mine, STEPS, 6).state_dict()) <= 1e-9


@pytest.mark.parametrize(("workers", "servers"), [(2, 0), (3, 2)])
def test_without_staleness_a_schedule_moves_once_a_step(graphs, workers, servers):
    mine = replace(program("tied", sgd), scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5))
    plan = drifting_plan(mine, graphs("tied"), workers, servers, chunks=6, bound=0)
    through = plain_loop(mine, STEPS, 6).state_dict()
    assert difference(drift(mine, graphs("tied"), plan, [STEPS]).state, through) <= 1e-9
    (half,) = drift(mine, graphs("tied"), plan, [5]).checkpoints
    assert difference(drift(mine, graphs("tied"), plan, [STEPS], checkpoint=half).state, through) <= 1e-9


@pytest.mark.parametrize("workers", [2, 3])
def test_without_staleness_dropout_and_losses_are_those_of_a_ring(graphs, workers):
    mine, graph = program("dropping", adamw), graphs("dropping")
    ring = play(mine, graph, make_plan(mine, graph, "ring", workers, 0, chunks=6), STEPS)
    drifted = drift(mine, graph, drifting_plan(mine, graph, workers, chunks=6, bound=0), [3, STEPS])
    assert difference(drifted.state, ring.state) <= 1e-9
    losses = [sum(drifted.losses[step].values()) for step in range(STEPS)]
    assert losses == pytest.approx(ring.losses, rel=1e-9)


@pytest.mark.parametrize("servers", [0, 1])
def test_one_worker_alone_is_a_plain_loop_bit_for_bit(graphs, servers):
    mine = program("plain", plain_sgd)
    drifted = drift(mine, graphs("plain"), drifting_plan(mine, graphs("plain"), 1, servers, chunks=4), [STEPS])
    expected = plain_loop(mine, STEPS, 4).state_dict()
    assert all(torch.equal(drifted.state[name], expected[name]) for name in expected)
    assert drifted.staleness == {"0": STEPS}


@pytest.mark.parametrize(("workers", "servers"), [(2, 0), (3, 0), (2, 1), (3, 2)])
@pytest.mark.parametrize("bound", [None, 1])
def test_every_slice_is_computed_once_and_every_step_is_told_by_every_rank(graphs, workers, servers, bound):
    mine = program("plain")
    plan = drifting_plan(mine, graphs("plain"), workers, servers, chunks=6, bound=bound)
    drifted = drift(mine, graphs("plain"), plan, [2, 3, STEPS])
    for rows in drifted.rows:
        assert [row.step for row in rows] == list(range(STEPS))
    for step in range(STEPS):
        sizes = chunk_sizes(12 if step % 3 == 2 else 16, 6)
        assert sum(rows[step].samples for rows in drifted.rows) == sum(sizes)
        assert sorted(drifted.losses[step]) == [chunk for chunk, size in enumerate(sizes) if size]
    assert sum(drifted.staleness.values()) == sum(map(bool, _slices(workers)))
    if bound is not None:
        assert max(map(int, drifted.staleness)) <= (2 * bound + 1) * (workers - 1)


def _slices(workers):
    """Samples of every slice of all steps."""
    for step in range(STEPS):
        sizes = chunk_sizes(12 if step % 3 == 2 else 16, 6)
        for worker in range(workers):
            yield sum(size for chunk, size in enumerate(sizes) if chunk * workers // 6 == worker)


@pytest.mark.parametrize(("workers", "servers"), [(3, 0), (3, 1)])
@pytest.mark.parametrize("bound", [None, 0, 1])
def test_ranks_that_rest_often_never_wait_for_each_other_in_a_circle(graphs, workers, servers, bound):
    mine, stops = program("plain", plain_sgd), list(range(1, 19))
    plan = drifting_plan(mine, graphs("plain"), workers, servers, chunks=3, bound=bound)
    drifted = drift(mine, graphs("plain"), plan, stops)
    assert len(drifted.checkpoints) == len(stops)
    if bound == 0:
        for stop in (1, 9, 18):
            assert difference(drifted.state_at(stop - 1), plain_loop(mine, stop, 3).state_dict()) <= 1e-9


@pytest.mark.parametrize("bound", [None, 0])
def test_all_workers_hold_the_same_values_when_they_rest(graphs, bound):
    mine = program("plain")
    drifted = drift(mine, graphs("plain"), drifting_plan(mine, graphs("plain"), 3, chunks=6, bound=bound), [5])
    assert all(torch.equal(model[name], drifted.state[name]) for model in drifted.models for name in drifted.state)


@pytest.mark.parametrize(("workers", "servers"), [(2, 0), (3, 0), (2, 1), (3, 2)])
def test_sends_the_predicted_bytes(graphs, workers, servers):
    mine = program("residual", sgd)
    plan = drifting_plan(mine, graphs("residual"), workers, servers, chunks=6, bound=0)
    drifted = drift(mine, graphs("residual"), plan, [2])
    for step in (0, 1):
        assert sum(rows[step].sent_bytes for rows in drifted.rows) == plan.predicted.sent_bytes_per_step
    assert sum(drifted.sent_bytes) >= 2 * plan.predicted.sent_bytes_per_step, "and one refresh of every worker"


def test_a_checkpoint_goes_on_where_it_was(graphs):
    mine, graph = program("residual", adamw), graphs("residual")
    plan = drifting_plan(mine, graph, 2, chunks=4, bound=0)
    whole = drift(mine, graph, plan, [6])
    half = drift(mine, graph, plan, [3])
    rest = drift(mine, graph, plan, [6], checkpoint=half.checkpoints[-1])
    assert difference(rest.state, whole.state) <= 1e-12
    assert [row.step for row in rest.rows[0]] == [3, 4, 5]


@pytest.mark.parametrize("bound", [None, 0, 2])
def test_a_lost_rank_ends_the_others(graphs, bound):
    def cut_off(rank, network):
        if rank == 2:
            network.fail(2)

    mine = program("plain")
    with pytest.raises(PeerLost):
        drift(
            mine, graphs("plain"), drifting_plan(mine, graphs("plain"), 3, chunks=6, bound=bound), [50], before=cut_off
        )


def test_an_optimizer_without_a_learning_rate_is_refused(graphs):
    class Fixed(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {})

        def step(self, closure=None):
            for group in self.param_groups:
                for each in group["params"]:
                    each.data.add_(each.grad, alpha=-0.1)

    mine = replace(program("plain"), optimizer=Fixed)
    plan = drifting_plan(mine, graphs("plain"), 2, chunks=2)
    with pytest.raises(ProgramError, match=re.escape("Fixed keeps no learning rate `lr` in its groups")):
        drift(mine, graphs("plain"), plan, [3])
    drift(mine, graphs("plain"), replace(plan, asynchrony=replace(plan.asynchrony, bound=0)), [3])


@pytest.mark.parametrize("bound", [None, 0, 1])
def test_a_target_that_the_loss_leaves_out_is_noticed_when_it_first_comes(graphs, bound):
    """A slice has three chunks, so its last one is never among those that are looked at anyway: 1, 2, 4, 8, .."""
    mine = program("plain")
    plan = drifting_plan(mine, graphs("plain"), 2, chunks=6, bound=bound)
    drift(mine, graphs("plain"), plan, [3])
    inputs, targets = mine.train_data().tensors
    targets[ChunkSamples(len(targets), mine.batch_size, 6, mine.seed).indices(1, 2)[0]] = -100
    late = replace(mine, train_data=lambda: TensorDataset(inputs, targets))
    with pytest.raises(ProgramError, match="the loss is not a mean over samples"):
        drift(late, graphs("plain"), plan, [3])


def test_what_is_closed_before_it_has_met_anybody_has_not_failed(graphs):
    """A newcomer builds its part of the next generation and frees it, while the others train."""
    mine, graph, failures = program("plain", sgd), graphs("plain"), []
    plan = drifting_plan(mine, graph, 2, chunks=6, bound=0)
    replica = AsynchronousReplica(
        1, mine, mine.train_data(), graph, plan, rank_schedules(plan, graph)[1], alone(1, 2),
        device=torch.device("cpu"), report=lambda _: None, flush=lambda: None, fail=failures.append,
    )  # fmt: skip
    replica.close()
    assert failures == []
