"""Coarse virtual time against the message-level simulator, and curves over more nodes than there are."""

from dataclasses import replace

import pytest
from grids import chain, channel, facts, model, parameter, profile

from nfold.core.cluster import Cluster, Node
from nfold.core.graph import Statistic
from nfold.core.profile import Timing
from nfold.errors import ClusterError, PlanError
from nfold.planning.choosing.candidates import simulate_proposal
from nfold.planning.choosing.scaling import coarse_proposal_s, predict_scaling
from nfold.planning.choosing.strategies import named
from nfold.planning.inputs.facts import Facts

pytestmark = pytest.mark.long

MEGABIT = 1e6 / 8


def deep(num_layers: int, num_elements: int, *, norms: bool = False):
    """Many layers of one size, with a batch norm in each if asked."""
    names = [f"O{index}" for index in range(num_layers)]
    inputs, before = {}, "input"
    for name in names:
        inputs[name], before = (before,), name.lower()
    inputs["Loss"] = (before, "target")
    weights = tuple(parameter(f"p{index}", num_elements, name) for index, name in enumerate(names))
    statistics = [Statistic(module=name, num_channels=256, num_calls=1, dtype="float32") for name in names]
    return model(inputs, weights, tuple(statistics) if norms else ())


NETS = {
    "one tensor": chain(500_000),
    "heavy": chain(600_000, 20_000, 20_000),
    "small": chain(5_000, 30_000, 60_000),
    "deep": deep(20, 60_000),
    "norms": deep(6, 100_000, norms=True),
}


def question(graph, workers, servers, megabits, seconds_per_sample=1e-3, latency_s=1e-4, **fields) -> Facts:
    """One rank on each node; a rate for each, or one for all."""
    rates = megabits if isinstance(megabits, tuple) else (megabits,) * (workers + servers)
    links = [channel(rate * MEGABIT, latency_s=latency_s / 2) for rate in rates]
    nodes = tuple(
        Node(name=f"n{index}", cores=4.0, memory_bytes=1 << 40, local=link, uplink=link, downlink=link, **fields)
        for index, link in enumerate(links)
    )
    own = profile(graph, seconds_per_sample, update=Timing(median_s=2e-3, spread_s=0.0, repeats=1))
    return facts(
        graph,
        workers,
        servers,
        cluster=Cluster(nodes=nodes),
        nodes=tuple(node.name for node in nodes),
        profiles={1: own},
        batch_size=64,
    )


def error(asked: Facts, strategy: str, which: int = 0) -> float:
    """Relative error of one of the strategy's proposals, which come in ascending numbers of rounds."""
    proposal = list(named(strategy).propose(asked))[which]
    exact = simulate_proposal(asked, strategy, proposal).predicted.step_s
    return coarse_proposal_s(asked, proposal) / exact - 1


@pytest.mark.parametrize(
    ("workers", "megabits", "seconds"), [(2, 50, 1e-4), (3, 200, 3e-3), (4, 1000, 1e-3), (8, 200, 1e-3)]
)
@pytest.mark.parametrize("net", NETS)
def test_even_links_are_within_three_per_cent_of_the_messages(net, workers, megabits, seconds):
    for servers in (0, 1, workers):
        asked = question(NETS[net], workers, servers, megabits, seconds)
        assert abs(error(asked, "ps")) <= 0.03
        if not servers:
            assert abs(error(asked, "ring")) <= 0.03


@pytest.mark.parametrize("workers", [2, 4])
def test_many_rounds_are_within_one_per_cent(workers):
    for servers in (0, 1, workers):
        assert abs(error(question(NETS["one tensor"], workers, servers, 200), "ps", -1)) <= 0.01


@pytest.mark.parametrize("net", ["one tensor", "deep"])
@pytest.mark.parametrize("rates", [(200, 200, 50), (200, 200, 200, 50), (400, 100, 200, 200, 300)])
def test_uneven_links(net, rates):
    """Weighted shares are predicted slower than they are: a real uplink serves pulls beside the pushes before them."""
    asked = question(NETS[net], len(rates), 0, rates)
    for strategy in ("ring", "ps"):
        assert abs(error(asked, strategy)) <= 0.01
    assert 0.0 <= error(asked, "weighted", -1) <= 0.15


