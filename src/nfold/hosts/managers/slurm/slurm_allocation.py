"""An allocation of Slurm that we are in: inside of salloc, or in a script of sbatch.

Each place is a step of its own on one node, so that one can be given back without the others.
"""

import os
import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from nfold.errors import ClusterError
from nfold.hosts.manager import TOKEN_FROM_INPUT, Call, PlaceState, agent_command
from nfold.hosts.managers.child_agents import ChildAgents
from nfold.hosts.managers.slurm import slurm_programs
from nfold.hosts.managers.slurm.slurm_programs import Ask, cancel, how_it_ended, read_limit_s, stage_of, state_of

JOB = "SLURM_JOB_ID"
_NODES, _NUM_NODES = "SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES"


def nodes_of_allocation(environment: Mapping[str, str]) -> int | None:
    """Return how many nodes the allocation has that we are in; None: we are in none."""
    return int(environment[_NUM_NODES]) if JOB in environment else None


def time_left_s(job: str, ask: Ask = slurm_programs.ask) -> float | None:
    """Return for how long a job may still run; None: nothing limits it.

    Raises:
        ClusterError: Slurm cannot be asked.
    """
    return read_limit_s(ask(["squeue", f"--jobs={job}", "--noheader", "--format=%L"]))


class SlurmAllocation:
    """Takes the nodes that are there, each once."""

    replaces = False
    most_time_s: float | None

    def __init__(self, *, environment: Mapping[str, str] = os.environ, ask: Ask = slurm_programs.ask) -> None:
        """Ask for the nodes.

        Args:
            environment: of a process in the allocation.
            ask: runs a program of Slurm.

        Raises:
            ClusterError: Slurm cannot be asked.
        """
        self._job, self._environment = environment[JOB], _for_srun(environment)
        self.title = f"Slurm job {self._job}"
        self._nodes = ask(["scontrol", "show", "hostnames", environment[_NODES]]).split()
        self.most_time_s = time_left_s(self._job, ask)
        self._ask, self._name, self._agents = ask, f"nfold-{secrets.token_hex(4)}", ChildAgents()

    def dry_run(self, call: Call, count: int) -> str:
        """Return the commands that would be run, each with the token on its standard input."""
        first = len(self._agents)
        commands = [self._command(call, first + at, node) for at, node in enumerate(self._free(count))]
        return "\n".join(shlex.join(command) for command in commands)

    def start(self, call: Call, count: int) -> None:
        """Start an agent on each of so many nodes that have none.

        Raises:
            ClusterError: there are fewer, or there is no srun.
        """
        for node in self._free(count):
            command = self._command(call, len(self._agents), node)
            try:
                self._agents.add(node, command, call.token, self._environment)
            except OSError as error:
                raise ClusterError(f"cannot run srun: {error.strerror}. Slurm's programs must be in PATH.") from error

    def states(self) -> list[PlaceState]:
        """Return which agents may run, and how srun ended for the others; or how the job did, if that is over."""
        states = self._agents.states()
        if all(state.stage != "ended" for state in states):
            return states
        if (how := self._how_the_job_ended()) is None:
            return states
        return [replace(state, reason=how) if state.stage == "ended" else state for state in states]

    def _how_the_job_ended(self) -> str | None:
        """Return how it did, empty where that is not known yet; None: it runs, or Slurm does not say."""
        try:
            details = self._ask(["scontrol", "--oneliner", "show", "job", self._job])
        except ClusterError:  # what srun said tells more than that
            return None
        state = state_of(details)
        if stage_of(state) != "ended":
            return None
        return "" if state == "COMPLETING" else f"was lost with job {self._job}, which {how_it_ended(details)}"

    def release(self, place: int) -> None:
        """End the step of one place; its node stays in the allocation, and free for another place."""
        self._terminate([place])
        self._agents.release(place)

    def last_lines(self, place: int) -> list[str]:
        """Return what srun and the agent printed last."""
        return self._agents.last_lines(place)

    def close(self) -> None:
        """End all steps; the allocation itself is not ours."""
        try:
            self._terminate(range(len(self._agents)))
        finally:
            self._agents.close()

    def _terminate(self, places: Sequence[int]) -> None:
        """Send agents SIGTERM: srun itself would make a SIGKILL of it."""
        running = {state.place for state in self._agents.states() if state.stage != "ended"}
        names = {self._step_name(place) for place in running.intersection(places)}
        if names:
            answer = self._ask(["squeue", "--steps", f"--jobs={self._job}", "--noheader", "--format=%i|%j"])
            steps = (line.strip().split("|") for line in answer.splitlines())
            numbers = [number for number, name in steps if name in names]
            cancel(self._ask, "--signal=TERM", *numbers)

    def _step_name(self, place: int) -> str:
        return f"{self._name}-{place}"

    def _free(self, count: int) -> list[str]:
        """Return so many nodes without an agent.

        Raises:
            ClusterError: there are fewer.
        """
        taken = {state.name for state in self._agents.states() if state.stage != "ended"}
        free = [node for node in self._nodes if node not in taken]
        if len(free) < count:
            raise ClusterError(
                f"{self.title} has {len(self._nodes)} nodes, {len(free)} of them without an agent, and {count} are "
                "asked for. Ask for fewer, or for a larger allocation."
            )
        return free[:count]

    def _command(self, call: Call, place: int, node: str) -> list[str]:
        """Steps overlap: the shell that we were started from may be one, too, and hold all processors."""
        step = [f"--jobid={self._job}", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={node}"]
        step.append(f"--job-name={self._step_name(place)}")
        return ["srun", *step, "--mpi=none", *agent_command(call, place, TOKEN_FROM_INPUT, name=node)]


def _for_srun(environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables without those that bind a step as the one that we may be in is bound."""
    return {name: value for name, value in environment.items() if not name.startswith("SLURM_CPU_BIND")}
