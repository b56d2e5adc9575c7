"""Lets one job at a time write to a folder, also where hosts share it: locks of one need not reach the others.

flock      among processes of one machine; the kernel lets go of it when its holder dies
.writer    among machines: who writes, and since when; its holder touches it every BEAT_S
"""

import contextlib
import fcntl
import json
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from nfold.errors import PlanError
from nfold.machine.processes import boot_id, started

WRITER = ".writer"
BEAT_S = 5.0
SILENT_BEATS = 4
"""A writer on another machine that was not heard for so many is gone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Writer:
    """Who writes to a folder."""

    host: str
    boot: str
    """What no other machine has, nor this one once it is booted again: many hosts are called the same."""
    pid: int
    since: str
    """By its clock."""

    @property
    def told(self) -> str:
        """As one looks for it."""
        return f"process {self.pid} on {self.host}, since {self.since}"


def this_process() -> Writer:
    """Return who we are."""
    since = f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S %z}"
    return Writer(host=socket.gethostname(), boot=boot_id(), pid=os.getpid(), since=since)


def lock(path: Path, me: Writer | None = None, beat_s: float = BEAT_S) -> Callable[[], None]:
    """Keep other jobs from writing to a folder; return what lets go of it. Safe to be called twice.

    Where another machine has left its mark, waits a few beats for it to be heard.

    Args:
        path: of the folder.
        me: who writes from now on; None: this process.
        beat_s: between two signs of life.

    Raises:
        PlanError: another job is writing there; with its host and process.
    """
    me = me or this_process()
    descriptor = os.open(path, os.O_RDONLY)
    try:
        knows_all = _flock(path, descriptor)
        others_may_too = _take_over(path, me, knows_all=knows_all, beat_s=beat_s)
        _write(path, me)
        if others_may_too:
            _check_mark(path, me, beat_s)
    except BaseException:
        os.close(descriptor)
        raise
    stop = threading.Event()
    beating = threading.Thread(target=_beat, args=(path / WRITER, stop, beat_s), name="nfold-writer", daemon=True)
    beating.start()

    def let_go() -> None:
        if not stop.is_set():
            stop.set()
            beating.join()
            if _writer(path) == me:  # else it was removed with the folder, and another job is there by now
                unmark(path)
            os.close(descriptor)

    return let_go


def locked_by(path: Path) -> Writer | None:
    """Return the process of this machine that writes to a folder now; None: there is none, or no folder."""
    there = _writer(path)
    return there if there is not None and there.boot == boot_id() != "" and started(there.pid) else None


def unmark(path: Path) -> None:
    """Remove what says that somebody writes to a folder."""
    with contextlib.suppress(OSError):  # the folder may be gone
        (path / WRITER).unlink(missing_ok=True)


def _flock(path: Path, descriptor: int) -> bool:
    """Lock a folder for this machine; return False on a file system without locks.

    Raises:
        PlanError: another process has it.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise _refusal(path, _writer(path)) from error
    except OSError:
        return False
    return True


def _take_over(path: Path, me: Writer, *, knows_all: bool, beat_s: float) -> bool:
    """Remove the mark of a writer that is gone; return whether other machines may do so at the same time.

    Raises:
        PlanError: it is there.
    """
    if not (path / WRITER).exists():
        return False
    there = _writer(path)
    is_of_this_machine = there is not None and there.boot == me.boot != ""
    is_waited_for = not (knows_all and is_of_this_machine)
    if is_waited_for and _is_heard(path / WRITER, beat_s):
        raise _refusal(path, there)
    unmark(path)
    return is_waited_for


def _check_mark(path: Path, me: Writer, beat_s: float) -> None:
    """Wait for others that took the same writer for gone: the mark that they removed may have been ours.

    Raises:
        PlanError: another one has left its mark since.
    """
    _pause(beat_s)
    there = _writer(path)
    if there != me:
        raise _refusal(path, there)


def _is_heard(mark: Path, beat_s: float) -> bool:
    """Wait for a sign of life. Opened anew each time: a file system of the network then asks its server."""
    first = _touched_ns(mark)
    for _ in range(2 * SILENT_BEATS):
        _pause(beat_s / 2)
        if _touched_ns(mark) not in (first, None):
            return True
    return False


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)


def _touched_ns(mark: Path) -> int | None:
    try:
        with open(mark, "rb") as file:
            return os.fstat(file.fileno()).st_mtime_ns
    except FileNotFoundError:
        return None


def _write(path: Path, me: Writer) -> None:
    """Leave our mark; of two who do so at once, one makes the file.

    Raises:
        PlanError: another one was faster, or it cannot be written.
    """
    try:
        with open(path / WRITER, "x", encoding="utf-8") as file:
            json.dump(asdict(me), file)
    except FileExistsError:
        raise _refusal(path, _writer(path)) from None
    except OSError as error:
        unmark(path)
        raise PlanError(f"cannot write {path / WRITER}: {error.strerror}. Use another --out.") from error


def _writer(path: Path) -> Writer | None:
    """Return who left a mark; None: nobody, or not one that can be read."""
    try:
        return Writer(**json.loads((path / WRITER).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _beat(mark: Path, stop: threading.Event, beat_s: float) -> None:
    while not stop.wait(beat_s):
        with contextlib.suppress(OSError):  # the folder may be gone, which whoever writes to it finds out
            os.utime(mark)


def _refusal(path: Path, there: Writer | None) -> PlanError:
    who = f": {there.told}" if there else ""
    return PlanError(
        f"another job is writing to {path} right now{who}. Wait for its end, stop it, or use another --out."
    )
