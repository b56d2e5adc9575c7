"""The files of a store, which hold what was written to them whatever process is killed, and whenever.

    FOLDER/lock         held by the process that uses the store
    FOLDER/journal      what is there; see `journal`
    FOLDER/brought      whose samples those are that a run did not begin with: others have others of these numbers
    FOLDER/items-0      items, one behind the other; some are dropped by writing those that stay to items-1
    FOLDER/files/7/cats/1.jpg     sample 7, which is a file of that name

A sample is written, and then its entry; a process that is killed between them leaves bytes that the next one writes
over. After a power failure an entry may be there and its sample not, so the last ones are read when a store is opened.
"""

import contextlib
import fcntl
import json
import os
import shutil
import zlib
from collections.abc import Collection, Sequence
from pathlib import Path

from nfold.errors import ClusterError, InternalError
from nfold.runtime.samples.file_names import lies_below
from nfold.runtime.samples.journal import IN_A_FILE, Entry, header, journal_of, packed
from nfold.runtime.samples.record import Record

UNSURE_BYTES = 16 << 20
"""Written since the disk was last asked to keep all, at most; so much is read when a store is opened."""


_BROUGHT = "brought"
Brought = tuple[int, int, str]
"""[first, end) of samples that a node has brought, and the digest of what lives there."""


class StoreInUse(ClusterError):
    """Another process has the store."""


