"""Where ranks print to, and what they printed last."""

import os
import tempfile
from pathlib import Path
from typing import BinaryIO

MOST_LINES = 3
"""The last lines of a traceback say what it is about."""
MOST_CHARACTERS = 300
_TAIL_BYTES = 8192


class Output:
    """A file to which ranks append: a log that others write to as well, or one that nobody else will read."""

    def __init__(self, log: Path | None) -> None:
        self.file: BinaryIO = open(log, "ab+") if log else tempfile.TemporaryFile()  # noqa: SIM115  # until `close`
        self._begins = os.fstat(self.file.fileno()).st_size

    def last_lines(self) -> list[str]:
        """Return the last lines with something in them that were printed since the beginning, as plain text."""
        size = os.fstat(self.file.fileno()).st_size
        begins = max(self._begins, size - _TAIL_BYTES)
        text = os.pread(self.file.fileno(), size - begins, begins).decode(errors="replace")
        lines = [_plain(line) for line in text.splitlines()]
        return [line[:MOST_CHARACTERS] for line in lines if line.strip()][-MOST_LINES:]

    def close(self) -> None:
        """Let go of the file; safe to call again."""
        self.file.close()


def _plain(line: str) -> str:
    return "".join(each if each.isprintable() else " " for each in line).rstrip()
