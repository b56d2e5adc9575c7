"""Writes what sbatch gets: one job of one node or more, with an agent on each.

The token goes through the environment of sbatch: Slurm shows others what a job runs and wants, not its environment.
"""

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nfold.hosts.manager import TOKEN_FROM_INPUT, Call, agent_command, as_shell
from nfold.launch.local_launcher import TOKEN_VARIABLE


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """What is the same for all jobs of a run."""

    name: str
    """Of its jobs, as in squeue; no other run has it."""
    partition: str
    limit_s: float | None
    """None: the partition's own."""
    cpus: int | None
    """Of each node; None: whole nodes, that nobody else computes on meanwhile."""
    logs: Path
    """Folder for what jobs print; nothing is kept on a node that does not see it."""


def log_name(number: str) -> str:
    """Return the name of the file with what a job printed."""
    return f"slurm-{number}.out"


def sbatch_command(wish: Wish, count: int) -> list[str]:
    """Return the command that reads a script and submits it.

    Args:
        wish: what is the same for all.
        count: nodes of the job.
    """
    command = [
        "sbatch",
        "--parsable",
        f"--job-name={wish.name}",
        f"--partition={wish.partition}",
        f"--nodes={count}",
        f"--ntasks={count}",
        "--ntasks-per-node=1",
        *_share(wish),
        "--export=ALL",
        "--no-requeue",  # a place that was taken away stays so: who wants another one asks for it
        "--output=/dev/null",  # always there; a job whose output has no folder ends without a word
    ]
    return [*command, f"--time={minutes(wish.limit_s)}"] if wish.limit_s is not None else command


def minutes(limit_s: float) -> int:
    """Return a limit in the unit that Slurm has for it, rounded up."""
    return math.ceil(limit_s / 60)


def _share(wish: Wish) -> list[str]:
    """Memory goes with processors where nodes are shared, as the site has it."""
    return ["--exclusive", "--mem=0"] if wish.cpus is None else [f"--cpus-per-task={wish.cpus}"]


def script(wish: Wish, call: Call, places: range) -> str:
    """Return the script of a job.

    The agents run under srun: Slurm tells what srun started of an end at once, and a script only when it kills.

    Args:
        wish: what is the same for all.
        call: what agents need.
        places: that its agents fill, one on each node.
    """
    log = f"{shlex.quote(str(wish.logs))}/{log_name('$SLURM_JOB_ID')}"
    return f"""#!/bin/sh
if (: >{log}) 2>/dev/null; then exec >{log} 2>&1; fi
token=${TOKEN_VARIABLE}
unset {TOKEN_VARIABLE}
printf '%s\\n' "$token" | {shlex.join(_srun(wish, len(places)))} sh -c {shlex.quote(_agent(call, places[0]))}
"""


def _srun(wish: Wish, count: int) -> Sequence[str]:
    """One agent may end long before the others, and well or badly; MPI has no part in it."""
    bound = "--cpu-bind=none" if wish.cpus is None else f"--cpus-per-task={wish.cpus}"
    tasks = (f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1")
    return ("srun", *tasks, bound, "--kill-on-bad-exit=0", "--wait=0", "--mpi=none")


def _agent(call: Call, first: int) -> str:
    """Each node has one task, so the number of the task tells the place."""
    command = as_shell(agent_command(call, None, TOKEN_FROM_INPUT))
    return f'{command} --place "$(({first} + SLURM_PROCID))" --name "$SLURMD_NODENAME"'


def as_typed(wish: Wish, call: Call, jobs: Sequence[range]) -> str:
    """Return what would be submitted, as one could type it.

    Args:
        wish: what is the same for all.
        call: what agents need.
        jobs: places of each.
    """
    command = shlex.join(sbatch_command(wish, len(jobs[0])))
    more = [str(places[0]) for places in jobs[1:]]
    also = f"# and the same again with --place {', '.join(more)} in place of {jobs[0][0]}\n" if more else ""
    return f"{TOKEN_VARIABLE}=... {command} <<'END'\n{script(wish, call, jobs[0])}END\n{also}"
