"""MPI: `mpirun -np 4 --host a,b nfold train FILE.py --on mpi` starts one process for each agent.

    rank 0     the command; it starts an agent of its own as a child
    others     wait until rank 0 tells how to reach the coordinator, and become agents

A rank is a place, so two ranks on one host are two places with that host's name. In MPI is a child of each process: it
leaves MPI when all is told, or becomes the rank of the job that lives there, where ranks talk through MPI.
"""

import contextlib
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import NoReturn

from nfold.core import codec
from nfold.errors import ClusterError
from nfold.hosts.agent.agent import AgentSettings, serve
from nfold.hosts.manager import TOKEN_FROM_INPUT, Call, PlaceState, agent_command, as_shell
from nfold.hosts.managers.child_agents import ChildAgents
from nfold.hosts.managers.mpi.mpi_broadcast import broadcast, claim, is_claimed
from nfold.hosts.managers.mpi.mpi_start import among_mpi, outside_of_mpi
from nfold.hosts.managers.slurm.slurm_allocation import JOB, time_left_s
from nfold.launch.mpi_process import MpiProcess, files_of_mpi
from nfold.transport.links.mpi_loop import check_mpi4py

_KILLED_WITHIN_S = 60.0
Tell = Callable[..., None]
Enter = Callable[[int, Mapping[str, str]], MpiProcess]


def _time_left_s(environment: Mapping[str, str]) -> float | None:
    """Of a job of Slurm that MPI was started in, where its nodes have Slurm's programs."""
    is_known = JOB in environment and shutil.which("squeue") is not None
    return time_left_s(environment[JOB]) if is_known else None


@contextlib.contextmanager
def with_others(
    environment: Mapping[str, str] = os.environ,
    *,
    interpreter: str = sys.executable,
    enter: Enter = MpiProcess,
    tell: Tell = broadcast,
    has_told: Callable[[], bool] = is_claimed,
) -> Iterator[None]:
    """Go on in rank 0 alone: every other process becomes an agent here, and never goes on.

    However rank 0 ends, no other one is left to wait: where it needed no agents, they end with code 0.

    Args:
        environment: of this process.
        interpreter: that runs the agent; MPI has found it on this host.
        enter: starts what enters MPI for a process that hears.
        tell: tells all processes what rank 0 says.
        has_told: whether that was done.

    Raises:
        ClusterError: MPI has not started this process, or mpi4py cannot be used.
    """
    started = among_mpi(environment)
    if started.rank != 0:
        with enter(started.size, environment) as process:
            call = _heard(process)
            if call.in_mpi:
                _serve_in_mpi(call, started.rank, process)
        command = agent_command(call, started.rank, TOKEN_FROM_INPUT)
        _become([interpreter, *command[1:]], call.token, outside_of_mpi(environment))
    check_mpi4py()
    try:
        yield
    finally:
        if not has_told():
            tell("", size=started.size)


def _serve_in_mpi(call: Call, rank: int, process: MpiProcess) -> NoReturn:
    """Be the agent of the rank that the child becomes.

    As soon as a process ends that has not left MPI, whoever started it kills all others, and rank 0 has still to say
    why the run has ended: so another one waits for that.
    """
    code = serve(AgentSettings(addresses=call.addresses, token=call.token, place=rank), process)
    process.close()
    if not process.has_left:
        threading.Event().wait(_KILLED_WITHIN_S)
    sys.exit(code)


def _heard(process: MpiProcess) -> Call:
    """Return what rank 0 tells; end here where it needs no agents."""
    told = process.hear()
    if not told:
        sys.exit(0)
    return codec.loads(Call, told)


def _become(command: list[str], token: str, environment: dict[str, str]) -> NoReturn:
    """Be what an agent is on any host; mpirun still knows the process."""
    reading, writing = os.pipe()
    os.write(writing, f"{token}\n".encode())
    os.close(writing)
    os.dup2(reading, 0)
    os.close(reading)
    os.execvpe(command[0], command, environment)


class Mpi:
    """What rank 0 knows of the processes that were started with it."""

    title = "MPI"
    replaces = False
    most_time_s: float | None

    def __init__(self, *, environment: Mapping[str, str] = os.environ, tell: Tell = broadcast) -> None:
        """Find out how many there are. The others wait for `start` or `close`.

        Args:
            environment: of this process.
            tell: tells all others something, once.

        Raises:
            ClusterError: MPI has not started this process, or not as the first.
        """
        self._started = among_mpi(environment)
        if self._started.rank != 0:
            raise ClusterError(
                f"--on mpi: this is process {self._started.rank} of MPI, and the first one alone trains. Begin with "
                "the command, not with Python: mpirun .. nfold train FILE.py --on mpi"
            )
        self._environment, self._tell = environment, tell
        self.most_time_s = _time_left_s(environment)
        self._has_told = False
        self._own = ChildAgents()

    @property
    def size(self) -> int:
        """Return how many places there are: never more, and never fewer."""
        return self._started.size

    def dry_run(self, call: Call, count: int) -> str:
        """Return the commands that the processes would become, each with the token on its standard input."""
        self._check(count)
        commands = [as_shell(agent_command(call, place, TOKEN_FROM_INPUT)) for place in range(self.size)]
        return "\n".join(commands)

    def start(self, call: Call, count: int) -> None:
        """Let all processes become agents.

        Raises:
            ClusterError: other places are asked for than there are processes, or they have become agents already.
        """
        self._check(count)
        if self._has_told:
            raise ClusterError("MPI has started all the processes that it will: no more places can be asked for")
        if call.in_mpi:
            self._start_in_mpi(call)
        else:
            self._tell_others(codec.dumps(call))
            command = agent_command(call, 0, TOKEN_FROM_INPUT)
            self._own.add("", command, call.token, outside_of_mpi(self._environment))

    def _start_in_mpi(self, call: Call) -> None:
        """Leave this process's place in MPI to its agent, which tells the others."""
        claim()
        self._has_told = True
        command, environment = agent_command(call, 0, TOKEN_FROM_INPUT), dict(self._environment)
        self._own.add("", command, call.token, environment, files_of_mpi(environment))

    def states(self) -> list[PlaceState]:
        """Return a state of each process; how those on other hosts end is known to mpirun alone."""
        others = range(len(self._own), self.size) if len(self._own) else ()
        return [*self._own.states(), *(PlaceState(place=place, name="", stage="starting") for place in others)]

    def release(self, place: int) -> None:
        """End the agent of rank 0; another one ends when the coordinator says so, and not before."""
        if place < len(self._own):
            self._own.release(place)

    def last_lines(self, place: int) -> list[str]:
        """Return what the agent of rank 0 printed last; mpirun has printed what the others had to say."""
        return self._own.last_lines(place) if place < len(self._own) else []

    def close(self) -> None:
        """Let processes that still wait end, with code 0, and the agent of rank 0 too.

        Other agents end when the coordinator does.
        """
        self._tell_others("")
        self._own.close()

    def _tell_others(self, text: str) -> None:
        """Only once: MPI cannot be entered a second time."""
        if not self._has_told:
            self._has_told = True
            self._tell(text, size=self.size)

    def _check(self, count: int) -> None:
        if count != self.size:
            raise ClusterError(
                f"--nodes {count}, but {self._started.by} has started {self.size} processes, each of which is an "
                f"agent. Leave --nodes out, or start as many (mpirun -np {count})."
            )
