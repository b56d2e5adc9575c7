"""stop: asks a run of another terminal to end, and says what is kept of it."""

import os
import shlex
import socket
from pathlib import Path

from nfold.core.run_state import ListedRun
from nfold.errors import PlanError, RunError
from nfold.verbs.jobs.run_list import find_running, is_running, listed_run
from nfold.verbs.jobs.run_process import RunProcess
from nfold.verbs.run_folder.files import HELD
from nfold.verbs.run_folder.folder import RunFolder
from nfold.verbs.run_folder.lock import locked_by

WAIT_S = 60.0


def stop(named: str | None, *, wait_s: float = WAIT_S) -> str:
    """Ask a run to end after the step under way, wait for its end, and return what to tell the user.

    Args:
        named: number or folder of the run; None: the only one that runs.
        wait_s: for its end.

    Raises:
        PlanError: there is no such run, or it runs on another host.
        RunError: it has not ended in time, or belongs to somebody else.
    """
    run = find_running(named)
    if not is_running(run):
        refuse_unlisted(run)
        return f"run {run.number} has ended already: {run.ending}.{_told_of_hosts(run)}"
    refuse_elsewhere(run, f"stop {run.number}")
    with RunProcess(run) as process:
        if process.interrupt() and not process.has_ended(wait_s):
            raise RunError(
                f"run {run.number} was asked to end after the step under way, and has not within {wait_s:g} s. Look at "
                f"it: nfold top {run.number}. A second Ctrl-C ends it at once: kill -INT {run.pid}"
            )
    return tell_end(run)


def refuse_unlisted(run: ListedRun) -> None:
    """Refuse to take a run for ended that another command is about to go on with.

    Raises:
        PlanError: there is one, which loads the program and is not listed yet.
    """
    there = locked_by(Path(run.folder))
    if there is not None and there.pid != run.pid:
        raise PlanError(f"{run.folder} is about to be gone on with by {there.told}. Type it again once that trains.")


def tell_end(run: ListedRun) -> str:
    """Say what is kept of a run that has just ended."""
    ended = listed_run(run.number)
    if ended is None or not ended.step:
        return f"run {run.number} is stopped. Training had not begun, so nothing is kept of it."
    done = f"run {run.number} is {ended.ending}: {ended.step} of {ended.total_steps} steps are done."
    if ended.ending == "done" or not ended.script or not os.path.isdir(ended.folder):
        return done
    folder = RunFolder.open(ended.folder)
    if unkept := folder.record().unkept:
        return f"{done} The run cannot be resumed: {unkept}"
    kept = folder.checkpoint()
    return f"{done} {'There is no checkpoint.' if kept is None else folder.tell_checkpoint(kept.step)}"


def _told_of_hosts(run: ListedRun) -> str:
    """Say how hosts of a run end that hold because its command is gone; empty: none do."""
    if not os.path.exists(os.path.join(run.folder, HELD)):
        return ""
    return f" Its hosts may hold for a while: nfold resume {run.number} goes on with them, and Ctrl-C there ends them."


def refuse_elsewhere(run: ListedRun, command: str) -> None:
    """Refuse to reach for a run on another host.

    Args:
        run: that somebody asks something of.
        command: of nfold, to type there.

    Raises:
        PlanError: it runs on another one.
    """
    here = socket.gethostname()
    if run.host != here:
        raise PlanError(
            f"run {run.number} runs on {run.host}, and this is {here}: only there can it be asked. Type: "
            f"ssh {shlex.quote(run.host)} nfold {command}"
        )
