"""A run's command is killed; its hosts hold, and go on with the next one, or end."""

import json
import os
import re
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from elastic import ENDLESS_SCRIPT
from harness import plain_loop
from safetensors.torch import load_file
from torch.utils.data import Subset

from nfold.program import ProgramSource
from nfold.runtime.data.resident_samples import ResidentSamples
from nfold.verbs.options.option_checks import Options
from nfold.verbs.run_folder.folder import RunFolder
from nfold.verbs.running.observer import NullObserver
from nfold.verbs.running.run import run_of
from nfold.verbs.running.run_job import Job

STEPS = 240
PARTS = {"local-0": range(40), "local-1": range(40, 64)}
PLACED = ENDLESS_SCRIPT.replace(
    "lambda: torch.utils.data.TensorDataset(inputs, targets)",
    f"nfold.local_data(lambda node: torch.utils.data.Subset("
    f"torch.utils.data.TensorDataset(inputs, targets), {PARTS}.get(node, ())))",
)

pytestmark = [pytest.mark.processes, pytest.mark.timeout(540)]


class Held:
    """A run on two hosts, whose command the test kills."""

    def __init__(self, shell, wait_for_end):
        self.shell, self.folder, self._wait_for_end = shell, shell.folder / "held", wait_for_end
        shell.finish_s = 240.0
        shell.environment |= {"XDG_CACHE_HOME": str(shell.folder / "cache"), "OMP_NUM_THREADS": "1"}
        (shell.folder / "mine").mkdir()
        (shell.folder / "mine" / "mine.py").write_text(ENDLESS_SCRIPT)

    def begin(self, *flags):
        """Train some steps, without a checkpoint before the last one."""
        given = ("--on", "local", "--nodes", "2:2", "--strategy", "ring", "--checkpoint-every", str(STEPS), *flags)
        self.command = self.shell.start("train", "mine/mine.py", "--steps", str(STEPS), *given, "--out", "held")
        while len(self.lines()) < 20:
            assert self.command.poll() is None, self.command.communicate()

    def lines(self):
        """The whole lines of its history so far."""
        path = self.folder / "history.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def kill(self):
        """Kill the command; return the last step that it has written down."""
        self.command.kill()
        self.command.communicate()
        last = self.lines()[-1]["step"]
        assert last < STEPS
        return last

    def run(self, *arguments):
        """Run a command that goes on to its end; hosts that another one has started may end a moment later."""
        result = self.shell.ended(self.shell.start(*arguments), self.shell.finish_s)
        self._wait_for_end(self.shell.processes(), 20.0)
        self.shell.check_no_halves()
        return result

    def resume_at_least(self, last):
        """Go on with it from what its hosts hold, which is not before a step."""
        resumed = self.run("resume", "held")
        assert resumed.code == 0, resumed.err
        told = re.search(r"local-\d, local-\d held, and the run goes on from step (\d+)", resumed.err)
        assert told, resumed.err
        assert int(told[1]) >= last

    def agents(self):
        """Processes of its agents."""
        words = {pid: Path(f"/proc/{pid}/cmdline").read_text().split("\0") for pid in self.shell.processes()}
        return [pid for pid, command in words.items() if "--place" in command]

    def check_result(self):
        """Hold its parameters against those of a run that nobody disturbed."""
        options = Options(strategy="single", steps=STEPS, chunks=2, debug=True, checkpoint_every=0)
        source = ProgramSource.parse(f"{self.shell.folder}/mine/mine.py:program")
        job = Job(source, options, NullObserver(), folder=RunFolder.create(self.shell.folder / "alone", ""))
        list(job.play())
        expected, found = run_of(job).state_dict(), load_file(self.folder / "model.safetensors")
        assert max(float((found[name] - expected[name]).abs().max()) for name in expected) <= 1e-9
        assert [line["step"] for line in self.lines()] == list(range(1, STEPS + 1)), "each step counts once"
        assert not (self.folder / "held.json").exists()

    def check_placed_result(self):
        """As `check_result`, against one device that visits the same samples in the same order."""
        run = RunFolder(self.folder)
        mine, placed = ProgramSource.parse(f"{self.shell.folder}/mine/mine.py:program").load(), run.placed()
        numbers = [number for member in placed.members for number in PARTS.get(member.node, ())]
        all_of = ProgramSource.parse(f"{self.shell.folder}/mine/all.py:program").load().train_data()
        whole = replace(mine, train_data=lambda: Subset(all_of, numbers))
        samples = ResidentSamples(placed.runs, mine.batch_size, mine.seed)
        expected = plain_loop(whole, STEPS, 0, samples=samples).state_dict()
        found = load_file(self.folder / "model.safetensors")
        assert max(float((found[name] - expected[name]).abs().max()) for name in expected) <= 1e-9
        assert [line["step"] for line in self.lines()] == list(range(1, STEPS + 1)), "each step counts once"


