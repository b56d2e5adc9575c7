"""scale: asks a run of another terminal to train on more or fewer hosts."""

import re

from nfold.core.options.whole import MOST_DIGITS
from nfold.errors import PlanError, clipped
from nfold.machine.request_socket import REFUSED, request
from nfold.verbs.jobs.run_list import find_running, is_running
from nfold.verbs.jobs.stop_run import refuse_elsewhere, refuse_unlisted


def scale(named: str | None, asked: str) -> str:
    """Ask a run for a number of hosts; return what it answers.

    Args:
        named: number or folder of the run; None: the only one that runs.
        asked: `N`, or how many more or fewer: `+N`, `-N`.

    Raises:
        PlanError: there is no such run, it does not take so many, or its hosts stay the same.
        RunError: it does not answer.
    """
    if not re.fullmatch(f"[+-]?[0-9]{{1,{MOST_DIGITS}}}", asked):
        named = clipped(repr(asked))
        raise PlanError(f"{named} is no number of hosts. Use one, or how many more or fewer: 6, +1, -1")
    run = find_running(named)
    if not is_running(run):
        refuse_unlisted(run)
        raise PlanError(f"run {run.number} has ended already: {run.ending}.")
    refuse_elsewhere(run, f"scale {run.number} {asked}")
    answer = request(run.pid, run.folder, asked)
    if answer is None:
        raise PlanError(f"the hosts of run {run.number} stay the same: it was begun without --nodes MIN:MAX.")
    if answer.startswith(REFUSED):
        raise PlanError(f"run {run.number} {answer}.")
    return f"run {run.number}: {answer}."
