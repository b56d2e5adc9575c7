"""What is too heavy or too large for one rank is cut; everything else stays whole."""

from dataclasses import replace

import grids
import pytest
from towers import towers

from nfold.core import codec
from nfold.core.cluster import Cluster, Node
from nfold.core.graph import Channels
from nfold.core.plan import Plan
from nfold.core.profile import ChunkTiming, OperatorProfile, Timing
from nfold.planning.choosing.candidates import simulate_proposal
from nfold.planning.hypergraph.hypergraph_strategy import ByHypergraph
from nfold.planning.hypergraph.operators_to_cut import propose_splits
from nfold.planning.inputs.facts import Facts
from nfold.planning.operator_parts.splitting import split_facts, split_graph
from nfold.planning.reductions.reductions_without_servers import placed

MIB = 1 << 20


def timing(seconds: float) -> Timing:
    return Timing(median_s=seconds, spread_s=0.0, repeats=1)


def asked(heavy: dict[str, float], workers: int = 2, **fields: object) -> Facts:
    """Operators that take a second each way, but for some."""
    graph = towers()
    base = grids.profile(graph)
    seconds = {operator.name: heavy.get(operator.name, 1.0) for operator in graph.operators}

    def timings(each: float) -> tuple[ChunkTiming, ...]:
        return (ChunkTiming(chunk_size=16, forward=timing(each), backward=timing(each)),)

    operators = tuple(replace(each, timings=timings(seconds[each.operator])) for each in base.operators)
    assert all(isinstance(each, OperatorProfile) for each in operators)
    profile = replace(base, operators=operators, whole=timings(sum(seconds.values())))
    return grids.facts(graph, workers, profiles={1: profile}, **{"chunks": 1, **fields})


def test_nothing_is_cut_where_all_are_alike_and_ranks_few():
    assert propose_splits(asked({})) == {}


def test_a_heavy_operator_is_cut_into_parts_below_half_a_rank():
    # 16 s of 20 on two ranks of 10 s: four parts of 4 s are below 5 s.
    assert propose_splits(asked({"A": 16.0})) == {"A": 4}


def test_chunks_make_cells_light_enough():
    assert propose_splits(asked({"A": 16.0}, chunks=8)) == {}


def test_groups_bound_the_parts():
    assert propose_splits(asked({"G": 100.0}, workers=8)) == {"G": 2}


def test_a_layer_larger_than_a_ranks_memory_is_cut():
    graph = towers()
    small = grids.facts(graph).cluster.nodes[0]
    weight = max(each.num_bytes for each in graph.parameters)
    cluster = replace(grids.facts(graph).cluster, nodes=(replace(small, memory_bytes=4 * weight),))
    found = propose_splits(asked({}, cluster=cluster))
    assert found["G"] == 2
    assert "Loss" not in found


def test_memory_asks_for_as_many_parts_as_it_takes():
    """Nearly all of a model in one layer, on nodes that hold a twentieth of it each."""
    graph = grids.model(
        {"A": ("input",), "F": ("a",), "Loss": ("f", "target")},
        (grids.parameter("a.weight", 8, "A"), grids.parameter("f.weight", 64 * 1000, "F")),
    )
    wide = tuple(
        replace(each, channels=Channels(axis=-1, count=64) if each.name == "F" else None) for each in graph.operators
    )
    graph = replace(graph, operators=wide)
    link = grids.channel()
    small = replace(
        grids.facts(graph).cluster.nodes[0], memory_bytes=2 * graph.parameter_bytes // 20, uplink=link, downlink=link
    )
    nodes = tuple(replace(small, name=f"n{index}") for index in range(32))
    names = tuple(node.name for node in nodes)
    question = grids.facts(graph, 32, cluster=Cluster(nodes=nodes), nodes=names)
    found = propose_splits(question)
    assert found == {"F": 40}
    assert ByHypergraph().accepts(question) is None


def layers(*memory: int, names: str = "ABCD") -> Facts:
    """Layers of 64 features with weights of 256 kB each, twice that with their gradients, on nodes with this memory."""
    inputs = {name: (before,) for name, before in zip(names, ("input", *names.lower()), strict=False)}
    graph = grids.model(
        {**inputs, "Loss": (names[-1].lower(), "target")},
        tuple(grids.parameter(f"{name.lower()}.weight", 64 * 1000, name) for name in names),
    )
    wide = tuple(
        replace(each, channels=Channels(axis=-1, count=64) if each.name in names else None) for each in graph.operators
    )
    link = grids.channel()
    nodes = tuple(
        Node(name=f"n{index}", cores=1.0, memory_bytes=room, local=link, uplink=link, downlink=link)
        for index, room in enumerate(memory)
    )
    graph = replace(graph, operators=wide)
    profiles = {1: grids.profile(graph, base_bytes=MIB)}
    places = tuple(node.name for node in nodes)
    return grids.facts(graph, len(nodes), cluster=Cluster(nodes=nodes), nodes=places, profiles=profiles, chunks=16)


