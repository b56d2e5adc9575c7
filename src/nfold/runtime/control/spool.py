"""Takes files that come in pieces, each written to disk as it comes, so that none is ever whole in memory."""

import contextlib
import os
import threading
from dataclasses import dataclass
from pathlib import Path

PARTIAL = ".partial"
"""End of the names of files that are not complete."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """A complete file, under a temporary name."""

    path: Path
    num_bytes: int
    error: OSError | None = None
    """Why it could not be written; then there is no such file."""

    def put(self, target: Path) -> None:
        """Sync the file to the disk and move it to its place; its temporary name is gone in any case.

        Raises:
            OSError: it could not be written or moved.
        """
        try:
            if self.error is not None:
                raise self.error
            with open(self.path, "rb") as file:
                os.fsync(file.fileno())
            self.path.replace(target)
        finally:
            self.drop()

    def drop(self) -> None:
        """Remove the file."""
        with contextlib.suppress(OSError):  # the folder itself may be gone
            self.path.unlink(missing_ok=True)


class Spool:
    """One file on its way. What goes wrong is told at its end: the sender is not to blame, and goes on sending.

    Any thread may end it; what comes later is not written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._num_bytes = 0
        self._error: OSError | None = None
        self._lock = threading.Lock()
        self._has_ended = False
        try:
            self._file = open(path, "wb")  # noqa: SIM115  it is closed by `end`
        except OSError as error:
            self._error = error

    def add(self, data: bytes | memoryview) -> None:
        """Append a piece to the file."""
        with self._lock:
            if self._has_ended:
                return
            self._num_bytes += len(data)
            if self._error is None:
                try:
                    self._file.write(data)
                except OSError as error:
                    self._fail(error)

    def end(self) -> Arrived:
        """Return the complete file, or the reason why there is none."""
        with self._lock:
            self._has_ended = True
            if self._error is None:
                try:
                    self._file.close()
                except OSError as error:
                    self._fail(error)
            return Arrived(self._path, self._num_bytes, self._error)

    def drop(self) -> None:
        """End the file and remove it."""
        self.end()
        with contextlib.suppress(OSError):  # the folder itself may be gone
            self._path.unlink(missing_ok=True)

    def _fail(self, error: OSError) -> None:
        self._error = error
        with contextlib.suppress(OSError):  # what could not be flushed cannot be on closing either
            self._file.close()
        with contextlib.suppress(OSError):  # the folder itself may be gone
            self._path.unlink(missing_ok=True)


class Spools:
    """Writes the files that ranks send to a folder, at most one of each rank at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._open: dict[int, Spool] = {}
        self._begun = 0
        self._is_closed = False

    def add(self, rank: int, name: str, data: bytes) -> None:
        """Take a piece of the file that a rank sends; its first piece begins the file."""
        with self._lock:
            if self._is_closed:
                return
            if rank not in self._open:
                self._begun += 1
                self._open[rank] = Spool(self._folder / f"{name}-{self._begun}{PARTIAL}")
            spool = self._open[rank]
        spool.add(data)

    def end(self, rank: int) -> Arrived | None:
        """Return the file that a rank has sent; None: it has sent none."""
        with self._lock:
            spool = self._open.pop(rank, None)
        return None if spool is None else spool.end()

    def drop(self, rank: int) -> None:
        """Remove the file that a rank has begun to send, if there is one: it sends no more of it."""
        with self._lock:
            spool = self._open.pop(rank, None)
        if spool is not None:
            spool.drop()

    def close(self) -> None:
        """Begin no more files, and end those under way, which stay incomplete."""
        with self._lock:
            self._is_closed = True
            left, self._open = list(self._open.values()), {}
        for spool in left:
            spool.end()
