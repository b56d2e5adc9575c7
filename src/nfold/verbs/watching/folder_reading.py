"""Reads what a run writes into its folder while it goes on, a little at a time."""

import json
import os
import threading
from pathlib import Path

from nfold.program import TEST_LOSS
from nfold.verbs.results.thinning import Thinned
from nfold.verbs.run_folder.files import HISTORY, LOG

MOST_POINTS = 2000
"""Kept of a long run; every second one, fourth ..., as thinning keeps steps."""
READ_BYTES = 1 << 20
"""Of a history at once: some 10,000 steps, which take about 50 ms to read."""
TAIL_BYTES, TAIL_LINES = 1 << 16, 200

Point = tuple[int, float]
"""(step, loss)"""


class LossReader:
    """Reads on in a run's history where it stopped. Several threads may use it."""

    def __init__(self, folder: Path) -> None:
        """Args:
        folder: of the run; its history need not be there yet.
        """
        self._path = folder / HISTORY
        self._lock = threading.Lock()
        self._begin(None)

    def read(self) -> tuple[list[Point], list[Point]]:
        """Return the loss of steps and that of evaluations so far; of a long history, a part of it more each time."""
        with self._lock:
            self._read_on()
            return [*self._trained.rows], [*self._tested.rows]

    def _begin(self, file: int | None) -> None:
        self._file, self._position, self._begun = file, 0, b""
        self._trained, self._tested = Thinned[Point](MOST_POINTS), Thinned[Point](MOST_POINTS)

    def _read_on(self) -> None:
        try:
            with open(self._path, "rb") as file:
                about = os.stat(file.fileno())
                if about.st_ino != self._file or about.st_size < self._position:
                    self._begin(about.st_ino)  # a run that goes on has cut it
                file.seek(self._position)
                data = file.read(READ_BYTES)
        except FileNotFoundError:
            return
        self._position += len(data)
        *lines, self._begun = (self._begun + data).split(b"\n")
        for line in lines:
            self._keep(line)

    def _keep(self, line: bytes) -> None:
        entry = json.loads(line)
        if not entry["metrics"]:
            self._trained.keep(((entry["step"], entry["loss"]),))
        elif entry["metrics"].get(TEST_LOSS) is not None:
            self._tested.keep(((entry["step"], entry["metrics"][TEST_LOSS]),))


def last_lines(folder: Path) -> list[str]:
    """Return the last lines of a run's log, whole; none where there is no log yet."""
    try:
        with open(folder / LOG, "rb") as file:
            first = max(0, os.stat(file.fileno()).st_size - TAIL_BYTES)
            file.seek(first)
            data = file.read(TAIL_BYTES)
    except FileNotFoundError:
        return []
    lines = data.decode(errors="replace").splitlines()
    return lines[1 if first else 0 :][-TAIL_LINES:]
