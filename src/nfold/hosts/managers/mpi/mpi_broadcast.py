"""Tells all processes that MPI has started what the first one knows, by a child, which leaves MPI again. Once."""

import threading

from nfold.errors import ClusterError
from nfold.launch.mpi_process import MpiProcess

_CLAIMED = threading.Event()


def is_claimed() -> bool:
    """Return whether this process has used its place in MPI."""
    return _CLAIMED.is_set()


def claim() -> None:
    """Use this process's place in MPI: no process can be there a second time.

    Raises:
        ClusterError: it was used before.
    """
    if _CLAIMED.is_set():
        raise ClusterError(
            "--on mpi brings hosts once in a command, and this one asks for them again. Use other hosts."
        )
    _CLAIMED.set()


def broadcast(text: str, *, size: int) -> None:
    """Tell all other processes something; returns once each has heard it.

    Args:
        text: what.
        size: how many processes there are.

    Raises:
        ClusterError: this process cannot enter MPI, or was there before.
    """
    claim()
    with MpiProcess(size) as process:
        process.tell(text)
