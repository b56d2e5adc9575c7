"""Hears the signals that ask for an end, so that nothing is left half-made."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from nfold.launch.base import STOP_SIGNALS


@contextmanager
def hearing(hear: Callable[[], None], terminate: Callable[[], None] | None = None) -> Iterator[None]:
    """Call `hear` at every signal that asks for an end, in place of what the signal would do.

    Whoever gives `terminate` has that called at SIGTERM, which is sent by a job manager and not by a person.

    Several may lie in each other: the innermost hears. Only a program's main thread is told of signals; elsewhere this
    changes nothing.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        (terminate if terminate is not None and number == signal.SIGTERM else hear)()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {which: signal.signal(which, handle) for which in STOP_SIGNALS}
    try:
        yield
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)
