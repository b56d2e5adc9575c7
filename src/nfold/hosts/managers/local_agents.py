"""Starts agents on this machine: each counts as a host, so that all of the way to other hosts can be tried here."""

import shlex

from nfold.hosts.manager import TOKEN_FROM_INPUT, Call, PlaceState, agent_command
from nfold.hosts.managers.child_agents import ChildAgents


class LocalAgents:
    """Agents as children of this process; their hosts are called local-0, local-1 .."""

    title = "agents on this machine"
    most_time_s: float | None = None

    def __init__(self) -> None:
        self._agents = ChildAgents()

    def dry_run(self, call: Call, count: int) -> str:
        """Return the commands that would be run."""
        return "\n".join(shlex.join(self._command(call, place)) for place in range(count))

    def start(self, call: Call, count: int) -> None:
        """Start so many more agents."""
        first = len(self._agents)
        for place in range(first, first + count):
            self._agents.add(f"local-{place}", self._command(call, place), call.token)

    def states(self) -> list[PlaceState]:
        """Return what became of each."""
        return self._agents.states()

    def release(self, place: int) -> None:
        """End one."""
        self._agents.release(place)

    def last_lines(self, place: int) -> list[str]:
        """Return the last lines that one printed."""
        return self._agents.last_lines(place)

    def close(self) -> None:
        """End all."""
        self._agents.close()

    @staticmethod
    def _command(call: Call, place: int) -> list[str]:
        return agent_command(call, place, TOKEN_FROM_INPUT, f"local-{place}")
