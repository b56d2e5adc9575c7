"""Hosts that come and go while a run trains, with real agents and ranks: the result is one device's."""

import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from elastic import ENDLESS_SCRIPT
from harness import plain_loop
from torch.utils.data import Subset

from nfold.machine.request_socket import request
from nfold.program import ProgramSource
from nfold.runtime.data.resident_samples import ResidentSamples
from nfold.verbs.options.option_checks import Options
from nfold.verbs.run_folder.folder import RunFolder
from nfold.verbs.running.observer import NullObserver
from nfold.verbs.running.run import run_of
from nfold.verbs.running.run_job import Job

JOINING = re.compile(r"nfold join (\S+) --token-file (\S+)")

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]


class Told(NullObserver):
    """Keeps what a user is told, and calls back."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.heard: Any = lambda text: None

    def noted(self, text: str) -> None:
        self.notes.append(text)
        self.heard(text)


class OnHosts:
    """A run on hosts, which its test leaves when it has seen enough."""

    def __init__(self, folder: Path, **wishes: Any) -> None:
        self._folder = folder
        (folder / "program").mkdir()
        script = folder / "program" / "mine.py"
        script.write_text(ENDLESS_SCRIPT)
        self.source, self.told, self.step = ProgramSource.parse(f"{script}:program"), Told(), 0
        options = Options(**{"strategy": "ring", "steps": 10**6, "evaluate": False} | wishes)
        self.job = Job(self.source, options, self.told, folder=RunFolder.create(folder / "run", ""), lockstep=True)
        self._steps = self.job.play()

    def train(self, steps: int = 1) -> None:
        for _ in range(steps):
            self.step = next(self._steps).step

    def until_noted(self, pattern: str, times: int = 1) -> str:
        """Train until the user has been told something so often; return the last line of it."""
        while len(found := [note for note in self.told.notes if re.search(pattern, note)]) < times:
            self.train()
        return found[-1]

    def agents(self) -> dict[str, int]:
        """The processes of agents, by the name of their host."""
        found = {}
        for folder in Path("/proc").iterdir():
            words = _words(folder) if folder.name.isdigit() else []
            if "--name" in words and any(word.endswith(self._port) for word in words):
                found[words[words.index("--name") + 1]] = int(folder.name)
        return found

    def ranks(self) -> dict[str, int]:
        """The processes of ranks, by the name of their host."""
        coordinator = self.job.session._coordinator
        members = map(coordinator._membership.member, coordinator._membership.ranks)
        return {member.host: member.pid for member in members}

    @property
    def _port(self) -> str:
        assert self.job.session is not None
        return f":{self.job.session._control_server.port}"

    def end(self) -> None:
        """Leave the loop, and hold the parameters against one device's."""
        self._steps.close()
        trained, alone = run_of(self.job).state_dict(), one_device(self.source, self.step, self._folder)
        assert max(float((trained[name] - alone[name]).abs().max()) for name in alone) <= 1e-9


def _words(folder: Path) -> list[str]:
    try:
        return (folder / "cmdline").read_text().split("\0")
    except OSError:
        return []  # it has ended just now


def joining(name: str, address: str, token_file: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "nfold.cli.main", "join", address, "--token-file", token_file, "--name", name]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def one_device(source: ProgramSource, steps: int, folder: Path) -> dict[str, torch.Tensor]:
    """What a run of one rank that nobody disturbs comes to."""
    options = Options(strategy="single", steps=steps, evaluate=False, chunks=3, debug=True, checkpoint_every=0)
    job = Job(source, options, NullObserver(), folder=RunFolder.create(folder / "alone", ""))
    list(job.play())
    return run_of(job).state_dict()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.exhaustive  # beside others it has waited for ever for a host that had left to end
def test_hosts_of_a_manager_come_later_and_one_is_told_to_end(tmp_path):
    run = OnHosts(tmp_path, on="local", nodes="1:3")
    run.until_noted(r"local-\d has joined: \d ranks? train", times=2)
    run.train(2)
    os.kill(run.agents()["local-1"], signal.SIGTERM)
    left = run.until_noted("local-1 has left")
    assert re.search(r"2 ranks train from step \d+ on, after a pause of", left)
    while run.agents().keys() != {"local-0", "local-2"}:
        run.train()
    run.end()


