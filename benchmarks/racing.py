"""Lets jobs train turn by turn, so that slow spells of the machine fall on all.

All live at once, but never run at the same time: every half second one is stopped and the next goes on.
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


def race(*racers: Racer) -> None:
    """Let all train in turn until each has ended."""
    try:
        for racer in racers:
            racer.wait_until_begun()
            racer.tell(signal.SIGSTOP)
        while running := [racer for racer in racers if not racer.ended]:
            for racer in running:
                racer.tell(signal.SIGCONT)
                time.sleep(TURN_S)
                racer.tell(signal.SIGSTOP)
    except BaseException:
        for racer in racers:
            racer.tell(signal.SIGTERM)
            racer.tell(signal.SIGCONT)
        raise
    for racer in racers:
        racer.finish()


def verdict(races: list[tuple[list[float], list[float], list[float]]], warm_up: int) -> dict[str, Any]:
    """Return what several races of fresh processes say.

    Two equal processes may differ by some per cent for as long as they live, by where their memory lies: so a race has
    two of what is compared with, and there are several races.

    Args:
        races: seconds of the steps of what is judged, and of two equal jobs that it is compared with.
        warm_up: steps of each that are left out.
    """
    medians = [[statistics.median(steps_s[warm_up:]) for steps_s in each] for each in races]
    ratios = [judged / statistics.mean(others) for judged, *others in medians]
    noise = [again / once for _, once, again in medians]
    return {
        "judged_step_s": statistics.median(judged for judged, *_ in medians),
        "other_step_s": statistics.median(statistics.mean(others) for _, *others in medians),
        "ratio": statistics.median(ratios),
        "ratio_quartiles": statistics.quantiles(ratios, n=4)[::2],
        "other_to_itself_ratio": statistics.median(noise),
        "other_to_itself_quartiles": statistics.quantiles(noise, n=4)[::2],
        "races": len(races),
    }


def line(name: str, judged: str, other: str, row: dict[str, Any]) -> str:
    """Return a verdict for people."""
    (low, high), (low_noise, high_noise) = row["ratio_quartiles"], row["other_to_itself_quartiles"]
    return (
        f"{name:17} {other} {row['other_step_s'] * 1e3:7.2f} ms  {judged} {row['judged_step_s'] * 1e3:7.2f} ms  "
        f"ratio {row['ratio']:.3f} (quartiles {low:.3f} to {high:.3f} of {row['races']} races)  "
        f"{other} to itself {row['other_to_itself_ratio']:.3f} ({low_noise:.3f} to {high_noise:.3f})"
    )


def _family(pid: int) -> Iterator[int]:
    """A process and all below it."""
    yield pid
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield from _family(int(child))
