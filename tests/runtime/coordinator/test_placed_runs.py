"""Whole runs whose data live on their nodes, with the real coordinator: ranks are threads that say they are nodes.

What was trained is what one device trains on the same samples in the same order, whatever has moved.
"""

from dataclasses import replace
from typing import Any

import pytest
from harness import difference, graph_of, plain_loop
from nets import NUM_SAMPLES, images, program
from torch.utils.data import Subset

from nfold.core.cluster import Channel, Cluster, Node
from nfold.core.residency import PlacedData
from nfold.core.text.cluster_file import LOCAL
from nfold.errors import ClusterError, NfoldError, PlanError, ProgramError
from nfold.node_data import local_data
from nfold.runtime.data.resident_samples import ResidentSamples
from nfold.verbs.options.option_checks import Options
from nfold.verbs.ranks.thread_ranks import threads_put_back
from nfold.verbs.run_folder.folder import RunFolder
from nfold.verbs.running.observer import NullObserver
from nfold.verbs.running.run import Run, run_of
from nfold.verbs.running.run_job import Job
from nfold.verbs.train import _resumed

GRAPH = graph_of(program("plain"))
STEPS = 6
"""Two epochs."""


class Told(NullObserver):
    """Keeps what a user is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def noted(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Samples that come are kept in a folder of the test."""
    monkeypatch.setenv("NFOLD_DATA", str(tmp_path / "data"))
    with threads_put_back():
        yield


def living(holds: dict[str, int], **changes: Any) -> Any:
    """A program of which each node has the next so many samples."""
    ends = [sum([*holds.values()][: place + 1]) for place in range(len(holds))]
    parts = {name: range(end - count, end) for (name, count), end in zip(holds.items(), ends, strict=True)}
    lives = local_data(lambda node: Subset(images(), parts[node]) if node in parts else None)
    return replace(program("plain"), train_data=lives, **changes)


def machines(*names: str, mbit: dict[str, float] | None = None) -> Cluster:
    """Nodes that say of themselves what a test wants; their links are measured all the same."""
    given = {name: Channel(latency_s=0.0, bandwidth_bytes_per_s=1e9, origin="declared") for name in names}
    return Cluster(
        nodes=tuple(
            Node(name=name, cores=1.0, memory_bytes=1 << 34, local=LOCAL, uplink=each, downlink=each)
            for name, each in given.items()
        )
    )


def job(mine: Any, folder: RunFolder, nodes: tuple[str, ...], told: Any = None, resumed: Any = None, **wishes: Any):
    options = Options(**{"workers": len(nodes), "steps": STEPS, "evaluate": False, "measure": False} | wishes)
    found = Job(mine, options, told or NullObserver(), folder=folder, resumed=resumed)
    found._settings = replace(found._settings, cluster=machines(*nodes), nodes=nodes)
    return found


def played(made: Job) -> Run:
    for _ in made.play():
        pass
    return run_of(made)


def placed(folder: RunFolder) -> PlacedData:
    found = folder.placed()
    assert found is not None
    return found


def one_device(runs, steps=STEPS):
    mine = program("plain")
    return plain_loop(mine, steps, 0, samples=ResidentSamples(runs, mine.batch_size, mine.seed)).state_dict()


@pytest.mark.parametrize("method", ["nothing", "waterfill", "overlap"])
def test_a_run_learns_what_one_device_does_wherever_its_data_move(tmp_path, method):
    folder = RunFolder.create(tmp_path / "run", "")
    ran = played(job(living({"pi": 34, "desk": 10}), folder, ("pi", "desk"), place=method))
    found = placed(folder)
    assert found.plan.method == method
    assert bool(found.runs[-1].moves) == (method != "nothing")
    assert difference(ran.state_dict(), one_device(found.runs)) <= 1e-9


def test_data_that_live_on_nodes_stay_there_unless_somebody_asks(tmp_path):
    folder, told = RunFolder.create(tmp_path / "run", ""), Told()
    played(job(living({"pi": 30, "desk": 14}), folder, ("pi", "desk"), told, steps=2))
    assert [node.holds for node in placed(folder).plan.nodes] == [30, 14]
    assert any("Nothing" in note for note in told.notes)


def test_who_holds_nothing_is_lent_a_few_and_given_its_share(tmp_path):
    folder = RunFolder.create(tmp_path / "run", "")
    ran = played(job(living({"pi": NUM_SAMPLES, "desk": 0}), folder, ("pi", "desk"), place="waterfill"))
    found = placed(folder)
    assert found.plan.nodes[1].holds > 0
    assert difference(ran.state_dict(), one_device(found.runs)) <= 1e-9
