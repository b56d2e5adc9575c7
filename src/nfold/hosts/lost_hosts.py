"""Why hosts were lost, in the words of whoever started their agents: an agent that is gone cannot say it."""

from collections.abc import Callable, Sequence

from nfold.errors import ClusterError, NfoldError, one_line
from nfold.hosts.agent.agent import EXIT_LOST
from nfold.hosts.host_agent import HostAgent
from nfold.hosts.manager import Manager, PlaceState
from nfold.launch.child import describe_exit

LOOKS = 16
"""A manager hears of an end later than the connection does: how often it is asked, until it knows."""
LOOK_S = 0.5
MOST_TOLD = 3
"""Hosts that are asked about: where a network or a job of many nodes is gone, one reason is that of all."""
_NO_NEWS = describe_exit(EXIT_LOST)
"""How an agent ends whose connection is gone, or that was told to end: that is known already."""


def add_reasons(
    error: NfoldError,
    manager: Manager,
    lost: Sequence[HostAgent],
    wait: Callable[[float], object],
) -> None:
    """Add to the line of a failure what the manager says of the hosts that were lost, and the last lines from there.

    Args:
        error: that ends the run.
        manager: that started the agents.
        lost: agents that went away before they were told to, the first one first.
        wait: passes some seconds.
    """
    if not lost:
        return
    lost = lost[:MOST_TOLD]
    try:
        states = _ended(manager, {agent.place for agent in lost}, wait)
        reasons = {state.place: state.reason.rstrip(".") for state in states if state.reason != _NO_NEWS}
        told = [f"{agent.name} {reasons[agent.place]}" for agent in lost if agent.place in reasons]
        lines = [line for state in states for line in manager.last_lines(state.place)]
    except ClusterError as refusal:
        told, lines = [f"it cannot be asked why, {one_line(str(refusal))}"], []
    if told:
        error.args = (f"{error} {manager.title}: {'; '.join(told)}.",)
    if lines:
        error.add_note("\n  ".join(("The last lines from there:", *lines)))


def _ended(manager: Manager, places: set[int], wait: Callable[[float], object]) -> list[PlaceState]:
    """Ask until it is known how all places ended, but not for ever; return those of which it is."""
    for look in range(LOOKS):
        if look:
            wait(LOOK_S)
        states = [state for state in manager.states() if state.place in places]
        ended = [state for state in states if state.stage == "ended" and state.reason]
        if all(state in ended or state.stage == "waiting" for state in states):  # who waits for people hears nothing
            break
    return ended
