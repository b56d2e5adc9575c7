"""What an earlier run measured is used again if nothing that it hangs on differs, and never otherwise."""

import itertools
import json
import os
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from pretended import GRAPH, cluster, profile_of

from nfold.cache import ReadRecorder, Store
from nfold.core.measured import Measured
from nfold.core.profile import ChunkTiming, Timing
from nfold.profiling.recall import Asked, Recall
from nfold.program import ProgramSource
from nfold.runtime.data.loaded_program import facts_of

SCRIPT = """
import json
import os
import sys
from pathlib import Path

import torch
from torch import nn

import nfold
import recall_helper

HERE = Path(__file__).parent


class Shy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs):
        return inputs.clone()

    @staticmethod
    def backward(ctx, gradients):
        return gradients * (2 if os.environ.get("RECALL_BACKWARD") else 1)


def optimizer(parameters):
    import recall_optimizer

    return recall_optimizer.KIND(parameters, lr=getattr(sys, "recall_rate", 0.1))


def loss(outputs, targets):
    ignored = int(os.environ.get("RECALL_IGNORED", -100))
    return nn.functional.cross_entropy(Shy.apply(outputs), targets, ignore_index=ignored)


def data():
    rows = json.loads((HERE / "data.json").read_text())
    rows[-1][0] += getattr(sys, "recall_shift", 0.0)
    return torch.utils.data.TensorDataset(torch.tensor(rows), torch.arange(len(rows)) % 3)


def model():
    torch.manual_seed(getattr(sys, "recall_seed", 0))
    return nn.Sequential(nn.Linear(2, recall_helper.WIDTH), nn.Dropout(recall_helper.DROPOUT), nn.Linear(4, 3))


def program():
    return nfold.Program(
        model=model,
        loss=loss,
        optimizer=optimizer,
        train_data=data,
        batch_size=8,
    )


def other():
    return program()
"""
FILES = {
    "script.py": SCRIPT,
    "recall_helper.py": "WIDTH, DROPOUT = 4, 0.0\n",
    "recall_optimizer.py": "import torch\nKIND = torch.optim.SGD\n",
    "data.json": str([[0.5, float(row)] for row in range(20)]),
}
PASS_S = 1e-3


def measurement() -> Measured:
    half = Timing(median_s=PASS_S / 2, spread_s=0.0, repeats=3)
    whole = (ChunkTiming(chunk_size=4, forward=half, backward=half),)
    profile = replace(profile_of(GRAPH), whole=whole, tracer_bytes=50)
    return Measured(graph=GRAPH, profiles={1: profile}, node=cluster().nodes[0])


class Runs:
    """Runs of one script, each as if in a process of its own."""

    def __init__(self, folder):
        self.folder, self.store = folder, Store(folder / "cache")
        for name, text in FILES.items():
            (folder / name).write_text(text)

    def run(self, function="program", meanwhile=None, pass_s=PASS_S, **asked):
        """Return whether a run measured its program, with what it says and gets."""
        for name in ("recall_helper", "recall_optimizer"):
            sys.modules.pop(name, None)
        source, recorder, measured = (
            ProgramSource(path=self.folder / "script.py", function=function),
            ReadRecorder(),
            [],
        )
        ticks = itertools.count()

        def measure(_):
            measured.append(1)
            os.environ.get("RECALL_BACKWARD")  # as a backward does that is timed
            if meanwhile is not None:
                meanwhile()
            return measurement()

        with recorder.watching():
            program = source.load()
            datasets = {"train": program.train_data()}
            told = facts_of(program, datasets)
        wanted = Asked(
            program=program, dataset=datasets["train"], chunk_sizes=(4, 8), thread_counts=(1,), told=told,
            device=torch.device("cpu"),
        )  # fmt: skip
        recall = Recall(str(source), self.store, recorder, clock=lambda: next(ticks) * pass_s)
        found, said = recall.measured(replace(wanted, **asked), measure)
        return SimpleNamespace(measured=bool(measured), said=said, found=found)


@pytest.fixture(scope="module")
def _loaded(tmp_path_factory):
    """From here on this process has loaded all that it ever will."""
    with pytest.MonkeyPatch.context() as patch:
        put_apart(patch)
        Runs(tmp_path_factory.mktemp("first")).run()


@pytest.fixture
def runs(tmp_path, monkeypatch, _loaded):
    put_apart(monkeypatch)
    runs = Runs(tmp_path)
    assert runs.run().measured
    return runs


