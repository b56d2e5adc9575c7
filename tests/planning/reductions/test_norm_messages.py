"""The messages by which ranks agree on a norm, written out."""

import pytest
from grids import chain, facts, place
from referee import lane_of

from nfold.core.tasks import Send, SumSquares
from nfold.errors import PlanError
from nfold.planning.choosing.candidates import simulate_proposal
from nfold.planning.choosing.search import plan
from nfold.planning.choosing.strategies import named
from nfold.planning.reductions.buckets import buckets_of
from nfold.planning.scheduling.schedule_compiler import compile_schedule

GRAPH = chain(5, 3, clips_gradients=True)


def compiled(owners, world, bucket_bytes=1 << 20):
    placement = place(owners, world)
    reductions = buckets_of(GRAPH, placement, "ring", bucket_bytes)
    return compile_schedule(GRAPH, placement, reductions, batch_size=16)


def norms(schedule):
    return [
        (rank.rank, task.peer, task.data.name, task.data.start, task.data.stop)
        for rank in schedule.ranks
        for task in rank.tasks
        if isinstance(task, Send) and task.purpose == "norm"
    ]


def test_one_rank_counts_and_finds_the_factor_between_backward_and_update():
    schedule = compiled({"A": (0,), "B": (0,), "Loss": (0,)}, 1)
    assert lane_of(schedule.ranks[0]) == ["LOAD 0", "F0.0", "B0.0", "NORM b0", "NORM", "UPDATE b0"]
    assert schedule.sent_bytes == 0


def test_members_of_a_ring_count_their_shares_and_all_get_one_factor():
    schedule = compiled({"A": (0, 1, 2), "B": (0, 1, 2), "Loss": (0, 1, 2)}, 3)
    counted = [
        (rank.rank, task.gradients.start, task.gradients.stop)
        for rank in schedule.ranks
        for task in rank.tasks
        if isinstance(task, SumSquares)
    ]
    assert counted == [(0, 0, 3), (1, 3, 6), (2, 6, 8)]
    assert norms(schedule) == [
        (0, 1, "factor", 0, 1),
        (0, 2, "factor", 0, 1),
        (1, 0, "squares", 1, 2),
        (2, 0, "squares", 2, 3),
    ]
    for rank in schedule.ranks:
        assert [name for name in lane_of(rank) if "NORM" in name or "UPDATE" in name][-1] == "UPDATE b0"
    reduced = 2 * 2 * GRAPH.parameter_bytes
    assert schedule.sent_bytes == reduced + 4 * 8


def test_a_pipelines_ranks_count_what_only_they_own():
    schedule = compiled({"A": (1, 1), "B": (2, 2), "Loss": (2, 2)}, 3)
    assert norms(schedule) == [(1, 2, "factor", 0, 1), (2, 1, "squares", 2, 3)], "rank 0 updates nothing"
    update = next(task for task in schedule.ranks[2].tasks if task.name.startswith("UPDATE"))
    received = next(task for task in schedule.ranks[2].tasks if task.kind == "RECV" and task.purpose == "norm")
    assert received.id in update.after


def test_a_simulated_step_waits_for_the_norm():
    steps = []
    for clips in (False, True):
        question = facts(chain(5, 3, clips_gradients=clips), 3, chunks=3)
        (proposal,) = named("ring").propose(question)
        steps.append(simulate_proposal(question, "ring", proposal).predicted)
    latency_s = 1e-4
    assert steps[1].step_s >= steps[0].step_s + 2 * latency_s, "there and back"
    assert steps[1].sent_bytes_per_step == steps[0].sent_bytes_per_step + 4 * 8


@pytest.mark.parametrize("strategy", ["ps-async", "ssp"])
def test_asynchronous_servers_refuse_it_in_a_sentence(strategy):
    with pytest.raises(PlanError, match=r"clip_norm.*Use --strategy ring or --strategy ps"):
        plan(facts(GRAPH, 2), strategy)
