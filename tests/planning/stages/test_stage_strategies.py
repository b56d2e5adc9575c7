"""Pipelines and hybrids: what they propose on equal and unequal machines, and what they refuse."""

import itertools
from dataclasses import replace

import pytest
from grids import chain, channel, facts, profile

from nfold.core.cluster import Cluster, Node
from nfold.errors import PlanError
from nfold.planning.choosing.search import plan, plan_as_asked
from nfold.planning.choosing.strategies import named
from nfold.planning.costs.machines import machines_of, orders, teams
from nfold.planning.stages.stage_costs import Grid, StageCosts
from nfold.planning.stages.stage_division import groups
from nfold.planning.stages.stage_strategies import Hybrid, Pipeline, runs_of, stage_sizes

GRAPH = chain(1000, 300, 7, 50)
UNCUT = chain(10, indivisible="the loss is no mean over samples")


def uneven(graph, *speeds, memory=(), link=None, **fields):
    """A node for each speed, with links of 100 MB/s."""
    link = link or channel()
    rooms = memory or (1 << 40,) * len(speeds)
    nodes = tuple(
        Node(
            name=f"n{index}",
            cores=1.0,
            memory_bytes=memory_bytes,
            speed=speed,
            local=link,
            uplink=link,
            downlink=link,
        )
        for index, (speed, memory_bytes) in enumerate(zip(speeds, rooms, strict=True))
    )
    return facts(graph, len(speeds), cluster=Cluster(nodes=nodes), nodes=tuple(node.name for node in nodes), **fields)


@pytest.mark.parametrize(
    ("strategy", "question", "reason"),
    [
        (Pipeline(), facts(GRAPH, 1), "one worker has nobody to share the model with"),
        (Pipeline(), facts(GRAPH, 2, 1), "its workers need no servers"),
        (Hybrid(), facts(GRAPH, 2, 1), "its workers need no servers"),
        (
            Pipeline(),
            facts(chain(10, update_scope="model"), 2),
            "the optimizer must see all parameters at once, so each worker must hold the whole model",
        ),
        (
            Pipeline(),
            facts(GRAPH, 9),
            "9 workers need a stage each, and only 5 of the 5 operators take time",
        ),
        (
            Hybrid(),
            facts(chain(10, update_scope="model"), 2),
            "the optimizer must see all parameters at once, so each worker must hold the whole model, and equally "
            "fast workers would share the batch as a ring does",
        ),
        (Hybrid(), facts(UNCUT, 2), "the batch cannot be cut into chunks: the loss is no mean over samples"),
        (Hybrid(), uneven(chain(10, update_scope="model"), 1.0, 2.0), None),
        (Pipeline(), facts(UNCUT, 2), None),
        (Pipeline(), uneven(GRAPH, *(1.0,) * 5, *(0.1,) * 4), None),
        (Hybrid(), uneven(chain(10), 1.0, 1.0, 0.1, 0.1, 0.1, chunks=2), None),
        (Pipeline(), facts(GRAPH, 2), None),
        (Hybrid(), facts(GRAPH, 2), None),
    ],
)
def test_what_they_refuse(strategy, question, reason):
    assert strategy.accepts(question) == reason
    if reason is None:
        assert list(strategy.propose(question))


def test_a_team_that_is_small_enough_has_the_work():
    slow_ones = uneven(GRAPH, *(1.0,) * 5, *(0.1,) * 4)
    assert used(plan(slow_ones, "pipeline")) <= {0, 1, 2, 3, 4}
    few_chunks = uneven(chain(10, update_scope="model"), 1.0, 1.0, 0.1, 0.1, 0.1, chunks=2)
    assert used(plan(few_chunks, "hybrid")) == {0, 1}


def used(proposal):
    return {rank for ranks in proposal.placement.owners.values() for rank in ranks}


