"""Reads the end of a file that others write."""

from pathlib import Path

_LINES, _BYTES = 20, 8192


def last_lines_of(path: Path) -> list[str]:
    """Return the last lines of a file; none where there is no such file, or none yet."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _BYTES))
            text = file.read(_BYTES)
    except FileNotFoundError:
        return []
    return text.decode(errors="replace").splitlines()[-_LINES:]