@pytest.mark.parametrize(("workers", "servers"), [(2, 1), (4, 1), (4, 2), (6, 3)])
def test_workers_and_servers_that_share_the_sums_are_within_fifteen_per_cent(workers, servers):
    assert abs(error(question(NETS["one tensor"], workers, servers, 200), "weighted", -1)) <= 0.15


def test_latency_several_chunks_and_slow_nodes_count():
    for strategy in ("ring", "ps"):
        far = replace(question(NETS["deep"], 4, 0, 1000, latency_s=1e-2), chunks=8)
        assert abs(error(far, strategy)) <= 0.05
        assert abs(error(question(NETS["heavy"], 4, 0, 200, speed=0.5), strategy)) <= 0.02


def test_a_curve_ends_at_the_bytes_of_its_links():
    graph = NETS["heavy"]
    asked = question(graph, 2, 0, 100)
    points = predict_scaling(asked, "ring", (1, 2, 8, 1000), grow_batch=True)
    assert [(point.workers, point.batch_size) for point in points] == [(1, 32), (2, 64), (8, 256), (1000, 32_000)]
    bound_s = 2 * graph.parameter_bytes / (100 * MEGABIT)
    compute_s = 32 * 3e-3
    for point in points[1:]:
        share = (point.workers - 1) / point.workers
        latencies_s = 4 * 2 * (point.workers - 1) * 1e-4
        assert share * bound_s < point.step_s < share * bound_s + compute_s + latencies_s + 3e-3


def test_a_single_server_is_overrun_while_one_for_each_worker_is_not():
    asked = question(NETS["heavy"], 8, 1, 100)
    one = predict_scaling(asked, "ps", (8, 16, 32))
    assert [point.servers for point in one] == [1, 2, 4]
    few = [predict_scaling(question(NETS["heavy"], n, 1, 100), "ps", (n,))[0].step_s for n in (2, 4, 8)]
    many = [predict_scaling(question(NETS["heavy"], n, n, 100), "ps", (n,))[0].step_s for n in (2, 4, 8)]
    assert few[2] > 1.8 * few[1] > 3 * few[0]
    assert max(many) < 1.25 * min(many)


def test_nodes_are_repeated_in_their_order():
    asked = question(NETS["small"], 3, 0, (200, 50, 200))
    slow = predict_scaling(asked, "ring", (2,))[0]
    assert slow == predict_scaling(question(NETS["small"], 2, 0, 50), "ring", (2,))[0]


def test_a_server_stays_on_its_own_host_however_many_workers_there_are():
    asked = question(NETS["heavy"], 2, 1, (100, 100, 1000))
    (many,) = predict_scaling(asked, "ps", (4,), servers=1)
    assert many == predict_scaling(question(NETS["heavy"], 4, 1, (100,) * 4 + (1000,)), "ps", (4,))[0]
    (in_proportion,) = predict_scaling(asked, "ps", (4,))
    fast = question(NETS["heavy"], 4, 2, (100,) * 4 + (1000,) * 2)
    assert in_proportion == predict_scaling(fast, "ps", (4,))[0]


def test_a_batch_smaller_than_the_workers_still_has_a_sample_for_each():
    asked = replace(question(NETS["small"], 4, 0, 100), batch_size=3)
    points = predict_scaling(asked, "ring", (1, 8), grow_batch=True)
    assert [point.batch_size for point in points] == [1, 8]


def test_a_slow_network_has_use_for_few_workers_and_a_quick_one_for_many():
    counts = (1, 2, 4, 8, 16, 32)
    slow, quick = (
        [point.samples_per_s for point in predict_scaling(question(NETS["heavy"], 2, 0, *each), "ring", counts)]
        for each in ((50, 1e-3), (10_000, 1e-1))
    )
    assert max(slow) <= 1.05 * slow[0]
    assert quick == sorted(quick)
    assert quick[-1] > 1.05 * quick[-2]


def test_what_cannot_be_predicted_is_said():
    asked = question(NETS["small"], 2, 0, 50)
    with pytest.raises(PlanError, match="the scaling of single cannot be predicted, only that of ring, ps, weighted"):
        predict_scaling(asked, "single", (2,))
    with pytest.raises(PlanError, match="65 workers cannot share a batch of 64 samples"):
        predict_scaling(asked, "ring", (65,))
    with pytest.raises(ClusterError, match="node box-0 has no uplink or no downlink, so nothing can be said of more"):
        predict_scaling(facts(NETS["small"], 2), "ring", (2,))
