"""Jobs whose processes die, are stopped or are disturbed: the first cause is named once, and everything ends."""

import errno
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from nfold.errors import WorkerLost
from nfold.program import ProgramSource
from nfold.runtime.checkpoint.state_file import StoredState
from nfold.runtime.failures.silent_ranks import Patience
from nfold.verbs.options.option_checks import Options
from nfold.verbs.run_folder.files import CHECKPOINT
from nfold.verbs.run_folder.folder import RunFolder
from nfold.verbs.running.observer import NullObserver
from nfold.verbs.running.run_job import Job

RING = ("-n", "2", "--strategy", "ring")
PAUSE = threading.Event()
"""Never set: between two looks at what tells nobody, so that looking takes no core from the ranks."""

LATE = """
from dataclasses import replace

import steady
import torch

TEST = steady.load(36, 2)


def late(outputs, targets):
    if torch.equal(targets, TEST.tensors[1][16:32]):
        raise KeyError("no such class")
    return 1.0


def program():
    return replace(steady.program(), test_data=lambda: TEST, metrics={"late": late})
"""
"""A metric that works with the first batch of the test data and with the last, which are tried before training."""


@pytest.mark.processes
def test_a_rank_that_dies_at_import(shell):
    shell.environment["FAULT"] = "die at import"

    result = shell.run("train", "faulty.py", *RING)

    ended = time.time()
    result.check_explained("rank 1 (on ", ", pid ", "exited with code 3 while it loaded the program", "1 other rank")
    result.check_explained("The last lines that ranks printed:\n  no licence was found\n", "The log has ")
    assert ended - float((shell.folder / "fault-time").read_text()) < 2


@pytest.mark.processes
@pytest.mark.parametrize("command", ["train", "plan"])
def test_ranks_that_die_before_they_can_speak(shell, command):
    (shell.folder / "early").mkdir()
    (shell.folder / "early" / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if 'nfold.verbs.ranks.rank_template' in sys.orig_argv:\n"
        "    print('bad library', flush=True)\n"
        "    os._exit(4)\n"
    )
    shell.environment["PYTHONPATH"] = os.pathsep.join((str(shell.folder / "early"), os.environ["PYTHONPATH"]))

    result = shell.run(command, "steady.py", *RING)

    result.check_explained(
        "rank 0 could not be started: the process that ranks are forked from exited with code 4 before it reached",
        "The last lines that ranks printed:\n  bad library",
    )


@pytest.mark.processes
def test_what_a_script_draws_unseeded_differs_between_ranks_though_they_are_copies(shell):
    text = (shell.folder / "steady.py").read_text().replace("load(SAMPLES, 1)", "load(SAMPLES, DRAWN)")
    (shell.folder / "drawn.py").write_text(f"import numpy\nDRAWN = int(numpy.random.randint(1 << 30))\n{text}")

    shell.run("train", "drawn.py", *RING).check_explained("ranks 0 and 1 hold different data: item 0 of train_data()")


@pytest.mark.processes
def test_ranks_that_can_hear_nothing_while_they_import_end_with_the_command(shell, wait_for_end):
    pipe = shell.folder / "importing"
    os.mkfifo(pipe)
    (shell.folder / "slow" / "torch").mkdir(parents=True)
    (shell.folder / "slow" / "torch" / "__init__.py").write_text(
        "import ctypes, os\n"
        f"with open({str(pipe)!r}, 'w') as file: print(os.getpid(), file=file)\n"
        "while True: ctypes.PyDLL(None).pause()  # keeps the interpreter's lock, as loading a library does\n"
    )
    shell.environment["PYTHONPATH"] = os.pathsep.join((str(shell.folder / "slow"), os.environ["PYTHONPATH"]))
    job = shell.start("train", "steady.py", *RING)
    with open(os.open(pipe, os.O_RDWR)) as importing:  # never closed in between: what came meanwhile would be lost
        template = int(importing.readline())

    job.kill()
    job.wait()

    assert wait_for_end([template], 2.0) < 2
    assert shell.processes() == []
    job.communicate()