@pytest.fixture
def held(shell, wait_for_end):
    return Held(shell, wait_for_end)


@pytest.mark.exhaustive
def test_hosts_of_a_killed_command_go_on_from_the_step_that_they_hold(held):
    held.begin()
    assert os.stat(held.folder / "held.json").st_mode & 0o077 == 0
    held.resume_at_least(held.kill())
    held.check_result()


@pytest.mark.exhaustive
def test_hosts_that_hold_samples_go_on_from_the_step_that_they_hold(held):
    mine = held.shell.folder / "mine"
    (mine / "mine.py").write_text(PLACED)
    (mine / "all.py").write_text(ENDLESS_SCRIPT)
    held.shell.environment["NFOLD_DATA"] = str(held.shell.folder / "data")
    held.begin("--place", "waterfill")
    held.resume_at_least(held.kill())
    held.check_placed_result()


@pytest.mark.exhaustive
@pytest.mark.parametrize("strategy", ["ps-async", "ssp"])
def test_ranks_that_wait_for_no_common_step_hold_too(held, strategy):
    held.begin("--strategy", strategy, *(("--staleness", "2") if strategy == "ssp" else ()))
    held.resume_at_least(held.kill())
    assert [line["step"] for line in held.lines()] == list(range(1, STEPS + 1)), "each step counts once"


@pytest.mark.exhaustive
def test_hosts_end_when_their_time_is_over(held, wait_for_end):
    held.begin("--hold-for", "1")
    held.kill()
    wait_for_end(held.shell.processes(), 30.0)
    late = held.shell.run("resume", "held")
    late.check_explained("No host of the run is back", "may hold until", "train --resume held --nodes 2:2", code=75)


@pytest.mark.exhaustive
def test_a_rank_that_died_too_costs_the_steps_since_the_checkpoint(held):
    """The machine of the command had a host of its own; another one is asked for in its place."""
    held.begin()
    victim = held.agents()[0]
    held.kill()
    os.kill(victim, signal.SIGKILL)

    resumed = held.run("resume", "held")

    assert resumed.code == 0, resumed.err
    assert "but nobody can go on from what ranks held there" in resumed.err
    held.check_result()


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", ["--go-on", "--resume"])
def test_who_goes_on_as_ever_finds_them_too(held, way):
    held.begin()
    held.kill()
    if way == "--resume":
        resumed = held.run("train", "--resume", "held")
    else:
        given = ("--on", "local", "--nodes", "2:2", "--strategy", "ring", "--out", "held", "--steps", str(STEPS))
        resumed = held.run("train", "mine/mine.py", *given, "--go-on")
    assert resumed.code == 0, resumed.err
    assert "held, and the run goes on from step" in resumed.err
    held.check_result()


@pytest.mark.exhaustive
def test_two_commands_do_not_go_on_with_one_run(held):
    held.begin()
    refused = held.shell.ended(held.shell.start("resume", "held"), 60.0)
    refused.check_explained("another job is writing to held right now")
    held.command.send_signal(signal.SIGINT)
    stopped = held.shell.finish(held.command)
    assert "--nodes 2:2" in stopped.err
    refused = held.shell.run("resume", "held")
    refused.check_explained("no host of the run in held holds", "--nodes 2:2")


@pytest.mark.exhaustive
def test_a_host_that_holds_and_is_told_to_end_does_so(held, wait_for_end):
    held.begin()
    held.kill()
    for agent in held.agents():
        os.kill(agent, signal.SIGINT)
    wait_for_end(held.shell.processes(), 20.0)
