"""Runs the real command line in a folder of its own, and looks at what it leaves behind."""

import contextlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "brief"))

from measuring_briefly import measure_briefly, probe_briefly

from nfold.cli.main import main

BRIEF = Path(__file__).parent / "brief"
SCRIPTS = Path(__file__).parent / "scripts"
TAG = "NFOLD_TEST_TAG"
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def message(self) -> str:
        """What it said when it gave up: from `nfold:` on."""
        return self.err[self.err.find("nfold: ") :]

    def document(self) -> dict:
        """The one JSON object on stdout."""
        return json.loads(self.out)

    def check_explained(self, *fragments: str, code: int = 2) -> None:
        """Assert that it ended with one message, which has the fragments, and with nothing else."""
        assert self.code == code, self.err
        assert self.out == ""
        assert "Traceback" not in self.err
        assert len(re.findall("^nfold: ", self.err, re.MULTILINE)) == 1, self.err
        assert not CONTROL.search(self.err)
        for fragment in fragments:
            assert fragment in self.message, self.message


@dataclass
class Shell:
    """A working folder with the scripts in it."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    tag: str = field(default_factory=lambda: uuid.uuid4().hex)
    finish_s: float = 60.0
    """How long a command may take."""

    def start(self, *arguments: str | Path, cwd: Path | None = None) -> "subprocess.Popen[str]":
        """Start `nfold ARGUMENTS` as a process."""
        return self._start(["-m", "nfold.cli.main", *map(str, arguments)], cwd)

    def _start(self, arguments: list[str], cwd: Path | None = None) -> "subprocess.Popen[str]":
        return self.start_program(sys.executable, *arguments, cwd=cwd)

    def start_program(self, *words: str, cwd: Path | None = None) -> "subprocess.Popen[str]":
        """Start any program as a process."""
        return subprocess.Popen(
            words,
            cwd=cwd or self.folder,
            env={**os.environ, **self.whole_environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=_hear_ctrl_c,
        )

    def run(self, *arguments: str | Path, cwd: Path | None = None) -> Result:
        """Run `nfold ARGUMENTS` as a process to its end."""
        return self.finish(self.start(*arguments, cwd=cwd))

    def run_script(self, script: str) -> Result:
        """Run a script as a process to its end."""
        return self.finish(self._start([script]))

    def finish(self, process: "subprocess.Popen[str]") -> Result:
        """Wait for a process; assert that none of its processes and no half-written file is left."""
        result = self.ended(process, self.finish_s)
        assert self.processes() == [], result
        self.check_no_halves()
        return result

    def ended(self, process: "subprocess.Popen[str]", within_s: float) -> Result:
        """Wait for a process, whatever is left of it."""
        out, err = process.communicate(timeout=within_s)
        return Result(process.returncode, out, err)

    @property
    def whole_environment(self) -> dict[str, str]:
        """What its commands have beside the environment of this process."""
        return {**self.environment, TAG: self.tag}

    def processes(self) -> list[int]:
        """Return the processes that this shell's commands have started and that still run."""
        return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and self._is_ours(entry)]

    def check_no_halves(self) -> None:
        """Assert that no file was left half-written."""
        assert not list(self.folder.rglob("*.partial"))

    def _is_ours(self, entry: Path) -> bool:
        try:
            is_ours = f"{TAG}={self.tag}".encode() in (entry / "environ").read_bytes().split(b"\0")
            return is_ours and "\nState:\tZ" not in (entry / "status").read_text()
        except OSError:
            return False  # gone, or not ours to look at


@pytest.fixture(scope="session")
def pinned():
    """Let this process and those that it starts use so many cores.

    How many threads a rank has follows from how fast they were when they were measured. Where it has no more than one
    core, runs that are planned anew have the same bits. Tests that run at the same time get different cores.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))

    @contextlib.contextmanager
    def pin(cores: int):
        before = os.sched_getaffinity(0)
        mine = sorted(before)
        first = worker % len(mine)
        os.sched_setaffinity(0, (mine[first:] + mine[:first])[:cores])
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)

    return pin


@pytest.fixture
def one_core(pinned):
    """Pin this test to a core."""
    with pinned(1):
        yield


def _hear_ctrl_c() -> None:
    """Tests that run in the background of a shell ignore Ctrl-C, and what they start would, too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def shell(tmp_path):
    before = set(os.listdir("/dev/shm"))
    shell = make_shell(tmp_path)
    yield shell
    for pid in shell.processes():
        os.kill(pid, signal.SIGKILL)
    assert not [name for name in set(os.listdir("/dev/shm")) - before if "nfold" in name or "torch" in name]


@pytest.fixture(scope="module")
def module_shell(tmp_path_factory):
    return make_shell(tmp_path_factory.mktemp("shell"))


def make_shell(folder: Path) -> Shell:
    """Put the scripts into a folder; what scripts of another folder imported, with other settings, is forgotten."""
    sys.modules.pop("numbers_of_this_program", None)
    for script in SCRIPTS.glob("*.py"):
        shutil.copy(script, folder)
    return Shell(folder)


@pytest.fixture(autouse=True)
def _little_is_measured(monkeypatch):
    """In this process and in ranks that are processes; links between these are measured as ever."""
    measure_briefly(monkeypatch.setattr)
    probe_briefly(monkeypatch.setattr)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(BRIEF), *filter(None, (os.environ.get("PYTHONPATH"),)))))


@pytest.fixture
def nfold(tmp_path, monkeypatch, capsys):
    """Run a command in this process, in a folder with the scripts; ranks are threads if it says --debug."""
    make_shell(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(*arguments: str | Path) -> Result:
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:  # argparse
            code = end.code
        captured = capsys.readouterr()
        assert not list(tmp_path.rglob("*.partial"))
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture
def wait_for_end():
    """Return how many seconds processes took to end, from now."""

    def wait(pids: list[int], timeout_s: float) -> float:
        begin_s = time.monotonic()
        for pid in pids:
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            left_s = timeout_s - (time.monotonic() - begin_s)
            assert poll.poll(max(0.0, left_s) * 1000), f"process {pid} still runs after {timeout_s} s"
            os.close(descriptor)
        return time.monotonic() - begin_s

    return wait