@pytest.mark.processes
def test_a_script_that_raises_at_import_is_said_once_for_all_ranks(shell):
    shell.environment["FAULT"] = "import"

    result = shell.run("train", "faulty.py", *RING)

    result.check_explained(
        "importing ", "faulty.py raised RuntimeError: no licence", 'raise RuntimeError("no licence")'
    )
    assert result.err.count("no licence") == 2, "the error and the line"
    assert "The log" not in result.err
    assert not list(shell.folder.glob("runs/*")), "all that there is to say was said"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("fault", "fragments"),
    [
        ("forward", ["failed at step 30: ValueError: this sample is cursed", "faulty.py, line ", "raise ValueError("]),
        ("kill", ["was killed by signal 9 (SIGKILL) ", ". 1 other rank", "out of memory"]),
    ],
)
def test_a_rank_that_fails_in_a_step(shell, fault, fragments):
    shell.environment["FAULT"] = fault

    result = shell.run("train", "faulty.py", *RING, "--checkpoint-every", "10")

    ended = time.time()
    result.check_explained(f"rank 1 (on {socket.gethostname()}, pid ", *fragments, "1 other rank stopped because of it")
    assert re.search(" step (29|30)[:.] ", result.message), "what it sent last may have been on its way"
    mended = "" if fault == "kill" else "once this is mended, "
    resume = rf"The checkpoint of step [12]0 is kept; {mended}go on with: nfold train --resume runs/faulty-1"
    assert re.search(resume, result.err)
    assert ended - float((shell.folder / "fault-time").read_text()) < 2
    assert "rank 0" not in result.message.splitlines()[0], "an echo is counted, not told"


@pytest.mark.processes
def test_a_rank_that_is_stopped_is_told_and_given_up(shell, monkeypatch, wait_for_end):
    monkeypatch.chdir(shell.folder)
    folder = RunFolder.create("run", "")
    notes, ranks = [], []

    class Stopper(NullObserver):
        def stepped(self, done):
            if done.step == 2:
                ranks.extend(sorted(forked_ranks(os.getpid())))
                os.kill(ranks[1], signal.SIGSTOP)

        def noted(self, text):
            notes.append(text)

    options = Options(workers=2, strategy="ring", out="run")
    job = Job(
        ProgramSource.parse("steady.py"),
        options,
        Stopper(),
        folder=folder,
        patience=Patience(noticed_s=4.0, lost_s=6.0),
    )
    with pytest.raises(
        WorkerLost, match=r"rank 1 \(on .*\) has not answered for 6 s .* 1 other rank stopped"
    ) as caught:
        list(job.play())

    assert wait_for_end(ranks, 0.0) < 1
    assert [
        f"rank 1 (on {socket.gethostname()}, pid {ranks[1]}) has not answered for 4 s" in note for note in notes
    ] == [True], "and rank 0, which waits for it, is not accused"
    assert notes[0] in (shell.folder / "run" / "log.txt").read_text()
    assert "The log has" in caught.value.__notes__[-1]


def forked_ranks(parent: int) -> list[int]:
    """Return the children of a process that are ranks."""
    tasks = Path(f"/proc/{parent}/task").iterdir()
    children = [pid for task in tasks for pid in (task / "children").read_text().split()]
    return [int(pid) for pid in children if Path(f"/proc/{pid}/comm").read_text() == "nfold-rank\n"]


@pytest.mark.processes
def test_ctrl_c_keeps_a_checkpoint_and_the_run_can_go_on(shell, nfold):
    shell.environment["EPOCHS"] = "2000"
    job = shell.start("train", "steady.py", *RING)
    line = next(line for line in job.stderr if line.startswith("epoch 2/"))
    stopped = time.time()
    job.send_signal(signal.SIGINT)
    result = shell.finish(job)

    assert time.time() - stopped < 5
    assert "\x1b" not in line
    assert result.err.count("stopping after the step under way; press Ctrl-C again to stop now\n") == 1
    result.check_explained("stopped", "of 10000 steps are done", "nfold train --resume runs/steady-1", code=130)
    step = int(re.search(r"checkpoint of step (\d+) is kept", result.message)[1])
    assert f"{step} of 10000" in result.message
    assert (shell.folder / "runs" / "steady-1" / "model.safetensors").exists()

    resumed = nfold("train", "--resume", "runs/steady-1", "--steps", step + 3, "--debug", "--json")
    assert resumed.code == 0, resumed.err


@pytest.mark.processes
def test_a_second_ctrl_c_does_not_wait_for_the_step_under_way(shell):
    shell.environment["FAULT"] = "hang"
    job = shell.start("train", "faulty.py", *RING, "--checkpoint-every", "10")
    run = shell.folder / "runs" / "faulty-1"
    while not ((shell.folder / "fault-time").exists() and _kept_step(run) == 20):
        assert job.poll() is None
        PAUSE.wait(0.01)
    job.send_signal(signal.SIGINT)
    assert next(line for line in job.stderr if line.startswith("stopping after the step under way"))
    job.send_signal(signal.SIGINT)
    stopped = time.time()
    result = shell.finish(job)

    assert time.time() - stopped < 2
    assert re.search(r"nfold: stopped. \d+ of 200 steps are done. The checkpoint of step 20 is kept; go on", result.err)
    assert result.code == 130


