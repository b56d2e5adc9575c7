"""Strategy `hypergraph`: what it proposes, and each sentence in which it declines."""

import re
from dataclasses import replace

import pytest
from grids import chain, channel, facts, profile
from hypothesis import given, settings
from hypothesis import strategies as st

from nfold.core.cluster import Cluster, Node
from nfold.core.profile import Profile, Timing
from nfold.planning.choosing.proposals import Answers
from nfold.planning.choosing.search import plan
from nfold.planning.choosing.strategies import named
from nfold.planning.costs.estimate import estimate
from nfold.planning.costs.machines import machines_of
from nfold.planning.hypergraph import kahypar
from nfold.planning.hypergraph.cell_hypergraph import blocks_of, loads_s
from nfold.planning.hypergraph.hypergraph_strategy import WITHOUT, ByHypergraph, hypergraph_of, limits_of
from nfold.planning.inputs.facts import Facts, Proposal
from nfold.planning.scheduling.schedule_compiler import compile_schedule

pytestmark = pytest.mark.long

GRAPH = chain(10, 20, 200_000, 30)
STEADY = [3.0, 1.0, 2.0, 1.0, 0.1]
"""What its operators take in proportion to each other, as measured without noise."""


def question(
    *speeds: float,
    graph=GRAPH,
    memory: int = 1 << 40,
    samples: tuple[int | None, ...] = (),
    bandwidth: float = 1e8,
    **fields,
) -> Facts:
    """One node for each rank."""
    links = dict.fromkeys(("local", "uplink", "downlink"), channel(bandwidth))
    living = samples or (None,) * len(speeds)
    nodes = tuple(
        Node(name=f"n{index}", cores=1.0, memory_bytes=memory, speed=speed, num_samples=number, **links)
        for index, (speed, number) in enumerate(zip(speeds, living, strict=True))
    )
    names = tuple(node.name for node in nodes)
    return facts(graph, len(speeds), cluster=Cluster(nodes=nodes), nodes=names, **fields)


def proposals(asked: Facts) -> list[Proposal]:
    assert ByHypergraph().accepts(asked) is None
    return list(ByHypergraph().propose(asked))


def sent_bytes(asked: Facts, proposal: Proposal) -> int:
    return compile_schedule(
        asked.graph, proposal.placement, proposal.reductions, batch_size=asked.batch_size
    ).sent_bytes


def test_proposals_are_few_different_and_whole():
    asked = question(1.0, 1.0, 1.0)
    found = proposals(asked)
    tables = [tuple(each.placement.owners.items()) for each in found]
    assert 1 <= len(found) <= 12
    assert len(set(tables)) == len(tables)
    for each in found:
        assert set(each.placement.owners) == {op.name for op in asked.graph.operators}
        names = [name for reduction in each.reductions for name in reduction.parameters]
        assert sorted(names) == sorted(parameter.name for parameter in asked.graph.trained)
        assert WITHOUT not in each.notes


def test_a_layer_that_is_all_weights_is_not_reduced():
    asked = question(1.0, 1.0)
    ring = 2 * asked.graph.parameter_bytes
    assert all(sent_bytes(asked, each) < 0.05 * ring for each in proposals(asked))


def test_faster_ranks_compute_more():
    asked = question(3.0, 1.0, batch_size=64, chunks=16)
    cells = hypergraph_of(asked, 16)
    shares = limits_of(asked, machines_of(asked), 0.25).shares
    assert shares == pytest.approx((0.75, 0.25))
    seconds = asked.profiles[1].operators_s(4)
    for each in proposals(asked):
        first, second = loads_s(cells, blocks_of(cells, each.placement, seconds), 2)
        assert first <= 0.75 * 1.25 * (first + second) * (1 + 1e-6)
        assert second <= 0.25 * 1.25 * (first + second) * (1 + 1e-6)


def test_the_users_chunks_are_used():
    assert {each.placement.num_chunks for each in proposals(question(1.0, 1.0, chunks=6))} == {6}


def test_equal_questions_get_equal_proposals():
    assert proposals(question(1.0, 2.0, 1.0)) == proposals(question(1.0, 2.0, 1.0))


def predicted_s(answers: Answers, strategy: str) -> float:
    return plan(answers.facts, strategy, among=(named(strategy),), answers=answers).predicted.step_s


def unlike(factors: list[float], graph=GRAPH) -> dict[int, Profile]:
    """Operators that take so many times as long as they would if all were alike."""
    even = profile(graph)

    def timing(known: Timing, factor: float) -> Timing:
        return replace(known, median_s=known.median_s * factor)

    operators = tuple(
        replace(
            each,
            timings=tuple(
                replace(one, forward=timing(one.forward, factor), backward=timing(one.backward, factor))
                for one in each.timings
            ),
        )
        for each, factor in zip(even.operators, factors, strict=True)
    )
    return {1: replace(even, operators=operators)}


@settings(max_examples=6, deadline=None)
@given(
    st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=2, max_size=4),
    st.lists(st.floats(0.1, 10.0), min_size=5, max_size=5),
    st.sampled_from([1e5, 1e6, 1e8]),
)
def test_it_is_never_predicted_slower_than_what_it_contains(speeds, factors, bandwidth):
    answers = Answers(question(*speeds, bandwidth=bandwidth, profiles=unlike(factors)))
    mine = predicted_s(answers, "hypergraph")
    for contained in ("pipeline", "hybrid"):
        if named(contained).accepts(answers.facts) is None:
            assert mine <= predicted_s(answers, contained)