@pytest.mark.parametrize(
    ("speeds", "teams_"),
    [
        ((1.0, 1.0, 1.0), [{0, 1, 2}]),
        ((1.0, 0.9, 0.7), [{0, 1, 2}]),
        ((1.0, 0.1, 0.9), [{0, 1, 2}, {0, 2}]),
        ((2.0, 1.0, 0.5, 0.5), [{0, 1, 2, 3}, {0, 1}]),
        ((0.5, 0.5, 1.0, 2.0), [{0, 1, 2, 3}, {2, 3}, {3}]),
        ((0.5, 0.7, 1.0, 1.4), [{0, 1, 2, 3}, {2, 3}, {3}]),
        ((0.1, 1.0), [{0, 1}, {1}]),
        ((1.0, 1.4), [{0, 1}, {1}]),
        ((1.4, 1.0), [{0, 1}]),
        ((1.0, 1.05), [{0, 1}]),
    ],
)
def test_teams_leave_out_who_is_much_slower(speeds, teams_):
    machines = machines_of(uneven(GRAPH, *speeds))
    assert [{machine.rank for machine in team} for team in teams(machines)] == teams_


def ranks_of(question):
    return [{machine.rank for machine in team} for team in teams(machines_of(question))]


@pytest.mark.parametrize(
    ("speeds", "memory", "teams_"),
    [
        ((1.0, 1.0), (1 << 30, 1 << 31), [{0, 1}, {1}]),
        ((1.0, 1.0), (1 << 31, 1 << 30), [{0, 1}]),
        ((1.0, 1.0), (100 << 20, 105 << 20), [{0, 1}]),
        ((1.0, 1.2, 1.4, 1.0), (9 << 30, 6 << 30, 1 << 30, 8 << 30), [{0, 1, 2, 3}, {2}, {1}]),
    ],
)
def test_the_fastest_of_those_that_have_more_memory_are_teams_alone(speeds, memory, teams_):
    assert ranks_of(uneven(GRAPH, *speeds, memory=memory)) == teams_


def test_who_has_more_threads_is_faster():
    profiles = {count: profile(GRAPH, 1e-3 / count, num_threads=count) for count in (1, 4)}
    question = uneven(GRAPH, 1.0, 1.0, profiles=profiles)
    few, many = question.cluster.nodes
    question = replace(question, cluster=Cluster(nodes=(few, replace(many, cores=4.0))))
    assert ranks_of(question) == [{0, 1}, {1}]


@pytest.mark.parametrize("graph", [GRAPH, UNCUT])
def test_one_node_alone_may_be_another_than_the_first(graph):
    slow = channel(1e3, latency_s=1.0)
    question = uneven(graph, 1.0, 1.4, link=slow)
    found, first = plan(question), plan(replace(question, workers=1, nodes=("n0",)))
    assert used(found) == {1}
    assert found.predicted.step_s == pytest.approx(first.predicted.step_s / 1.4, rel=0.02)


SAVING = chain(1000, 1000, 1000, 1000)
"""16 kB of weights, and each of its five operators keeps 1 kB of each sample for its backward."""


def short_of_room(*memory):
    """Nodes where the process takes 10 kB, and chunks are of two or more of 32 samples."""
    keeping = profile(SAVING, base_bytes=10_000, optimizer_bytes=32_000, activation_bytes_per_sample=5e3)
    return uneven(SAVING, *(1.0,) * len(memory), memory=memory, profiles={1: keeping})


@pytest.mark.parametrize(
    ("memory", "teams_"),
    [
        ((1 << 20, 1 << 20, 1 << 20), [{0, 1, 2}]),
        ((1 << 20, 1 << 21, 1 << 22), [{0, 1, 2}, {2}]),
        ((1 << 20, 1 << 20, 30_000), [{0, 1, 2}, {0, 1}]),
        ((1 << 20, 10_001, 1 << 20), [{0, 1, 2}, {0, 2}]),
        ((1 << 20, 5_000, 1 << 20), [{0, 1, 2}, {0, 2}]),
        ((13_000, 13_000, 12_100), [{0, 1, 2}, {0, 1}]),
        ((5_000, 5_000, 5_000), [{0, 1, 2}]),
    ],
)
def test_teams_leave_out_who_has_no_room_for_what_the_others_have(memory, teams_):
    assert ranks_of(short_of_room(*memory)) == teams_


@pytest.mark.parametrize("strategy", ["pipeline", "hybrid", "hypergraph", "auto"])
def test_a_node_that_can_only_build_the_model_is_left_idle(strategy):
    """It has room for the process and the weights, and for no operator of the smallest chunk."""
    found = plan(short_of_room(1 << 20, 1 << 20, 28_000), strategy)
    assert used(found) == {0, 1}


