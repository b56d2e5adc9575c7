"""Slurm: a pool of one-node jobs, or with `gang` one job of many nodes.

    pool   sbatch, once for each place    a place comes when a node is free and goes without the others
    gang   sbatch, once                   all places come at once; its nodes go back together

A job has whole nodes, unless processors are asked for. That is greedy where nodes are shared, and it is the only way to
have two jobs of one user never meet on a node: Slurm has no such wish, and telling jobs apart after they have started
would end agents that are at work. Nobody else's job then slows a rank down either.
"""

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nfold.errors import ClusterError
from nfold.hosts.manager import Call, Manager, PlaceState
from nfold.hosts.managers.slurm import slurm_programs
from nfold.hosts.managers.slurm.slurm_allocation import JOB, SlurmAllocation
from nfold.hosts.managers.slurm.slurm_programs import (
    ASK_PARTITIONS,
    Ask,
    Partition,
    SlurmJob,
    ask_jobs,
    cancel,
    choose_partition,
    how_it_ended,
    is_gone,
    read_jobs,
    read_partitions,
)
from nfold.hosts.managers.slurm.slurm_script import Wish, as_typed, log_name, minutes, sbatch_command, script
from nfold.hosts.managers.tail import last_lines_of
from nfold.launch.local_launcher import TOKEN_VARIABLE

FRESH_S = 2.0
"""For so long an answer of squeue is good enough: its controller serves many users."""


def slurm_manager(
    partition: str,
    *,
    logs: Path,
    gang: bool = False,
    limit_s: float | None = None,
    cpus: int | None = None,
    environment: Mapping[str, str] = os.environ,
    ask: Ask = slurm_programs.ask,
) -> Manager:
    """Return what `--on slurm[:PARTITION]` means: the allocation that we are in, unless a partition is named.

    Args:
        partition: empty: none is named.
        logs, gang, limit_s, cpus, ask: as `Slurm` takes them.
        environment: of this process.

    Raises:
        ClusterError: Slurm cannot be asked or cannot give that; or it is a wish for a job, and we are in one.
    """
    if partition or JOB not in environment:
        return Slurm(partition, logs=logs, gang=gang, limit_s=limit_s, cpus=cpus, ask=ask)
    if gang or limit_s is not None or cpus is not None:
        raise ClusterError(
            f"this is inside of Slurm job {environment[JOB]}, whose nodes are taken as they are: a limit of time, "
            "processors or --gang mean nothing here. Leave them out, or name a partition for jobs of their own."
        )
    return SlurmAllocation(environment=environment, ask=ask)


_FORGOTTEN = "ended, minutes ago, so that Slurm does not know any more how"


@dataclass(kw_only=True, slots=True)
class _Submitted:
    """A job of ours."""

    number: str
    places: range
    hosts: list[str] = field(default_factory=list)
    """Of its places, in their order, once it has them."""
    released: set[int] = field(default_factory=set)
    ending: str = ""
    """How it ended; empty: it has not."""


