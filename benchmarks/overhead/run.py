"""Compares one worker of nfold with the plain PyTorch loop, turn by turn, and times the start of the command.

Both train at once, but never at the same time: every half second one is stopped and the other goes on. So slow spells
of the machine fall on both, and a difference of one per cent can be seen. The plain loop against itself, taken the
same way, says how much is noise.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from environment import write  # noqa: E402  a script's siblings are found only after this

PROGRAMS = {
    "digits": (HERE.parents[1] / "examples" / "digits.py", 1500),
    "bigger CNN": (HERE / "bigger.py", 80),
}
"""Script and steps."""
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
    finally:
        for racer in racers:
            racer.tell(signal.SIGCONT)
    for racer in racers:
        racer.finish()


def plain_racer(script: Path, steps: int, num_threads: int, out: Path) -> Racer:
    """Start the plain loop in a process."""
    command = [sys.executable, str(HERE / "plain.py"), str(script), str(steps), str(num_threads), str(out)]
    return Racer(command, out.with_suffix(".begun").exists)


def nfold_racer(script: Path, steps: int, out: Path) -> Racer:
    """Start one worker."""
    wishes = {"workers": 1, "strategy": "single", "chunks": 1, "steps": steps, "checkpoint_every": 0, "evaluate": False}
    call = f"import nfold; nfold.train({str(script)!r}, out={str(out)!r}, **{wishes!r})"
    command = [sys.executable, "-c", call]
    history = out / "history.jsonl"
    return Racer(command, lambda: history.exists() and history.stat().st_size > 0)


def compare(script: Path, steps: int, num_threads: int) -> dict[str, Any]:
    """Race nfold against the plain loop, and the plain loop against itself."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        race(plain_racer(script, steps, num_threads, here / "a"), nfold_racer(script, steps, here / "run"))
        race(plain_racer(script, steps, num_threads, here / "b"), plain_racer(script, steps, num_threads, here / "c"))
        plain, once, again = (json.loads((here / name).read_text()) for name in "abc")
        rows = json.loads((here / "run" / "trace.json").read_text())["parts"]
    ours = [row["step_s"] for row in rows]
    return {
        "plain_step_s": statistics.median(plain[NUM_WARMUP:]),
        "nfold_step_s": statistics.median(ours[NUM_WARMUP:]),
        **_ratio("", ours, plain),
        **_ratio("plain_to_itself_", again, once),
        "steps": steps,
        "threads": num_threads,
    }


def start_s(command: list[str], repeats: int = 7) -> float:
    """Return the median wall seconds of a command."""
    return statistics.median(_timed(lambda: subprocess.run(command, check=True, capture_output=True), repeats))


def main() -> None:
    """Measure, print and write result.json."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of the plain loop")
    chosen = options.parse_args()
    result: dict[str, Any] = {"steps": {}, "start_s": {}}
    for name, (script, steps) in PROGRAMS.items():
        row = compare(script, steps, chosen.threads)
        result["steps"][name] = row
        low, high = row["ratio_quartiles"]
        print(
            f"{name:12} plain {row['plain_step_s'] * 1e3:7.2f} ms  nfold {row['nfold_step_s'] * 1e3:7.2f} ms  "
            f"ratio {row['ratio']:.3f} (quartiles {low:.3f} to {high:.3f}); "
            f"plain to itself {row['plain_to_itself_ratio']:.3f}",
            flush=True,
        )
    commands = {
        "python": [sys.executable, "-c", "pass"],
        "import nfold": [sys.executable, "-c", "import nfold"],
        "nfold --help": [str(Path(sys.executable).with_name("nfold")), "--help"],
    }
    for name, command in commands.items():
        result["start_s"][name] = start_s(command)
        print(f"{name:12} {result['start_s'][name]:.3f} s")
    write(result, __file__)


def _ratio(name: str, above: list[float], below: list[float]) -> dict[str, Any]:
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


def _timed(action: Callable[[], object], repeats: int) -> list[float]:
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - began)
    return seconds


if __name__ == "__main__":
    main()
