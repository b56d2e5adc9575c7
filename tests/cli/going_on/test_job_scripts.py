"""What a job script does: one command that begins or goes on, a time limit, and a job manager that ends it."""

import contextlib
import json
import os
import re
import signal
import subprocess

import pytest

import nfold as library
from nfold.errors import ProgramError
from nfold.verbs.run_folder.folder import RunFolder

GO_ON = ("--out", "mine", "--go-on", "--debug")
LONG = ("steady.py", *GO_ON, "--no-measure", "--stop-after", "15")


def steps_of(folder):
    lines = map(json.loads, (folder / "history.jsonl").read_text().splitlines())
    return [line["step"] for line in lines if not line["metrics"]]


def test_one_command_begins_goes_on_and_is_content_when_all_is_done(nfold, tmp_path):
    assert nfold("train", "steady.py", *GO_ON, "--steps", "7").code == 0
    more = nfold("train", "steady.py", *GO_ON, "--steps", "12")
    assert more.code == 0, more.err
    assert steps_of(tmp_path / "mine") == list(range(1, 13))

    model = (tmp_path / "mine" / "model.safetensors").read_bytes()
    for file in ("report.json", "trace.json"):  # a job that was killed while it summed up
        (tmp_path / "mine" / file).unlink()
    again = nfold("train", "steady.py", *GO_ON, "--steps", "12")
    assert (again.code, again.out) == (0, "the run in mine is complete: 12 of 12 steps are done.\nrun: mine\n")
    assert (tmp_path / "mine" / "model.safetensors").read_bytes() == model
    nfold("train", "steady.py", *GO_ON, "--steps", "9").check_explained("has done 12 steps already")


def test_a_complete_run_is_returned_in_python(nfold, tmp_path):
    assert nfold("train", "steady.py", *GO_ON, "--steps", "5").code == 0
    run = library.train("steady.py", out="mine", go_on=True)
    assert (run.was_complete, run.is_stopped, len(run.history)) == (True, False, 6)
    assert run.report.num_steps > 0
    assert run.state_dict()
    RunFolder.open("mine").lock()  # it is free again


def test_a_run_without_a_checkpoint_begins_anew(nfold, tmp_path):
    never = ("steady.py", *GO_ON, "--checkpoint-every", "0")
    assert nfold("train", *never, "--steps", "4").code == 0
    (tmp_path / "mine" / "model.safetensors").unlink()
    again = nfold("train", *never, "--steps", "4")
    assert "so it begins anew: the 4 steps in its history are done again" in again.err
    assert (again.code, steps_of(tmp_path / "mine")) == (0, [1, 2, 3, 4])

    (tmp_path / "mine" / "history.jsonl").unlink()
    assert "did no step, so it begins anew: nothing is lost" in nfold("train", *never, "--steps", "4").err


@pytest.mark.exhaustive
def test_what_a_killed_job_had_only_begun_to_write_is_no_run(nfold, tmp_path):
    assert nfold("train", "steady.py", *GO_ON, "--steps", "4").code == 0
    for file in (tmp_path / "mine").iterdir():
        if file.name not in ("graph.json", "profile.json"):
            file.unlink()
    begun = nfold("train", "steady.py", *GO_ON, "--steps", "4")
    assert begun.code == 0, begun.err


@pytest.mark.parametrize("name", ["notes.txt", "graph.json"])
def test_files_of_somebody_else_are_left_alone(nfold, tmp_path, name):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / name).write_text("{}")
    nfold("train", "steady.py", *GO_ON).check_explained(f"mine is no run, and it is not empty: it holds {name}")
    assert (tmp_path / "mine" / name).read_text() == "{}"


def test_another_programs_run_is_refused_and_a_copy_of_the_script_is_not(nfold, tmp_path):
    assert nfold("train", "steady.py", *GO_ON, "--steps", "5").code == 0
    (tmp_path / "other.py").write_text("from steady import program\n")
    nfold("train", "other.py", *GO_ON, "--steps", "6").check_explained("mine holds a run of", "not of", "--out")
    nfold("train", "steady.py:elaborate", *GO_ON, "--steps", "6").check_explained("mine holds a run of")
    nfold("train", "steady.py", *GO_ON, "--seed", "5").check_explained("Leave out --seed 5")

    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch" / "steady.py").write_bytes((tmp_path / "steady.py").read_bytes())
    copied = nfold("train", "scratch/steady.py", *GO_ON, "--steps", "6")
    assert copied.code == 0, copied.err


def test_two_at_once_are_refused(nfold, tmp_path):
    (tmp_path / "mine").mkdir()
    first = RunFolder.open(tmp_path / "mine")
    first.lock()
    nfold("train", "steady.py", *GO_ON).check_explained("another job is writing to mine right now")
    first.release()
    assert nfold("train", "steady.py", *GO_ON, "--steps", "3").code == 0


