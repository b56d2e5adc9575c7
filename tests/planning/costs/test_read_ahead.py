"""Samples are read a step ahead: what of that a step waits for, and what it takes from computing."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from grids import chain, channel, facts, profile
from hypothesis import given
from hypothesis import strategies as st

from nfold.core.cluster import Cluster, Node
from nfold.core.placement import Placement
from nfold.planning.choosing.candidates import simulate_proposal
from nfold.planning.choosing.scaling import predict_scaling
from nfold.planning.choosing.strategies import named
from nfold.planning.costs.estimate import estimate
from nfold.planning.costs.read_ahead import (
    CoreContention,
    busy_s,
    chunks_read,
    contentions_of,
    read_ahead,
    steps_ahead,
    within_cores,
)

BATCH, SAMPLE_S = 32, 3e-3
"""A sample computes for 3 ms, forward and backward."""


def node(name="n", cores=1.0, **given):
    return Node(name=name, cores=cores, memory_bytes=1 << 30, local=channel(), **given)


def asked(load_s, *, cores, workers=2, on_one_node=False, **given):
    """Ranks that compute for 16 x 3 ms each, and read 16 samples."""
    graph = chain(4, 4)
    link = channel(1e9, 1e-9)
    names = ["n0"] * workers if on_one_node else [f"n{rank}" for rank in range(workers)]
    nodes = tuple(node(name, cores, uplink=link, downlink=link) for name in dict.fromkeys(names))
    timed = profile(graph, SAMPLE_S / 3, load_s_per_sample=load_s)
    return facts(
        graph, workers, cluster=Cluster(nodes=nodes), nodes=tuple(names), batch_size=BATCH, profiles={1: timed}, **given
    )


def waiting(question, share):
    """The same where a share of the seconds of reading keeps no core busy."""
    return replace(question, profiles={1: replace(question.profiles[1], load_wait=share)})


def ring(question):
    return next(iter(named("ring").propose(question)))


def parts(question):
    """Mean seconds of LOAD and of F and B on a rank of a simulated step."""
    spans = simulate_proposal(question, "ring", ring(question)).trace.spans
    of = {kind: sum(span.end_s - span.start_s for span in spans if span.kind == kind) for kind in ("LOAD", "F", "B")}
    return of["LOAD"] / question.workers, (of["F"] + of["B"]) / question.workers


COMPUTE_S = BATCH / 2 * SAMPLE_S


@pytest.mark.parametrize(
    ("load_s", "cores", "input_s", "compute_s"),
    [
        (1e-3, 2.0, 0.0, COMPUTE_S),  # a core is free for it
        (1e-3, 1.0, 0.0, COMPUTE_S + 16e-3),  # it takes its turns on the only core
        (4e-3, 2.0, 16 * 1e-3, COMPUTE_S),  # computing hides 3 of 4 ms
        (4e-3, 1.0, 16 * 1e-3, 2 * COMPUTE_S),  # both take turns until computing is over
    ],
)
def test_what_computing_hides_is_not_waited_for(load_s, cores, input_s, compute_s):
    assert parts(asked(load_s, cores=cores)) == pytest.approx((input_s, compute_s), rel=1e-3, abs=1e-6)


def test_ranks_of_one_node_share_what_cores_it_has():
    for cores, compute_s in ((4.0, COMPUTE_S), (2.0, COMPUTE_S + 16e-3), (3.0, COMPUTE_S + 16e-3 / 3)):
        found = parts(asked(1e-3, cores=cores, on_one_node=True))
        assert found == pytest.approx((0.0, compute_s), rel=1e-3, abs=1e-6)


@pytest.mark.parametrize(
    ("load_s", "wait", "input_s", "compute_s"),
    [
        (1e-3, 1.0, 0.0, COMPUTE_S),  # a disk does it
        (1e-3, 0.5, 0.0, COMPUTE_S + 8e-3),  # only half of it takes turns on the only core
        (4e-3, 1.0, 16 * 1e-3, COMPUTE_S),
    ],
)
def test_reading_that_waits_takes_nothing_from_computing(load_s, wait, input_s, compute_s):
    question = waiting(asked(load_s, cores=1.0), wait)
    assert parts(question) == pytest.approx((input_s, compute_s), rel=1e-3, abs=1e-6)
    assert estimate(question, ring(question)).step_s == pytest.approx(input_s + compute_s, rel=1e-2)


@pytest.mark.parametrize(("wait", "input_s"), [(1.0, 16e-3), (0.5, 12e-3), (0.0, 8e-3)])
def test_a_faster_processor_waits_as_long_for_a_disk(wait, input_s):
    question = waiting(asked(1e-3, cores=2.0, load_is_waited=True), wait)
    nodes = tuple(replace(each, speed=2.0) for each in question.cluster.nodes)
    question = replace(question, cluster=Cluster(nodes=nodes))
    assert parts(question) == pytest.approx((input_s, COMPUTE_S / 2), rel=1e-3)
    assert estimate(question, ring(question)).step_s == pytest.approx(input_s + COMPUTE_S / 2, rel=1e-2)
    (point,) = predict_scaling(question, "ring", (2,))
    assert point.step_s == pytest.approx(input_s + COMPUTE_S / 2, rel=2e-2)


@pytest.mark.parametrize("speed", [0.5, 1.0, 4.0])
def test_a_disk_sets_the_pace_of_whatever_processor(speed):
    """Reading takes 16 ms a step on every node; computing that is longer hides it."""
    question = waiting(asked(1e-3, cores=2.0), 1.0)
    nodes = tuple(replace(each, speed=speed * COMPUTE_S / 16e-3) for each in question.cluster.nodes)
    question = replace(question, cluster=Cluster(nodes=nodes))
    step_s = max(16e-3, 16e-3 / speed)
    assert sum(parts(question)) == pytest.approx(step_s, rel=1e-3)
    assert estimate(question, ring(question)).step_s == pytest.approx(step_s, rel=2e-2)
    (point,) = predict_scaling(question, "ring", (2,))
    assert point.step_s == pytest.approx(step_s, rel=2e-2)


def test_what_a_run_waited_is_waited_for_whatever_computing_takes():
    question = asked(1e-3, cores=2.0, load_is_waited=True)
    assert parts(question) == pytest.approx((16e-3, COMPUTE_S), rel=1e-3)
    assert estimate(question, ring(question)).step_s == pytest.approx(16e-3 + COMPUTE_S, rel=1e-2)


@pytest.mark.parametrize("load_s", [0.0, 1e-3, 4e-3])
@pytest.mark.parametrize("cores", [0.5, 1.0, 1.5, 2.0])
def test_the_estimate_and_the_coarse_simulation_read_ahead_too(load_s, cores):
    question = asked(load_s, cores=cores)
    found = simulate_proposal(question, "ring", ring(question))
    quick = estimate(question, ring(question))
    assert quick.step_s == pytest.approx(found.predicted.step_s, rel=0.02)
    assert quick.loads_s == pytest.approx(found.loads_s, rel=1e-6)
    if cores >= 1:  # it takes a node for as fast as its profile says
        (point,) = predict_scaling(question, "ring", (2,))
        assert point.step_s == pytest.approx(found.predicted.step_s, rel=0.02)


@given(
    read_s=st.floats(0, 100), compute_s=st.floats(0, 100), threads=st.integers(1, 4), others=st.integers(0, 4),
    cores=st.floats(0.1, 8),
)  # fmt: skip
def test_reading_costs_no_more_than_one_after_the_other(read_s, compute_s, threads, others, cores):
    here = node(cores=cores)
    contention, *_ = contentions_of(asked(read_s, cores=cores), [here, here], [threads, others], [True, False])
    found = read_ahead(read_s, compute_s, contention)
    assert 0 <= found.waited <= 1
    assert found.stretch >= 1
    alone_s = compute_s * here.slowdown(threads + others) / here.slowdown(threads)
    together_s = alone_s * found.stretch + found.waited * read_s
    assert alone_s * (1 - 1e-9) <= together_s <= (alone_s + read_s) * (1 + 1e-9)


def test_without_anything_to_read_or_to_compute_nothing_changes():
    contention = CoreContention(pace=1.0, cost=1.0)
    assert read_ahead(0.0, 5.0, contention).stretch == 1.0
    assert read_ahead(5.0, 0.0, contention) == replace(read_ahead(0.0, 5.0, contention), waited=1.0)


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=1), st.floats(0, 1), st.floats(0, 4))
def test_many_at_once_are_as_busy_as_one_by_one(seconds, pace, cost):
    contention = CoreContention(pace=pace, cost=cost)
    read_s, compute_s = (np.array(each) for each in zip(*seconds, strict=True))
    one_by_one = [
        reading.stretch * computing_s + reading.waited * reading_s
        for reading_s, computing_s in seconds
        for reading in (read_ahead(reading_s, computing_s, contention),)
    ]
    assert busy_s(read_s, compute_s, contention) == pytest.approx(np.array(one_by_one), abs=1e-9)


def stage_sizes(load_s, **given):
    """Operators of each rank in a pipeline of nine equal ones: the first takes the samples, the last the targets."""
    graph = chain(*[4] * 8)
    question = replace(
        asked(load_s, cores=2.0, workers=3, chunks=4, **given),
        graph=graph,
        profiles={1: profile(graph, SAMPLE_S / 3, load_s_per_sample=load_s)},
    )
    proposal = next(iter(named("pipeline").propose(question)))
    return Counter(ranks[0] for ranks in proposal.placement.owners.values())


def test_a_stage_that_reads_gets_less_only_if_its_computing_does_not_hide_it():
    assert stage_sizes(0.0) == stage_sizes(1e-3) == {0: 3, 1: 3, 2: 3}
    assert stage_sizes(1e-3, load_is_waited=True) == {0: 2, 1: 5, 2: 2}


# Loaders


@pytest.mark.parametrize(
    ("cores", "load_wait", "wanted", "found"),
    [(2.0, 0.0, 4, 2), (0.4, 0.0, 4, 1), (8.0, 0.0, 4, 4), (2.0, 0.75, 12, 8), (2.0, 1.0, 12, 12), (2.0, 0.0, 0, 0)],
)
def test_loaders_are_no_more_than_cores_keep_busy(cores, load_wait, wanted, found):
    timed = profile(chain(4, 4), SAMPLE_S, load_s_per_sample=0.01)
    within = within_cores(replace(timed, load_wait=load_wait, loaders=wanted), cores)
    assert within.loaders == found
    assert within.load_s(10) == pytest.approx(0.1 / max(1, found))
    assert within.reading_cores == pytest.approx(max(1, found) * (1 - load_wait))


def test_two_loaders_halve_what_a_step_waits_and_take_memory_on_ranks_that_read():
    alone = asked(0.01, cores=4.0)
    timed = replace(alone.profiles[1], loaders=2, loaders_bytes=1 << 20)
    both = replace(alone, profiles={1: timed})
    one, two = (simulate_proposal(each, "ring", ring(each)).predicted for each in (alone, both))
    read_s, compute_s = 16 * 0.01, 16 * SAMPLE_S
    assert one.step_s - two.step_s == pytest.approx(read_s / 2, rel=0.1)
    assert two.step_s > read_s / 2 > compute_s
    added = [after - before for before, after in zip(one.peak_memory_bytes, two.peak_memory_bytes, strict=True)]
    assert all(each >= 1 << 20 for each in added)


@pytest.mark.parametrize(("loaders", "chunks", "steps"), [(0, 3, 1), (1, 3, 2), (3, 3, 2), (4, 3, 3), (2, 1, 3)])
def test_so_many_steps_are_read_ahead_that_each_loader_has_a_chunk(loaders, chunks, steps):
    assert steps_ahead(loaders, chunks) == steps


def test_who_holds_a_model_s_ends_reads_and_its_middle_does_not():
    graph = chain(4, 4)
    first, *_, last = (operator.name for operator in graph.operators)
    owners = {operator.name: (1, 1) for operator in graph.operators} | {first: (0, 0), last: (2, 1)}
    placement = Placement(num_chunks=2, world_size=3, owners=owners)
    assert [sorted(chunks_read(graph, placement, rank)) for rank in range(3)] == [[0, 1], [1], [0]]
