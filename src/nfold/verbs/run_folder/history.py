"""A file of one JSON object a line, which may end in half of one if its writer was killed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nfold.core.codec import CodecError
from nfold.verbs.run_folder.whole_lines import append_lines

_KINDS = {"step": (int,), "epoch": (int,), "loss": (int, float), "metrics": (dict,)}
"""What every entry has; `at_s` came later."""


def append(path: Path, entries: list[dict[str, Any]]) -> None:
    """Add a line for each entry.

    Raises:
        OSError: the disk is full, or the folder is gone; none of the lines is left, nor half of one.
    """
    lines = "".join(json.dumps(entry, allow_nan=False) + "\n" for entry in entries).encode()
    append_lines(path, lines)


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the entries, but for half of one at the end, which was being written when its writer was killed.

    Raises:
        CodecError: a line is no entry; the message names it.
    """
    if not path.exists():
        return
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise CodecError(f"cannot read {path}: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line.decode())
        except ValueError as error:
            if not line.endswith(b"\n"):
                return
            raise _damaged(path, number, f"it is not JSON: {error}") from error
        if wrong := _wrong(entry):
            raise _damaged(path, number, wrong)
        yield entry


def _damaged(path: Path, number: int, what: str) -> CodecError:
    return CodecError(f"{path}, line {number}: {what}. Put a copy of the file back, or begin a new run.")


def _wrong(entry: object) -> str:
    """Say why something cannot be an entry; empty: it can."""
    if not isinstance(entry, dict):
        return f"expected an object, got {type(entry).__name__}"
    for name, kind in _KINDS.items():
        if name not in entry:
            return f"{name!r} is missing"
        if not isinstance(entry[name], kind):
            return f"{name!r} is of type {type(entry[name]).__name__}"
    return ""
