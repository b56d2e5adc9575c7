"""Who computes which chunks where each worker has the whole model."""

from dataclasses import replace

import pytest
from grids import chain, channel, facts

from nfold.core.cluster import Cluster, Node
from nfold.core.profile import Timing
from nfold.planning.choosing.search import plan
from nfold.planning.choosing.strategies import named
from nfold.planning.costs.dealt_chunks import dealt_chunks

GRAPH = chain(100_000, 50_000)


def question(speeds, chunks, **fields):
    """Each rank on a node of its own."""
    link = channel()
    nodes = tuple(
        Node(name=f"n{i}", cores=1.0, memory_bytes=1 << 40, local=link, uplink=link, downlink=link, speed=speed)
        for i, speed in enumerate(speeds)
    )
    given = {"cluster": Cluster(nodes=nodes), "nodes": tuple(node.name for node in nodes), **fields}
    return facts(GRAPH, len(speeds), chunks=chunks, **given)


@pytest.mark.parametrize(
    ("speeds", "counts"),
    [
        ((1.0, 1.0, 1.0, 1.0), None),
        ((1.0, 0.9, 1.05, 0.95), None),
        ((4.0, 2.0, 1.0, 1.0), [8, 4, 2, 2]),
        ((1.0, 1.0, 1.0, 0.25), [5, 5, 5, 1]),
        ((1.0, 1.0, 0.1, 1.0), [5, 5, 1, 5]),
    ],
    ids=["alike", "about as fast", "unlike", "a straggler", "much too slow"],
)
def test_chunks_follow_speeds_that_are_unlike(speeds, counts):
    equal, *by_speed = dealt_chunks(question(speeds, 16), updated=0.0)
    assert equal == tuple(rank for rank in range(4) for _ in range(4))
    assert [[owners.count(rank) for rank in range(4)] for owners in by_speed] == ([] if counts is None else [counts])


def test_who_was_seen_to_be_much_too_slow_gets_none():
    _, by_speed = dealt_chunks(question((1.0, 1.0, 0.1, 0.1), 16, may_rest=frozenset({"n2"})), updated=0.0)
    assert [by_speed.count(rank) for rank in range(4)] == [8, 7, 0, 1]


def test_less_is_enough_where_all_speeds_were_seen_in_training():
    speeds = (1.0, 1.0, 1.0, 0.84)
    assert len(list(dealt_chunks(question(speeds, 32), updated=0.0))) == 1
    _, by_speed = dealt_chunks(question(speeds, 32, may_rest=frozenset({"n0", "n1", "n2", "n3"})), updated=0.0)
    assert [by_speed.count(rank) for rank in range(4)] == [9, 8, 8, 7]


def test_bookkeeping_alone_is_enough_where_all_speeds_were_seen_in_training():
    alike = question((1.0, 1.0, 1.0, 1.0), 16, may_rest=frozenset({"n0", "n1", "n2", "n3"}))
    chunk_s = sum(alike.profiles[1].whole_s(alike.batch_size / 16))
    busy = tuple(replace(node, step_cpu_s=2.5 * chunk_s * (node.name == "n3")) for node in alike.cluster.nodes)
    _, by_speed = dealt_chunks(replace(alike, cluster=Cluster(nodes=busy)), updated=0.0)
    assert [by_speed.count(rank) for rank in range(4)] == [5, 5, 4, 2]


def test_what_a_step_takes_beside_chunks_counts():
    unlike = question((4.0, 2.0, 1.0, 1.0), 16)
    chunk_s = sum(unlike.profiles[1].whole_s(unlike.batch_size / 16))
    busy = tuple(replace(node, step_cpu_s=chunk_s / node.speed) for node in unlike.cluster.nodes)
    _, by_speed = dealt_chunks(replace(unlike, cluster=Cluster(nodes=busy)), updated=0.0)
    assert [by_speed.count(rank) for rank in range(4)] == [10, 4, 1, 1], "each step takes a worker a chunk more"


def test_who_updates_slowly_gets_less_of_the_rest():
    unlike = question((4.0, 1.0), 10)
    profile, chunk_s = unlike.profiles[1], sum(unlike.profiles[1].whole_s(unlike.batch_size / 10))
    heavy = replace(unlike, profiles={1: replace(profile, update=Timing(median_s=chunk_s, spread_s=0.0, repeats=1))})
    shares = [list(dealt_chunks(heavy, updated=part))[-1].count(0) for part in (0.0, 1.0)]
    assert shares == [8, 9]


def test_chunks_that_live_on_their_ranks_stay_there():
    assert len(list(dealt_chunks(question((4.0, 1.0), None, chunk_shares=(0.5, 0.5)), updated=0.0))) == 1


@pytest.mark.parametrize("strategy", ["ring", "ps", "weighted"])
def test_who_is_too_slow_neither_computes_nor_sums(strategy):
    asked = question((0.05, 1.0, 1.0), 6, may_rest=frozenset({"n0"}))
    found = plan(asked, strategy, among=(named(strategy),))
    assert (found.placement.working, found.world_size, found.loads_s[0]) == ((1, 2), 3, 0.0)
    assert all(reduction.holders == (1, 2) for reduction in found.reductions)
    assert "too slow for a chunk, which would hold up the others: rank 0 on n0" in found.notes


def test_one_who_is_left_updates_alone():
    (reduction,) = plan(question((0.05, 1.0), 2, may_rest=frozenset({"n0"})), "ring", among=(named("ring"),)).reductions
    assert (reduction.route, reduction.members) == ("local", (1,))
