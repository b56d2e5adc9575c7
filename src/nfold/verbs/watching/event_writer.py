"""Writes an event file from a thread of its own: no slow disk makes a run wait."""

import contextlib
import errno
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

END_S = 5.0
"""How long an end waits for the last records."""
WRITTEN_S = 1.0
"""Records are written in batches, at most this old, unless somebody is in a hurry."""
MOST_WAITING = 100_000
"""Records. A disk that is behind by more gets no more."""
NAMES = "events.out.tfevents.*"

MakeRecord = Callable[[], bytes]
"""Called in the thread that writes."""


class EventWriter:
    """Writes one file, which is there from its first record on. What cannot be written is told once, and no more is."""

    def __init__(self, folder: Path, note: Callable[[str], None], *, now: Callable[[], float] = time.time) -> None:
        """Args:
        folder: of the file, and of those of earlier commands.
        note: takes a line for the user, from another thread.
        now: gives seconds since 1970.
        """
        self._folder, self._note, self._now = folder, note, now
        self._changed = threading.Condition()
        self._waiting: list[MakeRecord] = []
        self._is_last = self._is_urgent = self._has_failed = False
        self._thread = threading.Thread(target=self._run, name="nfold-event-writer", daemon=True)
        self._thread.start()

    def add(self, record: MakeRecord) -> None:
        """Have a record written soon."""
        with self._changed:
            is_behind = len(self._waiting) >= MOST_WAITING
            if not (is_behind or self._has_failed):
                self._waiting.append(record)
                self._changed.notify()
        if is_behind:
            self._give_up(f"its disk is {MOST_WAITING} records behind")

    def hasten(self) -> None:
        """Have what waits written at once."""
        with self._changed:
            self._is_urgent = True
            self._changed.notify()

    def end(self) -> None:
        """Have the last records written, and wait until they are, but not long."""
        with self._changed:
            self._is_last = True
            self._changed.notify()
        self._thread.join(END_S)
        if self._thread.is_alive():
            self._give_up(f"its disk did not answer for {END_S:.0f} s")

    def _run(self) -> None:
        file: BinaryIO | None = None
        with contextlib.ExitStack() as ending:
            while records := self._next():
                if self._has_failed:
                    continue
                try:
                    file = file or ending.enter_context(self._open())
                    _write(file, b"".join(record() for record in records))
                except OSError as error:
                    self._give_up(error.strerror or str(error))

    def _next(self) -> list[MakeRecord]:
        """Wait for records, and a while for more; none are left at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_last)
            self._changed.wait_for(lambda: self._is_last or self._is_urgent, WRITTEN_S)
            records, self._waiting, self._is_urgent = self._waiting, [], False
            return records

    def _open(self) -> BinaryIO:
        """Open a file whose name comes after all that are there: files are read in the order of their names."""
        earlier = [
            int(each.name.split(".")[3]) for each in self._folder.glob(NAMES) if each.name.split(".")[3].isdigit()
        ]
        seconds = max([int(self._now()), *(second + 1 for second in earlier)])
        name = f"{seconds:010}.{socket.gethostname()}.{os.getpid()}"
        return open(self._folder / NAMES.replace("*", name), "xb", buffering=0)

    def _give_up(self, why: str) -> None:
        with self._changed:
            is_first, self._has_failed, self._waiting = not self._has_failed, True, []
        if is_first:
            self._note(f"note: TensorBoard sees no more of this run: cannot write to {self._folder}: {why}")


def _write(file: BinaryIO, data: bytes) -> None:
    if file.write(data) < len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
