"""What shall go wrong in an emulated cluster, and when: read from a line of text, then performed on a clock.

    kill NODE@TIME                          its processes are killed at once
    slow NODE FACTOR@TIME [for TIME]        it has that much of the cores that it had
    uplink NODE RATE@TIME [for TIME]        it sends at that rate; `downlink`: it receives
    partition NODE@TIME [for TIME]          nothing passes between it and the others, and nobody is told
    join NODE@TIME                          it comes; it is not there before, or no more
    leave NODE@TIME                         it says that it is to leave, and goes when the others can go on without it

With `for`, what was before is put back after that time; where several hold at once, the last one that began.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal, Protocol

from nfold.core.cluster import Cluster, Node
from nfold.core.text import quantities
from nfold.errors import ClusterError

Verb = Literal["kill", "slow", "uplink", "downlink", "partition", "join", "leave"]
_FORMS: dict[Verb, str] = {
    "kill": "kill NODE@30s",
    "slow": "slow NODE 0.25@10s",
    "uplink": "uplink NODE 10Mbit@20s",
    "downlink": "downlink NODE 10Mbit@20s",
    "partition": "partition NODE@15s for 5s",
    "join": "join NODE@50s",
    "leave": "leave NODE@40s",
}


_LASTS: dict[str, str] = {
    "kill": "what was killed does not come back by itself",
    "join": "it stays until another fault says otherwise",
    "leave": "it stays away until another fault says otherwise",
}


class Nodes(Protocol):
    """What faults are done to. What it cannot do raises a ClusterError."""

    def kill(self, node: str) -> None:
        """Kill every process of a node."""
        ...

    def slow(self, node: str, factor: float) -> None:
        """Give a node `factor` times the cores that it had at first; 1.0 gives them back."""
        ...

    def set_uplink(self, node: str, bytes_per_s: float | None) -> None:
        """Change the rate at which a node sends; None: back to what is declared."""
        ...

    def set_downlink(self, node: str, bytes_per_s: float | None) -> None:
        """Change the rate at which a node receives; None: back to what is declared."""
        ...

    def part(self, node: str) -> None:
        """Let nothing pass between a node and the others."""
        ...

    def join(self, node: str) -> None:
        """Undo `part`."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One thing that goes wrong."""

    text: str
    """As it was asked for."""
    verb: Verb
    node: str
    value: float = 1.0
    """A factor, or bytes per second."""
    at_s: float
    """After the start."""
    for_s: float | None = None
    """None: for good."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """A fault begins or ends."""

    at_s: float
    fault: Fault
    ends: bool
    left: Fault | None = None
    """When one ends: another of its kind that still holds for its node."""

    @property
    def text(self) -> str:
        """Return what happens, for people."""
        what = "over" if self.ends else "now"
        return f"fault: {self.fault.text}: {what}"


def parse_fault(text: str, cluster: Cluster) -> Fault:
    """Read a fault.

    Raises:
        ClusterError: it is none, or there is no such node or link.
    """
    what, at, when = text.partition("@")
    words = what.split()
    verb = next((verb for verb in _FORMS if words[:1] == [verb]), None)
    if verb is None:
        raise _error(text, f"it must begin with one of {', '.join(_FORMS)}", "kill")
    takes_value = verb in ("slow", "uplink", "downlink")
    if not at:
        raise _error(text, "the time is missing", verb)
    if len(words) < 2:
        raise _error(text, "the node is missing", verb)
    if takes_value != (len(words) > 2):
        raise _error(text, "a value is missing" if takes_value else f"{' '.join(words[2:])!r} says nothing here", verb)
    at_text, has_end, for_text = when.partition(" for ")
    if verb in _LASTS and has_end:
        raise _error(text, _LASTS[verb], verb)
    try:
        _check_link(verb, cluster.node(words[1]))
        return Fault(
            text=text.strip(),
            verb=verb,
            node=words[1],
            value=_value(verb, " ".join(words[2:])),
            at_s=quantities.seconds(at_text),
            for_s=quantities.seconds(for_text) if has_end else None,
        )
    except ClusterError as error:
        raise _error(text, str(error), verb) from None


def moments(faults: Sequence[Fault]) -> list[Moment]:
    """Return when what begins and ends, in order of time."""
    found = [Moment(at_s=fault.at_s, fault=fault, ends=False) for fault in faults]
    for fault in faults:
        if fault.for_s is not None:
            end_s = fault.at_s + fault.for_s
            found.append(Moment(at_s=end_s, fault=fault, ends=True, left=_in_force(faults, fault, end_s)))
    return sorted(found, key=lambda moment: moment.at_s)


def _in_force(faults: Sequence[Fault], ended: Fault, at_s: float) -> Fault | None:
    """Return what else holds of the same kind for the same node when a fault has ended: the last that began."""
    others = (
        fault
        for fault in faults
        if fault is not ended
        and (fault.verb, fault.node) == (ended.verb, ended.node)
        and fault.at_s <= at_s < fault.at_s + (inf if fault.for_s is None else fault.for_s)
    )
    return max(others, key=lambda fault: fault.at_s, default=None)


def perform(moment: Moment, nodes: Nodes) -> None:
    """Do what is due.

    Raises:
        ClusterError: it cannot be done.
    """
    fault = moment.left if moment.ends else moment.fault
    node, value = moment.fault.node, fault.value if fault else None
    match moment.fault.verb:
        case "kill":
            nodes.kill(node)
        case "slow":
            nodes.slow(node, 1.0 if value is None else value)
        case "uplink":
            nodes.set_uplink(node, value)
        case "downlink":
            nodes.set_downlink(node, value)
        case "partition":
            (nodes.part if fault else nodes.join)(node)
        case "join" | "leave":
            pass  # whoever is warned starts a process there, or lets one leave


class FaultClock:
    """A thread that performs faults when their time has come. It ends with `stop`, whatever is still to come."""

    def __init__(
        self,
        faults: Sequence[Fault],
        nodes: Nodes,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        *,
        warn: Callable[[Fault], bool] = lambda fault: True,
    ) -> None:
        """Args:
        faults: in any order.
        nodes: what they are done to.
        say: is told of each when it happens, from the thread.
        clock: gives seconds.
        warn: is told of each right before it begins: who notices what it does shall know by then why. It lets nodes
            join and leave, and returns False where one does not, and it has said why.
        """
        self._nodes, self._say, self._clock, self._warn = nodes, say, clock, warn
        self._coming = deque(moments(faults))
        self._began_s = 0.0
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the clock; once it runs, this does nothing."""
        if self._thread is None and self._coming:
            self._began_s = self._clock()
            self._thread = threading.Thread(target=self._run, name="nfold-faults", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Let nothing more happen, and say once what never began."""
        if self._stopped.is_set() or self._thread is None:
            return
        self._stopped.set()
        self._thread.join()
        lasted_s = self._clock() - self._began_s
        for moment in self._coming:
            if not moment.ends:
                self._say(
                    f"fault: {moment.fault.text}: never happened: it was due after {moment.at_s:g} s, and all was over "
                    f"after {lasted_s:.1f} s. Name an earlier time, or let it run for longer."
                )

    def _run(self) -> None:
        while self._coming:
            moment = self._coming[0]
            while (left_s := self._began_s + moment.at_s - self._clock()) > 0:
                if self._stopped.wait(left_s):
                    return
            self._coming.popleft()
            if not moment.ends and not self._warn(moment.fault):
                continue
            try:
                perform(moment, self._nodes)
                self._say(moment.text)
            except ClusterError as error:
                self._say(f"{moment.text}, but it failed: {error}")


def _check_link(verb: Verb, node: Node) -> None:
    """Refuse to change a link that the node does not have: nothing holds it back in that direction."""
    links = {"uplink": node.uplink, "downlink": node.downlink}
    if verb in links and links[verb] is None:
        there = [name for name, link in links.items() if link is not None]
        has = f"only {there[0]}" if there else "no link"
        raise ClusterError(
            f"node {node.name!r} declares {has} in the cluster file, so it has no {verb} that could change"
        )


def _value(verb: Verb, text: str) -> float:
    if verb in ("uplink", "downlink"):
        return quantities.bytes_per_s(text)
    if verb != "slow":
        return 1.0
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0 < factor <= 1:
        raise ClusterError(f"{text!r} is no factor: it must be greater than 0 and at most 1")
    return factor


def _error(text: str, why: str, verb: Verb) -> ClusterError:
    return ClusterError(f'--fault "{text}": {why}. Write for example "{_FORMS[verb]}".')
