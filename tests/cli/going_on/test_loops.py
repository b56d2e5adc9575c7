"""What a loop over the steps of a run leaves when it is left."""

import contextlib
import gc
import signal
import threading
from pathlib import Path

import pytest

import nfold as library
from nfold.verbs.run_folder.folder import RunFolder


@pytest.fixture
def script(nfold, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / "steady.py"


def _break(steps):
    for _ in steps:
        break


def _raise(steps):
    for step in steps:
        raise ZeroDivisionError(step.loss)


def _close_around(steps):
    """A generator of the user's own around the loop, which is closed."""
    around = (step.loss for step in steps)
    next(around)
    around.close()


def _close(steps):
    next(steps)
    steps.close()


@pytest.mark.parametrize("leave", [_break, _raise, _close_around, _close])
def test_however_a_loop_is_left_nothing_of_it_stays(script, leave):
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    threads = set(threading.enumerate())
    with pytest.raises(ZeroDivisionError) if leave is _raise else contextlib.nullcontext():
        leave(library.start(script, debug=True, workers=2, strategy="ring", out="mine"))
    gc.collect()
    left = set(threading.enumerate()) - threads
    assert not [each.name for each in left if each.name.startswith("nfold")]
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers
    RunFolder.open("mine").lock()  # nobody holds it
    assert not list(Path("mine").glob("*.partial"))
    assert library.why("mine").num_steps == 1
