"""Adds lines to a file, all of them or none: what follows a line that was cut off would merge with it."""

import errno
import os
from pathlib import Path


def append_lines(path: Path, lines: bytes) -> None:
    """Add lines.

    Raises:
        OSError: the disk is full, or the folder is gone; none of the lines is left, nor half of one.
    """
    with open(path, "ab", buffering=0) as file:
        begin = file.tell()
        if file.write(lines) < len(lines):
            file.truncate(begin)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def cut_half_line(path: Path) -> None:
    """Drop half of a line at the end of a file, which a killed writer has left there.

    Raises:
        OSError: it cannot be read or changed.
    """
    content = path.read_bytes() if path.exists() else b""
    if content and not content.endswith(b"\n"):
        os.truncate(path, content.rfind(b"\n") + 1)
