"""Asks Slurm's programs, and reads what they answer.

Its own client libraries are in C and bound to one version of Slurm; the programs' options have stayed for ten years.
"""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from nfold.errors import ClusterError, one_line

TIMEOUT_S = 60.0
"""sbatch tries again by itself for a while where the controller is busy."""

_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT")
"""Which Slurm to ask. Every other SLURM_ variable tells of a job that we may be in, and would be an option of ours."""


class Ask(Protocol):
    """Runs a program of Slurm."""

    def __call__(
        self, command: Sequence[str], *, given: str = "", environment: Mapping[str, str] | None = None
    ) -> str: ...


def ask(command: Sequence[str], *, given: str = "", environment: Mapping[str, str] | None = None) -> str:
    """Run a program of Slurm and return what it printed.

    Args:
        command: the program and its arguments.
        given: its standard input.
        environment: variables beside those of this process.

    Raises:
        ClusterError: it is missing, refuses, or does not come to an end; in its own words.
    """
    try:
        done = subprocess.run(
            command,
            input=given,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=TIMEOUT_S,
            env=outside_of_jobs(os.environ) | {"SLURM_TIME_FORMAT": "standard"} | dict(environment or {}),
            process_group=0,  # a Ctrl-C in the terminal is for us and must not break what is half submitted
        )
    except FileNotFoundError:
        raise ClusterError(
            f"there is no {command[0]} on this machine, so Slurm cannot be asked. Begin on a machine that has Slurm's "
            "programs in its PATH, such as the cluster's login node."
        ) from None
    except subprocess.TimeoutExpired:
        raise ClusterError(
            f"{command[0]} has not answered within {TIMEOUT_S:g} s: Slurm's controller may be down (scontrol ping)"
        ) from None
    except OSError as error:
        raise ClusterError(f"{command[0]} cannot be started: {error.strerror}") from error
    if done.returncode != 0:
        raise ClusterError(f"Slurm refuses: {one_line(done.stderr) or f'{command[0]} said nothing'}")
    return done.stdout


