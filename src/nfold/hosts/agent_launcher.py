"""Starts the members of a job on hosts where agents are."""

from collections.abc import Sequence

from nfold.hosts.agent_pool import AgentPool
from nfold.hosts.host_agent import HostAgent
from nfold.launch.output import Output


class AgentLauncher:
    """A member for each of the first places, on the host that its rank was planned on, and one for each later host."""

    def __init__(self, pool: AgentPool, homes: Sequence[HostAgent], output: Output) -> None:
        """Args:
        pool: of agents that hold the program.
        homes: host of each member that the job begins with.
        output: takes what members print; is closed at the end.
        """
        self._pool, self._homes, self._output = pool, homes, output
        self._is_stopped = False

    def start(self, member: int, host: str, port: int, token: str) -> None:
        """Start a member; its agent knows where the coordinator is, and the token.

        Raises:
            ClusterError: the job began with fewer members, and no host has come since.
        """
        del host, port, token
        home = self._homes[member] if member < len(self._homes) else self._pool.next_ready()
        self._pool.start(member, home)

    def ended(self, member: int, timeout_s: float) -> str | None:
        """Return how a member ended, and on which host, or None while it runs."""
        return self._pool.ended(member, timeout_s)

    def comes_again(self, member: int) -> bool:
        """Whether the host of a member that is lost is there still, and may have another one."""
        return self._pool.comes_again(member)

    def release(self, member: int, *, is_lost: bool = False, why: str = "") -> None:
        """Let go of a member that has left the job; where it is lost and its host is not, that comes once more."""
        self._pool.release(member, is_lost=is_lost, why=why)

    def last_lines(self) -> list[str]:
        """Return the last lines that members have printed, whichever it was; none after `stop`."""
        return [] if self._is_stopped else self._output.last_lines()

    def stop(self, grace_s: float) -> None:
        """End every agent, and every member with it."""
        self._pool.stop(grace_s)
        self._is_stopped = True
        self._output.close()
