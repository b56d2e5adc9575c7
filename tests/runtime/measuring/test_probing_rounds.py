"""Which pairs are probed when, and what probes and paces say of the machines."""

from collections import Counter
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pretended import profile_of

from nfold.core.cluster import Channel, Cluster, Node
from nfold.core.graph import ModelGraph, Operator, Tensor
from nfold.core.profile import Pace
from nfold.runtime.measuring.probing_rounds import (
    BITS_OF_STEP,
    BITS_OF_TENSOR,
    MOST_ROUNDS,
    PROBING_S,
    Probe,
    affordable,
    best_of,
    expected_passes_s,
    longest_pass_s,
    round_robin,
    seems_held_up,
    with_fast_links,
    with_links,
    with_paces,
)
from nfold.transport.probing.probe import BUDGET_S, ProbedPair, lasts_s

LOCAL = Channel(latency_s=1e-5, bandwidth_bytes_per_s=1e9, origin="declared")
GRAPH = ModelGraph(
    operators=(Operator(name="A", kind="op", inputs=("input",), outputs=("loss",), parameters=()),),
    tensors=(
        Tensor(name="input", producer="", consumers=("A",), bytes_per_sample=4.0, requires_grad=False),
        Tensor(name="loss", producer="A", consumers=(), bytes_per_sample=4.0, requires_grad=True),
    ),
    parameters=(),
    capture="fx",
)


def cluster(*cores: float) -> Cluster:
    nodes = (Node(name=f"n{index}", cores=each, memory_bytes=1 << 30, local=LOCAL) for index, each in enumerate(cores))
    return Cluster(nodes=tuple(nodes))


def found(there: float, back: float, latency_s: float = 1e-3) -> ProbedPair:
    return ProbedPair(
        latency_s=latency_s, there_bytes_per_s=there, back_bytes_per_s=back, cpu_s_per_byte=1e-9, cpu_s_per_message=1e-5
    )


def steady(mean_s: float, bookkeeping_s: float = 1e-6) -> Pace:
    return Pace(mean_s=mean_s, deviation_s=0.0, bookkeeping_s=bookkeeping_s)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=40))
def test_no_node_is_in_two_probes_at_once(places: list[int]) -> None:
    nodes = tuple(f"n{place}" for place in places)
    rounds = round_robin(nodes)
    for pairs in rounds:
        busy = [nodes[rank] for pair in pairs for rank in (pair.measures, pair.echoes)]
        assert len(set(busy)) == len(busy) or len(set(nodes)) == 1
    met = [frozenset((nodes[pair.measures], nodes[pair.echoes])) for pairs in rounds for pair in pairs]
    assert len(set(met)) == len(met)
    if 1 < len(set(nodes)) <= MOST_ROUNDS + 1:
        assert set(met) == {frozenset(pair) for pair in combinations(set(nodes), 2)}


@pytest.mark.parametrize("num_nodes", [2, 3, 7, 8])
def test_all_pairs_of_up_to_eight_nodes_are_probed_within_the_budget(num_nodes: int) -> None:
    nodes = tuple(f"n{index}" for index in range(num_nodes))
    rounds = round_robin(nodes)
    met = {frozenset((pair.measures, pair.echoes)) for pairs in rounds for pair in pairs}
    assert met == {frozenset(pair) for pair in combinations(range(num_nodes), 2)}
    assert len(rounds) * BUDGET_S < PROBING_S


@pytest.mark.parametrize("num_nodes", [9, 64, 1000])
def test_more_nodes_take_no_longer_and_each_meets_equally_many(num_nodes: int) -> None:
    rounds = round_robin(tuple(f"n{index}" for index in range(num_nodes)))
    assert len(rounds) == MOST_ROUNDS
    assert len(rounds) * BUDGET_S < PROBING_S
    times = Counter(rank for pairs in rounds for pair in pairs for rank in (pair.measures, pair.echoes))
    assert len(times) == num_nodes
    assert min(times.values()) >= MOST_ROUNDS - num_nodes % 2, "of an odd number one rests in each round"


def test_one_node_probes_its_own_channel() -> None:
    assert round_robin(("box",) * 3) == [[Probe(measures=0, echoes=1)]]
    assert round_robin(("box",)) == []


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=3, max_size=8))
def test_the_slower_side_of_a_path_does_not_hide_the_faster(rates: list[tuple[int, int]]) -> None:
    """A side is found exactly if some peer's other side is as fast."""
    nodes = tuple(f"n{index}" for index in range(len(rates)))

    def path(source: int, target: int) -> int:
        return min(rates[source][0], rates[target][1])

    probed = {
        pair: found(path(pair.measures, pair.echoes), path(pair.echoes, pair.measures))
        for pairs in round_robin(nodes)
        for pair in pairs
    }
    measured = with_links(cluster(*[1.0] * len(rates)), nodes, probed)
    for index, (up, down) in enumerate(rates):
        others = [rate for other, rate in enumerate(rates) if other != index]
        node = measured.nodes[index]
        assert node.uplink is not None
        assert node.downlink is not None
        assert node.uplink.bandwidth_bytes_per_s == min(up, max(other[1] for other in others))
        assert node.downlink.bandwidth_bytes_per_s == min(down, max(other[0] for other in others))
        assert node.uplink.latency_s + node.downlink.latency_s == pytest.approx(1e-3)