MOMENTS = ("nfold.errors", "nfold.cli.compare_command", "nfold.verbs.train", "nfold.verbs.ranks.toolbox")
MORE_MOMENTS = (
    *("argparse", "nfold.version", "nfold.cli.terminal"),
    *("nfold.planning.choosing.search", "nfold.runtime.coordinator.session"),
)


@pytest.mark.processes
@pytest.mark.parametrize(
    "moment", [*MOMENTS, *(pytest.param(each, marks=pytest.mark.exhaustive) for each in MORE_MOMENTS)]
)
def test_ctrl_c_is_heard_while_the_command_itself_loads(shell, moment):
    presser = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Presser:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {moment!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Presser())\n"
        "from nfold.cli.main import main\n"
        "sys.exit(main(['train', 'steady.py', '--debug']))\n"
    )
    end = subprocess.run([sys.executable, "-c", presser], cwd=shell.folder, capture_output=True, text=True, timeout=60)

    assert (end.returncode, end.stdout) == (130, "")
    assert re.fullmatch(r"nfold: stopped\.( Training had not begun\.)?\n", end.stderr)
    assert not list(shell.folder.glob("runs/*"))


@pytest.mark.processes
def test_ctrl_c_before_training_leaves_nothing(shell):
    job = shell.start("train", "steady.py", *RING)
    _wait_for_ranks(shell, 2)
    job.send_signal(signal.SIGINT)

    shell.finish(job).check_explained("stopped. Training had not begun.", code=130)
    assert not list(shell.folder.glob("runs/*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_disk_that_fills_up(nfold, tmp_path, monkeypatch):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=192k", "nfold-test", str(disk)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount here: {mounted.stderr.strip()}")
    try:
        # 51 KiB of parameters and as much momentum: one checkpoint fits beside the run's documents, two do not.
        monkeypatch.setenv("HIDDEN", "360")
        result = nfold("train", "steady.py", "--debug", "--json", "--checkpoint-every", "2", "--out", disk / "run")

        result.check_explained(
            "cannot write the checkpoint of step 4 (", "No space left on device", "The previous one is unharmed"
        )
        assert "The checkpoint of step 2 is kept" in result.message
        steps = [path.name for path in (disk / "run").iterdir()]
        assert "checkpoint.safetensors" in steps
        assert not [name for name in steps if name.endswith(".partial")]
        subprocess.run(["mount", "-o", "remount,size=8m", str(disk)], check=True)
        assert nfold("train", "--resume", disk / "run", "--debug").code == 0
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(nfold, monkeypatch):
    """The same without a disk of its own: the system says that it is full when the second checkpoint is written."""
    real_replace, checkpoints = os.replace, []

    def fail_the_second(path, *arguments):
        checkpoints.extend([path] if "checkpoint" in str(path) else [])
        if len(checkpoints) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real_replace(path, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.os.replace", fail_the_second)
        result = nfold("train", "steady.py", "--debug", "--json", "--checkpoint-every", "2")

    result.check_explained(
        "cannot write the checkpoint of step 4 (",
        "No space left on device. The previous one is unharmed. Make room",
        "The checkpoint of step 2 is kept; go on with: nfold train --resume runs/steady-1",
    )
    assert nfold("train", "--resume", "runs/steady-1", "--debug").code == 0


def test_a_folder_that_was_removed_keeps_nothing(nfold, tmp_path, monkeypatch):
    real_replace = os.replace
    calls = []

    def remove_before_the_second(path, target):
        calls.append(target)
        if len([each for each in calls if Path(each).name == CHECKPOINT]) == 2:
            shutil.rmtree(tmp_path / "runs")
        return real_replace(path, target)

    monkeypatch.setattr("pathlib.os.replace", remove_before_the_second)
    result = nfold("train", "steady.py", "--debug", "--json", "--checkpoint-every", "2")

    assert result.code == 2
    assert "cannot write" in result.message
    assert "is kept" not in result.message


@pytest.mark.parametrize(
    ("full", "missing", "advice"),
    [
        (("trace.json",), "trace.json", "`nfold why mine` works without"),
        (("report.json",), "report.json", "What was measured is lost. Make room before the next run"),
        (("report.html",), "report.html", "Make room, then write the page with: nfold report mine"),
        (("model.safetensors",), "model.safetensors", "What was measured is there: nfold why mine. Make room."),
        (("trace.json", "report.html"), "trace.json, report.html", "`nfold report` cannot draw the page again"),
        (("model.safetensors", "trace.json"), "model.safetensors, trace.json", "`nfold why mine` works without"),
    ],
)
def test_what_cannot_be_written_after_the_last_step_costs_nothing_else(
    nfold, tmp_path, monkeypatch, full, missing, advice
):
    real_replace = os.replace

    def fail(path, target):
        if Path(target).name in full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real_replace(path, target)

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.os.replace", fail)
        result = nfold("train", "steady.py", "--steps", "2", "--debug", "--json", "--out", "mine")

    is_kept = "model.safetensors" not in full
    done = "training is complete and mine/model.safetensors holds the model, but" if is_kept else "complete, but"
    result.check_explained(done, "No space left on device", f"Not written: {missing}. ", advice)
    written = {path.name for path in (tmp_path / "mine").iterdir()}
    assert {"report.json", "model.safetensors", "trace.json", "report.html"} - written == set(full)
    why, report = nfold("why", "mine"), nfold("report", "mine")
    if "report.json" in full:
        why.check_explained("mine has no report.json, although all 2 steps are done")
    else:
        assert why.code == 0
    if "trace.json" in full:
        report.check_explained("mine has no trace.json: it could not be written when the run ended", "nfold why mine")
    else:
        assert (report.code == 0) is ("report.json" not in full)
    note = "The checkpoint of step 2 is kept; go on with: nfold train --resume mine"
    assert (note in result.message) is not is_kept, "otherwise there is nothing to go on with"
    nfold("train", "--resume", "mine").check_explained("complete: 2 of 2 steps are done, and mine/model.safetensors")
    assert (tmp_path / "mine" / "model.safetensors").exists(), "its parameters were in the checkpoint"


def test_the_model_of_a_run_that_was_killed_after_its_last_checkpoint_is_written(nfold, tmp_path):
    assert nfold("train", "steady.py", "--steps", "2", "--debug", "--out", "mine").code == 0
    model = tmp_path / "mine" / "model.safetensors"
    newest = model.read_bytes()
    model.write_bytes(b"of an earlier stop")

    nfold("train", "--resume", "mine").check_explained("complete: 2 of 2 steps")

    assert model.read_bytes() == newest


def test_a_metric_that_raises_after_the_last_step_costs_no_model(nfold, tmp_path):
    (tmp_path / "late.py").write_text(LATE)
    failed = nfold("train", "late.py", "--steps", "2", "--debug", "--out", "mine")
    assert failed.code != 0
    assert "the metric 'late' raised KeyError: 'no such class'" in failed.err
    assert "All 2 steps are done: mine/model.safetensors holds the model." in failed.err.replace(f"{tmp_path}/", "")
    assert (tmp_path / "mine" / "model.safetensors").exists()


def test_a_model_outlives_what_goes_wrong_while_its_run_is_summed_up(nfold, tmp_path, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("nfold.verbs.running.run_job.summarise", interrupt)
    command = ("train", "steady.py", "--debug", "--json", "--steps", "2", "--checkpoint-every", "0", "--out", "mine")
    assert nfold(*command).code == 130
    assert (tmp_path / "mine" / "model.safetensors").exists()


def test_a_history_that_cannot_be_written(nfold, tmp_path, monkeypatch):
    def block(folder, *documents):
        (folder.path / "history.jsonl").mkdir()

    monkeypatch.setattr("nfold.verbs.run_folder.folder.RunFolder.save_known", block)
    result = nfold("train", "steady.py", "--debug", "--json", "--out", "full")

    result.check_explained("cannot write the history to full: Is a directory", "Make room, or use another --out")


def _kept_step(run: Path) -> int:
    """The step of a run's checkpoint, which is written a moment after the ranks have gone on."""
    checkpoint = run / CHECKPOINT
    return StoredState.open(checkpoint).step if checkpoint.exists() else 0


def _wait_for_ranks(shell, count: int) -> None:
    """Return when that many ranks have been started."""
    deadline = time.monotonic() + 20
    while len(shell.processes()) <= count:
        assert time.monotonic() < deadline
        PAUSE.wait(0.01)


@pytest.mark.parametrize(
    ("full", "lacking"),
    [(("report.json",), "report.json lacks"), (("report.json", "report.html"), "report.json and report.html lack")],
)
def test_what_cannot_be_written_a_second_time_lacks_only_the_time_of_writing(nfold, monkeypatch, full, lacking):
    real_replace, written = os.replace, []

    def fail_again(path, target):
        name = Path(target).name
        if name in full and name in written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(name)
        return real_replace(path, target)

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.os.replace", fail_again)
        result = nfold("train", "steady.py", "--steps", "2", "--debug", "--json", "--out", "mine")

    result.check_explained(
        "training is complete and mine/model.safetensors holds the model, but cannot write report.json (",
        f"The previous one is unharmed. Nothing else is lost: {lacking} the time that writing took.",
    )
    assert "Not written" not in result.message
    assert (nfold("why", "mine").code, nfold("report", "mine").code) == (0, 0)
