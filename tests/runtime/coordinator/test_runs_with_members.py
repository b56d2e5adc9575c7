"""Whole runs whose members come and go while they train, with the real coordinator: threads, then processes."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from harness import difference, plain_loop
from nets import program

from nfold.program import Program, ProgramSource
from nfold.verbs.options.run_options import Options
from nfold.verbs.ranks.thread_ranks import threads_put_back
from nfold.verbs.run_folder.folder import RunFolder
from nfold.verbs.running.observer import Silent
from nfold.verbs.running.run import Run, run_of
from nfold.verbs.running.run_job import Job

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNKS = 4
SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
import nets
def program():
    return nets.program("plain")
"""


class Told(Silent):
    """Keeps what a user is told."""

    def __init__(self) -> None:
        self.plans: list[Any] = []
        self.notes: list[str] = []

    def planned(self, planned: Any, folder: Any) -> None:
        self.plans.append(planned.plan)

    def noted(self, text: str) -> None:
        self.notes.append(text)


class Elastic:
    """A run of many steps, which its test leaves when it has seen enough."""

    def __init__(self, source: Program | ProgramSource, folder: Path, **wishes: Any) -> None:
        given = {"workers": 2, "strategy": "ring", "chunks": CHUNKS, "steps": 5000, "checkpoint_every": 4000} | wishes
        self.told = Told()
        options = Options(evaluate=False, **given)
        self.job = Job(source, options, self.told, folder=RunFolder.create(folder, ""), lockstep=True)
        self._steps: Iterator[Any] = self.job.play()
        self.step = 0

    def train(self, steps: int) -> None:
        """Play steps."""
        for _ in range(steps):
            self.step = next(self._steps).step

    def until_planned(self, count: int) -> Any:
        """Train until so many plans were made; return the last one."""
        while len(self.told.plans) < count:
            self.train(1)
        return self.told.plans[-1]

    def until_noted(self, text: str) -> str:
        """Train until the user is told something."""
        while not any(text in note for note in self.told.notes):
            self.train(1)
        return next(note for note in self.told.notes if text in note)

    @property
    def session(self) -> Any:
        assert self.job.session is not None
        return self.job.session

    def end(self) -> Run:
        """Leave the loop."""
        self._steps.close()  # type: ignore[attr-defined]
        return run_of(self.job)


def one_device(steps: int) -> Any:
    return plain_loop(program("plain"), steps, CHUNKS).state_dict()


def weights(run: Run) -> Any:
    return run.state_dict()


@pytest.fixture(autouse=True)
def threads():
    with threads_put_back():
        yield


@pytest.mark.parametrize("strategy", ["ring", "ssp"])
def test_a_third_comes_while_two_train_and_one_of_them_leaves(tmp_path, strategy):
    run = Elastic(program("plain"), tmp_path / "run", strategy=strategy)
    run.train(3)
    assert run.session.request() == (2,)
    grown = run.until_planned(2)
    assert (grown.workers, grown.chunks) == (3, CHUNKS)
    run.train(3)
    run.session.release(0)
    assert run.until_planned(3).workers == 2
    run.train(3)
    ended = run.end()
    if strategy != "ssp":
        assert difference(weights(ended), one_device(run.step)) <= 1e-9