def test_a_machine_keeps_its_local_channel_in_one_piece() -> None:
    (node,) = with_links(cluster(2.0), ("n0", "n0"), {Probe(measures=0, echoes=1): found(1e6, 3e6)}).nodes
    assert (node.local.bandwidth_bytes_per_s, node.local.latency_s, node.local.origin) == (2e6, 1e-3, "measured")
    assert node.uplink is None


def test_a_node_that_takes_twice_as_long_has_half_the_speed() -> None:
    profile = profile_of(GRAPH)
    alone_s = sum(profile.whole_s(8))
    paced = with_paces(
        cluster(1.0, 1.0), ("n0", "n1"), [alone_s] * 2, {0: steady(alone_s), 1: steady(2 * alone_s)}, num_tensors=1
    )
    assert [node.speed for node in paced.nodes] == [1.0, 0.5]


def test_sharing_the_cores_is_no_lack_of_speed() -> None:
    profile = profile_of(GRAPH)
    alone_s = sum(profile.whole_s(8))
    passes_s = expected_passes_s(cluster(1.0), ("n0", "n0"), (1, 1), {1: profile}, 8)
    assert passes_s == [2 * alone_s] * 2
    paced = with_paces(cluster(1.0), ("n0", "n0"), passes_s, dict.fromkeys((0, 1), steady(2 * alone_s)), num_tensors=1)
    assert paced.nodes[0].speed == 1.0


def test_all_compute_for_as_long_as_the_slowest_is_expected_to_need() -> None:
    """By its share of a core and its declared speed beside those of the node that was profiled."""
    known = cluster(2.0, 0.5, 0.25)
    limited = replace(known, nodes=tuple(replace(node, quota_period_s=0.01) for node in known.nodes))
    nodes = ("n0", "n1", "n2")
    assert longest_pass_s(known, nodes, [1.0, 2.0, 1.0], profiler=0) == 2.0
    assert longest_pass_s(limited, nodes, [1.0, 1.0], profiler=0) == 2.0
    assert longest_pass_s(limited, nodes, [1.0, 1.0, 1.0], profiler=0) == 4.0
    assert longest_pass_s(limited, nodes, [1.0, 1.0, 1.0], profiler=2) == 1.0
    slower = replace(limited, nodes=(replace(limited.nodes[0], speed=0.1), *limited.nodes[1:]))
    assert longest_pass_s(slower, nodes, [1.0, 1.0], profiler=1) == 5.0


def test_how_unlike_a_node_s_passes_are_is_the_mean_over_its_ranks() -> None:
    paces = {0: replace(steady(2.0), deviation_s=0.2), 1: replace(steady(4.0), deviation_s=1.2), 2: steady(1.0)}
    paced = with_paces(cluster(1.0, 1.0), ("n0", "n0", "n1"), [1.0] * 3, paces, num_tensors=1)
    assert [node.unsteadiness for node in paced.nodes] == [0.2, 0.0]


def test_a_node_where_nobody_computes_is_thought_to_be_as_unlike_the_profile_as_the_others() -> None:
    """Also where its speed was declared; and where it has a share of a core, of that."""
    nodes, passes_s = ("n0", "n1", "n2", "n3"), [1.0] * 3
    paces = {0: steady(1 / 2), 1: steady(1 / 0.8), 2: steady(1 / 1.8)}
    known = cluster(*[1.0] * 3, 0.5)
    known = replace(known, nodes=(*known.nodes[:3], replace(known.nodes[3], speed=1.5)))
    paced = with_paces(known, nodes, passes_s, paces, num_tensors=1)
    assert [node.speed for node in paced.nodes] == pytest.approx([2.0, 0.8, 1.8, 1.8 * 1.5], rel=1e-3)
    limited = replace(known, nodes=tuple(replace(node, quota_period_s=0.01) for node in known.nodes))
    paced = with_paces(limited, nodes, passes_s, paces, num_tensors=1)
    assert paced.nodes[3].speed == pytest.approx(1.8 * 1.5 * 0.5, rel=1e-3)


def test_steps_cost_what_bookkeeping_takes_on_their_node_and_those_of_servers_what_is_typical_without_tensors() -> None:
    paces = {0: steady(1.0, 1e-6), 1: steady(1.0, 3e-6), 2: steady(2.0, 5e-6)}
    paced = with_paces(cluster(1.0, 1.0, 1.0), ("n0", "n0", "n1", "n2"), [1.0] * 3, paces, num_tensors=10)
    of_worker = BITS_OF_STEP + 10 * BITS_OF_TENSOR
    assert [node.step_cpu_s for node in paced.nodes] == pytest.approx(
        [of_worker * 2e-6, of_worker * 4.5e-6, BITS_OF_STEP * 3e-6]
    ), "of the slower node 5, and its passes are 1.5 times as slow as is typical, where 3 is"


