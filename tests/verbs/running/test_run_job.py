"""How a job ends."""

import contextlib
import os
import signal
from dataclasses import replace
from types import SimpleNamespace

import pytest

from nfold.core.text.cluster_file import read_cluster
from nfold.errors import ProgramError, Terminated
from nfold.program import ProgramSource
from nfold.runtime.control import commands as cmd
from nfold.verbs.options.job_record import Resumed
from nfold.verbs.options.option_checks import Options
from nfold.verbs.results.summary import typed
from nfold.verbs.run_folder.folder import RunFolder
from nfold.verbs.running import run_job
from nfold.verbs.running.observer import NullObserver, StepInfo
from nfold.verbs.running.run_job import Job


class Listening(NullObserver):
    """Keeps what the user is told."""

    def __init__(self) -> None:
        self.notes = []

    def noted(self, text):
        self.notes.append(text)


def test_what_cannot_be_removed_hides_no_failure_and_locks_nobody_out(tmp_path, monkeypatch):
    folder, observer = RunFolder.create(tmp_path / "run", ""), Listening()
    script = tmp_path / "script.py"
    script.touch()
    job = Job(ProgramSource.parse(str(script)), Options(), observer, folder=folder)

    def fail():
        raise ProgramError("the real cause")
        yield

    monkeypatch.setattr(job, "_play", fail)
    stuck = folder.path / "model.safetensors.partial"
    stuck.mkdir()  # no file, so that nobody may unlink it, root neither
    with pytest.raises(ProgramError, match="the real cause"):
        list(job.play())
    assert observer.notes == [f"note: {stuck} is half written and cannot be removed: Is a directory"]
    assert os.listdir(folder.path) == [stuck.name], "the log is gone with all else"
    again = RunFolder.open(folder.path)
    again.lock()
    again.release()


@pytest.mark.parametrize(("by", "ends"), [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)])
def test_who_is_told_to_end_while_hosts_come_says_how_to_go_on(tmp_path, monkeypatch, by, ends):
    @contextlib.contextmanager
    def remote_hosts(source, options, command):
        signal.raise_signal(by)
        assert command.is_called_off()
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(run_job, "remote_hosts", remote_hosts)
    (tmp_path / "script.py").touch()
    source, folder = ProgramSource.parse(str(tmp_path / "script.py")), RunFolder.create(tmp_path / "run", "")
    resumed = Resumed(known=None, begun=None, checkpoint=SimpleNamespace(step=7), history=[])
    options = Options(on="local", nodes="1:2")
    with pytest.raises(ends, match="The checkpoint of step 7 is kept; go on with: nfold train") as end:
        list(Job(source, options, NullObserver(), folder=folder, resumed=resumed).play())
    assert end.type is ends


def test_what_to_type_next_names_the_file_of_the_emulated_cluster(tmp_path):
    """The user's, or, for links that a comparison has changed, the one that the run writes."""
    declared = tmp_path / "my cluster.toml"
    declared.write_text('[[node]]\nname = "n"\ncount = 2\nuplink = "100 Mbit/s"\n')
    (tmp_path / "script.py").touch()
    source, folder = ProgramSource.parse(str(tmp_path / "script.py")), RunFolder.create(tmp_path / "run", "")
    options = Options(emulate=declared, workers=2)
    changed = replace(options, emulate=read_cluster(declared), cluster_file="")

    assert typed(source, options, folder).endswith(f"script.py --emulate '{declared}'")
    assert typed(source, replace(options, tls=True), folder).endswith(f"script.py --emulate '{declared}' --tls")
    assert typed(source, changed, folder).endswith(f"script.py --emulate {folder.path}/emulated.toml")


def test_a_job_writes_down_a_cluster_that_no_file_of_the_users_says(tmp_path):
    (tmp_path / "c.toml").write_text('[[node]]\nname = "n"\ncount = 2\nuplink = "100 Mbit/s"\nlatency = "2 ms"\n')
    folder = RunFolder(tmp_path)
    folder.save_emulated(read_cluster(tmp_path / "c.toml"))
    assert read_cluster(tmp_path / "emulated.toml") == read_cluster(tmp_path / "c.toml")


class OneStep:
    """A session that plays one step, and another one that was under way when it was asked to end."""

    def __init__(self):
        self.is_interrupted = False

    def interrupt(self):
        self.is_interrupted = True

    def ask_for_step(self):
        pass

    def run(self):
        while True:
            yield cmd.StepDone(step=0, epoch=0, loss=0.0, parts=(), trace=None)
            if self.is_interrupted:
                return


def test_a_job_that_is_stopped_while_its_cluster_is_removed_says_so(tmp_path, monkeypatch):
    """So that a comparison does not go on with the next run."""
    (tmp_path / "script.py").touch()
    job = Job(ProgramSource.parse(str(tmp_path / "script.py")), Options(), NullObserver(), folder=None)
    ways = []

    @contextlib.contextmanager
    def box(*_):
        yield None
        ways[-1]()

    @contextlib.contextmanager
    def hearing(stop, signals=()):
        ways.append(stop)
        yield

    monkeypatch.setattr(Options, "emulated", property(lambda _: object()))
    monkeypatch.setattr("nfold.verbs.running.run_job.hearing", hearing)
    monkeypatch.setattr("nfold.verbs.running.run_job.emulated_ranks", box)
    monkeypatch.setattr("nfold.verbs.running.run_job.check_room", lambda *_: None)
    monkeypatch.setattr("nfold.verbs.running.run_job.own_threads", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(job, "_session", lambda *_: contextlib.nullcontext(SimpleNamespace(run=lambda: iter(()))))
    monkeypatch.setattr(job, "_complete", lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        list(job.play())


def test_a_loop_that_is_left_early_is_summed_up_when_all_is_removed(tmp_path, monkeypatch):
    """So that the ledger has the time of removing an emulated cluster."""
    (tmp_path / "script.py").touch()
    job, happened = (
        Job(ProgramSource.parse(str(tmp_path / "script.py")), Options(), NullObserver(), folder=None, lockstep=True),
        [],
    )

    @contextlib.contextmanager
    def box(*_):
        yield None
        happened.append("removed")

    monkeypatch.setattr("nfold.verbs.running.run_job.emulated_ranks", box)
    monkeypatch.setattr("nfold.verbs.running.run_job.check_room", lambda *_: None)
    monkeypatch.setattr("nfold.verbs.running.run_job.own_threads", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(job, "_session", lambda *_: contextlib.nullcontext(OneStep()))
    monkeypatch.setattr(job, "_hear", lambda _: StepInfo(step=1, epoch=1, loss=0.0, step_s=0.1))
    monkeypatch.setattr(job, "_complete", lambda phases: happened.append(phases.book("ending").keys()))
    job.outcome.interrupted = True
    steps = job.play()
    next(steps)
    steps.close()
    assert happened == ["removed", {"steps", "your own loop", "ending"}]
