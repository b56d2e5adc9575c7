"""The contract of everything that starts agents: by ssh, by a job system, or by a person."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from nfold.transport.connecting.listener import Address

TOKEN_FROM_INPUT = "-"
"""For `--token-file`: the first line of standard input."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """What an agent needs to find the job."""

    addresses: tuple[Address, ...]
    """At which the coordinator may be reached, the likeliest first: which one leads there depends on the host."""
    token: str
    """Never to be put on a command line."""
    interpreter: str
    """Path of the Python that has nfold, on the hosts."""
    in_mpi: bool = False
    """Whether ranks talk through MPI, which has to start them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlaceState:
    """What became of one place that was asked for."""

    place: int
    name: str
    """Of the host, as its manager or the user calls it; empty: not known yet."""
    stage: Literal["waiting", "starting", "running", "ended"]
    """`waiting`: in a queue; `starting`: granted, and its agent may dial in any moment."""
    reason: str = ""
    """Why it waits, in the manager's own words, or how it ended."""


class Manager(Protocol):
    """Brings agents to hosts. Places are numbered from 0 in the order in which they were asked for.

    Calls come from one thread. None of them waits longer than the manager takes to answer.
    """

    title: str
    """What messages call it, as in `Slurm partition short`."""
    replaces: bool
    """Whether a place may be asked for in place of one that was taken away."""
    most_time_s: float | None
    """Seconds after which what it granted is taken back; None: nobody limits it."""

    def dry_run(self, call: Call, count: int) -> str:
        """Return the exact script, command or request that `start` would submit, the token left out."""
        ...

    def start(self, call: Call, count: int) -> None:
        """Ask for so many more places, and return at once; agents dial in when they are there.

        Raises:
            ClusterError: it refuses; with its own reason.
        """
        ...

    def states(self) -> list[PlaceState]:
        """Return what became of each place, as far as is known by now."""
        ...

    def release(self, place: int) -> None:
        """Give one place back, whatever became of it; the others stay. Safe to call again."""
        ...

    def last_lines(self, place: int) -> list[str]:
        """Return the last lines that came from a place apart from its agent's own connection: why it did not start."""
        ...

    def close(self) -> None:
        """Give everything back, also what waits in a queue; nothing of it is left. Safe to call again."""
        ...


WHILE_INPUT = "--while-input"
"""For an agent whose standard input stays open as long as it is wanted."""


def agent_command(call: Call, place: int | None, token_file: str, name: str = "") -> list[str]:
    """Return the command that runs an agent on a host.

    Args:
        call: what it needs.
        place: that it fills; None: it comes by itself.
        token_file: where it finds the token there; TOKEN_FROM_INPUT: on its standard input.
        name: of the host in messages and plans; empty: its own.
    """
    where = ",".join(f"{host}:{port}" for host, port in call.addresses)
    command = [call.interpreter, "-P", "-m", "nfold", "agent", "--connect", where, "--token-file", token_file]
    if place is not None:
        command += ["--place", str(place)]
    if call.in_mpi:
        command += ["--in-mpi"]
    return [*command, *(["--name", name] if name else [])]


def as_shell(command: Sequence[str]) -> str:
    """Return a command as one line for a POSIX shell, which becomes it."""
    return f"exec {shlex.join(command)}"
