"""Ends a run whose loop over steps was left without a word: its script has ended with the loop still in a variable.

Only the interpreter's end is heard here. A loop that is left, `stop()` and `close()` are in `steps.py`; signals are
heard in `launch/stopping.py`.
"""

import atexit
import inspect
import weakref
from collections.abc import Generator
from typing import Any


def close_at_exit(steps: Generator[Any, None, None]) -> None:
    """Close a generator when the interpreter ends, if it is still there: while the threads that it waits for run.

    The interpreter would close it too, but only after those that hear the ranks are gone.
    """

    def close() -> None:
        left = alive()
        if left is None or inspect.getgeneratorstate(left) == inspect.GEN_RUNNING:
            return  # nobody holds it, or another thread is in it, which ends with the process
        left.close()

    alive = weakref.ref(steps, lambda _: atexit.unregister(close))
    atexit.register(close)
