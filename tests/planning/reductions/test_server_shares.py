"""Shares by measured links: the closed form against a linear program, and what the simulator says of them."""

from dataclasses import replace

import numpy as np
import pytest
from grids import chain, channel, facts, profile
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from nfold.core.cluster import Cluster, Node
from nfold.core.graph import ModelGraph
from nfold.errors import ClusterError, PlanError
from nfold.planning.choosing.candidates import simulate_proposal
from nfold.planning.choosing.search import plan
from nfold.planning.choosing.strategies import named
from nfold.planning.inputs.facts import Facts
from nfold.planning.reductions.server_shares import best_shares, link_rates

pytestmark = pytest.mark.long

RATES = st.floats(0.01, 10.0)
HEAVY = chain(300_000, 5_000)
SLOW, FAST = 6.25e6, 25e6
"""50 and 200 Mbit/s."""


def least_time(workers: list[float], servers: list[float]) -> float:
    """Minimise T over shares w, v >= 0 that sum to 1, with 1 - w + (n - 1) w <= T B and n v <= T B."""
    count, size = len(workers), len(workers) + len(servers)
    rates = np.array([*workers, *servers])
    per_share = np.array([count - 2.0] * count + [float(count)] * len(servers))
    fixed = np.array([1.0] * count + [0.0] * len(servers))
    found = linprog(
        c=[0.0] * size + [1.0],
        A_ub=np.column_stack([np.diag(per_share), -rates]),
        b_ub=-fixed,
        A_eq=[[1.0] * size + [0.0]],
        b_eq=[1.0],
    )
    assert found.success
    return found.fun


@settings(max_examples=60, deadline=None)
@given(st.lists(RATES, min_size=2, max_size=8), st.lists(RATES, max_size=6))
def test_the_closed_form_is_the_linear_programs_optimum_and_its_shares_reach_it(workers, servers):
    best, count = best_shares(tuple(workers), tuple(servers)), len(workers)
    assert best.seconds_per_byte == pytest.approx(least_time(workers, servers), rel=1e-6)
    assert sum(best.workers) + sum(best.servers) == pytest.approx(1.0)
    assert min((*best.workers, *best.servers)) >= 0
    loads = [(1 - w + (count - 1) * w) / rate for w, rate in zip(best.workers, workers, strict=True)]
    loads += [count * v / rate for v, rate in zip(best.servers, servers, strict=True)]
    assert max(loads) <= best.seconds_per_byte * (1 + 1e-9)


@given(st.integers(2, 64), RATES)
def test_equal_links_are_a_ring(count, rate):
    best = best_shares((rate,) * count)
    assert best.seconds_per_byte == pytest.approx(2 * (count - 1) / count / rate)
    assert best.workers == pytest.approx((1 / count,) * count)


@given(st.integers(3, 20), st.data())
def test_equal_links_and_servers_are_the_mixture_of_byteps(n, data):
    k = data.draw(st.integers(0, n))
    best, whole = best_shares((1.0,) * n, (1.0,) * k), n * n + k * n - 2 * k
    assert best.seconds_per_byte == pytest.approx(2 * n * (n - 1) / whole)
    assert best.workers == pytest.approx(((n - k) / whole,) * n)
    assert best.servers == pytest.approx((2 * (n - 1) / whole,) * k)


def test_one_slow_link_of_four_sums_nothing():
    assert best_shares((200.0, 200.0, 200.0, 50.0)).workers == pytest.approx((1 / 3, 1 / 3, 1 / 3, 0.0))


def nodes(*rates: float) -> Cluster:
    links = [channel(rate, latency_s=5e-5) for rate in rates]
    return Cluster(
        nodes=tuple(
            Node(name=f"n{index}", cores=4.0, memory_bytes=1 << 40, local=channel(1e9), uplink=link, downlink=link)
            for index, link in enumerate(links)
        )
    )


def spread(graph: ModelGraph, *rates: float, servers: int = 0) -> Facts:
    """One rank on each node, the servers on the last ones; computing takes nearly nothing."""
    names = tuple(f"n{index}" for index in range(len(rates)))
    return facts(graph, len(rates) - servers, servers, cluster=nodes(*rates), nodes=names)


