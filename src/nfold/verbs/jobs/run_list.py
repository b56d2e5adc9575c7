"""Which runs there are, what became of each, and which of them is meant."""

import os
import shlex
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nfold.core import codec
from nfold.core.options.whole import read_digits
from nfold.core.run_state import ListedRun, RunState
from nfold.errors import PlanError, clipped
from nfold.machine.processes import started
from nfold.verbs.jobs.database import BEAT_S, user_database
from nfold.verbs.run_folder.files import REPORT, STATE

SILENT_S = 4 * BEAT_S
_MOST_NAMED = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundRun:
    """The run that RUN on a command line means: a listed one, or a folder."""

    folder: Path
    listed: ListedRun | None
    """None: a folder that no run of this user's list has."""

    @property
    def is_running(self) -> bool:
        """Whether its command goes on, as far as this host can tell."""
        return self.listed is not None and is_running(self.listed)

    def check_here(self) -> None:
        """Refuse a run whose folder this host does not see.

        Raises:
            PlanError: it is on another host.
        """
        if self.listed is not None and self.listed.host != socket.gethostname() and not os.path.isdir(self.folder):
            raise PlanError(f"run {self.listed.number} lies on {self.listed.host}, in {self.folder}. Ask there.")

    def state(self) -> RunState:
        """Read the state that the run has last written down.

        Raises:
            PlanError: nobody has written that down, or not where this host sees it.
        """
        self.check_here()
        path = self.folder / STATE
        if not path.exists():
            raise PlanError(f"{self.folder} holds no {STATE}: no run has begun there, or it was one of a comparison.")
        return codec.load(RunState, path)


def is_running(run: ListedRun) -> bool:
    """Whether a run goes on, as far as the list of runs says."""
    return run.ending in ("running", "silent")


def all_runs() -> list[ListedRun]:
    """Return this user's runs as this host sees them now, the newest first.

    Raises:
        RunError: the list cannot be read.
    """
    return _seen(None)


def listed_run(number: int) -> ListedRun | None:
    """Return the listed run of a number; None: it is not listed now.

    Raises:
        RunError: the list cannot be read.
    """
    return next(iter(_seen(number)), None)


def _seen(number: int | None) -> list[ListedRun]:
    database = user_database()
    runs = [] if database is None else database.runs(number)
    return [as_seen(run, host=socket.gethostname(), now=time.time()) for run in runs]


def as_seen(run: ListedRun, *, host: str, now: float, look: Callable[[int], str | None] = started) -> ListedRun:
    """Return a run with what became of it where its command did not say that.

    Args:
        run: as it was written down.
        host: that asks.
        now: seconds since 1970.
        look: tells when the process of a number started.
    """
    if run.ending != "running":
        return run
    if run.host != host:
        return replace(run, ending="silent") if now - run.heard > SILENT_S else run
    if look(run.pid) == run.started:
        return run
    return replace(run, ending="lost", ended=run.heard)


def find_folder(named: str | None) -> Path:
    """Return the folder of the run that is meant, as `find_run` does; one that is named need not be listed.

    Raises:
        PlanError: there is no such run, or it is on another host.
        RunError: the list cannot be read.
    """
    if named is not None and not named.isdecimal():
        return Path(named)
    found = find_run(named)
    found.check_here()
    return found.folder


def find_reported(named: str | None) -> Path:
    """Return the folder of the run whose report is meant, as `find_folder` does.

    Raises:
        PlanError: there is no such run, it is on another host, or its report comes only at its end.
        RunError: the list cannot be read.
    """
    folder = find_folder(named)
    if (named is not None and not named.isdecimal()) or (folder / REPORT).exists():
        return folder
    found = find_run(named)
    if found.listed is not None and found.is_running:
        number = found.listed.number
        raise PlanError(f"run {number} goes on, and its report comes at its end. Watch it: nfold top {number}")
    return folder


def find_run(named: str | None, *, prefers_running: bool = False) -> FoundRun:
    """Return the run that is meant.

    Args:
        named: its number, its folder, or None: the newest.
        prefers_running: the newest of those that go on is meant, where there are any.

    Raises:
        PlanError: there is none; says what there is.
        RunError: the list cannot be read.
    """
    runs = all_runs()
    if named is None:
        if not runs:
            raise PlanError("no run is listed yet: begin one with nfold train, or give the folder of one.")
        going_on = [run for run in runs if is_running(run)] if prefers_running else []
        return _found((going_on or runs)[0])
    if named.isdecimal():
        return _found(_numbered(named, runs))
    return _in_folder(named, runs)


def find_running(named: str | None) -> ListedRun:
    """Return the run that is to be stopped; without a name, the only one that is running.

    Raises:
        PlanError: there is none, or several; says what there is.
        RunError: the list cannot be read.
    """
    if named is not None:
        found = find_run(named).listed
        if found is None:
            raise PlanError(f"{named} is not listed as a run of yours.{_there_are(all_runs())}")
        return found
    runs = [run for run in all_runs() if is_running(run)]
    if len(runs) != 1:
        what = "several runs go on: say which one" if runs else "no run goes on"
        raise PlanError(f"{what}.{_there_are(runs or all_runs())}")
    return runs[0]


def _found(run: ListedRun) -> FoundRun:
    return FoundRun(folder=Path(run.folder), listed=run)


def _numbered(number: str, runs: Sequence[ListedRun]) -> ListedRun:
    for run in runs:
        if run.number == read_digits(number):
            return run
    hint = f" A folder of that name is ./{number}." if os.path.isdir(number) else ""
    raise PlanError(f"there is no run {clipped(number)}.{_there_are(runs)}{hint}")


def _in_folder(named: str, runs: Sequence[ListedRun]) -> FoundRun:
    path, host = os.path.realpath(named), socket.gethostname()
    listed = next((run for run in runs if (run.folder, run.host) == (path, host)), None)
    if listed is None and not os.path.isdir(named):
        raise PlanError(f"there is no run folder {named}.{_there_are(runs)}")
    return FoundRun(folder=Path(named), listed=listed)


def _there_are(runs: Sequence[ListedRun]) -> str:
    if not runs:
        return " No run is listed."
    named = [f"{run.number} ({run.ending}, {shlex.quote(run.folder)})" for run in runs[:_MOST_NAMED]]
    more = f" and {len(runs) - _MOST_NAMED} more" if len(runs) > _MOST_NAMED else ""
    return f" Listed are {', '.join(named)}{more}: nfold ps."
