"""Starts agents with the user's own ssh: their configuration, agent and jump hosts work as ever.

    this process ── ssh HOST exec PYTHON -m nfold agent .. ──> agent
                    the token is the first line of its standard input

NFOLD_SSH names another program, or adds options: NFOLD_SSH="ssh -F other_config".
"""

import os
import shlex
from collections.abc import Sequence

from nfold.errors import ClusterError
from nfold.hosts.manager import TOKEN_FROM_INPUT, Call, PlaceState, agent_command, as_shell
from nfold.hosts.managers.child_agents import ChildAgents
from nfold.hosts.managers.hosts_file import ListedHost

_PROGRAM = "NFOLD_SSH"
_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15", "-T")
"""Nobody is there to type a password; the terminal stays with the command."""


class SshManager:
    """One place for each host of a list, in its order."""

    most_time_s: float | None = None

    def __init__(self, hosts: Sequence[ListedHost], where: str) -> None:
        """Args:
        hosts: to be used, the first ones first.
        where: they are listed, for messages.
        """
        self.title = f"ssh to the hosts of {where}"
        self._hosts, self._where = hosts, where
        self._agents = ChildAgents()

    def dry_run(self, call: Call, count: int) -> str:
        """Return the commands that would be run, a line for each host."""
        return "\n".join(shlex.join(self._command(call, place)) for place in range(count))

    def start(self, call: Call, count: int) -> None:
        """Run ssh to so many more hosts.

        Raises:
            ClusterError: the list is too short, or there is no ssh.
        """
        first = len(self._agents)
        if first + count > len(self._hosts):
            raise ClusterError(f"{self._where} lists {len(self._hosts)} hosts, and {first + count} are asked for")
        try:
            for place in range(first, first + count):
                self._agents.add(self._hosts[place].name, self._command(call, place), call.token)
        except OSError as error:
            raise ClusterError(
                f"cannot run {_program()[0]}: {error.strerror}. Install an SSH client, or name one in {_PROGRAM}."
            ) from error

    def states(self) -> list[PlaceState]:
        """Return what became of each host."""
        return self._agents.states()

    def release(self, place: int) -> None:
        """End the agent of one host."""
        self._agents.release(place)

    def last_lines(self, place: int) -> list[str]:
        """Return what ssh, or the host through it, said last."""
        return self._agents.last_lines(place)

    def close(self) -> None:
        """End all."""
        self._agents.close()

    def _command(self, call: Call, place: int) -> list[str]:
        name = self._hosts[place].name
        remote = as_shell(agent_command(call, place, TOKEN_FROM_INPUT, name))
        return [*_program(), *_OPTIONS, name, remote]


def _program() -> list[str]:
    return shlex.split(os.environ.get(_PROGRAM, "")) or ["ssh"]