def outside_of_jobs(environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables without those that tell of a job of Slurm."""
    return {name: value for name, value in environment.items() if not name.startswith("SLURM_") or name in _KEPT}


_GONE = ("Invalid job id", "already completing or completed")


def is_gone(error: ClusterError) -> bool:
    """Return whether Slurm says that a job is over, which is no failure to who wants it to be."""
    return any(each in str(error) for each in _GONE)


def cancel(ask: Ask, *what: str) -> None:
    """Cancel jobs or steps, or signal them; some may be over already, or be so before Slurm has said that it did it.

    Args:
        ask: runs a program of Slurm.
        what: arguments of scancel.

    Raises:
        ClusterError: Slurm refuses.
    """
    try:
        ask(["scancel", "--quiet", *what])
    except ClusterError as error:
        if not is_gone(error):
            raise


@dataclass(frozen=True, kw_only=True, slots=True)
class Partition:
    """A queue of Slurm."""

    name: str
    is_default: bool
    num_nodes: int
    most_s: float | None
    """That a job may ask for; None: nothing limits it."""
    usual_s: float | None
    """Limit of a job that asks for none; None: nothing limits it."""


ASK_PARTITIONS = ("sinfo", "--noheader", "--format=%P|%D|%l|%L")


def read_partitions(answer: str) -> list[Partition]:
    """Read what ASK_PARTITIONS prints."""
    found = []
    for line in answer.splitlines():
        name, num_nodes, most, usual = line.strip().split("|")
        most_s = read_limit_s(most)
        found.append(
            Partition(
                name=name.rstrip("*"),
                is_default=name.endswith("*"),
                num_nodes=int(num_nodes),
                most_s=most_s,
                usual_s=most_s if usual.lower() == "n/a" else read_limit_s(usual),
            )
        )
    return found


def choose_partition(partitions: Sequence[Partition], wanted: str) -> Partition:
    """Return the partition of a name, or the one that Slurm takes where none is named.

    Raises:
        ClusterError: there is none; the message lists what there is.
    """
    for each in partitions:
        if each.name == wanted or (not wanted and each.is_default):
            return each
    there = ", ".join(f"{each.name} ({each.num_nodes} nodes)" for each in partitions) or "none that you may use"
    what = f"Slurm has no partition {wanted!r}" if wanted else "Slurm has no default partition"
    raise ClusterError(f"{what}. There is: {there}. Name one: --on slurm:PARTITION")


_LIMIT = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")


def read_limit_s(text: str) -> float | None:
    """Read a time as Slurm prints it, `1-12:00:00` or `30:00`; None: nothing limits it."""
    found = _LIMIT.fullmatch(text.strip())
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmJob:
    """What squeue tells of a job."""

    number: str
    state: str
    """In Slurm's words: PENDING, RUNNING, PREEMPTED and so on."""
    reason: str
    """Why it waits or has ended; empty: Slurm names none."""
    begins: str
    """When it began or is expected to; empty: not known."""
    nodes: str
    """As Slurm folds them, `n[0-3]`; empty: none yet."""

    @property
    def stage(self) -> Literal["waiting", "starting", "running", "ended"]:
        """Return what it is to who waits for an agent."""
        return stage_of(self.state)

    @property
    def is_over(self) -> bool:
        """Return whether nothing of it is left, so that Slurm knows how it ended."""
        return self.stage == "ended" and self.state != "COMPLETING"

    @property
    def why_it_waits(self) -> str:
        """Return Slurm's reason and what it expects."""
        expected = f"expected to start at {self.begins}" if self.begins else ""
        return ", ".join(part for part in (self.reason, expected) if part)


def stage_of(state: str) -> Literal["waiting", "starting", "running", "ended"]:
    """Return what a state of Slurm's is to who waits for an agent."""
    return _STAGES.get(state, "ended")


_STAGES: dict[str, Literal["waiting", "starting", "running", "ended"]] = {
    "PENDING": "waiting",
    "REQUEUED": "waiting",
    "SUSPENDED": "waiting",
    "STOPPED": "waiting",
    "CONFIGURING": "starting",
    "RUNNING": "running",
    "RESIZING": "running",
    "SIGNALING": "running",
}


def ask_jobs(name: str) -> list[str]:
    """Return the command that lists all jobs of a name, those that ended of late too."""
    return ["squeue", "--me", f"--name={name}", "--states=all", "--noheader", "--format=%A|%T|%r|%S|%N"]


def read_jobs(answer: str) -> dict[str, SlurmJob]:
    """Read what `ask_jobs` prints, by number."""
    rows = [line.strip().split("|") for line in answer.splitlines()]
    jobs = [
        SlurmJob(number=number, state=state, reason=_said(reason), begins=_said(begins), nodes=nodes)
        for number, state, reason, begins, nodes in rows
    ]
    return {job.number: job for job in jobs}


def _said(text: str) -> str:
    return "" if text in ("None", "N/A") else text


_TOLD = {
    "TIMEOUT": "its time limit is over",
    "PREEMPTED": "a job that goes before it took its node",
    "NODE_FAIL": "its node does not answer any more",
    "OUT_OF_MEMORY": "it needed more memory than Slurm gave it",
    "CANCELLED": "somebody cancelled it",
}


def how_it_ended(details: str) -> str:
    """Read what `scontrol --oneliner show job` prints of a job that ended: its state, and more where there is.

    An agent that heeds the wish for its node makes its job end well, or as its own exit code says.
    """
    fields = _fields(details)
    is_preempted = fields.get("PreemptTime", "None") != "None"
    state = "PREEMPTED" if is_preempted else fields.get("JobState", "UNKNOWN")
    code, _, signal = fields.get("ExitCode", "0:0").partition(":")
    parts = [_TOLD.get(state, "")]
    if state == "FAILED":
        parts.append(f"signal {signal}" if signal not in ("", "0") else f"exit code {code}{_CODES.get(code, '')}")
        parts.append("" if fields.get("Reason") in (None, "None", "NonZeroExitCode") else fields["Reason"])
    told = ", ".join(part for part in parts if part)
    return f"ended as {state}: {told}" if told else f"ended as {state}"


def state_of(details: str) -> str:
    """Read the state in what `scontrol --oneliner show job` prints; COMPLETING: how it ended is not said yet."""
    return _fields(details).get("JobState", "UNKNOWN")


def _fields(details: str) -> dict[str, str]:
    return dict(word.partition("=")[::2] for word in details.split())


_CODES = {
    "126": " (a program is there and cannot be run)",
    "127": " (a program is not there: its Python, or srun)",
}