def test_what_it_contains_is_worked_out_once(monkeypatch):
    asked, estimated = question(2.0, 1.0, 0.5), []

    def noting(facts, proposal):
        estimated.append((proposal.placement, proposal.reductions))
        return estimate(facts, proposal)

    for module in ("choosing.candidates", "hypergraph.hypergraph_strategy"):
        monkeypatch.setattr(f"nfold.planning.{module}.estimate", noting)
    answers = Answers(asked)
    plan(asked, "hypergraph", answers=answers)
    assert len(estimated) == len({str(each) for each in estimated})
    assert answers.proposals(named("hypergraph")) == proposals(asked)


@pytest.mark.parametrize("bandwidth", [1e2, 1e4, 1e6])
def test_one_rank_that_does_everything_is_no_division(bandwidth):
    """Beside a layer that takes nearly all the time the rest could as well be where it is, and send nothing."""
    asked = question(1.0, 1.0, bandwidth=bandwidth, profiles=unlike([100.0, 1.0, 1.0, 1.0, 1.0]))
    for each in proposals(asked):
        assert {rank for row in each.placement.owners.values() for rank in row} == {0, 1}


def test_on_slow_links_it_is_as_uneven_as_saves_time():
    """The third layer has nearly all weights and must have one owner, the first all the work."""
    asked = question(1.0, 1.0, 1.0, bandwidth=1e5, profiles=unlike([20.0, 1.0, 1.0, 1.0, 1.0]))
    cells = hypergraph_of(asked, 3)
    shares = limits_of(asked, machines_of(asked), 0.0).shares
    seconds = asked.profiles[1].operators_s(32 / 3)
    imbalances = []
    for each in proposals(replace(asked, chunks=3)):
        loads = loads_s(cells, blocks_of(cells, each.placement, seconds), 3)
        imbalances.append(max(load / sum(loads) / share for load, share in zip(loads, shares, strict=True)) - 1)
    assert max(imbalances) > 0.25


def test_what_is_out_of_balance_is_proposed_with_a_note():
    """One cell is nearly all of the work, so that no division can be in balance."""
    asked = question(1.0, 1.0, 1.0, profiles=unlike([100.0, 1.0, 1.0, 1.0, 1.0]), chunks=1)
    for each in proposals(asked):
        assert sum("no division within that was found" in note for note in each.notes) == 1


def on_slow_links_s(factors: list[float]) -> float:
    return predicted_s(Answers(question(1.0, 1.0, 1.0, profiles=unlike(factors), bandwidth=1e6)), "hypergraph")


@pytest.fixture(scope="module")
def steady_s() -> float:
    return on_slow_links_s(STEADY)


@settings(max_examples=4, deadline=None)
@given(st.lists(st.floats(0.9, 1.1), min_size=5, max_size=5))
def test_noise_in_what_was_measured_changes_the_prediction_about_as_much(steady_s, noise):
    factors = [factor * each for factor, each in zip(STEADY, noise, strict=True)]
    assert on_slow_links_s(factors) == pytest.approx(steady_s, rel=0.25)


def test_samples_that_live_on_nodes_draw_their_cells_there():
    asked = question(1.0, 1.0, graph=chain(2, 2), samples=(300, 100), chunks=4, batch_size=4096)
    cells = hypergraph_of(asked, 4)
    assert cells.fixed == {cells.num_cells + chunk: int(chunk == 3) for chunk in range(4)}
    assert hypergraph_of(question(1.0, 1.0), 4).fixed == {}


def test_memory_that_no_rank_has_for_the_whole_model_is_kept():
    graph = chain(*[1 << 20] * 6)
    state = 3 * graph.parameter_bytes
    heavy = {1: replace(profile(graph), optimizer_bytes=graph.parameter_bytes)}
    asked = question(1.0, 1.0, graph=graph, profiles=heavy, memory=round(0.8 * state), batch_size=16)
    for each in proposals(asked):
        for rank in range(2):
            owned = sum(p.num_bytes for p in graph.parameters if rank in each.placement.ranks_of(p.users))
            assert 3 * owned <= 0.8 * state


def test_without_the_package_it_proposes_and_says_so(monkeypatch):
    monkeypatch.setattr(kahypar, "is_available", lambda: False)
    asked = question(1.0, 1.0)
    found = proposals(asked)
    assert found
    assert all(WITHOUT in each.notes for each in found)
    assert WITHOUT in plan(asked, "hypergraph").notes


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (facts(GRAPH, 1), r"one worker has nobody to share the model with"),
        (facts(GRAPH, 2, 1), r"its workers need no servers"),
        (question(1.0, 1.0, graph=chain(3, update_scope="model")), r"the optimizer must see all parameters at once"),
        (
            question(*[1.0] * 4, graph=chain(3, indivisible="the loss is no mean over samples")),
            r"2 operators and 1 chunk are 2 cells, too few for 4 workers",
        ),
        (
            question(1.0, 1.0, graph=chain(1 << 22, 1 << 22), memory=20 << 20),
            r"parameters, gradients and optimizer state need 64 MiB, and the ranks have room for \(MiB\): n0 20, "
            r"n1 20. Add nodes, or",
        ),
        (
            question(1.0, 1.0, graph=chain(1 << 22, 10), memory=20 << 20),
            r"A needs 32 MiB for its parameters, gradients and optimizer state, and the ranks have room for \(MiB\): "
            r"n0 20, n1 20. Use a node with more memory.",
        ),
    ],
)
def test_what_it_cannot_do_is_said_with_the_numbers(asked, why):

    assert re.search(why, ByHypergraph().accepts(asked) or "")


def test_interchangeable_ranks_are_numbered_by_where_they_begin():
    for each in proposals(question(1.0, 1.0, 1.0)):
        ranks = [rank for row in each.placement.owners.values() for rank in row]
        assert list(dict.fromkeys(ranks)) == sorted(set(ranks))
