"""Ends a rank with the command that started it while the rank imports and can notice nothing by itself.

starts ──> end_with_parent ──> connects ──> imports torch ──> outlive_parent ──> works
           from here the kernel kills it with its parent ───┤ from here the end of its connection tells it

The kernel kills no more than one process, and what it calls the parent is the thread that started it. So a rank that
works notices by itself: it takes along what it has started, and the user's loop may go on in another thread.
All three are prctl(2): PR_SET_PDEATHSIG and PR_SET_CHILD_SUBREAPER.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_counting = threading.Lock()
_num_adopting = 0


def end_with_parent(parent: int) -> None:
    """Have this process killed at the end of the one that started it; end now if that is gone already.

    Args:
        parent: its number.

    Raises:
        OSError: the kernel refuses.
    """
    _tell_kernel(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def outlive_parent() -> None:
    """Undo `end_with_parent`.

    Raises:
        OSError: the kernel refuses.
    """
    _tell_kernel(_PR_SET_PDEATHSIG, 0)


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Become the parent of processes whose parent, a descendant of this process, ends meanwhile; for any thread.

    Raises:
        OSError: the kernel refuses.
    """
    _count(1)
    try:
        yield
    finally:
        _count(-1)


def _count(more: int) -> None:
    """Adopt as long as a thread wants to: it is the whole process that does."""
    global _num_adopting
    with _counting:
        _num_adopting += more
        _tell_kernel(_PR_SET_CHILD_SUBREAPER, int(_num_adopting > 0))


def _tell_kernel(option: int, value: int) -> None:
    import ctypes  # a megabyte, in an agent that may wait for long

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl {option} of this process: {os.strerror(number)}")