@pytest.mark.parametrize(
    ("flags", "fragments"),
    [
        (("--go-on",), ("--go-on needs --out RUN",)),
        (("--go-on", "--resume", "mine"), ("leave one of them out",)),
        (("--stop-after", "3x"), ("--stop-after 3x", "90, 30m, 3h")),
        (("--stop-after", "1h", "--checkpoint-every", "0"), ("leave out --checkpoint-every 0",)),
        (("--stop-after", "1e-9"), ("--stop-after 1e-9",)),
    ],
)
def test_what_makes_no_sense_is_refused(nfold, flags, fragments):
    nfold("train", "steady.py", *flags).check_explained(*fragments)


def test_a_time_in_which_nothing_begins_is_an_error_and_leaves_nothing(nfold, tmp_path):
    """Else a job that is started again and again would never get anywhere."""
    short = nfold("train", "steady.py", "--stop-after", "0.000001", "--debug", "--out", "short")
    assert short.code == 2
    assert "nfold: the time that --stop-after gives, 1e-06 s, was over before the first step" in short.err
    assert not (tmp_path / "short").exists()


@pytest.mark.parametrize("strategy", [("-n", "1"), ("-n", "2", "--strategy", "ssp")])
def test_a_run_whose_time_is_over_has_a_checkpoint_and_goes_on(nfold, tmp_path, monkeypatch, strategy):
    monkeypatch.setenv("EPOCHS", "20000")
    stopped = nfold("train", *LONG, *strategy)
    assert stopped.code == 75, stopped.err
    assert stopped.out.count("\n") <= 25
    told = re.fullmatch(
        r"nfold: stopped by --stop-after 15. (\d+) of 100000 steps are done. The checkpoint of step (\d+) is kept; "
        r"go on with: nfold train --resume mine",
        stopped.err.splitlines()[-1],
    )
    assert told is not None, stopped.err
    assert told[1] == told[2]
    assert steps_of(tmp_path / "mine") == list(range(1, int(told[1]) + 1))

    more = str(int(told[1]) + 3)
    assert nfold("train", "steady.py", *GO_ON, *strategy, "--steps", more).code == 0
    assert steps_of(tmp_path / "mine") == list(range(1, int(more) + 1))


@pytest.mark.quiet
def test_a_run_that_its_time_ended_says_so_in_python(nfold, monkeypatch):
    monkeypatch.setenv("EPOCHS", "20000")
    run = library.train("steady.py", out="mine", stop_after=5, debug=True)
    assert run.is_stopped
    assert run.told.endswith("go on with: nfold train --resume mine")
    assert 0 < run.history[-1]["step"] < 100_000


@pytest.mark.processes
def test_sigterm_to_all_processes_more_than_once_ends_in_order(shell, nfold):
    """As job managers and `timeout` send it."""
    shell.environment["EPOCHS"] = "2000"
    job = shell.start("train", "steady.py", "-n", "2", "--strategy", "ring", "--out", "mine", "--go-on")
    next(line for line in job.stderr if line.startswith("epoch 2/"))
    for pid in (*(pid for pid in shell.processes() if pid != job.pid), job.pid, job.pid):
        os.kill(pid, signal.SIGTERM)
    while job.poll() is None:  # while it sums up and writes, and while the interpreter ends
        os.kill(job.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.wait(0.02)
    result = shell.finish(job)

    result.check_explained("nfold: stopped.", "nfold train --resume mine", code=75)
    assert (shell.folder / "mine" / "model.safetensors").exists()
    shell.check_no_halves()
    step = int(re.search(r"checkpoint of step (\d+) is kept", result.message)[1])
    assert steps_of(shell.folder / "mine") == list(range(1, step + 1))
    assert nfold("train", "--resume", "mine", "--steps", step + 2, "--debug", "--json").code == 0


LATER = """
import steady
from dataclasses import replace
from torch.optim import SGD

class Later(SGD):
    steps = 0

    def step(self, closure=None):
        super().step()
        group = self.param_groups[0]
        group["n"] = group.get("n", 0) + 1
        if group["n"] >= 16:
            self.slow = [p.detach().clone() for p in group["params"]]

def program():
    return replace(steady.program(), optimizer=lambda params: Later(params, lr=0.1))
"""


def test_what_nobody_could_go_on_from_is_no_checkpoint_and_refused(nfold, tmp_path):
    (tmp_path / "later.py").write_text(LATER)
    done = nfold("train", "later.py", *GO_ON, "--steps", "20")
    assert done.code == 0, done.err
    assert "no checkpoint is written from step 20 on" in done.err
    assert "the optimizer Later holds slow" in " ".join(done.out.split())
    assert done.out.removeprefix("hello from the program\n").count("\n") <= 25
    assert (tmp_path / "mine" / "model.safetensors").exists()
    nfold("train", "--resume", "mine", "--steps", "25").check_explained("cannot be gone on with", "holds slow")
    assert nfold("train", "later.py", *GO_ON, "--steps", "20").code == 0, "it is complete"
    nfold("train", "later.py", *GO_ON, "--steps", "25").check_explained("cannot be gone on with", "holds slow")
    steps = library.start("later.py", out="other", debug=True)
    for step in steps:
        if step.step == 17:
            with pytest.raises(ProgramError, match="holds slow"):
                steps.checkpoint()
            break
