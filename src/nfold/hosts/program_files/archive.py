"""Packs the folder of a script, so that it runs where no file system is shared.

What is packed: all regular files of the folder and below it, but for what a file `.nfoldignore` names (a pattern a
line, as `data/` or `*.ckpt`; # begins a comment) and what never belongs to a program (version control, environments,
runs, caches). Data stay where they are: a program finds them by a path that holds on every host, or in the folder that
NFOLD_DATA names there.
"""

import fnmatch
import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nfold.core import codec
from nfold.core.run_state import RunState
from nfold.core.text.units import size
from nfold.errors import ProgramError
from nfold.hosts.program_files.lock_file import LockFile
from nfold.runtime.control.spool import PARTIAL

MOST_BYTES = 100 << 20
"""Of all files together: more is data, and would be sent to every host."""
MOST_FILES = 10_000
IGNORE_FILE = ".nfoldignore"
_NEVER = (
    ".git",
    ".hg",
    ".svn",
    "__pycache__",
    ".venv",
    "venv",
    "node_modules",
    "runs",
    ".*_cache",
    "*.pyc",
    f"*{PARTIAL}",
    ".nfoldignore",
)
_MOST_TOLD = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Archive:
    """A script with its folder."""

    content: bytes
    """A tar file, compressed; the same files give the same bytes."""
    digest: str
    """Of the content: what hosts keep it under."""
    script: str
    """Path of the script in it."""
    lock: LockFile | None = None
    """What hosts make an environment of, to run it in; None: it runs in that of their nfold."""


def pack(script: Path, lock: LockFile | None = None) -> Archive:
    """Pack a script and the folder that it lies in.

    Args:
        script: of the program.
        lock: what its environment is made of.

    Raises:
        ProgramError: the folder is too large to be sent, or cannot be read.
    """
    folder = script.parent
    files = list(_files(folder))
    _check_size(folder, files)
    packed = io.BytesIO()
    try:
        with (
            gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1, mtime=0) as zipped,
            tarfile.open(fileobj=zipped, mode="w", dereference=True) as tar,  # a link may lead out of the folder
        ):
            for path in files:
                _add(tar, path, folder)
    except OSError as error:
        raise ProgramError(
            f"cannot pack {error.filename or folder} for other hosts: {error.strerror}. Let this user read it, or name "
            f"it in {folder / IGNORE_FILE}."
        ) from error
    content = packed.getvalue()
    return Archive(content=content, digest=hashlib.sha256(content).hexdigest(), script=script.name, lock=lock)


def _files(folder: Path) -> Iterator[Path]:
    """Files to pack, in an order that hangs on their names alone."""
    ignored = (*_NEVER, *_ignored(folder / IGNORE_FILE))
    for path, folders, names in os.walk(folder):
        here = Path(path)
        folders[:] = sorted(
            each for each in folders if not (_is_ignored(here / each, folder, ignored) or _holds_run(here / each))
        )
        for name in sorted(names):
            file = here / name
            if file.is_file() and not _is_ignored(file, folder, ignored):
                yield file


def _holds_run(folder: Path) -> bool:
    """Whether a folder is that of a run, which may be written to just now."""
    try:
        codec.load(RunState, folder / "state.json")
    except codec.CodecError:
        return False
    return True


def _ignored(file: Path) -> list[str]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    patterns = (line.split("#", 1)[0].strip() for line in lines)
    return [each.rstrip("/") for each in patterns if each.rstrip("/")]


def _is_ignored(path: Path, folder: Path, patterns: Sequence[str]) -> bool:
    """Whether a pattern means a path: its name, or, where the pattern has a /, the path from the folder on."""
    inside = path.relative_to(folder).as_posix()
    return any(fnmatch.fnmatchcase(inside if "/" in each else path.name, each.lstrip("/")) for each in patterns)


def _add(tar: tarfile.TarFile, path: Path, folder: Path) -> None:
    try:
        tar.add(path, path.relative_to(folder), recursive=False, filter=_plain)
    except FileNotFoundError:
        if path.is_symlink():  # it leads nowhere; else somebody has removed the file just now
            raise


def _check_size(folder: Path, files: Sequence[Path]) -> None:
    weights = {path: os.stat(path).st_size if path.exists() else 0 for path in files}
    total = sum(weights.values())
    if total <= MOST_BYTES and len(files) <= MOST_FILES:
        return
    parts: dict[str, int] = {}
    for path, weight in weights.items():
        first = path.relative_to(folder).parts[0]
        parts[first] = parts.get(first, 0) + weight
    largest = sorted(parts, key=lambda name: -parts[name])[:_MOST_TOLD]
    told = ", ".join(f"{name} ({size(parts[name])})" for name in largest)
    raise ProgramError(
        f"the script's folder {folder} has {len(files)} files of {size(total)} to send to every host, and the limit is "
        f"{MOST_FILES} files of {size(MOST_BYTES)}. The largest: {told}. Name what the program does not import in "
        f"{folder / IGNORE_FILE}, a pattern a line; data stay on the hosts, in a folder that NFOLD_DATA names there."
    )


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out what differs between equal folders: owners and times."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    entry.mode = 0o755 if entry.mode & 0o100 else 0o644
    return entry
