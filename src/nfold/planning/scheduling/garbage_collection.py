"""Keeps Python's collector from looking for cycles while hundreds of thousands of records without any are made."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collecting() -> Iterator[None]:
    """Pause the collector. On schedules of 64 ranks it takes a third of the time, and finds nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
