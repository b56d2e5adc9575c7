"""Plays random schedules of hosts that join, leave and die, with --exact, and compares bits with one device's.

On threads of this process, with the harness of the tests; and on processes: processes.py.
"""

import argparse
import faulthandler
import multiprocessing
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1]), str(HERE.parents[2] / "tests" / "runtime")]
import processes  # noqa: E402  a script's siblings are found only after this
from environment import known, stamp, write  # noqa: E402
from nets import program  # noqa: E402
from random_members import disturbed, undisturbed, unlike  # noqa: E402
from schedules import net_and_strategy  # noqa: E402

LIMIT_S = 180.0
"""For a schedule on threads."""


def on_threads(number: int, folder: Path) -> dict[str, Any]:
    """Play one schedule, and the same number of steps on one device."""
    net, strategy = net_and_strategy(number)
    mine = program(net)
    found = disturbed(mine, folder / "run", strategy, number)
    differing = unlike(found.state, undisturbed(mine, folder / "alone", found.steps))
    row = {"number": number, "net": net, "strategy": strategy, "steps": found.steps}
    return row | {"events": list(found.events), "unlike": differing}


class Player:
    """A process that plays schedules on threads, one after the other; one that hangs is ended with it."""

    def __init__(self) -> None:
        fresh = multiprocessing.get_context("spawn")
        self._pipe, far = fresh.Pipe()
        self._process = fresh.Process(target=_serve, args=(far,), daemon=True)
        self._process.start()
        far.close()

    def play(self, number: int) -> dict[str, Any]:
        """Return what came of a schedule; `hung` or `failed` where it has no end."""
        self._pipe.send(number)
        try:
            if self._pipe.poll(LIMIT_S):
                return self._pipe.recv()
        except EOFError:
            return failed(number, failed="its process ended: see above")
        return failed(number, hung=f"no end within {LIMIT_S:.0f} s")

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.join()


def _serve(pipe: Any) -> None:
    torch.set_num_threads(1)
    while True:
        number = pipe.recv()
        faulthandler.dump_traceback_later(LIMIT_S - 5)
        with tempfile.TemporaryDirectory() as folder:
            row = on_threads(number, Path(folder))
        faulthandler.cancel_dump_traceback_later()
        pipe.send(row)


def all_on_threads(numbers: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Play schedules on threads."""
    player = Player()
    try:
        for number in numbers:
            row = player.play(number)
            if "unlike" not in row:
                player.close()
                player = Player()
            yield row
    finally:
        player.close()


def all_on_processes(numbers: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Play schedules on processes."""
    for number in numbers:
        with tempfile.TemporaryDirectory() as folder:
            try:
                yield processes.played(number, Path(folder))
            except (SystemExit, subprocess.TimeoutExpired) as error:
                yield failed(number, failed=str(error))


def failed(number: int, **why: str) -> dict[str, Any]:
    """Return what there is to say of a schedule that has no end."""
    net, strategy = net_and_strategy(number)
    return {"number": number, "net": net, "strategy": strategy, "events": [], **why}


def is_wrong(row: dict[str, Any]) -> bool:
    """Return whether a schedule did not end with the bits of one device, each step once."""
    return bool(row.get("unlike", True)) or not row.get("each_once", True)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what schedules came to, all together."""
    return {
        "schedules": len(rows),
        "first": rows[0]["number"],
        "events": dict(Counter(event for row in rows for event in row["events"])),
        "strategies": dict(Counter(row["strategy"] for row in rows)),
        "nets": dict(Counter(row["net"] for row in rows)),
        "wrong": [row for row in rows if is_wrong(row)],
        **stamp(),
    }


WAYS: dict[str, Callable[[Iterable[int]], Iterator[dict[str, Any]]]] = {
    "threads": all_on_threads,
    "processes": all_on_processes,
}


def main() -> None:
    """Play, print and write result.json after each schedule; exit with 1 if one did not end as it must."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--threads", type=int, default=300, help="schedules on threads")
    options.add_argument("--processes", type=int, default=30, help="schedules on processes")
    options.add_argument("--first", type=int, default=0, help="number of the first schedule, which is its seed")
    chosen = options.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends it ends its hosts, too
    result, num_wrong = known(__file__), 0
    for way, play in WAYS.items():
        rows: list[dict[str, Any]] = []
        for row in play(range(chosen.first, chosen.first + getattr(chosen, way))):
            rows.append(row)
            how = {name: row[name] for name in ("hung", "failed", "code", "said", "told") if row.get(name)}
            came_to = "wrong" if is_wrong(row) else "equal"
            print(way, row["number"], row["net"], row["strategy"], *row["events"], came_to, row.get("unlike", ""),
                  how or "", flush=True)  # fmt: skip
            result[way] = summary(rows)
            write(result, __file__)
        num_wrong += sum(map(is_wrong, rows))
    sys.exit(bool(num_wrong))


if __name__ == "__main__":
    main()