def put_apart(patch):
    patch.setattr(sys, "path", list(sys.path))
    patch.setattr(sys, "dont_write_bytecode", True)
    for name in ("RECALL_IGNORED", "RECALL_BACKWARD", "OMP_DYNAMIC"):
        patch.delenv(name, raising=False)


def change(name: str, old: str, new: str):
    def change(runs, monkeypatch):
        path = runs.folder / name
        path.write_text(path.read_text().replace(old, new))

    return change


CHANGES = {
    "the script": change("script.py", "HERE = ", "# more\nHERE = "),
    "a helper": change("recall_helper.py", "0.0", "0.5"),
    "a helper of the optimizer": change("recall_optimizer.py", "SGD", "Adam"),
    "data that no rank compares": change("data.json", "[0.5, 7.0]", "[0.5, 7.5]"),
    "a variable that the loss reads": lambda _, monkeypatch: monkeypatch.setenv("RECALL_IGNORED", "255"),
    "a variable that backward reads": lambda _, monkeypatch: monkeypatch.setenv("RECALL_BACKWARD", "1"),
    "an optimizer that nobody saw being read": lambda _, patch: patch.setattr(sys, "recall_rate", 0.2, raising=False),
    "weights that nobody saw being read": lambda _, patch: patch.setattr(sys, "recall_seed", 1, raising=False),
    "the last item, that nobody saw": lambda _, patch: patch.setattr(sys, "recall_shift", 1.0, raising=False),
    "threads of the libraries": lambda _, monkeypatch: monkeypatch.setenv("OMP_DYNAMIC", "TRUE"),
}


def test_an_earlier_measurement_is_used(runs):
    second = runs.run()
    assert not second.measured
    assert second.said == (
        "note: measurements of an earlier run are used: a pass of 4 samples with 1 thread takes 1 ms and took 1; "
        "--measure-again measures anew"
    )


def test_it_is_what_was_measured_but_for_the_tracer_that_this_process_has_not(runs):
    known = measurement()
    assert runs.run().found == replace(known, profiles={1: replace(known.profiles[1], tracer_bytes=0)})


@pytest.mark.parametrize("differs", CHANGES.values(), ids=CHANGES)
def test_whatever_changes_the_program_has_it_measured(runs, monkeypatch, differs):
    differs(runs, monkeypatch)
    changed = runs.run()
    assert changed.measured
    assert changed.said == ""
    assert not runs.run().measured, "it is known from here on"


ASKED = {"chunk_sizes": (4,), "thread_counts": (1, 2), "device": torch.device("meta")}


@pytest.mark.parametrize("name", ASKED)
def test_what_is_asked_for_counts(runs, name):
    assert runs.run(**{name: ASKED[name]}).measured


def test_functions_of_one_script_are_several_programs(runs):
    assert runs.run("other").measured


def test_it_is_measured_again_on_demand(runs):
    assert runs.run(anew=True).measured
    assert not runs.run().measured


@pytest.mark.parametrize(("pass_s", "holds"), [(0.8e-3, True), (1.2e-3, True), (0.7e-3, False), (1.4e-3, False)])
def test_it_is_measured_again_where_a_pass_takes_another_time(runs, pass_s, holds):
    again = runs.run(pass_s=pass_s)
    assert again.measured is not holds
    if not holds:
        took = f"a pass of 4 samples with 1 thread takes {1e3 * pass_s:.3g} ms and took 1"
        assert again.said == f"note: measured again: {took} when an earlier run measured this program"


def test_a_file_that_changes_meanwhile_keeps_it_from_being_known(runs):
    """What was measured is of the old one, and the next run sees the new one."""
    path = runs.folder / "recall_helper.py"
    changed = FILES["recall_helper.py"] + "# more\n"
    assert runs.run(meanwhile=lambda: path.write_text(changed), anew=True).measured
    assert runs.run().measured


@pytest.mark.parametrize(("apart", "is_other"), [(1e-7, False), (1e-4, True)])
def test_a_first_pass_may_round_otherwise_and_no_more(runs, apart, is_other):
    """What no file and no variable shows, as a library that reads a file by itself."""
    (kept,) = (runs.folder / "cache").iterdir()
    document = json.loads(kept.read_text())
    output = document["document"]["first_pass"]["outputs"][0]
    output["projection"] += apart * output["norm"]
    kept.write_text(json.dumps(document))
    assert runs.run().measured is is_other


def test_a_broken_measurement_is_none(runs):
    (kept,) = (runs.folder / "cache").iterdir()
    kept.write_text(kept.read_text().replace('"profiles"', '"profile"'))
    assert runs.run().measured
    assert not runs.run().measured