def test_a_node_that_cannot_hold_the_process_is_told_with_what_that_needs():
    with pytest.raises(PlanError, match=r"pipeline: 1 rank needs 1 MiB on n2, which has 0 MiB \(to build"):
        plan_as_asked(short_of_room(1 << 20, 1 << 20, 5_000), "pipeline", among=(named("pipeline"),))


def test_teams_leave_out_who_is_much_worse_linked():
    question = uneven(GRAPH, 1.0, 1.0, 1.0)
    nodes = list(question.cluster.nodes)
    nodes[1] = replace(nodes[1], uplink=replace(nodes[1].uplink, bandwidth_bytes_per_s=1e6))
    question = replace(question, cluster=Cluster(nodes=tuple(nodes)))
    assert [{machine.rank for machine in team} for team in teams(machines_of(question))] == [{0, 1, 2}, {0, 2}]
    whole = [used(each) for each in Hybrid().propose(question) if len(set(each.placement.owners.values())) == 1]
    assert {0, 2} in whole, "data parallelism without the slow link"


def test_teams_leave_out_one_who_is_slow_and_one_who_is_badly_linked():
    question = uneven(GRAPH, 1.0, 1.0, 0.1, 1.0)
    nodes = list(question.cluster.nodes)
    nodes[1] = replace(nodes[1], uplink=replace(nodes[1].uplink, bandwidth_bytes_per_s=1e6))
    machines = machines_of(replace(question, cluster=Cluster(nodes=tuple(nodes))))
    found = [{machine.rank for machine in team} for team in teams(machines)]
    assert found == [{0, 1, 2, 3}, {0, 1, 3}, {0, 2, 3}, {0, 3}]


def test_an_even_model_that_cannot_be_cut_may_use_the_badly_linked_too():
    question = uneven(chain(10, update_scope="model"), 1.0, 1.0, 1.0)
    nodes = list(question.cluster.nodes)
    nodes[1] = replace(nodes[1], uplink=replace(nodes[1].uplink, bandwidth_bytes_per_s=1e6))
    question = replace(question, cluster=Cluster(nodes=tuple(nodes)))
    assert Hybrid().accepts(question) is None
    assert used(next(iter(Hybrid().propose(question)))) == {0, 1, 2}


def test_chunks_are_as_many_as_a_team_can_share_evenly():
    question = uneven(chain(10, update_scope="model"), 1.0, 1.0, 1.0, 0.01, batch_size=96)
    three = [each.placement for each in Hybrid().propose(question) if used(each) == {0, 1, 2}]
    assert three
    assert all(each.num_chunks % 3 == 0 for each in three)


def test_a_much_slower_worker_is_left_idle_where_that_is_faster_and_the_plan_says_so():
    question = uneven(chain(10, update_scope="model"), 1.0, 1.0, 0.001, chunks=4)
    chosen = plan(question, "hybrid")
    assert used(chosen) == {0, 1}
    assert any("left without work" in note and note.endswith(": rank 2 on n2") for note in chosen.notes)


def test_a_hybrid_that_finds_no_chunk_for_a_worker_is_told():
    """Of three chunks the slowest gets none, and the first alone is what another strategy is for."""
    question = uneven(chain(10, update_scope="model"), 1.0, 0.48, 0.47, chunks=3)
    with pytest.raises(PlanError, match="--strategy hybrid: it finds no division that gives every worker something"):
        plan(question, "hybrid")
    (why,) = [loser.why for loser in plan(question).rejected if loser.strategy == "hybrid"]
    assert why.startswith("it finds no division")


def test_one_machine_does_everything_where_the_first_is_much_slower():
    question = uneven(chain(10, update_scope="model"), 0.001, 1.0, chunks=2)
    assert used(plan(question)) == {1}


def test_an_opaque_model_cannot_be_cut():
    graph = replace(chain(), notes=("it branches on its data",))
    assert Pipeline().accepts(facts(graph, 2)) == (
        "the model was captured as one operator, which cannot be cut (it branches on its data)"
    )


def test_an_opaque_model_whose_batch_cannot_be_cut_either_is_told_with_both():
    graph = replace(chain(), indivisible="forward changes centre")
    assert Pipeline().accepts(facts(graph, 2)) == (
        "the model was captured as one operator, which cannot be cut; nor can its batch: forward changes centre"
    )