class KeptFiles:
    """Samples by number, on disk. One thread at a time may use it."""

    def __init__(self, folder: Path) -> None:
        """Open them, or make them.

        Raises:
            StoreInUse: another process has them.
            OSError: they cannot be written.
        """
        self.folder = folder
        self.entries: dict[int, Entry] = {}
        """By number."""
        self._unsure_bytes = self._volume = self._items_end = self._journal_end = 0
        with contextlib.ExitStack() as closing:
            self._closing = closing
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = self._opened("lock")
            lock(folder, descriptor)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()}\n".encode(), 0)
            self._recover()
            self._closing = closing.pop_all()

    @property
    def used_bytes(self) -> int:
        """The bytes of all samples."""
        return sum(entry.length for entry in self.entries.values())

    def path(self, entry: Entry) -> Path:
        """Return where a sample is that is a file.

        Raises:
            InternalError: its name leads elsewhere.
        """
        if not lies_below(entry.name):
            raise InternalError(f"sample {entry.number} has the name {entry.name!r}, which leads out of {self.folder}")
        return self.folder / "files" / str(entry.number) / entry.name

    def read(self, entry: Entry) -> bytes | None:
        """Return the bytes of a sample; None: they are not there, or others."""
        if entry.offset == IN_A_FILE:
            try:
                data: bytes | None = self.path(entry).read_bytes()
            except OSError:
                return None
        else:
            data = _read(self._items, entry.length, entry.offset)
        return None if data is None or zlib.crc32(data) != entry.crc or len(data) != entry.length else data

    def add(self, number: int, record: Record) -> None:
        """Write a sample. It is there for good when this returns.

        Raises:
            OSError: it cannot be written; then all is as before.
        """
        offset = IN_A_FILE if record.name else self._items_end
        entry = Entry(number, offset, len(record.data), zlib.crc32(record.data), record.name)
        try:
            if record.name:
                _write_file(self.path(entry), record.data)
            else:
                _write(self._items, record.data, offset)
            _write(self._journal, packed(entry), self._journal_end)
        except OSError:
            self._cut_off()
            raise
        self._journal_end += len(packed(entry))
        self._items_end += 0 if record.name else entry.length
        self.entries[number] = entry
        self._keep_for_sure(entry)

    def keep_only(self, numbers: Collection[int]) -> None:
        """Drop the other samples: those that stay go to another volume, whose journal then takes the old one's place.

        Raises:
            OSError: they cannot be written; then all is as before.
        """
        items, end, stays = self._opened(_volume(self._volume + 1)), 0, list[Entry]()
        for entry in [self.entries[number] for number in numbers]:
            moved = entry
            if not entry.name:
                if (data := self.read(entry)) is None:  # the disk has lost it
                    continue
                _write(items, data, end)
                moved, end = entry._replace(offset=end), end + entry.length
            stays.append(moved)
        os.fdatasync(items)
        journal = self._opened("journal.new")
        os.ftruncate(journal, 0)
        _write(journal, header(self._volume + 1) + b"".join(map(packed, stays)), 0)
        os.fdatasync(journal)
        os.replace(self.folder / "journal.new", self.folder / "journal")
        self._journal, self._items, self._volume = journal, items, self._volume + 1
        self._know(stays)
        self._remove_unknown()

    def brought(self) -> list[Brought]:
        """Return what `remember` was told last."""
        try:
            told = json.loads((self.folder / _BROUGHT).read_bytes())
        except (OSError, ValueError):
            return []
        return [(first, end, digest) for first, end, digest in told]

    def remember(self, brought: Sequence[Brought]) -> None:
        """Keep whose samples those are that the key of the store does not name.

        Raises:
            OSError: it cannot be written.
        """
        if list(brought) == self.brought():
            return
        new = self.folder / f"{_BROUGHT}.new"
        with new.open("w") as file:
            json.dump(brought, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self.folder / _BROUGHT)

    def close(self) -> None:
        """Let others use them; where there are none, leave nothing behind."""
        if not self.entries:
            for name in ("journal", _volume(self._volume), _BROUGHT, "lock"):
                (self.folder / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # something else lies there
                (self.folder / "files").rmdir()
            with contextlib.suppress(OSError):
                self.folder.rmdir()
        self._closing.close()

    def _opened(self, name: str) -> int:
        descriptor = os.open(self.folder / name, os.O_RDWR | os.O_CREAT, 0o600)
        self._closing.callback(os.close, descriptor)
        return descriptor

    # Opening

    def _recover(self) -> None:
        """Read the journal, and drop what was not written to its end."""
        self._journal = self._opened("journal")
        told = journal_of(_read(self._journal, os.fstat(self._journal).st_size, 0) or b"")
        self._items, self._volume = self._opened(_volume(told.volume)), told.volume
        while told.entries and not self._is_whole(told.entries):
            del told.entries[-1]
        self._know(told.entries)
        self._cut_off()
        if not told.end:
            _write(self._journal, header(self._volume), 0)
        self._remove_unknown()
        there = [number for number, entry in self.entries.items() if not entry.name or self._has_file(entry)]
        if len(there) < len(self.entries):  # somebody has removed files, or cut them off
            self.keep_only(there)

    def _has_file(self, entry: Entry) -> bool:
        try:
            return os.stat(self.path(entry)).st_size == entry.length
        except OSError:
            return False

    def _is_whole(self, entries: list[Entry]) -> bool:
        """Whether the last of these samples are what was written."""
        read_bytes = 0
        for entry in reversed(entries):
            if self.read(entry) is None:
                return False
            read_bytes += entry.length
            if read_bytes > UNSURE_BYTES:
                break
        return True

    def _know(self, entries: list[Entry]) -> None:
        self.entries = {entry.number: entry for entry in entries}
        self._journal_end = len(header(self._volume)) + sum(len(packed(entry)) for entry in entries)
        self._items_end = max((entry.offset + entry.length for entry in entries if not entry.name), default=0)

    def _remove_unknown(self) -> None:
        """Remove what the journal does not name: other volumes, and files of samples that are not there."""
        for path in self.folder.glob("items-*"):
            if path.name != _volume(self._volume):
                path.unlink()
        for path in (self.folder / "files").glob("*"):
            if path.name.isdecimal() and path.is_dir() and int(path.name) not in self.entries:
                shutil.rmtree(path)

    # Writing

    def _keep_for_sure(self, entry: Entry) -> None:
        """Ask the disk, now and then, to keep what was written."""
        self._unsure_bytes += entry.length
        if self._unsure_bytes < UNSURE_BYTES:
            return
        if entry.name:
            os.sync()  # files by the hundred, which one by one would take as many commits
        os.fdatasync(self._items)
        os.fdatasync(self._journal)
        self._unsure_bytes = 0

    def _cut_off(self) -> None:
        """Remove what follows the last item and the last entry."""
        os.ftruncate(self._items, self._items_end)
        os.ftruncate(self._journal, self._journal_end)


def _volume(number: int) -> str:
    return f"items-{number}"


def lock(folder: Path, descriptor: int) -> None:
    """Take the lock of a store, until its file is closed.

    Raises:
        StoreInUse: another process has it, or has just removed the store.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not (os.path.exists(folder / "lock") and os.path.samestat(os.stat(folder / "lock"), os.fstat(descriptor))):
            raise BlockingIOError
    except BlockingIOError:
        who = os.pread(descriptor, 40, 0).decode(errors="replace").strip()
        raise StoreInUse(
            f"the samples in {folder} are used by {who or 'another process'}: another run trains on these data here. "
            "Wait for its end, or stop it."
        ) from None


def _write_file(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        _write(descriptor, data, 0)
    finally:
        os.close(descriptor)


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
