"""Lets two jobs train turn by turn, so that slow spells of the machine fall on both.

Both live at once, but never run at the same time: every half second one is stopped and the other goes on. So a
difference of one per cent can be seen.
"""

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

NUM_WARMUP = 20
NUM_BLOCKS = 10
TURN_S = 0.5
START_TIMEOUT_S = 60.0


class Racer:
    """A process that trains, and can be stopped in the middle."""

    def __init__(self, command: list[str], begun: Callable[[], bool]) -> None:
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        self._begun = begun

    def wait_until_begun(self) -> None:
        """Wait until it takes steps."""
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not self._begun():
            if self.ended or time.monotonic() > deadline_s:
                raise SystemExit(f"{self._process.args} did not begin to train")
            time.sleep(0.01)

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self._process.poll() is not None

    def tell(self, which: signal.Signals) -> None:
        """Send a signal to it and to all that it started."""
        for pid in _family(self._process.pid):
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.kill(pid, which)

    def finish(self) -> None:
        """Wait for its end."""
        if self._process.wait() != 0:
            raise SystemExit(f"{self._process.args} failed")


def nfold_racer(script: Path, out: Path, **wishes: Any) -> Racer:
    """Start a job of nfold."""
    call = f"import nfold; nfold.train({str(script)!r}, out={str(out)!r}, **{wishes!r})"
    history = out / "history.jsonl"
    return Racer([sys.executable, "-c", call], lambda: history.exists() and history.stat().st_size > 0)


def race(first: Racer, second: Racer) -> None:
    """Let both train in turn until one has ended, then let the other end."""
    racers = [first, second]
    try:
        for racer in racers:
            racer.wait_until_begun()
            racer.tell(signal.SIGSTOP)
        while not any(racer.ended for racer in racers):
            racers[0].tell(signal.SIGCONT)
            time.sleep(TURN_S)
            racers[0].tell(signal.SIGSTOP)
            racers.reverse()
    except BaseException:
        for racer in racers:
            racer.tell(signal.SIGTERM)
            racer.tell(signal.SIGCONT)
        raise
    for racer in racers:
        racer.tell(signal.SIGCONT)
    for racer in racers:
        racer.finish()


def ratio(name: str, above: list[float], below: list[float]) -> dict[str, Any]:
    """The ratio of medians, and the quartiles of the same ratio over tenths of the race."""
    blocks = [statistics.median(a) / statistics.median(b) for a, b in zip(_blocks(above), _blocks(below), strict=True)]
    quartiles = statistics.quantiles(blocks, n=4)
    return {
        f"{name}ratio": statistics.median(above[NUM_WARMUP:]) / statistics.median(below[NUM_WARMUP:]),
        f"{name}ratio_quartiles": [quartiles[0], quartiles[2]],
    }


def _blocks(seconds: list[float]) -> list[list[float]]:
    kept = seconds[NUM_WARMUP:]
    size = len(kept) // NUM_BLOCKS
    return [kept[index * size : (index + 1) * size] for index in range(NUM_BLOCKS)]


def _family(pid: int) -> Iterator[int]:
    """A process and all below it."""
    yield pid
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield from _family(int(child))
