"""Training data that live on the machines: what `Program(train_data=nfold.local_data(...))` is given.

    nfold.local_data("photos", read=read_photo)              each file below a folder is a sample
    nfold.local_data("photos/index.txt", read=read_photo)    each line of a file names one
    nfold.local_data(lambda node: Readings(node))            a function says what lives on a node

Of named files the bytes travel, with the path below their folder. Of other data sets their items do.
"""

import contextlib
import os
import platform
import stat
import zlib
from array import array
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from nfold.core.options.whole import whole
from nfold.core.text.units import count
from nfold.errors import ProgramError, one_line

Read = Callable[[Path], Any]
"""Makes an item, (input, target), of a file."""

_node: ContextVar[str] = ContextVar("nfold_node", default="")
_END_BYTES = 4096
"""At either end of a file, which are read to know it again."""
_SOURCES = "a folder, a file that names one in each line, or a function of a node's name that returns what lives there"


@contextlib.contextmanager
def on_node(name: str) -> Iterator[None]:
    """Let local data be those of a node while they are built. Outside of this it is the host's name."""
    token = _node.set(name)
    try:
        yield
    finally:
        _node.reset(token)


class LocalFiles:
    """Files of one node, a sample each, by their path below a folder: a map-style data set."""

    def __init__(self, folder: Path, names: list[str], read: Read) -> None:
        """Args:
        folder: that they lie in.
        names: their paths below it, with `/` between folders.
        read: makes an item of one.

        Raises:
            ProgramError: one is missing, or is no file.
        """
        self.folder, self.names, self.read = folder, names, read
        self._sizes, self._changed_ns = array("q"), array("q")
        for name in names:
            size, changed_ns = _seen(folder / name)
            self._sizes.append(size)
            self._changed_ns.append(changed_ns)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Any:
        return self.read(self.folder / self.names[index])

    def size(self, index: int) -> int:
        """Return the bytes of a file, as it was when they were listed."""
        return self._sizes[index]

    def changed_ns(self, index: int) -> int:
        """Return when a file had been written to last when they were listed."""
        return self._changed_ns[index]

    def ends_crc(self, index: int) -> int:
        """Return the checksum of the first and last bytes of a file, which tell it from others of its name and size.

        Raises:
            ProgramError: it cannot be read.
        """
        path, size = self.folder / self.names[index], self._sizes[index]
        try:
            with open(path, "rb", buffering=0) as file:
                first = file.read(_END_BYTES)
                last = os.pread(file.fileno(), _END_BYTES, max(_END_BYTES, size - _END_BYTES))
        except OSError as error:
            raise ProgramError(f"the sample {path} cannot be read: {error.strerror}. Let nfold read it.") from error
        return zlib.crc32(last, zlib.crc32(first))

    def check(self, index: int) -> None:
        """Refuse a file that is not the one that was listed.

        Raises:
            ProgramError: it was removed or written to since.
        """
        path = self.folder / self.names[index]
        size, changed_ns = _seen(path)
        if (size, changed_ns) != (self._sizes[index], self._changed_ns[index]):
            was = count(self._sizes[index], "byte")
            raise ProgramError(
                f"{path} was written to after its size was noted: it had {was}, and has {size} now. Nodes would train "
                "on different data. Begin anew once the data do not change any more."
            )