def test_a_node_that_was_held_up_while_it_kept_books_is_no_slower_than_its_passes_say() -> None:
    paces = {0: steady(1.0, 1e-6), 1: steady(1.2, 2e-6), 2: steady(1.0, 1.1e-6)}
    paced = with_paces(cluster(1.0, 1.0, 1.0), ("n0", "n1", "n2"), [1.0] * 3, paces, num_tensors=0)
    bits = [node.step_cpu_s / BITS_OF_STEP for node in paced.nodes]
    assert bits == pytest.approx([1e-6, 1.2 * 1.1e-6, 1.1e-6], rel=1e-6)
    two = with_paces(cluster(1.0, 1.0), ("n0", "n1"), [1.0] * 2, {0: paces[0], 1: paces[1]}, num_tensors=0)
    assert two.nodes[1].step_cpu_s / BITS_OF_STEP == pytest.approx(1.1e-6), "its passes a tenth slower than is typical"


def test_who_is_slower_than_what_is_declared_of_its_node_seems_to_be_held_up() -> None:
    nodes, passes_s = ("n0", "n1", "n2"), [1.0] * 3
    alike = {rank: steady(seconds) for rank, seconds in enumerate((1.0, 1.1, 1.05))}
    assert not seems_held_up(cluster(1.0, 1.0, 1.0), nodes, passes_s, alike)
    slow = alike | {1: steady(1.3)}
    assert seems_held_up(cluster(1.0, 1.0, 1.0), nodes, passes_s, slow)
    declared = cluster(1.0, 1.0, 1.0)
    declared = replace(declared, nodes=tuple(replace(n, speed=0.8 if n.name == "n1" else 1.0) for n in declared.nodes))
    assert not seems_held_up(declared, nodes, passes_s, slow)


def test_of_two_paces_the_faster_counts_and_it_is_said_whether_that_was_news() -> None:
    before = {0: steady(1.0, 2e-6), 1: replace(steady(1.3, 1e-6), deviation_s=0.3)}
    best, was_held_up = best_of(before, {0: steady(1.05, 1e-6), 1: steady(1.0, 3e-6)})
    assert best == {0: steady(1.0, 1e-6), 1: steady(1.0, 1e-6)}
    assert was_held_up
    assert best_of(before, {0: steady(0.98), 1: steady(1.25)})[1] is False, "it is slow"


def test_a_probed_link_still_knows_what_it_was_declared_to_carry() -> None:
    declared = Channel(latency_s=0.0, bandwidth_bytes_per_s=125e6, origin="declared")
    first, second = cluster(1, 1).nodes
    known = Cluster(nodes=(replace(first, uplink=declared, downlink=declared), second))
    once = with_links(known, ("n0", "n1"), {Probe(measures=0, echoes=1): found(5e6, 6e6)})
    again = with_links(once, ("n0", "n1"), {Probe(measures=0, echoes=1): found(7e6, 6e6)})
    for probed, speed in ((once, 5e6), (again, 7e6)):
        uplink, unknown = probed.node("n0").uplink, probed.node("n1").uplink
        assert uplink is not None
        assert unknown is not None
        assert (uplink.bandwidth_bytes_per_s, uplink.declared_bytes_per_s) == (speed, 125e6)
        assert unknown.declared_bytes_per_s is None


@pytest.mark.parametrize(
    ("latency_s", "megabits", "rounds"),
    [(0.0, 100, MOST_ROUNDS), (0.005, 100, 4), (0.010, 100, 2), (0.0, 10, 4), (0.0, 6, 2), (0.0, 1, 2)],
)
def test_probes_of_distant_and_badly_linked_nodes_end_in_time_too(
    latency_s: float, megabits: float, rounds: int
) -> None:
    rate = megabits * 1e6 / 8
    assert affordable(MOST_ROUNDS, {Probe(measures=0, echoes=1): found(rate, 2 * rate, latency_s)}) == rounds
    assert rounds * lasts_s(latency_s, rate) < PROBING_S


def test_every_node_meets_somebody_however_far_they_are() -> None:
    first = {Probe(measures=0, echoes=1): found(1e6, 1e6, 1.0), Probe(measures=2, echoes=3): found(1e9, 1e9)}
    assert [affordable(rounds, first) for rounds in (1, 2, 7)] == [1, 2, 2]


def test_links_that_nobody_declared_are_taken_for_fast_ones_until_they_are_probed() -> None:
    slow = Channel(latency_s=1e-3, bandwidth_bytes_per_s=1e5, origin="declared")
    known = cluster(1.0, 1.0)
    declared = replace(known, nodes=(replace(known.nodes[0], uplink=slow), known.nodes[1]))
    filled = with_fast_links(declared).nodes
    assert filled[0].uplink == slow
    assert all(way is not None for node in filled for way in (node.uplink, node.downlink))
