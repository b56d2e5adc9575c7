"""Options of a run that goes on whose data live on nodes of an emulated cluster."""

from types import SimpleNamespace
from typing import Any

import pytest

from nfold.core.residency import NodeData, PlacedData
from nfold.core.text.cluster_file import parse_cluster
from nfold.planning.residency.epoch_steps import EpochSteps
from nfold.program import ProgramSource
from nfold.verbs.options.job_record import record_of
from nfold.verbs.options.option_checks import Options
from nfold.verbs.running.going_on import resumed_options

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
    placed = PlacedData(members=members, key="key", sample_bytes=1.0, runs=(), plan=None)
    return SimpleNamespace(path=tmp_path / "run", record=lambda: record, placed=lambda: placed)


def test_it_begins_without_nodes_whose_samples_it_does_not_know(folder):
    options = resumed_options(folder, 2, {"nodes": "1:3"})
    assert (options.strangers, options.rank_nodes, options.workers) == (("late",), ("n-0", "n-1"), 2)
    joined = resumed_options(folder, 2, {"nodes": "1:3", "fault": ["join late@1s"]})
    assert joined.member_nodes == ("n-0", "n-1", "late")


def test_without_a_range_each_node_has_a_rank_though_fewer_were_there_last(folder):
    assert resumed_options(folder, 2, {}).workers == 3
