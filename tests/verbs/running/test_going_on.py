"""Options of a run that goes on whose data live on nodes of an emulated cluster."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from nfold.core.residency import EpochSamples, NodeData, PlacedData, PlacedRun, RankSamples
from nfold.core.text.cluster_file import parse_cluster
from nfold.errors import PlanError
from nfold.planning.residency.epoch_steps import EpochSteps
from nfold.program import ProgramSource
from nfold.verbs.options.job_record import record_of
from nfold.verbs.options.option_checks import Options
from nfold.verbs.running.going_on import resumed_of, resumed_options

FILE = """
[[node]]
name = "late"
samples = 5
uplink = "1 Gbit/s"

[[node]]
name = "n"
count = 2
samples = 20
uplink = "1 Gbit/s"
"""


@pytest.fixture
def folder(tmp_path):
    """That of a run which one node was to join, and one has left."""
    script = tmp_path / "mine.py"
    script.touch()
    begun = Options(emulate=parse_cluster(FILE, "c.toml"), nodes="1:3", place="auto", fault=["join late@9s"])
    planned: Any = SimpleNamespace(
        plan=SimpleNamespace(workers=1, servers=0), total_steps=9, epochs=EpochSteps.even(3), recipe=None
    )
    record = record_of(ProgramSource.parse(str(script)), begun, planned, has_checkpoint=True, unkept="")
    members = tuple(NodeData(node=name, num_samples=20) for name in ("n-0", "n-1"))
    placed = PlacedData(members=members, key="key", sample_bytes=1.0, runs=(trained(0, "n-0", "n-1"),), plan=None)
    return SimpleNamespace(path=tmp_path / "run", record=lambda: record, placed=lambda: placed)


def trained(first_step, *nodes):
    """Who trained from a step on, on the first samples of all."""
    by_rank = tuple(RankSamples(own=((20 * rank, 20 * rank + 20),)) for rank in range(len(nodes)))
    epochs = (EpochSamples(from_epoch=0, by_rank=by_rank),)
    return PlacedRun(first_step=first_step, members=tuple(range(len(nodes))), nodes=nodes, epochs=epochs)


def test_it_begins_without_nodes_whose_samples_it_does_not_know(folder):
    options = resumed_options(folder, 2, {"nodes": "1:3"})
    assert (options.strangers, options.rank_nodes, options.workers) == (("late",), ("n-0", "n-1"), 2)
    joined = resumed_options(folder, 2, {"nodes": "1:3", "fault": ["join late@1s"]})
    assert joined.member_nodes == ("n-0", "n-1", "late")


def test_who_trained_last_begins_though_others_come_first_in_the_file(folder):
    placed = folder.placed()
    members = (*placed.members, NodeData(node="late", num_samples=5))
    runs = (trained(0, "late", "n-0"), trained(6, "n-1", "n-0"))
    found = replace(placed, members=members, runs=runs)
    folder.placed = lambda: found
    assert resumed_options(folder, 2, {"nodes": "1:2"}).rank_nodes == ("n-0", "n-1")
    assert resumed_options(folder, 2, {"nodes": "1:3"}).rank_nodes == ("late", "n-0", "n-1")
    found = replace(found, members=tuple(reversed(members)), runs=(trained(0, "late"), trained(6, "n-1")))
    assert resumed_options(folder, 2, {"nodes": "1:2"}).rank_nodes == ("late", "n-1"), "its samples count"


def test_faults_are_of_those_who_begin(folder):
    """The first nodes of the file are others."""
    leaves = resumed_options(folder, 2, {"nodes": "1:2", "fault": ["leave n-1@1s"]})
    assert leaves.rank_nodes == ("n-0", "n-1")
    with pytest.raises(PlanError, match="late is not among the nodes that take part by then; these are: n-0, n-1"):
        resumed_options(folder, 2, {"nodes": "1:2", "fault": ["leave late@1s"]})


def test_without_a_range_each_node_has_a_rank_though_fewer_were_there_last(folder):
    assert resumed_options(folder, 2, {}).workers == 3


def test_a_plan_for_others_than_those_whose_data_were_placed_last_is_not_gone_on_with(folder):
    """The command was killed after a node had given its samples away, and before the next plan was written."""
    cluster = parse_cluster(FILE, "c.toml")
    plan = SimpleNamespace(chunks=2, batch_size=10, nodes=("n-0", "n-1"), world_size=2)
    known = SimpleNamespace(plan=plan, cluster=cluster)
    folder.known, folder.checkpoint, folder.history = lambda: known, lambda: None, lambda until: []
    assert resumed_of(folder, {"nodes": "1:2"})[1].known is known
    placed = replace(folder.placed(), runs=(trained(0, "n-0", "n-1"), trained(4, "n-0")))
    folder.placed = lambda: placed
    assert resumed_of(folder, {"nodes": "1:2"})[1].known is None
