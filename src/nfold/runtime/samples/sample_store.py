"""Keeps samples that have come to a node, over runs and crashes, within the room that it may take; readers may wait."""

import contextlib
import errno
import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from nfold.core.residency import Spans
from nfold.core.text.units import size
from nfold.errors import ClusterError, InternalError, RunError
from nfold.planning.residency.model.spans import is_in, of_numbers, union
from nfold.runtime.samples.journal import Entry
from nfold.runtime.samples.kept_files import Brought, KeptFiles
from nfold.runtime.samples.old_stores import OldStores
from nfold.runtime.samples.record import Record

_ELSEWHERE = "Free some room, or let NFOLD_DATA name a folder that has it."
_LONGEST_NAME = (1 << 16) - 1
"""Bytes, for which the journal has room."""


class DamagedSample(RunError):
    """A sample is not what was written, and was dropped."""


class SampleStore:
    """Samples by number. All threads of its process may use it."""

    def __init__(
        self, folder: Path, most_bytes: int | None = None, *, old: OldStores | None = None, is_kept: bool = True
    ) -> None:
        """Open a store, or make one.

        Args:
            folder: that holds it.
            most_bytes: of all samples in it and in old ones; None: as many as the disk has room for.
            old: stores of other data, which give way to this one.
            is_kept: False: it is removed when it is closed.

        Raises:
            StoreInUse: another process has it.
            ClusterError: it cannot be written.
        """
        self._most_bytes, self._old, self._is_kept = most_bytes, old or OldStores([]), is_kept
        self._checked: set[int] = set()
        """Files that were read since it was opened, and are what was written."""
        self._changed = threading.Condition()
        self._needed: Spans | None = None
        self._is_expecting = False
        self._failure: Exception | None = None
        self._ask: Callable[[int], None] | None = None
        self._refusals: dict[int, Exception] = {}
        """Why samples that were asked for do not come."""
        self._num_let_go = 0
        self._num_asking = 0
        """Readers that wait for a sample that was asked for."""
        try:
            self._files = KeptFiles(folder)
        except OSError as error:
            raise ClusterError(f"samples cannot be kept in {folder}: {error.strerror}. {_ELSEWHERE}") from error
        self._used_bytes = self._files.used_bytes

    def __contains__(self, number: int) -> bool:
        return number in self._files.entries

    @property
    def used_bytes(self) -> int:
        """The bytes of all samples in it."""
        return self._used_bytes

    def numbers(self) -> Spans:
        """Return which samples it holds."""
        with self._changed:
            return of_numbers(self._files.entries)

    def name(self, number: int) -> str:
        """Return the name of the file that a sample is; empty: it is an item."""
        return self._entry(number).name

    def bytes_of(self, number: int) -> bytes:
        """Return the bytes of a sample.

        Raises:
            InternalError: it is not there.
            DamagedSample: it is not what was written, and is dropped.
        """
        with self._changed:
            return self._read(self._entry(number))

    def path(self, number: int) -> Path:
        """Return where the file is that a sample is.

        Raises:
            InternalError: it is not there, or is none.
            DamagedSample: it is not what was written, and is dropped.
        """
        entry = self._entry(number)
        if not entry.name:
            raise InternalError(f"sample {number} in {self._files.folder} is no file")
        with self._changed:
            if number not in self._checked:
                self._read(entry)
                self._checked.add(number)
        return self._files.path(entry)

    def add(self, number: int, record: Record) -> None:
        """Keep a sample; one that is there already stays. It is there for good when this returns.

        Raises:
            ClusterError: there is no room for it.
        """
        with self._changed:
            if number in self:
                return
            try:
                self._make_room(number, record)
                self._add(number, record)
            except OSError as error:
                raise ClusterError(
                    f"sample {number} ({size(len(record.data))}) cannot be kept in {self._files.folder}, which has "
                    f"{size(self._used_bytes)} of samples: {error.strerror}. {_ELSEWHERE}"
                ) from error
            self._used_bytes += len(record.data)
            self._changed.notify_all()

    def drop_others(self, needed: Spans) -> None:
        """Let samples be dropped that are not needed any more, once there is no room for others.

        Args:
            needed: those that must stay, in order.
        """
        with self._changed:
            self._needed = needed

    def keep_brought(self, first: int, brought: Sequence[Brought]) -> None:
        """Drop samples from a number on that another run knew by it, and remember whose those are that may come.

        Args:
            first: those before it are named by the key of the store.
            brought: the others.

        Raises:
            ClusterError: those that stay cannot be written.
        """
        with self._changed:
            try:
                known = self._files.brought()
                same = union((begin, end) for begin, end, digest in brought if (begin, end, digest) in known)
                self._drop_all_but(number for number in self._files.entries if number < first or is_in(same, number))
                self._files.remember(brought)
            except OSError as error:
                where = f"samples cannot be kept in {self._files.folder}"
                raise ClusterError(f"{where}: {error.strerror}. {_ELSEWHERE}") from error

    def close(self) -> None:
        """Let others use it."""
        self._files.close()
        if not self._is_kept:
            shutil.rmtree(self._files.folder, ignore_errors=True)

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
            InternalError: none is on its way, and nobody can be asked for it.
            Exception: no more come; what `expect` was told, or `refuse`.
        """
        if number in self:
            return
        with self._changed:
            self._changed.wait_for(lambda: number in self or not self._is_expecting)
            if number in self:
                return
            if self._failure is not None:
                raise self._failure
        if self._ask is None:
            raise InternalError(f"sample {number} is neither in {self._files.folder} nor on its way")
        self._wait_for_asked(number, self._ask)

    def on_missing(self, ask: Callable[[int], None]) -> None:
        """Let a sample that is waited for, and neither here nor on its way, be asked for: `add` or `refuse` follows."""
        self._ask = ask

    @property
    def is_asking(self) -> bool:
        """Whether somebody waits for a sample that was asked for."""
        return self._num_asking > 0

    def refuse(self, number: int, error: Exception) -> None:
        """Say why a sample that was asked for does not come."""
        with self._changed:
            self._refusals[number] = error
            self._changed.notify_all()

    def let_go(self) -> None:
        """Let nobody wait any longer for what was asked for."""
        with self._changed:
            self._num_let_go += 1
            self._changed.notify_all()

    def _wait_for_asked(self, number: int, ask: Callable[[int], None]) -> None:
        with self._changed:
            self._refusals.pop(number, None)
            num_let_go = self._num_let_go
            self._num_asking += 1
        try:
            ask(number)
            with self._changed:
                self._changed.wait_for(
                    lambda: number in self or number in self._refusals or self._num_let_go > num_let_go
                )
        finally:
            with self._changed:
                self._num_asking -= 1
        with self._changed:
            if number in self:
                return
            raise self._refusals.get(number) or RunError(f"sample {number} was waited for when its generation ended")

    # Samples

    def _read(self, entry: Entry) -> bytes:
        data = self._files.read(entry)
        if data is None:
            with contextlib.suppress(OSError):  # then it is found again next time
                self._drop_all_but(number for number in self._files.entries if number != entry.number)
            raise DamagedSample(
                f"sample {entry.number} in {self._files.folder} is not what was written there: the disk has lost or "
                "changed it. Let the run go on with --resume, and it is fetched again."
            )
        return data

    def _add(self, number: int, record: Record) -> None:
        """Write a sample; where the disk is full, older stores give way."""
        try:
            self._files.add(number, record)
        except OSError as error:
            if error.errno != errno.ENOSPC or not self._old.used_bytes:
                raise
            self._old.free(len(record.data))
            self._add(number, record)

    # Room

    def _entry(self, number: int) -> Entry:
        if number not in self:
            raise InternalError(f"sample {number} is not in {self._files.folder}")
        return self._files.entries[number]

    def _make_room(self, number: int, record: Record) -> None:
        if len(record.name.encode("utf-8", "surrogateescape")) > _LONGEST_NAME:
            raise ClusterError(f"sample {number} cannot be kept: its name, {record.name[:40]}.., is too long.")
        if self._most_bytes is None:
            return
        if self._used_bytes + self._old.used_bytes + len(record.data) > self._most_bytes:
            self._old.free(self._used_bytes + self._old.used_bytes + len(record.data) - self._most_bytes)
        if self._used_bytes + len(record.data) > self._most_bytes and self._needed is not None:
            self._drop_all_but(number for number in self._files.entries if is_in(self._needed, number))
        if self._used_bytes + len(record.data) > self._most_bytes:
            raise ClusterError(
                f"sample {number} ({size(len(record.data))}) has no room in {self._files.folder}: it may hold "
                f"{size(self._most_bytes)} and holds {size(self._used_bytes)}. Give the node more storage."
            )

    def _drop_all_but(self, numbers: Iterable[int]) -> None:
        stays = [*numbers]
        if len(stays) < len(self._files.entries):
            self._files.keep_only(stays)
            self._used_bytes = self._files.used_bytes
