"""Starts agents with the user's own ssh: their configuration, agent and jump hosts work as ever.

    this process ── ssh HOST exec PYTHON -m nfold agent .. ──> agent
                    the token is the first line of its standard input

NFOLD_SSH names another program, or adds options: NFOLD_SSH="ssh -F other_config".
"""

import os
import shlex
from collections.abc import Sequence

from nfold.errors import ClusterError
from nfold.hosts.manager import TOKEN_FROM_INPUT, WHILE_INPUT, Call, agent_command, as_shell
from nfold.hosts.managers.child_agents import ChildAgents
from nfold.hosts.managers.hosts_file import ListedHost

_PROGRAM = "NFOLD_SSH"
_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15", "-T")
"""Nobody is there to type a password; the terminal stays with the command."""


class SshManager(ChildAgents):
    """One place for each host of a list, in its order."""

    replaces = False
    most_time_s: float | None = None

    def __init__(self, hosts: Sequence[ListedHost], where: str) -> None:
        """Args:
        hosts: to be used, the first ones first.
        where: they are listed, for messages.
        """
        super().__init__()
        self.title = f"ssh to the hosts of {where}"
        self._hosts, self._where = hosts, where

    def dry_run(self, call: Call, count: int) -> str:
        """Return the commands that would be run, a line for each host."""
        return "\n".join(shlex.join(self._command(call, place)) for place in range(count))

    def start(self, call: Call, count: int) -> None:
        """Run ssh to so many more hosts.

        Raises:
            ClusterError: the list is too short, or there is no ssh.
        """
        first = len(self)
        if first + count > len(self._hosts):
            raise ClusterError(f"{self._where} lists {len(self._hosts)} hosts, and {first + count} are asked for")
        try:
            for place in range(first, first + count):
                self.add(self._hosts[place].name, self._command(call, place), call.token)
        except OSError as error:
            raise ClusterError(
                f"cannot run {_program()[0]}: {error.strerror}. Install an SSH client, or name one in {_PROGRAM}."
            ) from error

    def _command(self, call: Call, place: int) -> list[str]:
        name = self._hosts[place].name
        remote = as_shell([*agent_command(call, place, TOKEN_FROM_INPUT, name), WHILE_INPUT])
        return [*_program(), *_OPTIONS, name, remote]


def _program() -> list[str]:
    return shlex.split(os.environ.get(_PROGRAM, "")) or ["ssh"]
