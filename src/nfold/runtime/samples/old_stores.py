"""What a node keeps of other data sets and other runs: it counts towards the room for samples, and gives way first."""

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from nfold.runtime.samples.journal import journal_of
from nfold.runtime.samples.kept_files import StoreInUse, lock


class OldStores:
    """Stores that no process uses."""

    def __init__(self, folders: Iterable[Path]) -> None:
        """Args:
        folders: that hold one each. Those in use are passed by.
        """
        found = [(_used_at(folder), _bytes_in(folder), folder) for folder in folders if _is_free(folder)]
        self._stores = sorted(found, reverse=True)
        """When each was last written to, its bytes and where it is; the oldest is last."""

    @property
    def used_bytes(self) -> int:
        """The bytes of all samples in them."""
        return sum(num_bytes for _, num_bytes, _ in self._stores)

    def free(self, num_bytes: int) -> None:
        """Remove the oldest until so many bytes are free, or none is left; those that are in use by now stay."""
        while num_bytes > 0 and self._stores:
            _, held_bytes, folder = self._stores.pop()
            with contextlib.suppress(OSError, StoreInUse), _locked(folder):
                shutil.rmtree(folder)
                num_bytes -= held_bytes
            with contextlib.suppress(OSError):  # stores of other nodes lie there, too
                folder.parent.rmdir()


def _is_free(folder: Path) -> bool:
    try:
        with _locked(folder):
            return True
    except (OSError, StoreInUse):
        return False


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder / "lock", os.O_RDWR)
    try:
        lock(folder, descriptor)
        yield
    finally:
        os.close(descriptor)


def _used_at(folder: Path) -> int:
    try:
        return os.stat(folder / "journal").st_mtime_ns
    except OSError:
        return 0


def _bytes_in(folder: Path) -> int:
    try:
        return sum(entry.length for entry in journal_of((folder / "journal").read_bytes()).entries)
    except OSError:
        return 0
