"""More or fewer hosts while a run trains, as another terminal asks for them."""

import threading

from nfold.core.options.host_range import HostRange
from nfold.core.text.units import count
from nfold.errors import ClusterError
from nfold.hosts.agent_pool import AgentPool
from nfold.hosts.host_agent import HostAgent
from nfold.hosts.manager import Call, Manager
from nfold.verbs.ranks.scaling import GIVEN_BACK, scaled, told_to_leave


class Scaling:
    """Asks a manager for more places, or gives the last ones back."""

    def __init__(self, hosts: HostRange, pool: AgentPool, manager: Manager, call: Call, *, by_hand: bool) -> None:
        """Args:
        hosts: how many may train.
        pool: of the agents.
        manager: of their places.
        call: what agents need to find the job.
        by_hand: whether people bring hosts, so that nobody can be asked for any.
        """
        self._hosts, self._pool, self._manager, self._call, self._by_hand = hosts, pool, manager, call, by_hand
        self._lock = threading.Lock()

    def replace(self, agent: HostAgent) -> str:
        """Ask for a host in place of one that was taken away; return what to tell, or nothing where none is to come."""
        with self._lock:
            if not (self._manager.replaces and agent.is_placed):
                return ""
            try:
                return self._replace(agent)
            except ClusterError as error:
                return f"note: no host can be asked for in place of {agent.name}: {error}"

    def _replace(self, agent: HostAgent) -> str:
        if any(state.place == agent.place for state in self._manager.states()):  # else another command asked for it
            self._manager.release(agent.place)
        if len(self._pool.here()) + len(self._waiting()) >= self._hosts.most:
            return ""
        self._manager.start(self._call, 1)
        return f"another host of {self._manager.title} is asked for in place of {agent.name}"

    def answer(self, asked: str) -> str:
        """Do what `N`, `+N` or `-N` asks for, as far as it may be; return what to tell."""
        with self._lock:
            return scaled(asked, self._hosts, self)

    def num_taken(self) -> int:
        """Return how many hosts are there or asked for."""
        return len(self._pool.here()) + len(self._unseen())

    def _unseen(self) -> list[int]:
        """Places without an agent; people who bring hosts have none."""
        return [] if self._by_hand else self._waiting()

    def _waiting(self) -> list[int]:
        """Places that were asked for and have no agent yet."""
        come = self._pool.places_come()
        return [state.place for state in self._manager.states() if state.place not in come and state.stage != "ended"]

    def grow(self, more: int) -> str:
        """Ask the manager for more places; return what to tell."""
        if self._by_hand:
            return f"refused: hosts join by hand, so {count(more, 'more host')} must be told to: nfold join, as it says"
        try:
            self._manager.start(self._call, more)
        except ClusterError as error:
            return f"refused: {error}"
        return f"{count(more, 'more host')} asked for; each takes part when it is there"

    def shrink(self, fewer: int) -> str:
        """Give places back that have no host yet, and let those leave that came last; return what to tell."""
        unneeded = self._unseen()[::-1][:fewer]
        for place in unneeded:
            self._manager.release(place)
        leaving = self._pool.here()[::-1][: fewer - len(unneeded)]
        for agent in leaving:
            self._pool.call_back(agent, GIVEN_BACK)
        told = [told_to_leave([agent.name for agent in leaving])] if leaving else []
        told += [f"{count(len(unneeded), 'place')} given back that had no host yet"] if unneeded else []
        return "; ".join(told)
