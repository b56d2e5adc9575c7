"""What glibc's allocator does with memory that nothing uses any more: keep it while training, give it back when told.

Another C library's does as it likes.
"""

import contextlib
import ctypes
import gc
import os
from collections.abc import Mapping

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Of malloc.h: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD and M_ARENA_MAX."""
_KEPT_BYTES = 1 << 30
_LARGE_BYTES = 1 << 25
"""What is larger still comes from the system: between small ones that stay, holes of that size would be left.
The allocator's own bound, to which it would come by itself in a process that has freed as much at once."""
_OWN_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
_OWN_HEAPS = ("MALLOC_ARENA_MAX", "MALLOC_ARENA_TEST", "GLIBC_TUNABLES")


def keep_freed(environment: Mapping[str, str] = os.environ) -> None:
    """Let freed memory stay with the process.

    A step frees and asks for the same tensors over and over. By default large ones go back to the system each time,
    and are filled with zeros page by page when they come again: up to a fifth of a step, and not as much in a process
    that has freed larger ones before. Whoever has set the allocator up by environment variables keeps that.
    """
    if any(name in environment for name in _OWN_SETTINGS):
        return
    with contextlib.suppress(OSError, AttributeError):
        set_option = ctypes.CDLL(None).mallopt
        set_option(_TRIM_THRESHOLD, _KEPT_BYTES)
        set_option(_MMAP_THRESHOLD, _LARGE_BYTES)


def share_heap(environment: Mapping[str, str] = os.environ) -> None:
    """Let all threads that begin from now on take memory from one heap.

    By default a thread gets one of its own, of up to eight for each core, and leaves in it what lies between blocks
    that live on: a command that starts threads again and again grows with each. One heap has one lock, so this is not
    for ranks. Whoever has set the allocator up by environment variables keeps that.
    """
    if any(name in environment for name in _OWN_HEAPS):
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)


def keep_for_good() -> None:
    """Collect circles of objects, and look no more through those that are left when circles are collected again.

    Libraries that capture a program leave as many as take a tenth of a second to look through, each time that ranks
    build.
    """
    gc.collect()
    gc.freeze()


def give_back() -> None:
    """Collect circles of objects, and return the pages that the allocator keeps for later. Tenths of a second.

    Capturing and profiling hold several copies of a model for a moment.
    """
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
