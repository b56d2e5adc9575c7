"""Trace -> bars on lanes, with all ranks on one clock: what a timeline draws, on a page or in a trace viewer.

Ranks of one node share a clock. Nodes may not: where a message would have come before it was sent, the later node's
clock is moved to the middle of what its messages in both directions allow, and is left alone where they allow it as
it is.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from nfold.core.tasks import SpanKind
from nfold.core.trace import Span, StepTrace

Lane = Literal["compute", "send", "receive"]
Activity = Literal["input", "forward", "backward", "update", "wait", "send", "receive"]

_ACTIVITIES: dict[SpanKind, Activity] = {
    "LOAD": "input",
    "F": "forward",
    "B": "backward",
    "UPDATE": "update",
    "SEND": "send",
    "RECV": "receive",
}
_SHORTEST_WAIT = 0.002
"""Of a step: gaps between tasks below that are the runtime's own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """Something that a rank did, on the clock of the first node; 0 is the begin of the first step shown."""

    rank: int
    step: int
    lane: Lane
    activity: Activity
    name: str
    start_s: float
    end_s: float
    peer: int = -1
    """The other rank of a message; -1: it is none."""
    payload_bytes: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageArrow:
    """A message: indexes of its two bars."""

    send: int
    receive: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """Bars in order of their begin, and the messages between them."""

    bars: tuple[Bar, ...]
    flows: tuple[MessageArrow, ...]

    @property
    def end_s(self) -> float:
        """When the last bar ends."""
        return max((bar.end_s for bar in self.bars), default=0.0)


def timeline(steps: Sequence[StepTrace], nodes: Sequence[str]) -> Timeline:
    """Return the bars of some steps. O(spans log spans).

    A receive is posted long before anything is sent, so its bar begins no earlier than the bar of its send.

    Args:
        steps: traced task by task.
        nodes: node of each rank.
    """
    drafts = [_draft(step, span) for step in steps for span in step.spans]
    offsets = _node_offsets(drafts, nodes)
    drafts = [_moved(bar, offsets[nodes[bar.rank]]) for bar in drafts]
    drafts = _clipped_receives(drafts)
    drafts += _waits(drafts)
    origin_s = min((bar.start_s for bar in drafts), default=0.0)
    bars = sorted((_moved(bar, -origin_s) for bar in drafts), key=lambda bar: (bar.start_s, bar.rank, bar.end_s))
    return Timeline(bars=tuple(bars), flows=tuple(_flows(bars)))


def _draft(step: StepTrace, span: Span) -> Bar:
    begin_s = step.begin_s[span.rank] if step.begin_s else 0.0
    activity = _ACTIVITIES[span.kind]
    return Bar(
        rank=span.rank,
        step=step.step,
        lane=activity if activity in ("send", "receive") else "compute",
        activity=activity,
        name=span.name,
        start_s=begin_s + span.start_s,
        end_s=begin_s + span.end_s,
        peer=span.peer,
        payload_bytes=span.payload_bytes,
    )


def _moved(bar: Bar, offset_s: float) -> Bar:
    return replace(bar, start_s=bar.start_s + offset_s, end_s=bar.end_s + offset_s)


# Messages


def _flows(bars: Sequence[Bar]) -> Iterator[MessageArrow]:
    """Pair each send with its receive: of equal messages between two ranks, the k-th with the k-th."""
    sends: dict[tuple[int, int, int, str], list[int]] = defaultdict(list)
    receives: dict[tuple[int, int, int, str], list[int]] = defaultdict(list)
    for index, bar in sorted(enumerate(bars), key=lambda pair: pair[1].end_s):
        if bar.lane == "send":
            sends[bar.step, bar.rank, bar.peer, _message(bar)].append(index)
        elif bar.lane == "receive":
            receives[bar.step, bar.peer, bar.rank, _message(bar)].append(index)
    for key, indexes in sends.items():
        for send, receive in zip(indexes, receives[key], strict=False):
            yield MessageArrow(send=send, receive=receive)


def _message(bar: Bar) -> str:
    """`reduce b0 to 1` and `reduce b0 from 0` are the same message."""
    return bar.name.rsplit(" ", 2)[0]


def _clipped_receives(bars: Sequence[Bar]) -> list[Bar]:
    sent_s = {flow.receive: bars[flow.send].start_s for flow in _flows(bars)}
    clipped = list(bars)
    for index, start_s in sent_s.items():
        bar = bars[index]
        clipped[index] = replace(bar, start_s=min(bar.end_s, max(bar.start_s, start_s)))
    return clipped


# Clocks


def _node_offsets(bars: Sequence[Bar], nodes: Sequence[str]) -> dict[str, float]:
    """Return what to add to each node's clock, from the first node outwards along the messages."""
    least: dict[tuple[str, str], float] = {}
    """By (sender, receiver): the least time from a message's begin to its arrival, each on its own clock."""
    for flow in _flows(bars):
        send, receive = bars[flow.send], bars[flow.receive]
        pair = nodes[send.rank], nodes[receive.rank]
        if pair[0] != pair[1]:
            least[pair] = min(least.get(pair, float("inf")), receive.end_s - send.start_s)
    offsets = {nodes[0]: 0.0} if nodes else {}
    frontier = list(offsets)
    while frontier:
        near = frontier.pop(0)
        for far in dict.fromkeys(nodes):
            if far not in offsets and (near, far) in least:
                offsets[far] = _offset(offsets[near], least[near, far], least.get((far, near)))
                frontier.append(far)
    return {node: offsets.get(node, 0.0) for node in nodes}


def _offset(near_s: float, out_s: float, back_s: float | None) -> float:
    """Return the far node's offset: the near one's, unless a message would then arrive before it was sent.

    Args:
        near_s: the near node's offset.
        out_s: the least time of a message to the far node, its begin and its end each on their own clock.
        back_s: the same of messages back; None when there are none.
    """
    if out_s >= 0 and (back_s is None or back_s >= 0):
        return near_s
    return near_s - out_s if back_s is None else near_s + (back_s - out_s) / 2


# Waiting


def _waits(bars: Sequence[Bar]) -> list[Bar]:
    """Return the gaps of the compute lanes in which a message was still to come."""
    by_rank_step: dict[tuple[int, int], list[Bar]] = defaultdict(list)
    for bar in bars:
        by_rank_step[bar.rank, bar.step].append(bar)
    return [wait for (rank, step), mine in by_rank_step.items() for wait in _waits_of(rank, step, mine)]


def _waits_of(rank: int, step: int, bars: Sequence[Bar]) -> Iterator[Bar]:
    computing = sorted((bar for bar in bars if bar.lane == "compute"), key=lambda bar: bar.start_s)
    arrivals = sorted(bar.end_s for bar in bars if bar.lane == "receive")
    if not computing or not arrivals:
        return
    shortest_s = _SHORTEST_WAIT * (max(bar.end_s for bar in bars) - computing[0].start_s)
    for before, after in zip(computing, [*computing[1:], None], strict=True):
        end_s = after.start_s if after else max(arrivals[-1], before.end_s)
        waited_for = any(before.end_s < arrival_s <= end_s for arrival_s in arrivals)
        if waited_for and end_s - before.end_s > shortest_s:
            yield Bar(
                rank=rank,
                step=step,
                lane="compute",
                activity="wait",
                name="waiting for messages",
                start_s=before.end_s,
                end_s=end_s,
            )
