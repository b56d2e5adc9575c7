"""Whole runs whose data live on their nodes, with the real coordinator: ranks are threads that say they are nodes.

What was trained is what one device trains on the same samples in the same order, whatever has moved.
"""

import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import difference, graph_of, plain_loop
from nets import NUM_SAMPLES, images, program
from torch.utils.data import Subset

from nfold.core.cluster import Channel, Cluster, Node
from nfold.core.job import Begun
from nfold.core.residency import PlacedData
from nfold.core.text.cluster_file import LOCAL
from nfold.errors import ClusterError, NfoldError, PlanError, ProgramError
from nfold.node_data import local_data
from nfold.program import ProgramSource
from nfold.runtime.data.resident_samples import ResidentSamples
from nfold.runtime.rank import worker
from nfold.verbs.options.job_record import Resumed
from nfold.verbs.options.option_checks import Options
from nfold.verbs.ranks.thread_ranks import threads_put_back
from nfold.verbs.run_folder.folder import RunFolder
from nfold.verbs.running.observer import NullObserver
from nfold.verbs.running.run import Run, run_of
from nfold.verbs.running.run_job import Job

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
    """Samples that come are kept in a folder of the test. That costs no processor: with so few, none would move."""
    monkeypatch.setenv("NFOLD_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(worker, "sample_costs", lambda dataset: None)
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
    assert any("The data stay where they are" in note for note in told.notes)


def test_who_holds_nothing_is_lent_a_few_and_given_its_share(tmp_path):
    folder = RunFolder.create(tmp_path / "run", "")
    ran = played(job(living({"pi": NUM_SAMPLES, "desk": 0}), folder, ("pi", "desk"), place="waterfill"))
    found = placed(folder)
    assert found.plan.nodes[1].holds > 0
    assert difference(ran.state_dict(), one_device(found.runs)) <= 1e-9


def read_slowly(path: Path) -> Any:
    """Read a sample so slowly that a second node is worth having, whatever else its machine does."""
    time.sleep(0.003)
    return torch.load(path)


def test_files_come_to_a_node_that_has_none(tmp_path):
    """A desk without data beside a node with a camera."""
    (tmp_path / "photos").mkdir()
    for number, item in enumerate(images()):
        torch.save(item, tmp_path / "photos" / f"{number:03}.pt")
    photos = local_data(lambda node: tmp_path / "photos" if node == "pi" else None, read=read_slowly)
    folder, mine = RunFolder.create(tmp_path / "run", ""), replace(program("plain"), train_data=photos)
    ran = played(job(mine, folder, ("pi", "desk"), place="waterfill"))
    found = placed(folder)
    assert found.plan.nodes[1].holds > 0
    assert difference(ran.state_dict(), one_device(found.runs)) <= 1e-9


class Corrected(list):
    """All items, of which a few that no inventory looks at are others than before."""

    def __init__(self) -> None:
        super().__init__(images())
        for number in range(NUM_SAMPLES - 4, NUM_SAMPLES - 1):
            inputs, target = self[number]
            self[number] = (inputs + 1, target)


@pytest.mark.exhaustive
def test_items_that_were_corrected_between_two_runs_are_sent_again(tmp_path):
    nodes, asked = ("pi", "desk"), {"place": "waterfill", "steps": 3}
    played(
        job(
            living({"pi": NUM_SAMPLES, "desk": 0}),
            RunFolder.create(tmp_path / "run", ""),
            nodes,
            **asked | {"steps": 1},
        )
    )
    corrected = local_data(lambda node: Corrected() if node == "pi" else None)
    folder = RunFolder.create(tmp_path / "again", "")
    ran = played(job(replace(program("plain"), train_data=corrected), folder, nodes, **asked))
    found, whole = placed(folder), replace(program("plain"), train_data=Corrected)
    assert found.plan.nodes[1].holds > 4
    samples = ResidentSamples(found.runs, whole.batch_size, whole.seed)
    assert difference(ran.state_dict(), plain_loop(whole, 3, 0, samples=samples).state_dict()) <= 1e-9


def test_a_plan_alone_keeps_no_samples(tmp_path):
    options = Options(workers=2, steps=STEPS, evaluate=False, measure=False, place="waterfill")
    made = Job(living({"pi": NUM_SAMPLES, "desk": 0}), options, NullObserver(), folder=None, plan_only=True)
    made._settings = replace(made._settings, cluster=machines("pi", "desk"), nodes=("pi", "desk"))
    for _ in made.play():
        pass
    assert made.outcome.placed is not None
    assert not list((tmp_path / "data").rglob("journal"))


def goes_on(folder: RunFolder, *, same: bool) -> Resumed:
    """Where the run of a folder stopped."""
    checkpoint, known = folder.checkpoint(), folder.known()
    assert checkpoint is not None
    begun = Begun(batch_size=16, steps_per_epoch=3, placed=folder.placed())
    return Resumed(known=known if same else None, begun=begun, checkpoint=checkpoint, history=[])


@pytest.mark.parametrize("method", ["waterfill", "overlap"])
def test_a_run_goes_on_where_its_data_are(tmp_path, method):
    """From the middle of the first epoch, in which data move."""
    folder, living_here = RunFolder.create(tmp_path / "run", ""), living({"pi": 34, "desk": 10})
    played(job(living_here, folder, ("pi", "desk"), place=method, steps=2))
    before = placed(folder)
    ran = played(job(living_here, folder, ("pi", "desk"), place=method, resumed=goes_on(folder, same=True)))
    assert placed(folder) == before
    assert difference(ran.state_dict(), one_device(before.runs)) <= 1e-9


def test_a_run_goes_on_in_the_epoch_in_which_all_of_a_nodes_data_come(tmp_path):
    folder, living_here = RunFolder.create(tmp_path / "run", ""), living({"pi": NUM_SAMPLES, "desk": 0})
    played(job(living_here, folder, ("pi", "desk"), place="overlap", steps=2))
    ran = played(job(living_here, folder, ("pi", "desk"), place="overlap", resumed=goes_on(folder, same=True)))
    assert difference(ran.state_dict(), one_device(placed(folder).runs)) <= 1e-9


SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
import test_placed_runs
def program():
    return test_placed_runs.living({{"pi": 42, "desk": 2}})
"""


class Interrupting(NullObserver):
    """Presses Ctrl-C when the run is planned, before anything has moved."""

    job: Any = None

    def planned(self, planned: Any, folder: Any) -> None:
        self.job.session.interrupt()


def test_a_run_that_is_stopped_while_samples_move_goes_on_with_those_that_have_come(tmp_path):
    script, folder = tmp_path / "mine.py", RunFolder.create(tmp_path / "run", "")
    script.write_text(SCRIPT.format(folder=str(Path(__file__).parent)))
    source, asked = ProgramSource.parse(f"{script}:program"), {"place": "waterfill", "debug": True}
    stopped = job(source, folder, ("pi", "desk"), Interrupting(), **asked)
    stopped._recorder._observer.job = stopped
    with pytest.raises(KeyboardInterrupt, match="Samples that have moved stay where they are; fetch the rest and"):
        played(stopped)
    begun, known = Begun(batch_size=16, steps_per_epoch=3, placed=placed(folder)), folder.known()
    resumed = Resumed(known=known, begun=begun, checkpoint=None, history=[])
    ran = played(job(source, folder, ("pi", "desk"), resumed=resumed, **asked))
    assert difference(ran.state_dict(), one_device(placed(folder).runs)) <= 1e-9


def test_nothing_that_is_pinned_leaves_its_node(tmp_path):
    """An empty node beside it is left out."""
    folder, told = RunFolder.create(tmp_path / "run", ""), Told()
    mine = replace(program("plain"), train_data=local_data(lambda n: images() if n == "pi" else None, pinned=True))
    ran = played(job(mine, folder, ("desk", "pi"), told, place="auto", steps=2))
    assert any("desk is left out" in note for note in told.notes)
    assert difference(ran.state_dict(), one_device(placed(folder).runs, 2)) <= 1e-9


@pytest.mark.exhaustive
def test_a_run_goes_on_with_another_node_and_places_anew(tmp_path):
    folder, living_here = RunFolder.create(tmp_path / "run", ""), living({"pi": 34, "desk": 10})
    played(job(living_here, folder, ("pi", "desk"), place="waterfill", steps=2))
    nodes = ("pi", "desk", "new")
    ran = played(job(living_here, folder, nodes, place="waterfill", resumed=goes_on(folder, same=False)))
    found = placed(folder)
    assert [member.node for member in found.members] == [*nodes]
    assert [run.first_step for run in found.runs] == [0, 2]
    assert found.runs[1].nodes == nodes
    assert difference(ran.state_dict(), one_device(found.runs)) <= 1e-9


@pytest.mark.exhaustive
def test_a_place_that_nothing_was_trained_under_is_given_up(tmp_path):
    """A run that went on elsewhere was lost before its first checkpoint, and goes on elsewhere again."""
    folder, living_here = RunFolder.create(tmp_path / "run", ""), living({"pi": 34, "desk": 10})
    played(job(living_here, folder, ("pi", "desk"), place="waterfill", steps=2))
    before = shutil.copytree(tmp_path / "run", tmp_path / "before")
    lost = {"place": "waterfill", "resumed": goes_on(folder, same=False)}
    played(job(living_here, folder, ("pi", "desk", "new"), steps=3, **lost))
    shutil.copy(tmp_path / "run" / "place.json", before)
    again = RunFolder(before)
    ran = played(job(living_here, again, ("pi", "desk"), place="waterfill", resumed=goes_on(again, same=False)))
    runs = placed(again).runs
    assert [run.first_step for run in runs] == [0, 2]
    assert runs[1].nodes == ("pi", "desk")
    assert difference(ran.state_dict(), one_device(runs)) <= 1e-9


def test_what_a_node_has_lost_of_what_came_to_it_is_sent_again(tmp_path, monkeypatch):
    folder, living_here = RunFolder.create(tmp_path / "run", ""), living({"pi": 34, "desk": 10})
    played(job(living_here, folder, ("pi", "desk"), place="waterfill", steps=2))
    monkeypatch.setenv("NFOLD_DATA", str(tmp_path / "elsewhere"))
    ran = played(job(living_here, folder, ("pi", "desk"), resumed=goes_on(folder, same=True), place="waterfill"))
    assert difference(ran.state_dict(), one_device(placed(folder).runs)) <= 1e-9


def refused(mine, nodes, kind, *, resumed=None, folder=None, tmp_path=None, **wishes):
    folder = folder or RunFolder.create(tmp_path / "run", "")
    with pytest.raises(kind) as told:
        played(job(mine, folder, nodes, resumed=resumed, **wishes))
    return str(told.value)


@pytest.mark.exhaustive
def test_a_node_that_is_gone_takes_its_data_along(tmp_path):
    folder, living_here = RunFolder.create(tmp_path / "run", ""), living({"pi": 34, "desk": 10})
    played(job(living_here, folder, ("pi", "desk"), steps=2))
    told = refused(living_here, ("desk",), ClusterError, folder=folder, resumed=goes_on(folder, same=False))
    assert told.startswith("34 samples that the run trains on live on nodes that are not there, pi among them")


@pytest.mark.parametrize(
    ("holds", "nodes", "says"),
    [
        ({"pi": 33, "desk": 11}, ("pi", "desk"), "the run was begun when pi held 34 samples, and holds 33 now"),
        ({"pi": 34, "desk": 9, "new": 1}, ("pi", "desk", "new"), "when desk held 10 samples, and holds 9 now"),
    ],
)
def test_a_run_does_not_go_on_with_other_data(tmp_path, holds, nodes, says):
    folder = RunFolder.create(tmp_path / "run", "")
    played(job(living({"pi": 34, "desk": 10}), folder, ("pi", "desk"), steps=2))
    told = refused(living(holds), nodes, ProgramError, folder=folder, resumed=goes_on(folder, same=False))
    assert says in told


def test_ranks_that_share_a_node_are_refused(tmp_path):
    told = refused(living({"pi": 34, "desk": 10}), ("pi", "pi"), PlanError, tmp_path=tmp_path)
    assert told.startswith("2 ranks on pi cannot each train on what lives on its node: that is theirs together.")


def test_placing_data_that_all_nodes_have_is_refused(tmp_path):
    told = refused(program("plain"), ("pi", "desk"), PlanError, tmp_path=tmp_path, place="auto")
    assert told.startswith("--place auto: nobody says which samples live where.")


def test_a_sampler_of_the_program_is_refused(tmp_path):
    mine = living({"pi": 34, "desk": 10}, sampler=lambda dataset, epoch, generator: range(4))
    assert "Leave the sampler out" in refused(mine, ("pi", "desk"), ProgramError, tmp_path=tmp_path)


def test_other_chunks_than_nodes_are_refused(tmp_path):
    told = refused(living({"pi": 34, "desk": 10}), ("pi", "desk"), PlanError, tmp_path=tmp_path, chunks=4)
    assert told.startswith("chunks are 4, and with data that live on nodes each of the 2 nodes that train has one")


def test_nothing_that_lives_anywhere_is_refused(tmp_path):
    told = refused(living({"pi": 0, "desk": 0}), ("pi", "desk"), ProgramError, tmp_path=tmp_path)
    assert told.startswith("no sample lives on pi, desk.")


def test_a_refused_run_leaves_nothing_behind(tmp_path):
    with pytest.raises(NfoldError):
        played(job(living({"pi": 0, "desk": 0}), RunFolder.create(tmp_path / "run", ""), ("pi", "desk")))
    assert not (tmp_path / "run").exists()
