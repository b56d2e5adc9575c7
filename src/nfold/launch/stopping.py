"""Hears Ctrl-C, SIGTERM and SIGHUP in place of what they would do. What follows is decided by who listens.

A training run's listener is `runtime/coordinator/session.py`. That a first Ctrl-C means to stop after the step under
way is decided in `runtime/coordinator/training.py`.
"""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from nfold.launch.launcher import STOP_SIGNALS

_IS_OURS = threading.Event()


def own_process() -> None:
    """Say that this process is there for one job alone: when that was heard to its end, SIGTERM means nothing more.

    Job managers send it again and again, and the end of the interpreter takes a while.
    """
    _IS_OURS.set()


@contextmanager
def hearing(
    hear: Callable[[], None],
    terminate: Callable[[], None] | None = None,
    *,
    signals: Sequence[signal.Signals] = STOP_SIGNALS,
    is_end: bool = True,
) -> Iterator[None]:
    """Call `hear` at every signal that asks for an end, in place of what the signal would do.

    Args:
        hear: is called between two instructions of the main thread, whatever that does.
        terminate: is called instead at SIGTERM, which is sent by a job manager and not by a person; None: `hear` is.
        signals: that are heard.
        is_end: whether a job ends with this, so that SIGTERM means nothing more to a process of its own.

    Several may lie in each other: the innermost hears. Only a program's main thread is told of signals; elsewhere this
    changes nothing.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        (terminate if terminate is not None and number == signal.SIGTERM else hear)()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {which: signal.signal(which, handle) for which in signals}
    try:
        yield
    finally:
        for which, handler in before.items():
            is_over = is_end and _IS_OURS.is_set() and which == signal.SIGTERM and handler == signal.SIG_DFL
            signal.signal(which, signal.SIG_IGN if is_over else handler)