def test_a_pipeline_gives_each_rank_one_stage_of_all_chunks():
    for proposal in Pipeline().propose(facts(GRAPH, 3)):
        owners = list(proposal.placement.owners.values())
        assert all(len(set(ranks)) == 1 for ranks in owners)
        stages = [rank for rank, _ in itertools.groupby(ranks[0] for ranks in owners)]
        assert sorted(stages) == [0, 1, 2]


def test_chunks_of_a_hybrid_follow_the_speeds():
    question = uneven(chain(10, update_scope="model"), 2.0, 1.0, 1.0, chunks=8)
    (proposal,) = Hybrid().propose(question)
    (ranks,) = set(proposal.placement.owners.values())
    assert [ranks.count(rank) for rank in range(3)] == [4, 2, 2]


def test_the_slow_machine_gets_the_light_stage_wherever_it_is():
    heavy_first = {1: profile(GRAPH)}
    question = uneven(GRAPH, 0.25, 1.0, chunks=4, profiles=heavy_first)
    loads = []
    for proposal in Pipeline().propose(question):
        ranks = [ranks[0] for ranks in proposal.placement.owners.values()]
        loads.append(ranks.count(0))
    assert loads[0] == 1, "one of five equal operators on a quarter of the speed"


def test_more_equal_machines_than_runs_share_stages():
    proposals = list(Hybrid().propose(facts(chain(1000), 4, batch_size=64)))
    assert proposals
    assert all(
        set(rank for ranks in each.placement.owners.values() for rank in ranks) == {0, 1, 2, 3} for each in proposals
    )


def test_memory_that_allows_no_division_still_proposes_one_to_say_what_it_lacks():
    node = Node(name="box", cores=16.0, memory_bytes=10, local=channel())
    assert list(Pipeline().propose(facts(GRAPH, 2, cluster=Cluster(nodes=(node,)))))


def test_orders_of_equal_machines_are_one():
    assert len(list(orders(machines_of(facts(GRAPH, 8)), 24))) == 1


def test_all_orders_of_two_kinds_are_looked_at_and_few_of_many():
    assert len(list(orders(machines_of(uneven(GRAPH, 1.0, 1.0, 2.0, 2.0)), 24))) == 6
    many = list(orders(machines_of(uneven(GRAPH, *map(float, range(1, 9)))), 10))
    assert len(many) == 10
    assert all(sorted(each.rank for each in order) == list(range(8)) for order in many)
    assert [each.rank for each in many[0]] == list(range(8))[::-1]


def test_a_stage_may_have_any_number_of_equal_or_few_machines_and_some_numbers_of_many_unlike_ones():
    unlike = machines_of(uneven(GRAPH, *map(float, range(1, 25))))
    assert stage_sizes(machines_of(facts(GRAPH, 24)), 24) == tuple(range(1, 25))
    assert stage_sizes(unlike[:16], 15) == tuple(range(1, 16))
    assert stage_sizes(unlike, 23) == (1, 2, 3, 4, 6, 8, 12, 16, 23)
    assert stage_sizes(unlike, 1) == (1,)


def test_orders_of_one_team_share_what_stages_cost():
    question = uneven(GRAPH, 4.0, 1.0, 1.0, 1.0, 1.0)
    grid, machines = Grid(question, runs_of(question), 10), machines_of(question)
    worked_out = []
    for order in (machines, machines[::-1]):
        costs = StageCosts(grid, order, limited=False)
        for first, last in groups(5, (1, 2)):
            costs.seconds(first, last)
        worked_out.append(len(grid.known))
    assert worked_out == [4, 5], "fast, slow, fast and slow, slow and slow; then slow and fast"


def test_ranks_of_one_node_share_its_cores_links_and_memory():
    node = Node(
        name="a", cores=1.0, memory_bytes=100, local=channel(), uplink=channel(4e6), downlink=channel(8e6), speed=0.5
    )
    other = replace(node, name="b", uplink=channel(3e6))
    question = facts(GRAPH, 3, cluster=Cluster(nodes=(node, other)), nodes=("a", "a", "b"))
    machines = machines_of(question)
    assert [each.pace for each in machines] == [4.0, 4.0, 2.0]
    assert [each.bandwidth_bytes_per_s for each in machines] == [2e6, 2e6, 3e6]
    assert [each.memory_bytes for each in machines] == [50, 50, 100]
