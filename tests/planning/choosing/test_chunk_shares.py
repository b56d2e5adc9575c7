"""Plans for nodes that train on the samples that live on them: unequal chunks, each whole on its rank."""

from dataclasses import replace

import pytest
from grids import chain, channel, facts

from nfold.core import codec
from nfold.core.cluster import Cluster, Node
from nfold.core.plan import Plan
from nfold.errors import PlanError
from nfold.planning.choosing.candidates import estimate_proposal, simulate_proposal
from nfold.planning.choosing.search import plan
from nfold.planning.choosing.strategies import STRATEGIES, named, objection_to
from nfold.planning.inputs.facts import proposal_of
from nfold.planning.scheduling.rank_schedules import rank_schedules

GRAPH = chain(100_000, 50_000)
WHOLE = ("ring", "ps", "weighted")
SHARES = (0.25, 0.75)


def question(shares=SHARES, speeds=(1.0, 3.0), **fields):
    """Each rank on a node of its own."""
    link = channel()
    nodes = tuple(
        Node(name=f"n{i}", cores=1.0, memory_bytes=1 << 40, local=link, uplink=link, downlink=link, speed=speed)
        for i, speed in enumerate(speeds)
    )
    given = {"cluster": Cluster(nodes=nodes), "nodes": tuple(node.name for node in nodes), **fields}
    return facts(GRAPH, len(speeds), chunk_shares=shares, **given)


def test_the_seconds_of_a_rank_are_those_of_what_lives_on_it():
    equal, uneven = question(()), plan(question(SHARES), "ring")
    even = simulate_proposal(equal, "ring", next(iter(named("ring").propose(equal))))
    assert uneven.chunk_shares == SHARES
    assert even.loads_s[0] == pytest.approx(3 * even.loads_s[1])
    assert uneven.loads_s[0] == pytest.approx(uneven.loads_s[1])
    assert uneven.loads_s[0] == pytest.approx(even.loads_s[0] / 2)
    assert uneven.predicted.step_s < even.predicted.step_s
    assert uneven.predicted.sent_bytes_per_step == even.predicted.sent_bytes_per_step


@pytest.mark.parametrize("strategy", WHOLE)
def test_what_is_estimated_is_what_is_simulated(strategy):
    for proposal in named(strategy).propose(question()):
        estimated, _ = estimate_proposal(question(), strategy, proposal)
        simulated = simulate_proposal(question(), strategy, proposal)
        assert estimated.predicted.step_s == pytest.approx(simulated.predicted.step_s, rel=0.05)
        assert estimated.predicted.peak_memory_bytes == simulated.predicted.peak_memory_bytes


def test_a_plan_is_played_again_with_its_shares():
    found = plan(question(), "ring")
    again = simulate_proposal(question(), "ring", proposal_of(found))
    assert again.predicted == found.predicted
    assert rank_schedules(found, GRAPH, question().profiles) == again.scenario.schedule.ranks


def test_the_best_plan_is_one_in_which_each_chunk_is_whole_on_its_rank():
    found = plan(question())
    assert found.strategy in WHOLE
    assert {each.strategy for each in found.rejected if each.predicted.step_s is not None} <= set(WHOLE)


@pytest.mark.parametrize("strategy", [each.name for each in STRATEGIES if each.name not in (*WHOLE, "single")])
def test_plans_that_would_read_samples_of_others_are_refused(strategy):
    with pytest.raises(PlanError, match=f"--strategy {strategy}: .* samples"):
        plan(question(), strategy)


@pytest.mark.parametrize(
    ("asked", "strategy", "message"),
    [
        (question((0.2, 0.3, 0.5)), "ring", "the samples live on 3 nodes, and each trains on its own"),
        (question(chunks=4), "ps", "the samples live on 2 nodes, so a batch has 2 chunks, not 4"),
        (question(), "single", "the samples live on 2 nodes, and each trains on its own"),
    ],
)
def test_other_numbers_of_ranks_or_chunks_than_there_are_nodes_are_refused(asked, strategy, message):
    assert message in objection_to(named(strategy), asked)


def test_one_device_may_train_on_the_chunks_of_several():
    alone = replace(question(), workers=1, nodes=("n0",), chunks=2)
    assert plan(alone, "single").chunk_shares == SHARES


def test_a_node_with_next_to_nothing_is_no_reason_to_refuse():
    assert plan(question((0.999, 0.001)), "ring").loads_s[1] == 0.0


def test_plans_of_before_there_were_shares_are_read():
    document = codec.encode(plan(facts(GRAPH), "ring"))
    del document["chunk_shares"]
    assert codec.decode(Plan, document).chunk_shares == ()
