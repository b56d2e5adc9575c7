"""Tells all processes that MPI has started what the first one knows, by mpi4py, and leaves MPI again.

MPI is over before anything is forked: a child of a process that is in MPI may fail in any way.
"""

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

from nfold.errors import ClusterError

_LOOK_S = 0.02
_LENGTH_BYTES = 8


def has_left() -> bool:
    """Return whether this process has been in MPI, and told or heard all that it ever will."""
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi is not None and bool(mpi.Is_finalized())


def broadcast(payload: bytes, *, size: int) -> bytes:
    """Return what rank 0 gave; all processes have to call it, and all return once it is told.

    Args:
        payload: of rank 0; others give nothing.
        size: how many processes there are.

    Raises:
        ClusterError: there is no mpi4py, it speaks another MPI than the one that has started us, or all was told.
    """
    if has_left():
        raise ClusterError(
            "--on mpi brings hosts once in a command, and this one asks for them again. Use other hosts."
        )
    with _mpi() as mpi:
        world = mpi.COMM_WORLD
        if world.Get_size() != size:
            raise ClusterError(
                f"MPI has started {size} processes, and mpi4py sees {world.Get_size()}: it was built for another MPI. "
                "Install it for this one on every host: pip install --force-reinstall --no-binary mpi4py mpi4py"
            )
        length = bytearray(len(payload).to_bytes(_LENGTH_BYTES, "big"))
        _tell(world, length)
        content = bytearray(payload) if world.Get_rank() == 0 else bytearray(int.from_bytes(length, "big"))
        _tell(world, content)
    return bytes(content)


def _tell(world: Any, buffer: bytearray) -> None:
    """A process that waits for MPI computes all the while, and rank 0 may need seconds on the same cores."""
    request, looking = world.Ibcast(buffer, root=0), threading.Event()
    while not request.Test():
        looking.wait(_LOOK_S)  # MPI has no event to wait for


@contextlib.contextmanager
def _mpi() -> Iterator[Any]:
    """Enter MPI, which takes until all processes do, and leave it. A user's script may have entered it before."""
    try:
        import mpi4py

        mpi4py.rc(initialize=False, finalize=False)
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # mpi4py finds no library of MPI
        raise ClusterError(
            f"--on mpi needs mpi4py on every host: pip install 'nfold[mpi]'. Here it says: {error}"
        ) from error
    if not MPI.Is_initialized():
        MPI.Init_thread(MPI.THREAD_FUNNELED)
    try:
        yield MPI
    finally:
        MPI.Finalize()
