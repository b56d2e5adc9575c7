"""logs: what a run's processes print, whole or of one of them, and what comes while the run goes on.

All of a run is one file, `log.txt`, line by line in the order in which it came to the command, wherever the processes
are: a line that one of them printed begins with its number in brackets, and with its host if that is another one. What
the command itself says has no mark.
One file keeps the order among processes, one limit of size holds for all, and hosts that stream their output to the
command need no folder of their own. A file for each process would lose the first, and 64 of them nobody reads.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from nfold.errors import PlanError
from nfold.verbs.jobs.run_list import FoundRun, find_run
from nfold.verbs.jobs.run_process import LOOK_S, RunProcess
from nfold.verbs.run_folder.files import LOG

_MARK = re.compile(r"\[(\d+)(?: on [^\]]*)?\] ")
"""As `mark_of` in `launch/output.py` writes it."""
_READ_BYTES = 1 << 20


def read_logs(named: str | None, *, rank: int | None = None, follows: bool = False) -> Iterator[str]:
    """Yield the lines of a run's log, without their ends.

    Args:
        named: number or folder of the run; None: the newest.
        rank: only what this process printed, without its mark. It has the number for good: that of its rank, unless
            processes have left the run before.
        follows: go on until the run ends.

    Raises:
        PlanError: there is no such run, or it has no log, or no such process has printed anything.
        RunError: the list of runs cannot be read.
    """
    found = find_run(named)
    found.check_here()
    lines = _follow(found) if follows and found.is_running else _lines(found.folder / LOG, lambda: True)
    if not (found.folder / LOG).exists() and not found.is_running:
        raise PlanError(f"{found.folder} has no {LOG}: no run has begun there.")
    yield from lines if rank is None else _of_one(lines, rank)


def _follow(found: FoundRun) -> Iterator[str]:
    assert found.listed is not None, "what runs is listed"
    with RunProcess(found.listed) as process:
        yield from _lines(found.folder / LOG, lambda: process.has_ended(LOOK_S))


def _lines(path: Path, is_over: Callable[[], bool]) -> Iterator[str]:
    """Yield whole lines; at the end of what is there `is_over` says, in its own time, whether more may come."""
    position, begun, is_last = 0, b"", False
    while True:
        for data in _from(path, position):
            position += len(data)
            *whole, begun = (begun + data).split(b"\n")
            yield from (line.decode(errors="replace") for line in whole)
        if is_last:
            break
        is_last = is_over()
    if begun:
        yield begun.decode(errors="replace")


def _from(path: Path, position: int) -> Iterator[bytes]:
    """Yield what a file holds from a position on; nothing where there is no file yet, or no more."""
    try:
        with open(path, "rb") as file:
            file.seek(position)
            while data := file.read(_READ_BYTES):
                yield data
    except FileNotFoundError:
        return


def _of_one(lines: Iterator[str], rank: int) -> Iterator[str]:
    others, is_there = set[int](), False
    for line in lines:
        if (found := _MARK.match(line)) is None:
            continue
        if int(found[1]) == rank:
            is_there = True
            yield line[found.end() :]
        else:
            others.add(int(found[1]))
    if not is_there:
        there = f"there are lines of {', '.join(map(str, sorted(others)))}" if others else "nor has any other"
        raise PlanError(f"rank {rank} has printed nothing: {there}.")
