"""Starts agents on this machine: each counts as a host, so that all of the way to other hosts can be tried here."""

import shlex

from nfold.errors import ClusterError
from nfold.hosts.manager import TOKEN_FROM_INPUT, WHILE_INPUT, Call, agent_command
from nfold.hosts.managers.child_agents import ChildAgents

MOST_AGENTS = 64
"""More than one machine has a use for."""


class LocalAgents(ChildAgents):
    """Agents as children of this process; their hosts are called local-0, local-1 .."""

    title = "agents on this machine"
    replaces = False
    most_time_s: float | None = None

    def dry_run(self, call: Call, count: int) -> str:
        """Return the commands that would be run.

        Raises:
            ClusterError: as `start`.
        """
        self._check(count)
        return "\n".join(shlex.join(self._command(call, place)) for place in range(count))

    def start(self, call: Call, count: int) -> None:
        """Start so many more agents.

        Raises:
            ClusterError: they would be more than MOST_AGENTS.
        """
        first = len(self)
        self._check(first + count)
        for place in range(first, first + count):
            self.add(f"local-{place}", self._command(call, place), call.token)

    def _check(self, count: int) -> None:
        if count > MOST_AGENTS:
            raise ClusterError(
                f"{self.title}: {count} are asked for, and {MOST_AGENTS} are the most: each is a process. Use --nodes "
                f"of at most {MOST_AGENTS}."
            )

    @staticmethod
    def _command(call: Call, place: int) -> list[str]:
        return [*agent_command(call, place, TOKEN_FROM_INPUT, f"local-{place}"), WHILE_INPUT]
