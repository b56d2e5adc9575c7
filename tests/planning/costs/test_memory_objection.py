"""What does not fit is said node by node, with figures that can be told apart."""

from dataclasses import replace

import pytest
from grids import chain, channel, facts, profile

from nfold.core.cluster import Cluster, Node
from nfold.core.placement import Placement
from nfold.core.plan import Prediction
from nfold.planning.costs.memory_objection import memory_objection
from nfold.planning.inputs.facts import Proposal
from nfold.planning.reductions.reductions_without_servers import reductions_of

MIB = 1 << 20
GRAPH = chain(2 * MIB, 2 * MIB, 2 * MIB)
"""Three operators with 8 MiB of weights each, and the loss."""


def node(name, mib):
    return Node(name=name, cores=1.0, memory_bytes=int(mib * MIB), local=channel())


def question(*rooms, evaluates=False):
    names = tuple(f"n{index}" for index in range(len(rooms)))
    nodes = tuple(node(name, mib) for name, mib in zip(names, rooms, strict=True))
    costly = profile(GRAPH, base_bytes=100 * MIB, optimizer_bytes=2 * 24 * MIB)
    return facts(
        GRAPH,
        len(rooms),
        cluster=Cluster(nodes=nodes),
        nodes=names,
        profiles={1: costly},
        evaluates=evaluates,
    )


def staged(asked, *ranks):
    """An operator for each of some ranks."""
    owners = {operator.name: (rank,) * 4 for operator, rank in zip(GRAPH.operators, ranks, strict=True)}
    placement = Placement(num_chunks=4, world_size=max(ranks) + 1, owners=owners)
    return Proposal(
        placement=placement, reductions=reductions_of(asked, placement), workers=placement.world_size, servers=0
    )


def predicted(*mib):
    peaks = tuple(int(each * MIB) for each in mib)
    return Prediction(step_s=1.0, sent_bytes_per_step=0, peak_memory_bytes=peaks)


def ranks_of(graph, last):
    """The first operators one by one, the others on the last rank."""
    return [min(index, last) for index in range(len(graph.operators))]


def test_every_node_that_is_too_small_is_named():
    asked = question(200, 210, 5000)
    told = memory_objection(asked, staged(asked, *ranks_of(GRAPH, 2)), predicted(300, 310, 320))
    assert told is not None
    assert told.startswith("1 rank needs 300 MiB on n0, which has 200 MiB (32 MiB of it for weights, gradients and")
    assert "; 1 rank needs 310 MiB on n1, which has 210 MiB (" in told
    assert "n2" not in told


@pytest.mark.parametrize(
    ("needed", "there", "told"),
    [
        (200 + 1 / 2048, 200, "needs 201 MiB on n0, which has 200 MiB"),
        (200.4, 199.9, "needs 201 MiB on n0, which has 199 MiB"),
        (10.01 * 1024, 10.24 * 1000, "needs 10.1 GiB on n0, which has 10.0 GiB"),
    ],
)
def test_a_node_with_what_is_told_to_be_needed_is_large_enough(needed, there, told):
    asked = question(there, 50_000, 50_000)
    why = memory_objection(asked, staged(asked, *ranks_of(GRAPH, 2)), predicted(needed, 1, 1))
    assert why is not None
    assert why.startswith(f"1 rank {told} (")


def whole_model(asked, workers):
    owners = {operator.name: tuple(range(workers)) for operator in GRAPH.operators}
    placement = Placement(num_chunks=workers, world_size=workers, owners=owners)
    return Proposal(placement=placement, reductions=reductions_of(asked, placement), workers=workers, servers=0)


@pytest.mark.parametrize(
    ("nodes", "listed"),
    [(2, "n0 and n1"), (4, "n0, n1, n2 and n3"), (7, "n0, n1, n2 and 4 more")],
)
def test_nodes_alike_are_told_together(nodes, listed):
    asked = question(*[200] * nodes)
    told = memory_objection(asked, whole_model(asked, nodes), predicted(*[300] * nodes))
    assert told is not None
    assert told.startswith(f"1 rank needs 300 MiB on each of {listed}, which have 200 MiB (")
    assert told.count("rank needs") == 1


def test_of_many_unlike_nodes_the_first_are_told():
    asked = question(*range(10, 17))
    told = memory_objection(asked, whole_model(asked, 7), predicted(*[300] * 7))
    assert told is not None
    assert (told.count("rank needs"), "; and so on for 3 more. Use" in told) == (4, True)


@pytest.mark.parametrize(("rooms", "fits"), [((132, 132, 132), True), ((132, 131, 132), False)])
def test_every_rank_builds_the_whole_model(rooms, fits):
    """100 MiB for the process, 24 for weights and 8 for the gradient of one."""
    asked = question(*rooms)
    told = memory_objection(asked, staged(asked, *ranks_of(GRAPH, 2)), predicted(120, 120, 120))
    if fits:
        assert told is None
    else:
        assert told is not None
        assert "1 rank needs 132 MiB on n1, which has 131 MiB (to build the whole model before it is cut)" in told


def test_rank_0_fetches_the_whole_model_to_evaluate_it():
    """100 MiB for the process, 24 for the model, and 32 for its own weights, gradients and state."""
    for evaluates in (False, True):
        asked = question(155, 155, 155, evaluates=evaluates)
        told = memory_objection(asked, staged(asked, *ranks_of(GRAPH, 2)), predicted(132, 132, 132))
        assert (told is not None) is evaluates
    assert told is not None
    assert "needs 156 MiB on n0, which has 155 MiB (to evaluate the whole model, which rank 0 fetches)" in told


def test_who_holds_the_whole_model_needs_no_more_between_steps():
    asked = question(130, 130)
    assert memory_objection(asked, whole_model(asked, 2), predicted(120, 120)) is None


def advice(told):
    return told[told.rindex(" Use ") + 1 :]


def test_what_helps_follows_from_what_has_no_room():
    """Neither chunks nor workers change what one rank needs to build the whole model, or to fetch it."""
    trains, builds, evaluates = (
        question(200, 200, 200),
        question(131, 131, 131),
        question(155, 155, 155, evaluates=True),
    )
    stages = staged(trains, *ranks_of(GRAPH, 2))
    told = [
        memory_objection(trains, stages, predicted(300, 120, 120)),
        memory_objection(builds, stages, predicted(120, 120, 120)),
        memory_objection(evaluates, stages, predicted(156, 120, 120)),
    ]
    assert [advice(each) for each in told] == [
        "Use another node.",
        "Use another node.",
        "Use another first node or no test_data().",
    ]


def test_fewer_workers_help_where_several_share_a_node():
    builds = replace(question(395, 395, 395), nodes=("n0",) * 3)
    told = memory_objection(builds, staged(builds, *ranks_of(GRAPH, 2)), predicted(120, 120, 120))
    assert told is not None
    assert advice(told) == "Use fewer ranks on that node or another node."
    evaluates = replace(question(390, 390, 390, evaluates=True), nodes=("n0",) * 3)
    told = memory_objection(evaluates, staged(evaluates, *ranks_of(GRAPH, 2)), predicted(156, 120, 120))
    assert told is not None
    assert "3 ranks need 396 MiB on n0, which has 390 MiB (to evaluate the whole model" in told
    assert advice(told) == "Use fewer ranks on that node, another first node, or no test_data()."
