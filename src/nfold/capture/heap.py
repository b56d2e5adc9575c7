"""Gives memory that nothing uses any more back to the system."""

import contextlib
import ctypes
import gc


def give_back() -> None:
    """Collect circles of objects, and return the pages that the allocator keeps for later. Tenths of a second.

    Capturing and profiling hold several copies of a model for a moment. Without glibc the allocator keeps what it has.
    """
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
