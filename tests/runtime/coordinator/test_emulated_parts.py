"""Which samples live on each node of an emulated cluster, and on one that joins while others train."""

from dataclasses import replace

import pytest
from coordinated import file, orders
from living_hosts import Coordinated, begun, lives, newcomer
from pretended import cluster

from nfold.core.cluster import Cluster
from nfold.core.job import Begun, JobSettings
from nfold.core.options.host_range import HostRange
from nfold.core.residency import NodeData, PlacedData
from nfold.errors import ProgramError
from nfold.planning.residency.node_inventory import Inventory
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.placing.emulated_parts import part_of, parts_of
from nfold.runtime.coordinator.placing.residing import reside_order


def box_of(**held: int) -> Cluster:
    """An emulated cluster whose nodes hold samples."""
    nodes = cluster(*(name.replace("_", "-") for name in held)).nodes
    held_by = zip(nodes, held.values(), strict=True)
    return Cluster(nodes=tuple(replace(node, num_samples=number) for node, number in held_by), is_emulated=True)


BOX = box_of(late=5, first=30, idle=0, other=20)
RANGE = HostRange(least=1, most=4)


def settings(*nodes: str, members: tuple[NodeData, ...] = (), hosts: HostRange | None = RANGE) -> JobSettings:
    begun = None
    if members:
        placed = PlacedData(members=members, key="key", sample_bytes=1.0, runs=(), plan=None)
        begun = Begun(batch_size=5, steps_per_epoch=10, placed=placed)
    return JobSettings(workers=len(nodes), nodes=nodes, hosts=hosts, box=BOX, place="auto", begun=begun)


def firsts(asked: JobSettings) -> list[tuple[int, int]]:
    return [(part["first"], part["total"]) for part in parts_of(asked) if part is not None]


def test_what_lives_on_a_node_follows_from_its_place_in_the_file_whoever_is_there():
    asked = settings("first", "idle", "other")
    assert firsts(asked) == [(5, 55), (35, 55), (35, 55)]
    assert part_of(asked, "late") == {"first": 0, "count": 5, "total": 55, "pinned": 0}


CAME = (NodeData(node="first", num_samples=30), NodeData(node="other", num_samples=20))
BROUGHT = NodeData(node="late", num_samples=5, is_brought=True)


@pytest.mark.parametrize("hosts", [RANGE, None])
def test_a_run_whose_nodes_have_come_and_gone_goes_on_with_the_parts_that_they_had(hosts):
    assert firsts(settings("first", "other", members=CAME, hosts=hosts)) == [(5, 55), (35, 55)]
    members = (*CAME, BROUGHT)
    assert firsts(settings("late", "first", "other", members=members, hosts=hosts)) == [(0, 55), (5, 55), (35, 55)]


def test_nodes_of_a_run_in_which_none_came_may_have_another_order_in_the_file():
    members = (*CAME, replace(BROUGHT, is_brought=False))
    assert firsts(settings("late", "first", "other", members=members, hosts=None)) == [(50, 55), (0, 55), (30, 55)]
    more = (replace(members[0], num_samples=31), *members[1:])
    with pytest.raises(ProgramError, match=r"was begun when first held 31 samples, and the .* cluster gives it 30"):
        parts_of(settings("late", "first", "other", members=more, hosts=None))


def emulated(*inventories: Inventory) -> Coordinated:
    """A job that trains on emulated nodes."""
    box = box_of(pi_9=5, box=50, box_2=50)
    given = replace(box, nodes=box.nodes[1:])
    job = begun(*inventories, cluster=given, box=box)
    job.until_training()
    return job


def test_who_joins_is_told_what_lives_on_it_and_nobody_stops_to_measure_it():
    job = emulated(lives(50), lives(50, digest="others"))
    newcomer(job, lives(5, digest="mine"))
    load = next(each.message for each in job.told if orders([each]) == ["2 load"])
    assert load["lives"] == {"first": 0, "count": 5, "total": 105, "pinned": 0}
    assert orders(job.say(2, "resides", schedule={}, costs=None)) == ["2 listen"]
    job.say(2, "listening", address=["10.0.0.1", 5002])
    job.all_step(0, 1, 2, 3)
    job.say(1, "checkpoint", has_file=False)
    job.say(0, "checkpoint", file("epoch"), has_file=True)
    assert orders(job.handle(ev.StateTaken(b"header"))) == ["012 connect"]
    assert orders(job.all_say("connected", (0, 1, 2)))[-3:] == ["0 move", "1 move", "2 move"]
    built = orders(job.all_say("moved", (0, 1, 2), bytes=0, seconds=0.1))
    assert built == ["Moved", "Placed", "Replanned", "0 build", "1 build", "2 build"]


def test_what_comes_to_a_node_that_joins_has_the_room_that_its_file_says():
    roomy = replace(BOX.nodes[0], storage_bytes=1000)
    asked = replace(settings("first"), box=replace(BOX, nodes=(roomy, *BOX.nodes[1:])))
    members = (*CAME, BROUGHT)
    assert [reside_order(asked, "key", members, number, 100.0)["most_bytes"] for number in (0, 2)] == [None, 500]
