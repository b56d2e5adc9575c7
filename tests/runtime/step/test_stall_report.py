"""What a rank that does not get on is behind in, from the stacks of its threads."""

import sys
import threading
import traceback

import pytest

from nfold.capture.computing.random import LOCK
from nfold.capture.computing.turn_lock import TurnLock
from nfold.runtime.data.chunk_loader import ChunkLoader, ChunkSamples
from nfold.runtime.data.sample_reader import SampleReader
from nfold.runtime.failures.stalls import LEAST_S, RunningTask, TaskWatch
from nfold.runtime.step.stall_report import stall_told

pytestmark = pytest.mark.timeout(30)


class Hanging:
    """Items, of which one hangs until it is let go; or waits for another rank's sample so long."""

    def __init__(self, *, is_on_its_way: bool) -> None:
        self.reached, self.gate, self.is_on_its_way = threading.Event(), threading.Event(), is_on_its_way

    def wait_for_samples(self, numbers):
        if self.is_on_its_way and 5 in numbers:
            self._hang()

    def _hang(self):
        self.reached.set()
        assert self.gate.wait(20)

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 5 and not self.is_on_its_way:
            self._hang()
        return 1.0, index


@pytest.fixture
def hang():
    """Begin a task of a rank whose reading hangs; return what is told of it after a second less, and at the limit."""
    threads, gates = [], []

    def begin(kind, does, dataset):
        samples = ChunkSamples(8, 8, 1, 0, order=lambda epoch: list(range(8)))
        loader = ChunkLoader(SampleReader(dataset, 0), samples, (0,), 1)
        loader.begin(0)
        assert dataset.reached.wait(10)
        thread = threading.Thread(target=does, args=(loader,))
        threads.append((thread, loader))
        gates.append(dataset.gate)
        thread.start()
        tasks = TaskWatch()
        tasks.step_done(0.5)
        tasks.begin(RunningTask(kind, 3, thread.ident, 0.0))
        while not _codes(thread) & {ChunkLoader.get.__code__, TurnLock.__enter__.__code__}:
            pass
        return [stall_told(tasks, float(now_s)) for now_s in range(int(LEAST_S) + 1)][-2:]

    yield begin
    for gate in gates:
        gate.set()
    for thread, loader in threads:
        thread.join(10)
        assert not thread.is_alive()
        loader.close()


def _codes(thread):
    frame = sys._current_frames().get(thread.ident)
    return {each.f_code for each, _ in traceback.walk_stack(frame)} if frame else set()


def needs_generators(loader):
    with LOCK:
        pass


@pytest.mark.parametrize(("kind", "does"), [("LOAD", lambda loader: loader.get(0, 0)), ("F", needs_generators)])
def test_a_hanging_item_is_named_with_its_line(hang, kind, does):
    early, told = hang(kind, does, Hanging(is_on_its_way=False))
    assert early is None
    item, line = told.pop("at")
    assert item == "item 5 of train_data()"
    assert line.startswith("test_stall_report.py, line ")
    assert told == {"doing": "read samples", "seconds": LEAST_S, "step": 3, "step_s": 0.5}


def test_samples_that_another_rank_sends_are_no_stall(hang):
    assert hang("LOAD", lambda loader: loader.get(0, 0), Hanging(is_on_its_way=True)) == [None, None]
