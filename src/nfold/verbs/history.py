"""A file of one JSON object a line, which may end in half of one if its writer was killed."""

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def append(path: Path, entries: list[dict[str, Any]]) -> None:
    """Add lines.

    Raises:
        OSError: the disk is full, or the folder is gone; none of the lines is left, nor half of one.
    """
    lines = "".join(json.dumps(entry, allow_nan=False) + "\n" for entry in entries).encode()
    with open(path, "ab", buffering=0) as file:
        begin = file.tell()
        if file.write(lines) < len(lines):
            file.truncate(begin)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the entries, up to a line that was being written when its writer was killed."""
    if not path.exists():
        return
    for line in path.read_text().splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            return
