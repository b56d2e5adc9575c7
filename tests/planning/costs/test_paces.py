"""Nodes that are not equally fast: each rank's cells in an order that fits, written down in the plan."""

import random

import pytest
from grids import chain, channel, facts, place

from nfold.analysis.resimulating.playback import play_back
from nfold.core import codec
from nfold.core.cluster import Cluster, Node
from nfold.core.plan import Plan
from nfold.planning.choosing.candidates import simulate_proposal
from nfold.planning.choosing.search import to_plan
from nfold.planning.costs.machines import paces_of
from nfold.planning.costs.task_seconds import task_seconds
from nfold.planning.inputs.facts import Proposal
from nfold.planning.reductions.reductions_without_servers import reductions_of
from nfold.planning.scheduling.schedule_compiler import compile_schedule
from nfold.simulation import simulate

SPEEDS = (2.0, 1.0, 0.5, 0.5)
NAMES = ("a", "b", "c", "d")
BATCH_SIZE = 32


def asked(graph, speeds=SPEEDS, bandwidth_bytes_per_s=1e9):
    """A question about nodes of one core with links of their own."""
    link = channel(bandwidth_bytes_per_s, 1e-6)
    nodes = tuple(
        Node(name=name, cores=1.0, memory_bytes=1 << 30, speed=speed, local=channel(), uplink=link, downlink=link)
        for name, speed in zip(NAMES, speeds, strict=True)
    )
    return facts(graph, 4, cluster=Cluster(nodes=nodes), nodes=NAMES, batch_size=BATCH_SIZE)


def proposed(question, owners):
    placement = place(owners, 4)
    return Proposal(placement=placement, reductions=reductions_of(question, placement), workers=4, servers=0)


def as_if_alike(question, proposal):
    """Seconds of a step whose cells are ordered as if all nodes were equally fast."""
    profile, chunks = question.profiles[1], proposal.placement.num_chunks
    schedule = compile_schedule(
        question.graph,
        proposal.placement,
        proposal.reductions,
        batch_size=BATCH_SIZE,
        operator_seconds=profile.operators_s(BATCH_SIZE / chunks),
    )
    seconds = task_seconds(schedule, question, (profile,) * 4, (1,) * 4)
    played = simulate(schedule, task_seconds=seconds, cluster=question.cluster, nodes=NAMES, threads=(1,) * 4)
    return max(played.step_s)


def a_pipeline(num_operators, chunks, shares):
    """Stages in the order of the ranks, each of its share of the operators."""
    ranks = [rank for rank, share in enumerate(shares) for _ in range(share)]
    names = [chr(ord("A") + index) for index in range(num_operators - 1)] + ["Loss"]
    return {name: (rank,) * chunks for name, rank in zip(names, ranks, strict=True)}


def test_stages_on_unequal_nodes_take_less_time_when_the_order_knows_how_fast_they_are():
    question = asked(chain(4, 4, 4, 4, 4, 4, 4))
    proposal = proposed(question, a_pipeline(8, 8, (4, 2, 1, 1)))
    found = simulate_proposal(question, "pipeline", proposal)
    assert found.paces == (0.5, 1.0, 2.0, 2.0)
    assert found.predicted.step_s < 0.97 * as_if_alike(question, proposal)


@pytest.mark.parametrize("bandwidth_bytes_per_s", [1e9, 2e4])
@pytest.mark.parametrize("seed", range(6))
def test_no_placement_takes_longer_than_as_if_all_were_alike(seed, bandwidth_bytes_per_s):
    drawn = random.Random(seed)
    graph = chain(*[4] * drawn.choice([4, 6, 8]))
    question = asked(graph, bandwidth_bytes_per_s=bandwidth_bytes_per_s)
    owners = {operator.name: tuple(drawn.randrange(4) for _ in range(4)) for operator in graph.operators}
    proposal = proposed(question, owners)
    assert simulate_proposal(question, "any", proposal).predicted.step_s <= as_if_alike(question, proposal)


def test_the_plan_alone_says_the_order():
    question = asked(chain(4, 4, 4, 4, 4, 4, 4))
    found = simulate_proposal(question, "pipeline", proposed(question, a_pipeline(8, 8, (4, 2, 1, 1))))
    plan = codec.loads(Plan, codec.dumps(to_plan(question, found)))
    compiled = compile_schedule(
        question.graph,
        plan.placement,
        plan.reductions,
        batch_size=plan.batch_size,
        operator_seconds=question.profiles[1].operators_s(plan.batch_size / plan.chunks),
        paces=plan.paces,
    )
    assert compiled == found.scenario.schedule
    assert max(play_back(plan, question).trace.step_s) == found.predicted.step_s


def test_a_noisy_measurement_makes_no_other_order():
    question = asked(chain(4, 4, 4), speeds=(1.0, 1.04, 0.97, 1.0))
    assert paces_of(question, (1,) * 4, 8) == ()


def test_who_computes_whole_chunks_needs_no_paces():
    question = asked(chain(4, 4))
    proposal = proposed(question, {name: (0, 1, 2, 3) for name in ("A", "B", "Loss")})
    assert simulate_proposal(question, "ring", proposal).paces == ()
