"""Hosts that hold samples and come and go, with real agents and ranks: the result is one device's on the same order."""

import os
import signal
from dataclasses import replace
from typing import Any

import pytest
from harness import plain_loop
from test_runs_on_hosts import OnHosts

from nfold.runtime.data.resident_samples import ResidentSamples
from nfold.verbs.running.run import run_of

SCRIPT = """
import torch
from torch import nn
import nfold

PARTS = {"local-0": range(40), "local-1": range(40, 64)}

def samples():
    torch.manual_seed(3)
    inputs, targets = torch.randn(64, 6, dtype=torch.float64), torch.randn(64, 2, dtype=torch.float64)
    return torch.utils.data.TensorDataset(inputs, targets)

def program():
    return nfold.Program(
        model=lambda: nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 2)).double(),
        loss=nn.MSELoss(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.5),
        train_data=nfold.local_data(lambda node: torch.utils.data.Subset(samples(), PARTS.get(node, ()))),
        batch_size=12,
        epochs=10**6,
        seed=1,
    )
"""

pytestmark = [pytest.mark.processes, pytest.mark.exhaustive, pytest.mark.timeout(400)]


class PlacedOnHosts(OnHosts):
    """A run on hosts that hold samples."""

    def __init__(self, folder: Any, **wishes: Any) -> None:
        super().__init__(folder, **wishes)
        (folder / "program" / "mine.py").write_text(SCRIPT)

    def end(self) -> None:
        self._steps.close()
        mine, placed = self.source.load(), self.job.folder.placed()
        assert placed is not None
        whole = replace(mine, train_data=lambda: mine.train_data().dataset)
        samples = ResidentSamples(placed.runs, mine.batch_size, mine.seed)
        alone = plain_loop(whole, self.step, 0, samples=samples).state_dict()
        trained = run_of(self.job).state_dict()
        assert max(float((trained[name] - alone[name]).abs().max()) for name in alone) <= 1e-9


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NFOLD_DATA", str(tmp_path / "data"))


def test_a_host_comes_and_one_that_holds_samples_is_told_to_end(tmp_path):
    run = PlacedOnHosts(tmp_path, on="local", nodes="2:3", place="waterfill")
    run.until_noted("local-2 has joined: 3 ranks train")
    run.train(3)
    os.kill(run.agents()["local-1"], signal.SIGTERM)
    run.until_noted("local-1 has left: 2 ranks train")
    run.train(3)
    run.end()


def test_a_host_is_lost_whose_samples_came_from_others(tmp_path):
    run = PlacedOnHosts(tmp_path, on="local", nodes="2:3", place="waterfill", checkpoint_every=4)
    run.until_noted("local-2 has joined: 3 ranks train")
    run.train(5)
    os.kill(run.agents()["local-2"], signal.SIGKILL)
    run.until_noted("local-2 is lost: 2 ranks train")
    run.train(3)
    run.end()
