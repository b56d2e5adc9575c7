"""Keeps programs that came from elsewhere in a cache folder, each under the checksum of its archive."""

import hashlib
import io
import os
import shutil
import tarfile
import tempfile
from pathlib import Path

from nfold.errors import ClusterError

_KEPT = 20
"""Programs; the ones that were used longest ago go first."""


class ProgramCache:
    """Unpacked programs on a host."""

    def __init__(self, folder: Path) -> None:
        """Args:
        folder: is made where it is missing; only this user can look into it.
        """
        self._folder = folder

    def find(self, digest: str) -> Path | None:
        """Return the folder of a program that came before; None: it has to be sent."""
        found = self._folder / digest
        if not found.is_dir():
            return None
        os.utime(found)
        return found

    def unpack(self, content: bytes, digest: str) -> Path:
        """Unpack an archive and return its folder. Processes that do so side by side do not meet.

        Raises:
            ClusterError: the disk has no room, the folder cannot be written, or the archive is broken.
        """
        if hashlib.sha256(content).hexdigest() != digest:
            raise ClusterError("the program that came is not the one that was sent: its checksum differs. Try again.")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            half = Path(tempfile.mkdtemp(prefix="half-", dir=self._folder))
            try:
                with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
                    tar.extractall(half, filter="data")
                self._put(half, self._folder / digest)
            finally:
                shutil.rmtree(half, ignore_errors=True)
            self._drop_old()
        except OSError as error:
            raise ClusterError(
                f"cannot unpack the program into {self._folder}: {error.strerror}. Free some, or let this user write "
                "there; XDG_CACHE_HOME moves it."
            ) from error
        return self._folder / digest

    @staticmethod
    def _put(half: Path, target: Path) -> None:
        try:
            half.rename(target)
        except OSError:
            if not target.is_dir():  # else another process was faster, with the same
                raise

    def _drop_old(self) -> None:
        programs = [each for each in self._folder.iterdir() if not each.name.startswith("half-")]
        for old in sorted(programs, key=lambda each: each.stat().st_mtime)[:-_KEPT]:
            shutil.rmtree(old, ignore_errors=True)
