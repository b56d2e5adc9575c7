"""Shared links: every flow crosses a few of them, and they are shared max-min fairly.

Rates are found by progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2): raise all flows together; the
link that fills first fixes its flows at its equal share; go on with the others. Only flows that are connected to a
change through common links are looked at again, once per instant: O(flows x levels) for that component.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from nfold.simulation.virtual_time import SETTLE, Action, VirtualTime

_TIE = 1.0 + 1e-9


@dataclass(slots=True, eq=False)
class SharedLink:
    """One direction of a link, whose bandwidth all flows that cross it share."""

    capacity_bytes_per_s: float
    flows: "dict[LinkFlow, None]" = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class LinkFlow:
    """Bytes that are moving over one or more links at once."""

    left_bytes: float
    links: tuple[SharedLink, ...]
    done: Action
    since_s: float
    rate_bytes_per_s: float = 0.0
    generation: int = 0


class Network:
    """All flows between nodes, and when each will have moved its bytes."""

    def __init__(self, timeline: VirtualTime) -> None:
        self._timeline = timeline
        self._unsettled: dict[SharedLink, None] = {}

    def start(self, payload_bytes: float, links: tuple[SharedLink, ...], done: Action) -> None:
        """Begin to move bytes over links.

        Args:
            payload_bytes: to move.
            links: that the flow crosses.
            done: played when the last byte has left.
        """
        flow = LinkFlow(payload_bytes, links, done, self._timeline.now)
        for link in links:
            link.flows[flow] = None
        self._touch(links)

    def _touch(self, links: tuple[SharedLink, ...]) -> None:
        if not self._unsettled:
            self._timeline.at(self._timeline.now, self._settle, SETTLE)
        for link in links:
            self._unsettled[link] = None

    def _settle(self) -> None:
        flows = _connected(self._unsettled)
        self._unsettled = {}
        for flow, rate in max_min_rates(flows).items():
            if rate != flow.rate_bytes_per_s:
                self._change_rate(flow, rate)

    def _change_rate(self, flow: LinkFlow, rate_bytes_per_s: float) -> None:
        now = self._timeline.now
        flow.left_bytes = max(0.0, flow.left_bytes - flow.rate_bytes_per_s * (now - flow.since_s))
        flow.since_s, flow.rate_bytes_per_s = now, rate_bytes_per_s
        flow.generation += 1
        generation = flow.generation
        self._timeline.at(now + flow.left_bytes / rate_bytes_per_s, partial(self._finish, flow, generation))

    def _finish(self, flow: LinkFlow, generation: int) -> None:
        if generation != flow.generation:
            return
        for link in flow.links:
            del link.flows[flow]
        self._touch(flow.links)
        flow.done()


def max_min_rates(flows: Iterable[LinkFlow]) -> dict[LinkFlow, float]:
    """Return the max-min fair bytes per second of flows that share links with no others."""
    rates: dict[LinkFlow, float] = {}
    links = dict.fromkeys(link for flow in flows for link in flow.links)
    left = {link: link.capacity_bytes_per_s for link in links}
    count = {link: len(link.flows) for link in links}
    while links:
        level = min(left[link] / count[link] for link in links)
        for link in [link for link in links if left[link] / count[link] <= level * _TIE]:
            for flow in link.flows:
                if flow not in rates:
                    _fix(flow, level, rates, left, count)
        links = {link: None for link in links if count[link]}
    return rates


def _fix(
    flow: LinkFlow,
    level: float,
    rates: dict[LinkFlow, float],
    left: dict[SharedLink, float],
    count: dict[SharedLink, int],
) -> None:
    rates[flow] = level
    for link in flow.links:
        left[link] -= level
        count[link] -= 1


def _connected(links: Iterable[SharedLink]) -> list[LinkFlow]:
    """Return the flows that depend on each other through these links, in a fixed order."""
    found: dict[LinkFlow, None] = {}
    seen = dict.fromkeys(links)
    waiting = list(seen)
    while waiting:
        for flow in waiting.pop().flows:
            if flow not in found:
                found[flow] = None
                for link in flow.links:
                    if link not in seen:
                        seen[link] = None
                        waiting.append(link)
    return list(found)