def fastest(question: Facts, name: str) -> float:
    """The step time of a strategy's best proposal."""
    proposals = named(name).propose(question)
    return min(simulate_proposal(question, name, each).predicted.step_s for each in proposals)


def test_a_rate_is_the_slower_direction_and_ranks_of_a_node_share_it():
    node = Node(name="a", cores=1.0, memory_bytes=1, local=channel(9.0), uplink=channel(4.0), downlink=channel(3.0))
    cluster = Cluster(nodes=(node, *nodes(5.0).nodes))
    assert link_rates(cluster, ("a", "a", "n0")) == (1.5, 1.5, 5.0)
    assert link_rates(cluster, ("a", "a", "a")) == (9.0, 9.0, 9.0)


@pytest.mark.parametrize("count", [4, 6])
def test_one_slow_link_costs_little_more_than_its_own_bytes(count):
    question = spread(HEAVY, *[FAST] * (count - 1), SLOW)
    ring, weighted = fastest(question, "ring"), fastest(question, "weighted")
    compute_s = 3e-3 * 32 / count
    bound_s = HEAVY.parameter_bytes / SLOW
    assert bound_s < weighted - compute_s < 1.1 * bound_s
    assert ring / weighted > 1.35


def test_auto_takes_weighted_where_one_link_is_slow_and_says_by_how_much_the_others_lost():
    question = replace(spread(HEAVY, FAST, FAST, FAST, SLOW), profiles={1: profile(HEAVY, 0.05)})
    chosen = plan(question)
    assert chosen.strategy == "weighted"
    assert 3 not in {share.rank for reduction in chosen.reductions for share in reduction.shares}
    ring = next(loser for loser in chosen.rejected if loser.strategy == "ring")
    times = ring.predicted.step_s / chosen.predicted.step_s
    assert ring.why.startswith(f"predicted {times:.2f}x the step time of weighted")


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from([SLOW, FAST, FAST, 2 * FAST]), min_size=2, max_size=4), st.integers(1, 60_000))
def test_weighted_is_never_predicted_slower_than_a_ring(rates, num_elements):
    question = spread(chain(num_elements, 50), *rates)
    assert fastest(question, "weighted") <= 1.01 * fastest(question, "ring")


def test_on_even_links_weighted_is_the_ring():
    question = spread(HEAVY, FAST, FAST, FAST)
    assert list(named("weighted").propose(question)) == list(named("ring").propose(question))


def test_a_strong_server_takes_more_than_a_weak_one():
    question = spread(HEAVY, *[SLOW] * 4, 2 * SLOW, SLOW, servers=2)
    best = list(named("weighted").propose(question))[-1]
    sums = {rank: 0 for rank in range(6)}
    for reduction in best.reductions:
        for share in reduction.shares:
            sums[share.rank] += share.stop - share.start
    assert sum(sums.values()) == 305_000
    assert sums[4] / sums[5] == pytest.approx(2.0, rel=1e-3)
    assert simulate_proposal(question, "weighted", best).predicted.step_s < 0.9 * fastest(question, "ps")


def test_push_and_pull_overlap_within_one_tensor():
    """The more rounds, the nearer to the bytes of one direction: M / B instead of 2 M / B."""
    graph = chain(400_000)
    question = spread(graph, FAST, FAST, FAST, 3 * FAST, servers=1)
    steps = [simulate_proposal(question, "ps", each).predicted.step_s for each in named("ps").propose(question)]
    one_way = graph.parameter_bytes / FAST
    assert steps == sorted(steps, reverse=True)
    assert steps[-1] < 1.2 * one_way + 3e-3 * 11


def test_what_weighted_cannot_use_is_said():
    with pytest.raises(PlanError, match=r"one worker keeps its gradients, and needs no servers\. Use --servers 0"):
        plan(spread(HEAVY, FAST, FAST, servers=1), "weighted")
    node = Node(name="b", cores=1.0, memory_bytes=1 << 40, local=channel(), uplink=channel())
    with pytest.raises(ClusterError, match="node b lacks an uplink or a downlink, so its share of the sums cannot"):
        link_rates(Cluster(nodes=(node, *nodes(FAST).nodes)), ("b", "n0"))