@pytest.mark.parametrize("left", [-1000, 0, 1000])
def test_a_node_with_hardly_any_room_does_not_say_how_many_parts_others_compute(left):
    question = layers(8 * MIB, MIB + left, 8 * MIB)
    assert propose_splits(question) == {}
    assert ByHypergraph().accepts(question) is None
    assert list(ByHypergraph().propose(question))


def test_parts_fit_the_least_room_of_those_that_are_needed():
    """Of 2 MB of state two ranks with 1 MiB each hold 1.9, so that the smallest must help them."""
    assert propose_splits(layers(2 * MIB, 2 * MIB, MIB + 400_000)) == dict.fromkeys("ABCD", 3)
    assert propose_splits(layers(2 * MIB, 2 * MIB + 200_000, MIB + 400_000)) == {}


def test_parts_are_a_few_for_each_rank_at_most():
    assert propose_splits(layers(*[MIB + 20_000] * 32)) == dict.fromkeys("ABCD", 52)
    assert propose_splits(layers(*[MIB + 130_000] * 2)) == dict.fromkeys("ABCD", 8)
    assert propose_splits(layers(*[MIB + 40_000] * 2, names="A")) == {"A": 16}
    assert propose_splits(layers(*[MIB + 10_000] * 2)) == {}, "all of it is more than they can have"


def test_what_has_room_nowhere_is_cut_for_its_work_alone():
    question = layers(MIB, MIB - 1000)
    assert propose_splits(question) == {}
    assert "the ranks have room for (MiB): n0 0, n1 0" in (ByHypergraph().accepts(question) or "")
    assert propose_splits(replace(layers(MIB, MIB, MIB, MIB, MIB, MIB), chunks=1)) == dict.fromkeys("ABCD", 3)


@pytest.mark.parametrize("scope", ["parameter", "model"])
def test_nothing_is_cut_that_must_stay_whole(scope):
    facts = asked({"A": 100.0})
    assert propose_splits(replace(facts, graph=replace(facts.graph, update_scope=scope))) == {}


def test_a_heavy_operator_in_parts_takes_half_the_time():
    facts = asked({"A": 50.0})
    whole = placed(facts, {"A": (0,), "R": (1,), "G": (1,), "F": (1,), "Loss": (1,)})
    splits = {"A": 2}
    owners = {each.name: (int("1/2" in each.name),) for each in split_graph(facts.graph, splits).operators}
    parts = replace(placed(split_facts(facts, splits), owners), splits=splits)
    before, after = (simulate_proposal(facts, "any", each).predicted.step_s for each in (whole, parts))
    assert after < 0.55 * before


def test_a_plan_says_its_parts():
    facts = asked({})
    predicted = simulate_proposal(
        facts, "any", placed(facts, dict.fromkeys([o.name for o in facts.graph.operators], (0, 1)))
    )
    plan = Plan(
        strategy="any",
        chunks=2,
        batch_size=32,
        workers=2,
        servers=0,
        nodes=("box",) * 2,
        threads=(1, 1),
        placement=predicted.proposal.placement,
        reductions=predicted.proposal.reductions,
        loads_s=predicted.loads_s,
        predicted=predicted.predicted,
        splits={"A": 2},
    )
    assert codec.loads(Plan, codec.dumps(plan)) == plan


def test_the_hypergraph_is_divided_whole_and_in_parts_and_the_simulator_chooses():
    facts = asked({"A": 50.0})
    proposals = list(ByHypergraph().propose(facts))
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for each in proposals:
        seconds[bool(each.splits)].append(simulate_proposal(facts, "hypergraph", each).predicted.step_s)
    assert min(seconds[True]) < 0.6 * min(seconds[False])


def test_a_layer_larger_than_any_ranks_memory_is_placed_in_parts():
    graph = towers()
    state = 2 * max(each.num_bytes for each in graph.parameters)
    box = replace(grids.facts(graph).cluster.nodes[0], memory_bytes=int(4 * 0.8 * state))
    facts = asked({}, workers=4, cluster=replace(grids.facts(graph).cluster, nodes=(box,)))
    assert ByHypergraph().accepts(facts) is None
    proposals = list(ByHypergraph().propose(facts))
    assert proposals
    assert all(each.splits.get("G") == 2 for each in proposals)


def test_a_layer_that_cannot_be_cut_must_fit_somewhere():
    graph = towers(update_scope="parameter")
    state = 2 * max(each.num_bytes for each in graph.parameters)
    box = replace(grids.facts(graph).cluster.nodes[0], memory_bytes=int(4 * 0.8 * state))
    facts = asked({}, workers=4, cluster=replace(grids.facts(graph).cluster, nodes=(box,)))
    assert "G needs" in (ByHypergraph().accepts(replace(facts, graph=graph)) or "")
