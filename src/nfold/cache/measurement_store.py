"""Keeps JSON documents by a key in a folder: bounded, safe among processes, and never a reason for an error."""

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FORMAT = 1
"""Of a kept document; another one counts as absent."""
MOST_ENTRIES = 64
MOST_BYTES = 64 << 20
_SUFFIX, _HALF = ".json", ".half"


class Store:
    """Documents in a folder. What cannot be read is absent, what cannot be written is not kept."""

    def __init__(self, folder: Path | None, *, most_entries: int = MOST_ENTRIES, most_bytes: int = MOST_BYTES) -> None:
        """Args:
        folder: made when the first document is kept; None: nothing is kept.
        most_entries: documents that are kept.
        most_bytes: that they may have together.
        """
        self._folder, self._most_entries, self._most_bytes = folder, most_entries, most_bytes

    def read(self, key: str) -> dict[str, Any] | None:
        """Return what is kept under a key, and note that it was used; None: nothing that can be read."""
        if self._folder is None:
            return None
        path = self._folder / f"{key}{_SUFFIX}"
        try:
            kept = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(kept, dict) or (kept.get("format"), kept.get("key")) != (FORMAT, key):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        found = kept.get("document")
        return found if isinstance(found, dict) else None

    def write(self, key: str, document: Mapping[str, Any]) -> None:
        """Keep a document under a key instead of what is there; those that were not used for longest go."""
        if self._folder is None:
            return
        data = json.dumps({"format": FORMAT, "key": key, "document": document}).encode()
        if len(data) > self._most_bytes:
            return
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._put(self._folder, self._folder / f"{key}{_SUFFIX}", data)
            self._make_room(self._folder)

    def _put(self, folder: Path, path: Path, data: bytes) -> None:
        """Write beside and rename: whoever reads meanwhile has the old document or the new one."""
        handle, half = tempfile.mkstemp(dir=folder, suffix=_HALF)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(half, path)
        except OSError:
            os.unlink(half)
            raise

    def _make_room(self, folder: Path) -> None:
        """Remove documents and halves that others left, the oldest first, until what is left is within bounds."""
        found = []
        for path in folder.iterdir():
            with contextlib.suppress(OSError):  # another process was faster
                if path.suffix in (_SUFFIX, _HALF):
                    state = path.stat()
                    found.append((state.st_mtime_ns, state.st_size, path))
        found.sort(reverse=True)
        room = self._most_bytes
        for place, (_, size, path) in enumerate(found):
            room -= size
            if place >= self._most_entries or room < 0:
                path.unlink(missing_ok=True)