class Slurm:
    """Places are jobs of this user in one partition, all under a name of their own."""

    def __init__(
        self,
        partition: str,
        *,
        logs: Path,
        gang: bool = False,
        limit_s: float | None = None,
        cpus: int | None = None,
        ask: Ask = slurm_programs.ask,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Look the partition up.

        Args:
            partition: its name; empty: Slurm's default.
            logs: an absolute folder for what jobs print apart from their agents' connections, until `close`; what is
                printed on a node that does not see it is lost.
            gang: ask for all places of a `start` in one job.
            limit_s: of each job; None: the partition's own.
            cpus: of each place, on nodes that are shared; None: whole nodes.
            ask: runs a program of Slurm.
            clock: seconds.

        Raises:
            ClusterError: Slurm cannot be asked, has no such partition, or allows less time.
        """
        chosen = choose_partition(read_partitions(ask(ASK_PARTITIONS)), partition)
        _check_limit(chosen, limit_s)
        self.title = f"Slurm partition {chosen.name}"
        self.replaces = not gang  # a gang comes and goes as one
        self.most_time_s = chosen.usual_s if limit_s is None else minutes(limit_s) * 60.0
        self._partition, self._gang, self._ask, self._clock = chosen, gang, ask, clock
        name = f"nfold-{secrets.token_hex(4)}"
        self._wish = Wish(name=name, partition=chosen.name, limit_s=limit_s, cpus=cpus, logs=logs)
        self._jobs: list[_Submitted] = []
        self._known: dict[str, SlurmJob] = {}
        self._silent = ""
        self._asked_s = -FRESH_S
        self._may_hold = False

    def dry_run(self, call: Call, count: int) -> str:
        """Return what would be submitted, as one could type it."""
        return as_typed(self._wish, call, self._parts(count))

    def start(self, call: Call, count: int) -> None:
        """Submit so many more places; one job each, or one for all of them.

        Raises:
            ClusterError: the partition has fewer nodes, or Slurm refuses; what it took before is ours until `close`.
        """
        parts, self._may_hold = self._parts(count), True
        with contextlib.suppress(OSError):  # then nothing is kept of what jobs print
            self._wish.logs.mkdir(parents=True, exist_ok=True)
        for places in parts:
            command = sbatch_command(self._wish, len(places))
            number = self._ask(
                command, given=script(self._wish, call, places), environment={TOKEN_VARIABLE: call.token}
            )
            self._jobs.append(_Submitted(number=number.strip().partition(";")[0], places=places))
        self._asked_s = -FRESH_S

    def states(self) -> list[PlaceState]:
        """Return what squeue says of all jobs; while Slurm does not answer, what it said last."""
        if self._clock() - self._asked_s >= FRESH_S and any(not job.ending for job in self._jobs):
            self._look()
            self._asked_s = self._clock()
        return [self._state(job, place) for job in self._jobs for place in job.places]

    def release(self, place: int) -> None:
        """Cancel the job of a place. A job of several nodes is cancelled with the last of its places."""
        job = self._job_of(place)
        job.released.add(place)
        if not job.ending and len(job.released) == len(job.places):
            cancel(self._ask, job.number)

    def last_lines(self, place: int) -> list[str]:
        """Return the end of what the job of a place printed, where its file is seen from here."""
        return last_lines_of(self._log(self._job_of(place)))

    def close(self) -> None:
        """Cancel all jobs of our name: also one that Slurm has taken and not answered for."""
        if self._may_hold:
            cancel(self._ask, "--me", f"--name={self._wish.name}")
        for job in self._jobs:
            with contextlib.suppress(OSError):
                self._log(job).unlink(missing_ok=True)

    def _parts(self, count: int) -> list[range]:
        """Return the places of each job that a `start` would submit.

        Raises:
            ClusterError: the partition has fewer nodes.
        """
        first = sum(len(job.places) for job in self._jobs)
        held = sum(len(job.places) - len(job.released) for job in self._jobs if not job.ending)
        needed = count if self._gang else held + count
        if needed > self._partition.num_nodes and (self._gang or self._wish.cpus is None):
            have = f"{held} are asked for already, and {count} more" if held and not self._gang else str(count)
            raise ClusterError(
                f"{self.title} has {self._partition.num_nodes} nodes, and {have} are asked for. Ask for fewer."
            )
        places = range(first, first + count)
        return [places] if self._gang else [range(place, place + 1) for place in places]

    def _look(self) -> None:
        """Ask for all jobs in one go. A controller that is restarted is no reason to end a run."""
        try:
            self._known = read_jobs(self._ask(ask_jobs(self._wish.name)))
            for job in self._jobs:
                self._take(job, self._known.get(job.number))
            self._silent = ""
        except ClusterError as error:
            self._silent = f"not known at present: {error}"

    def _take(self, job: _Submitted, known: SlurmJob | None) -> None:
        if known is not None and known.nodes and not job.hosts:
            job.hosts = self._ask(["scontrol", "show", "hostnames", known.nodes]).split()
        if not job.ending and (known is None or known.is_over):
            job.ending = self._ending(job.number)

    def _ending(self, number: str) -> str:
        try:
            return how_it_ended(self._ask(["scontrol", "--oneliner", "show", "job", number]))
        except ClusterError as error:
            if not is_gone(error):
                raise
            return _FORGOTTEN

    def _state(self, job: _Submitted, place: int) -> PlaceState:
        at = place - job.places[0]
        name = job.hosts[at] if at < len(job.hosts) else ""
        known = self._known.get(job.number)
        if job.ending or place in job.released:
            return PlaceState(place=place, name=name, stage="ended", reason=job.ending or "was given back")
        stage = "waiting" if known is None else known.stage
        waits = "" if known is None or stage != "waiting" else known.why_it_waits
        return PlaceState(place=place, name=name, stage=stage, reason=self._silent or waits)

    def _log(self, job: _Submitted) -> Path:
        return self._wish.logs / log_name(job.number)

    def _job_of(self, place: int) -> _Submitted:
        return next(job for job in self._jobs if place in job.places)


def _check_limit(partition: Partition, limit_s: float | None) -> None:
    """Refuse what Slurm would take and let wait for ever.

    Raises:
        ClusterError: with both times.
    """
    if limit_s is not None and partition.most_s is not None and limit_s > partition.most_s:
        raise ClusterError(
            f"Slurm partition {partition.name} lets a job run for {partition.most_s / 60:g} minutes at most, and "
            f"{limit_s / 60:g} are asked for. Ask for less, or name another partition."
        )