class LocalData:
    """Builds the data set of the node on which it is called; `local_data` makes it."""

    def __init__(
        self, source: str | os.PathLike[str] | Callable[[str], Any], read: Read | None, pinned: object
    ) -> None:
        """Args:
        source: see `local_data`.
        read: see there.
        pinned: see there.

        Raises:
            ProgramError: one of them makes no sense.
        """
        self._source, self._read = source, read
        self.part = 0
        """Number of the first sample, where a data set that all could read is shared out; so parts may be alike."""
        self.pinned = _checked_pinned(pinned)
        if not (callable(source) or isinstance(source, str | os.PathLike)):
            raise ProgramError(f"nfold.local_data({one_line(repr(source))}): give {_SOURCES}.")
        if not callable(read) and (read is not None or not callable(source)):
            raise ProgramError(
                f"nfold.local_data(..., read={one_line(repr(read))}): give a function that makes an item of a file's "
                "path: read=lambda path: (input, target)."
            )

    def __call__(self) -> Any:
        """Return what lives on this node: a map-style data set, which may be empty.

        Raises:
            ProgramError: files are missing, or are named twice.
        """
        node = _node.get() or platform.node()
        found = self._source(node) if callable(self._source) else self._source
        if found is None:  # with `read`, files that come from others can be read here
            return [] if self._read is None else LocalFiles(Path(), [], self._read)
        return self._files(Path(found)) if isinstance(found, str | os.PathLike) else found

    def num_pinned(self, num_samples: int) -> int:
        """Return how many of a node's samples may not leave it."""
        return (num_samples if self.pinned else 0) if isinstance(self.pinned, bool) else min(self.pinned, num_samples)

    def _files(self, given: Path) -> LocalFiles:
        if self._read is None:
            raise ProgramError(
                f"nfold.local_data(..): the function names {given}, so give one that makes an item of a file's path, "
                "too: read=lambda path: (input, target)."
            )
        path = given.expanduser().absolute()
        if path.is_dir():
            return LocalFiles(path, sorted(_names_below(path)), self._read)
        if not path.is_file():
            raise ProgramError(
                f"{path}, which shall name the samples of {_node.get() or platform.node()}, is neither a folder nor a "
                "file there. Where no samples live, make it an empty folder, or give a function of the node's name "
                "that returns None there."
            )
        return LocalFiles(path.parent, _names_in(path), self._read)


def local_data(
    source: str | os.PathLike[str] | Callable[[str], Any], *, read: Read | None = None, pinned: bool | int = False
) -> LocalData:
    """Say that training data live on the machines that train, each of which holds some of them.

    Args:
        source: a folder, in which each file is a sample, in order of their paths (what begins with a dot is passed by);
            or a file that names one of them in each line, by its path below that file's folder; or a function of a
            node's name that returns either, or a map-style data set of what lives there, or None.
        read: makes an item, (input, target), of a file's path. Needed where files are named.
        pinned: True: no sample may leave its node; a number: so many of each node may not.

    Returns:
        What `Program(train_data=...)` takes.

    Raises:
        ProgramError: an argument makes no sense.
    """
    return LocalData(source, read, pinned)


def _checked_pinned(pinned: object) -> bool | int:
    number = whole(pinned)
    if isinstance(pinned, bool):
        return pinned
    if number is None or number < 0:
        raise ProgramError(
            f"nfold.local_data(..., pinned={one_line(repr(pinned))}): give True, False, or how many samples of each "
            "node may not leave it."
        )
    return number


def _names_below(folder: Path) -> Iterator[str]:
    for place, folders, files in os.walk(folder, onerror=_raise):
        folders[:] = [each for each in folders if not each.startswith(".")]
        below = Path(place).relative_to(folder)
        yield from ((below / each).as_posix() for each in files if not each.startswith("."))


def _raise(error: OSError) -> None:
    raise error


def _names_in(index: Path) -> list[str]:
    """Return what the lines of a file name."""
    lines = index.read_text(encoding="utf-8").splitlines()
    names: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        name = line.strip()
        if not name:
            continue
        where = f"{index}, line {number}, names {name!r}"
        if os.path.isabs(name) or ".." in Path(name).parts:
            raise ProgramError(f"{where}, which does not lie below {index.parent}. Name files by their path below it.")
        plain = Path(name).as_posix()
        if plain in names:
            raise ProgramError(f"{where}, as line {names[plain]} does: an epoch would visit it twice. Name it once.")
        names[plain] = number
    return list(names)


def _seen(path: Path) -> tuple[int, int]:
    """Return size and time of the last change of a file.

    Raises:
        ProgramError: there is none.
    """
    try:
        found = os.stat(path)
    except OSError as error:
        raise ProgramError(
            f"the sample {path} cannot be read: {error.strerror}. Put it back, or take it from the data."
        ) from error
    if not stat.S_ISREG(found.st_mode):
        raise ProgramError(f"the sample {path} is no file. Name files alone.")
    return found.st_size, found.st_mtime_ns