@pytest.mark.exhaustive
def test_hosts_join_by_hand_whenever_they_like_and_leave_again(tmp_path):
    run, guests = OnHosts(tmp_path, listen="127.0.0.1:0", nodes="1:2"), {}

    def hear(text: str) -> None:
        if asked := JOINING.search(text):
            asked_for.append(asked.groups())
            guests["first"] = joining("first", *asked.groups())

    asked_for: list[Any] = []
    run.told.heard = hear
    run.train(2)
    guests["second"] = joining("second", *asked_for[0])
    run.until_noted("second has joined: 2 ranks")
    guests["third"] = joining("third", *asked_for[0])
    _, refusal = guests["third"].communicate(timeout=60)
    assert "the job has all the 2 hosts that --nodes 1:2 allows" in refusal
    guests["first"].send_signal(signal.SIGINT)
    run.until_noted("first has left: 1 rank trains")
    while guests["first"].poll() is None:  # in lockstep nobody is let go but during a step
        run.train()
    assert guests["first"].returncode == 0
    run.train(2)
    run.end()
    assert guests["second"].wait(60) == 0
    for guest in guests.values():
        guest.communicate()


@pytest.mark.exhaustive
@pytest.mark.parametrize("at_once", ["agent", "rank"])
def test_a_host_is_lost_and_no_step_with_it_and_one_whose_rank_alone_is_lost_joins_anew(tmp_path, at_once):
    run = OnHosts(tmp_path, on="local", nodes="1:3", checkpoint_every=4)
    run.until_noted(r"local-\d has joined: \d ranks? train", times=2)
    run.train(5)
    joined = sum("local-1 has joined: 3 ranks" in note for note in run.told.notes)
    os.kill(run.agents()["local-1"] if at_once == "agent" else run.ranks()["local-1"], signal.SIGKILL)
    lost = run.until_noted("local-1 is lost")
    assert re.search(r"2 ranks train from step \d+ on, from the step under way", lost)
    if at_once == "rank":
        run.until_noted("local-1 has joined: 3 ranks", times=joined + 1)
    run.train(6)
    history = [line["step"] for line in run.job.folder.history()]
    assert history == sorted(set(history)), "each step counts once"
    run.end()


@pytest.mark.exhaustive
def test_a_host_whose_rank_is_lost_is_waited_for_where_nobody_else_can_come(tmp_path, monkeypatch):
    monkeypatch.setattr(Options, "waits_s", 0.0)  # as of `--on ssh`, which has no more than its list
    monkeypatch.setattr(Options, "returns_s", 600.0)
    run = OnHosts(tmp_path, on="local", nodes="2:2", checkpoint_every=4)
    run.train(5)
    for rejoined in (1, 2):
        os.kill(run.ranks()["local-1"], signal.SIGKILL)
        run.until_noted("local-1 is lost", rejoined)
        run.until_noted("local-1 has joined: 2 ranks", rejoined)
        run.train(6)
    agent = run.agents()["local-1"]

    def end_its_host(text: str) -> None:
        if "local-1 gone: too few" in text:
            os.kill(agent, signal.SIGKILL)

    run.told.heard = end_its_host
    os.kill(run.ranks()["local-1"], signal.SIGKILL)
    with pytest.raises(KeyboardInterrupt, match="--resume"):
        run.train(10**6)
    assert any("nobody can come any more" in note for note in run.told.notes)
    history = [line["step"] for line in run.job.folder.history()]
    assert history == sorted(set(history)), "each step counts once"


@pytest.mark.exhaustive
def test_the_only_holder_of_a_stage_is_killed_and_few_steps_are_lost(tmp_path):
    run = OnHosts(tmp_path, on="local", nodes="2:3", strategy="pipeline", checkpoint_every=10**6, protect=4)
    run.until_noted(r"local-\d has joined: 3 ranks train")
    run.train(10)
    os.kill(run.ranks()["local-1"], signal.SIGKILL)
    lost = run.until_noted("local-1 is lost")
    assert re.search(r"from step \d+ on(, [1-4] steps? of them for the second time)?, from a snap", lost)
    run.train(6)
    run.end()


