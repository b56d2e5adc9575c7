"""The estimate against the message-level simulator, which it stands in for."""

import math
from dataclasses import replace

import pytest
from grids import channel, facts, graphs, model, parameter, place, profile
from hypothesis import given, settings
from hypothesis import strategies as st

from nfold.core.cluster import Cluster, Node
from nfold.core.profile import Timing
from nfold.errors import ClusterError, PlanError
from nfold.planning.asynchronous.asynchronous_strategies import ASYNCHRONOUS
from nfold.planning.choosing.candidates import estimate_proposal, simulate_proposal
from nfold.planning.choosing.portfolio import MANY_RANKS
from nfold.planning.choosing.search import plan
from nfold.planning.choosing.strategies import STRATEGIES, named
from nfold.planning.costs.estimate import estimate
from nfold.planning.inputs.facts import Facts
from nfold.planning.reductions.reductions_without_servers import placed
from nfold.simulation import simulate

pytestmark = pytest.mark.long

NAMES = tuple("ABCDEFGH")
CHAIN = model(
    {name: (NAMES[index - 1].lower() if index else "input",) for index, name in enumerate(NAMES)},
    tuple(parameter(f"{name}.weight", 250_000, name) for name in NAMES),
)
SHORT = model(
    {name: (NAMES[index - 1].lower() if index else "input",) for index, name in enumerate(NAMES[:4])},
    tuple(parameter(f"{name}.weight", 250_000, name) for name in NAMES[:4]),
)


def question(graph, workers, bandwidth_bytes_per_s=12.5e6, speeds=(1.0,), **fields) -> Facts:
    """Each rank on a node of its own."""
    link = channel(bandwidth_bytes_per_s)
    nodes = tuple(
        Node(
            name=f"n{index}",
            cores=1.0,
            memory_bytes=1 << 40,
            local=link,
            uplink=link,
            downlink=link,
            speed=speeds[index % len(speeds)],
        )
        for index in range(workers)
    )
    names = tuple(node.name for node in nodes)
    return facts(graph, workers, cluster=Cluster(nodes=nodes), nodes=names, **fields)


def error(asked, proposal) -> float:
    exact = simulate_proposal(asked, "any", proposal).predicted.step_s
    return estimate(asked, proposal).step_s / exact - 1


def heavy(graph):
    """Activations of 100 kB a sample, so that messages between operators matter."""
    tensors = tuple(replace(each, bytes_per_sample=1e5) if each.producer else each for each in graph.tensors)
    return replace(graph, tensors=tensors)


@pytest.mark.parametrize(("workers", "megabytes_per_s"), [(2, 1), (2, 100), (4, 10), (4, 100), (8, 10)])
@pytest.mark.parametrize("strategy", ["ring", "ps"])
def test_data_parallelism_is_within_3_percent(workers, megabytes_per_s, strategy):
    asked = question(CHAIN if workers < 8 else SHORT, workers, megabytes_per_s * 1e6)
    for proposal in named(strategy).propose(asked):
        assert abs(error(asked, proposal)) < 0.03


