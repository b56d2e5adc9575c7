"""A folder whose files are never half there: each is written aside and put in its place in one move."""

from collections.abc import Iterable
from pathlib import Path

from nfold.core.text.units import size
from nfold.errors import CheckpointError
from nfold.runtime.control.spool import PARTIAL, Arrived, Spool, Spools

MAKE_ROOM = "Make room, or use another --out."


class WholeFiles:
    """The files of one folder, each replaced in one move."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write_whole(self, name: str, data: bytes, what: str) -> None:
        """Write a file aside and put it in place in one move, so that it is never half there.

        Raises:
            CheckpointError: the disk is full, or the folder is gone; the earlier file is as it was.
        """
        spool = Spool(self.path / f"{name}{PARTIAL}")
        spool.add(data)
        self.put_in_place(name, spool.end(), what)

    def spools(self) -> Spools:
        """Return the receiver of files that ranks send, to be used until `put_in_place` or `clear_halves`."""
        return Spools(self.path)

    def put_in_place(self, name: str, file: Arrived, what: str) -> None:
        """Put a file that is complete in the place of an earlier one.

        Raises:
            CheckpointError: as `write_whole` does.
        """
        try:
            file.put(self.path / name)
        except OSError as error:
            kept = " The previous one is unharmed." if (self.path / name).exists() else ""
            raise CheckpointError(
                f"cannot write {what} ({size(file.num_bytes)}) to {self.path}: {error.strerror}.{kept} {MAKE_ROOM}"
            ) from error

    def write_pieces(self, name: str, pieces: Iterable[bytes], what: str) -> None:
        """Write a file as `write_whole` does, a piece at a time.

        Raises:
            CheckpointError: as `write_whole` does.
        """
        spool = Spool(self.path / f"{name}{PARTIAL}")
        try:
            for piece in pieces:
                spool.add(piece)
        except BaseException:
            spool.drop()
            raise
        self.put_in_place(name, spool.end(), what)

    def holds(self, name: str, pieces: Iterable[bytes]) -> bool:
        """Whether the bytes of a file equal those that a checkpoint has of it."""
        try:
            with open(self.path / name, "rb") as file:
                return all(file.read(len(piece)) == piece for piece in pieces) and not file.read(1)
        except FileNotFoundError:
            return False

    def clear_halves(self) -> None:
        """Remove files that a killed job had not finished writing."""
        for half in self.path.glob(f"*{PARTIAL}"):
            half.unlink(missing_ok=True)
