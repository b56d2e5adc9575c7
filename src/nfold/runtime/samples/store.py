"""Keeps samples that have come to a node, over runs and crashes, within the room that it may take.

    FOLDER/lock         held by the process that uses the store
    FOLDER/journal      what is there; see `journal`
    FOLDER/samples      items, one behind the other
    FOLDER/files/7/cats/1.jpg     sample 7, which is a file of that name

A sample is written, and then its entry; a process that is killed between them leaves bytes that the next one writes
over. After a power failure an entry may be there and its sample not, so the last ones are read when a store is opened.
"""

import contextlib
import fcntl
import os
import threading
import zlib
from collections.abc import Iterable
from pathlib import Path

from nfold.core.residency import Spans
from nfold.core.text.units import size
from nfold.errors import ClusterError, InternalError, RunError
from nfold.runtime.samples.journal import IN_A_FILE, MAGIC, Entry, entries_in, packed
from nfold.runtime.samples.record import Record

UNSURE_BYTES = 16 << 20
"""Written since the disk was last asked to keep all, at most; so much is read when a store is opened."""
_LONGEST_NAME = (1 << 16) - 1


class StoreInUse(ClusterError):
    """Another process has the store."""


class SampleStore:
    """Samples by number. All threads of its process may use it."""

    def __init__(self, folder: Path, most_bytes: int | None = None) -> None:
        """Open a store, or make one.

        Args:
            folder: that holds it.
            most_bytes: of all samples in it; None: as many as the disk has room for.

        Raises:
            StoreInUse: another process has it.
            ClusterError: it cannot be written.
        """
        self._folder, self._most_bytes = folder, most_bytes
        self._changed = threading.Condition()
        self._entries: dict[int, Entry] = {}
        self._used_bytes = self._unsure_bytes = self._samples_end = 0
        self._journal_end = len(MAGIC)
        self._is_expecting = False
        self._failure: Exception | None = None
        with contextlib.ExitStack() as closing:
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                _lock(folder, self._opened("lock", closing))
                self._journal, self._samples = self._opened("journal", closing), self._opened("samples", closing)
                self._recover()
            except OSError as error:
                raise ClusterError(f"samples cannot be kept in {folder}: {error.strerror}. {_ELSEWHERE}") from error
            self._closing = closing.pop_all()

    def __contains__(self, number: int) -> bool:
        return number in self._entries

    @property
    def used_bytes(self) -> int:
        """The bytes of all samples in it."""
        return self._used_bytes

    def numbers(self) -> Spans:
        """Return which samples it holds."""
        with self._changed:
            return spans_of(self._entries)

    def name(self, number: int) -> str:
        """Return the name of the file that a sample is; empty: it is an item."""
        return self._entry(number).name

    def bytes_of(self, number: int) -> bytes:
        """Return the bytes of a sample.

        Raises:
            InternalError: it is not there.
            RunError: it is not what was written.
        """
        entry = self._entry(number)
        data = self._written(entry)
        if data is None:
            raise RunError(
                f"sample {number} in {self._folder} is not what was written there: the disk has lost or changed it. "
                "Remove that folder, and let the run go on with --resume."
            )
        return data

    def path(self, number: int) -> Path:
        """Return where the file is that a sample is.

        Raises:
            InternalError: it is not there, or is none.
        """
        entry = self._entry(number)
        if not entry.name:
            raise InternalError(f"sample {number} in {self._folder} is no file")
        return self._path(entry)

    def add(self, number: int, record: Record) -> None:
        """Keep a sample; one that is there already stays. It is there for good when this returns.

        Raises:
            ClusterError: there is no room for it.
        """
        with self._changed:
            if number in self._entries:
                return
            self._check_room(number, record)
            try:
                self._write(number, record)
            except OSError as error:
                self._cut_off()
                raise ClusterError(
                    f"sample {number} ({size(len(record.data))}) cannot be kept in {self._folder}, which has "
                    f"{size(self._used_bytes)} of samples: {error.strerror}. {_ELSEWHERE}"
                ) from error
            self._changed.notify_all()

    # Waiting for what is on its way

    def expect(self, *, is_expecting: bool, failure: Exception | None = None) -> None:
        """Say whether samples are on their way to it, which is what `wait` waits for.

        Args:
            is_expecting: whether they are.
            failure: why no more come, for whoever waits.
        """
        with self._changed:
            self._is_expecting, self._failure = is_expecting, failure
            self._changed.notify_all()

    def wait(self, number: int) -> None:
        """Wait until a sample is there.

        Raises:
            InternalError: none is on its way.
            Exception: no more come; what `expect` was told.
        """
        if number in self._entries:
            return
        with self._changed:
            self._changed.wait_for(lambda: number in self._entries or not self._is_expecting)
            if number in self._entries:
                return
            if self._failure is not None:
                raise self._failure
        raise InternalError(f"sample {number} is neither in {self._folder} nor on its way")

    def close(self) -> None:
        """Let others use it."""
        self._closing.close()

    # Opening

    def _opened(self, name: str, closing: contextlib.ExitStack) -> int:
        descriptor = os.open(self._folder / name, os.O_RDWR | os.O_CREAT, 0o600)
        closing.callback(os.close, descriptor)
        return descriptor

    def _recover(self) -> None:
        """Read the journal, and drop what was not written to its end."""
        journal = _read(self._journal, os.fstat(self._journal).st_size, 0) or b""
        found, _ = entries_in(journal)
        while found and not self._is_whole(found):
            del found[-1]
        self._entries = {entry.number: entry for entry in found}
        self._used_bytes = sum(entry.length for entry in found)
        self._journal_end = len(MAGIC) + sum(len(packed(entry)) for entry in found)
        self._samples_end = max((entry.offset + entry.length for entry in found if not entry.name), default=0)
        self._cut_off()
        if not found:
            _write(self._journal, MAGIC, 0)

    def _is_whole(self, found: list[Entry]) -> bool:
        """Whether the last of these samples are what was written."""
        unsure_bytes = 0
        for entry in reversed(found):
            if self._written(entry) is None:
                return False
            unsure_bytes += entry.length
            if unsure_bytes > UNSURE_BYTES:
                break
        return True

    # Reading and writing

    def _entry(self, number: int) -> Entry:
        if number not in self._entries:
            raise InternalError(f"sample {number} is not in {self._folder}")
        return self._entries[number]

    def _path(self, entry: Entry) -> Path:
        return self._folder / "files" / str(entry.number) / entry.name

    def _written(self, entry: Entry) -> bytes | None:
        """Return the bytes of a sample; None: they are not there, or others."""
        if entry.offset == IN_A_FILE:
            try:
                data: bytes | None = self._path(entry).read_bytes()
            except OSError:
                return None
        else:
            data = _read(self._samples, entry.length, entry.offset)
        return None if data is None or zlib.crc32(data) != entry.crc or len(data) != entry.length else data

    def _check_room(self, number: int, record: Record) -> None:
        needed = self._used_bytes + len(record.data)
        if self._most_bytes is not None and needed > self._most_bytes:
            raise ClusterError(
                f"sample {number} ({size(len(record.data))}) has no room in {self._folder}: it may hold "
                f"{size(self._most_bytes)} and holds {size(self._used_bytes)}. Give the node more storage, or remove "
                "that folder if it has samples of other plans."
            )
        if len(record.name.encode("utf-8", "surrogateescape")) > _LONGEST_NAME:
            raise ClusterError(f"the file {record.name[:40]}.. has too long a name to be kept by it")

    def _write(self, number: int, record: Record) -> None:
        is_file = bool(record.name)
        offset = IN_A_FILE if is_file else self._samples_end
        entry = Entry(number, offset, len(record.data), zlib.crc32(record.data), record.name)
        if is_file:
            self._write_file(self._path(entry), record.data)
        else:
            _write(self._samples, record.data, offset)
        line = packed(entry)
        _write(self._journal, line, self._journal_end)
        self._journal_end += len(line)
        self._samples_end += 0 if is_file else entry.length
        self._used_bytes += entry.length
        self._entries[number] = entry
        self._keep_for_sure(entry)

    def _write_file(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _write(descriptor, data, 0)
        finally:
            os.close(descriptor)

    def _keep_for_sure(self, entry: Entry) -> None:
        """Ask the disk, now and then, to keep what was written."""
        self._unsure_bytes += entry.length
        if self._unsure_bytes < UNSURE_BYTES:
            return
        if entry.name:
            os.sync()  # files by the hundred, which one by one would take as many commits
        os.fdatasync(self._samples)
        os.fdatasync(self._journal)
        self._unsure_bytes = 0

    def _cut_off(self) -> None:
        """Remove what follows the last sample and the last entry."""
        os.ftruncate(self._samples, self._samples_end)
        os.ftruncate(self._journal, self._journal_end)


_ELSEWHERE = "Free some room, or let NFOLD_DATA name a folder that has it."


def spans_of(numbers: Iterable[int]) -> Spans:
    """Return numbers as spans, in order."""
    spans: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if spans and spans[-1][1] == number:
            spans[-1] = (spans[-1][0], number + 1)
        else:
            spans.append((number, number + 1))
    return tuple(spans)


def _lock(folder: Path, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        who = os.pread(descriptor, 40, 0).decode(errors="replace").strip()
        raise StoreInUse(
            f"the samples in {folder} are used by {who or 'another process'}: another run trains on these data here. "
            "Wait for its end, or stop it."
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"process {os.getpid()}\n".encode(), 0)


def _write(descriptor: int, data: bytes, offset: int) -> None:
    """Write all bytes from an offset on."""
    left = memoryview(data)
    while left:
        written = os.pwrite(descriptor, left, offset)
        left, offset = left[written:], offset + written


def _read(descriptor: int, length: int, offset: int) -> bytes | None:
    """Return bytes from an offset on; None: there are not so many."""
    parts: list[bytes] = []
    while length:
        part = os.pread(descriptor, length, offset)
        if not part:
            return None
        parts.append(part)
        length, offset = length - len(part), offset + len(part)
    return b"".join(parts)