@pytest.mark.parametrize("stages", [2, 4, 8])
@pytest.mark.parametrize("megabytes_per_s", [10, 100, 1000])
def test_pipelines_are_within_20_percent(stages, megabytes_per_s):
    asked = question(heavy(CHAIN), stages, megabytes_per_s * 1e6, profiles={1: profile(CHAIN, 1e-2)})
    owners = {name: (index * stages // len(NAMES),) * 16 for index, name in enumerate(NAMES)}
    assert abs(error(asked, placed(asked, owners))) < 0.2


@pytest.mark.parametrize(("workers", "megabytes_per_s"), [(2, 100), (4, 1), (4, 1000)])
@pytest.mark.parametrize("strategy", ["single", "ring", "ps", "pipeline", "hybrid", "hypergraph"])
def test_no_step_is_shorter_than_the_least(workers, megabytes_per_s, strategy):
    asked = question(heavy(CHAIN), workers, megabytes_per_s * 1e6, speeds=(2.0, 1.0, 0.5), chunks=8)
    for proposal in named(strategy).propose(asked):
        found = estimate(asked, proposal)
        assert 0 < found.least_step_s <= simulate_proposal(asked, strategy, proposal).predicted.step_s
        assert found.least_step_s <= found.step_s


def test_updates_wait_for_all_messages_where_a_ring_commits_its_steps():
    """Of two buckets, the first is else updated while the second is on its way."""
    loose = question(SHORT, 2, 1e8)
    slow = replace(loose.profiles[1], update=Timing(median_s=0.04, spread_s=0.0, repeats=1))
    loose = replace(loose, profiles={1: slow})
    committed = replace(loose, keeps_snapshots=True)
    ring, served = (next(iter(named(strategy).propose(loose))) for strategy in ("ring", "ps"))
    step_s = [simulate_proposal(each, "ring", ring).predicted.step_s for each in (loose, committed)]
    assert step_s[1] > step_s[0] + 0.01
    assert [estimate(each, ring).step_s for each in (loose, committed)] == pytest.approx(step_s, rel=0.05)
    assert len({simulate_proposal(each, "ps", served).predicted.step_s for each in (loose, committed)}) == 1
    assert [plan(committed, strategy).commits for strategy in ("ring", "ps")] == [True, False]


def test_nothing_is_certain_where_ranks_share_a_node():
    asked = facts(CHAIN, 2)
    assert estimate(asked, next(iter(named("ring").propose(asked)))).least_step_s == 0.0


@pytest.mark.parametrize("megabytes_per_s", [1, 100])
def test_what_cannot_win_is_not_simulated_and_the_choice_is_the_same(monkeypatch, megabytes_per_s):
    asked = question(SHORT, 4, megabytes_per_s * 1e6, speeds=(2.0, 1.0), chunks=8)
    simulated = []

    def noting(*given, **others):
        simulated.append(given)
        return simulate(*given, **others)

    monkeypatch.setattr("nfold.planning.costs.scenario.simulate", noting)
    chosen, num_simulated = plan(asked), len(simulated)
    monkeypatch.setattr("nfold.planning.costs.estimate.CERTAIN", 0.0)
    monkeypatch.setattr("nfold.planning.costs.estimate.OVERESTIMATED", math.inf)
    every = plan(asked)
    assert 0 < num_simulated < len(simulated) - num_simulated
    assert (chosen.predicted, chosen.placement) == (every.predicted, every.placement)


def test_of_what_fits_nowhere_one_of_each_kind_is_simulated(monkeypatch):
    asked, played = question(SHORT, 4, 1e8, speeds=(1.0, 0.9, 0.8, 0.7)), []
    nodes = tuple(replace(node, memory_bytes=1 + place) for place, node in enumerate(asked.cluster.nodes))

    def noting(*given, **others):
        played.append(given)
        return simulate(*given, **others)

    monkeypatch.setattr("nfold.planning.costs.scenario.simulate", noting)
    monkeypatch.setattr("nfold.planning.choosing.search.advise", lambda *given: "")  # which plans other wishes as well
    with pytest.raises(PlanError, match="no strategy can run here"):
        plan(replace(asked, cluster=replace(asked.cluster, nodes=nodes)))
    lines = len(STRATEGIES) - len(ASYNCHRONOUS) + 2
    assert len(played) <= 2 * lines, "hypergraph has three of them, and paces are tried as well"


def test_a_slower_node_and_a_replicated_first_stage_are_seen():
    asked = question(CHAIN, 3, 1e8, speeds=(1.0, 1.0, 0.5))
    hybrid = placed(asked, {name: (0, 1) * 4 if name < "G" else (2,) * 8 for name in NAMES})
    assert abs(error(asked, hybrid)) < 0.1


def test_ranks_of_one_node_crowd_it():
    link = channel(1e9)
    node = Node(name="box", cores=1.0, memory_bytes=1 << 40, local=link)
    asked = facts(CHAIN, 2, cluster=Cluster(nodes=(node,)))
    proposal = next(iter(named("ring").propose(asked)))
    assert abs(error(asked, proposal)) < 0.05
    assert estimate(asked, proposal).step_s > 32e-3 * 3


@settings(max_examples=20, deadline=None)
@given(graphs(), st.data())
def test_any_placement_has_an_estimate_of_the_right_size(graph, data):
    workers, chunks = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    asked = question(graph, workers, profiles={1: profile(graph, 1e-2)})
    ranks = st.lists(st.integers(0, workers - 1), min_size=chunks, max_size=chunks).map(tuple)
    proposal = placed(asked, place({op.name: data.draw(ranks) for op in graph.operators}, workers).owners)
    exact, (found, least_s) = (each(asked, "any", proposal) for each in (simulate_proposal, estimate_proposal))
    assert 0.5 < found.predicted.step_s / exact.predicted.step_s < 2
    assert least_s <= exact.predicted.step_s
    assert found.predicted.sent_bytes_per_step == exact.predicted.sent_bytes_per_step
    assert found.loads_s == pytest.approx(exact.loads_s)


@pytest.mark.parametrize("strategy", ["ring", "ps", "pipeline", "hybrid"])
@pytest.mark.parametrize("clips", [False, True])
def test_bytes_and_memory_are_those_of_the_schedule(strategy, clips):
    asked = question(replace(heavy(CHAIN), clips_gradients=clips), 4, profiles={1: profile(CHAIN, 1e-2)})
    for proposal in named(strategy).propose(asked):
        exact, (found, _) = (each(asked, strategy, proposal) for each in (simulate_proposal, estimate_proposal))
        assert found.predicted.sent_bytes_per_step == exact.predicted.sent_bytes_per_step
        assert found.predicted.peak_memory_bytes == pytest.approx(exact.predicted.peak_memory_bytes, rel=0.05)


def test_many_ranks_are_planned_by_estimate(monkeypatch):
    asked = question(CHAIN, MANY_RANKS, batch_size=64)
    simulated = []

    def noting(*given, nodes, **others):
        simulated.append(nodes)
        return simulate(*given, nodes=nodes, **others)

    monkeypatch.setattr("nfold.planning.costs.scenario.simulate", noting)
    chosen = plan(asked, "auto")
    assert chosen.world_size == MANY_RANKS
    assert not simulated, "and one rank alone cannot be faster"
    rivals = [each.predicted.step_s for each in chosen.rejected if each.predicted.step_s is not None]
    assert rivals
    assert chosen.predicted.step_s <= 1.01 * min(rivals)


def test_a_node_without_a_link_is_named():
    asked = question(CHAIN, 2)
    bare = replace(asked.cluster.nodes[1], uplink=None)
    broken = replace(asked, cluster=Cluster(nodes=(asked.cluster.nodes[0], bare)))
    with pytest.raises(ClusterError, match="node n1 has no uplink"):
        estimate(broken, next(iter(named("ring").propose(asked))))
