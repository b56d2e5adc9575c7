"""How many threads a rank computes with: as many as help."""

from dataclasses import replace

import pytest
from grids import chain, channel, facts, profile
from hypothesis import given
from hypothesis import strategies as st

from nfold.core.cluster import Cluster, Node
from nfold.core.profile import Timing
from nfold.planning.choosing.search import plan
from nfold.planning.inputs.facts import ABOUT_AS_FAST, useful_threads, worker_seconds

GRAPH = chain(100, 100)
TINY = {1: 1.5e-3, 2: 24e-3}
LARGE = {1: 2.0, 2: 1.1, 4: 0.6}


@pytest.mark.parametrize(
    ("cores", "num_ranks", "seconds", "threads"),
    [
        (2, 1, TINY, 1),
        (2, 1, LARGE, 2),
        (4, 1, LARGE, 4),
        (8, 1, LARGE, 4),
        (4, 2, LARGE, 2),
        (7, 2, LARGE, 2),
        (4, 4, LARGE, 1),
        (4, 9, LARGE, 1),
        (0.5, 1, LARGE, 1),
        (4, 4, {2: 1.1, 4: 0.6}, 2),
        (2, 1, {1: 1.09, 2: 1.0}, 1),
        (2, 1, {1: 1.11, 2: 1.0}, 2),
        (4, 1, {1: 3.0, 2: 1.02, 4: 1.0}, 2),
    ],
)
def test_the_fewest_that_are_about_as_fast_as_any_within_the_share(cores, num_ranks, seconds, threads):
    assert useful_threads(cores, num_ranks, seconds) == threads


@given(st.floats(0.1, 64), st.integers(1, 9), st.dictionaries(st.integers(1, 64), st.floats(1e-6, 10), min_size=1))
def test_never_more_than_the_share_nor_slower_than_what_fits_in_it(cores, num_ranks, seconds):
    share = max(1, int(cores) // num_ranks)
    chosen = useful_threads(cores, num_ranks, seconds)
    fitting = [each for count, each in seconds.items() if count <= share]
    if fitting:
        assert chosen <= share
        assert seconds[chosen] <= ABOUT_AS_FAST * min(fitting)
    else:
        assert chosen == min(seconds)


def test_a_workers_seconds_are_its_chunks_and_an_update():
    update = Timing(median_s=0.5, spread_s=0.0, repeats=1)
    known = {1: profile(GRAPH, 1e-3, update=update), 2: profile(GRAPH, 2e-3)}
    assert worker_seconds(known, 64, 2, None) == pytest.approx({1: 32 * 3e-3 + 0.5, 2: 32 * 6e-3 + 1e-4})
    assert worker_seconds(known, 64, 2, 8)[1] == pytest.approx(32 * 3e-3 + 0.5), "in proportion here, whatever the cut"


def on(cores: float, seconds_per_sample: dict[int, float], workers: int):
    node = Node(name="box", cores=cores, memory_bytes=1 << 40, local=channel())
    profiles = {count: replace(profile(GRAPH, each), num_threads=count) for count, each in seconds_per_sample.items()}
    return facts(GRAPH, workers, cluster=Cluster(nodes=(node,)), profiles=profiles)


def test_a_tiny_program_is_planned_and_predicted_with_the_one_thread_that_it_can_use():
    tiny = on(2.0, {1: 1e-5, 2: 2e-4}, workers=1)
    made = plan(tiny, "single")
    assert made.threads == (1,)
    assert made.predicted.step_s == plan(on(2.0, {1: 1e-5}, workers=1), "single").predicted.step_s


def test_the_best_number_of_threads_depends_on_the_chunk():
    """Small chunks are computed faster by one thread, the whole batch by two."""
    alone, both = on(2.0, {1: 1e-3, 2: 1e-3}, workers=1).profiles.values()
    both = replace(
        both, whole=tuple(replace(each, forward=replace(each.forward, median_s=0.02)) for each in both.whole)
    )
    asked = replace(on(2.0, {1: 1e-3}, workers=1), profiles={1: alone, 2: both}, batch_size=64)
    assert asked.threads(1) == (2,)
    assert replace(asked, chunks=32).threads(1) == (1,)


def test_each_node_gives_its_ranks_what_it_has():
    nodes = tuple(
        Node(name=name, cores=cores, memory_bytes=1 << 40, local=channel(), uplink=channel(), downlink=channel())
        for name, cores in (("old", 1.0), ("new", 4.0))
    )
    profiles = {count: replace(profile(GRAPH, each), num_threads=count) for count, each in LARGE.items()}
    asked = facts(GRAPH, 3, cluster=Cluster(nodes=nodes), nodes=("old", "new", "new"), profiles=profiles)
    assert asked.threads(3) == (1, 2, 2)
    assert asked.threads(2) == (1, 4)