@pytest.mark.exhaustive
def test_another_terminal_gives_a_host_back_and_takes_one_more(tmp_path):
    run = OnHosts(tmp_path, on="local", nodes="1:2")
    run.until_noted(r"local-\d has joined: 2 ranks train")

    def ask(asked: str) -> str | None:
        return request(os.getpid(), os.path.realpath(run.job.folder.path), asked)

    assert ask("+1") == "refused: 3 hosts would be outside of --nodes 1:2, which allows 1 to 2; there are 2"
    assert re.fullmatch(r"local-\d to leave after the step under way", ask("-1") or "")
    run.until_noted(r"local-\d has left: 1 rank trains")
    assert ask("0") == "refused: 0 hosts would be outside of --nodes 1:2, which allows 1 to 2; there are 1"
    assert ask("2") == "1 more host asked for; each takes part when it is there"
    run.until_noted("local-2 has joined: 2 ranks train")
    run.train(2)
    run.end()
    assert ask("+1") is None, "nobody listens any more"


PARTS = {"holder-0": range(40), "holder-1": range(40, 64), "bringer": range(64, 82)}
PLACED = f"""
import torch
from torch import nn
import nfold

PARTS = {PARTS}

def samples():
    torch.manual_seed(3)
    inputs, targets = torch.randn(82, 6, dtype=torch.float64), torch.randn(82, 2, dtype=torch.float64)
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


class PlacedOnHosts(OnHosts):
    """A run on hosts that hold samples. They join by hand, so that it is they that come first."""

    def __init__(self, folder: Any, **wishes: Any) -> None:
        super().__init__(folder, listen="127.0.0.1:0", nodes="2:3", place="waterfill", **wishes)
        (folder / "program" / "mine.py").write_text(PLACED)
        self.guests: dict[str, subprocess.Popen[str]] = {}
        self.told.heard = self._hear

    def _hear(self, text: str) -> None:
        if asked := JOINING.search(text):
            self._asked = asked.groups()
            self.come("holder-0")
            self.come("holder-1")

    def come(self, name: str) -> None:
        self.guests[name] = joining(name, *self._asked)

    def end(self) -> None:
        self._steps.close()
        for guest in self.guests.values():
            guest.communicate(timeout=60)
        mine, placed = self.source.load(), self.job.folder.placed()
        assert placed is not None
        numbers = [number for member in placed.members for number in PARTS.get(member.node, ())]
        whole = replace(mine, train_data=lambda: Subset(mine.train_data().dataset, numbers))
        samples = ResidentSamples(placed.runs, mine.batch_size, mine.seed)
        alone = plain_loop(whole, self.step, 0, samples=samples).state_dict()
        trained = run_of(self.job).state_dict()
        assert max(float((trained[name] - alone[name]).abs().max()) for name in alone) <= 1e-9


@pytest.mark.exhaustive
def test_a_host_comes_and_one_that_holds_samples_is_told_to_end(tmp_path, monkeypatch):
    monkeypatch.setenv("NFOLD_DATA", str(tmp_path / "data"))
    run = PlacedOnHosts(tmp_path)
    run.train(2)
    run.come("guest")
    run.until_noted("guest has joined: 3 ranks train")
    run.train(3)
    run.guests["holder-1"].send_signal(signal.SIGTERM)
    run.until_noted("holder-1 has left: 2 ranks train")
    run.train(3)
    run.end()


@pytest.mark.exhaustive
def test_a_host_brings_samples_and_leaves_them_to_the_others(tmp_path, monkeypatch):
    monkeypatch.setenv("NFOLD_DATA", str(tmp_path / "data"))
    run = PlacedOnHosts(tmp_path, steps=None)
    run.train(2)
    run.come("bringer")
    run.until_noted("bringer brings 18 samples: they count from epoch")
    run.until_noted("bringer has joined: 3 ranks train")
    run.train(9)
    run.guests["bringer"].send_signal(signal.SIGTERM)
    run.until_noted("bringer has left: 2 ranks train")
    run.train(9)
    run.end()


@pytest.mark.exhaustive
def test_a_host_is_lost_whose_samples_came_from_others(tmp_path, monkeypatch):
    monkeypatch.setenv("NFOLD_DATA", str(tmp_path / "data"))
    run = PlacedOnHosts(tmp_path, checkpoint_every=10**6)
    run.train(2)
    run.come("guest")
    run.until_noted("guest has joined: 3 ranks train")
    run.train(5)
    run.guests["guest"].kill()
    run.until_noted(r"guest is lost: 2 ranks train from step \d+ on, from the step under way")
    run.train(3)
    run.end()
