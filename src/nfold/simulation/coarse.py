"""The gradients of one step in virtual time, bucket by bucket instead of message by message: for a thousand nodes.

The messages of n ranks are about n squared; here the messages of one rank for one round of a bucket are one job on its
uplink, and O(ranks x rounds) events are left. What is given up: jobs on an uplink are served one after another instead
of sharing it, and what arrives on a downlink counts as one stream. What is kept: every byte of every link, the order of
buckets, rounds and updates, latencies, and that a sum waits for its slowest contribution.

    uplink      push 0 ─ push 1 ─ push 2 ─ pull 0 ─ pull 1 ─ pull 2       what is available first goes first
    lane        F ─ B ──────────── UPDATE 0 ─ UPDATE 1 ─ UPDATE 2
    downlink        push 0 ─ push 1 ─ push 2 ─ pull 0 ─ pull 1 ─ ..

A ring's bucket is one job on all links at once: 2 (n - 1) turns, each as long as a share takes on the slowest link, or
as long as one message with its latency if that is longer.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from nfold.core.cluster import Channel
from nfold.core.placement import Reduction, Share

_ARRIVED = -1
"""In the place of a rank: all jobs of a round have left their uplinks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CoarseRank:
    """The work of one rank in a step, alone on its node."""

    forwards_s: tuple[float, ...]
    """When the forward of each of its chunks ends, for those that send batch statistics."""
    compute_s: float
    """When its last backward ends."""
    cores: float
    speed: float
    """Of optimizer steps, relative to the node that was profiled."""
    uplink: Channel
    downlink: Channel


@dataclass(frozen=True, kw_only=True, slots=True)
class CoarseBucket:
    """A reduction of one bucket: its ranks, its bytes, and when computing makes its gradients complete."""

    reduction: Reduction
    ready_s: Mapping[int, float]
    """When its gradients are complete, for each member."""
    update_s: float
    """An optimizer step over all of it."""
    call_s: float
    """What each optimizer step costs at least."""


def coarse_step_s(
    ranks: tuple[CoarseRank, ...],
    buckets: tuple[CoarseBucket, ...],
    statistics_bytes: int = 0,
    *,
    commits: bool = False,
) -> float:
    """Return how long a step takes. O(ranks x rounds x log).

    Args:
        ranks: workers first, dedicated servers last; one on each node.
        buckets: in the order in which backward completes them; all of one route.
        statistics_bytes: rows of batch statistics that each chunk's owner sends to every other worker.
        commits: whether ranks update once all messages of the step are over; of rings alone.
    """
    world = _World(ranks, statistics_bytes)
    for bucket in buckets:
        if bucket.reduction.route == "ring":
            world.pass_round(replace(bucket, update_s=0.0) if commits else bucket)
        elif bucket.reduction.route == "local":
            world.update_locally(bucket)
    for bucket in buckets if commits else ():
        world.update_locally(bucket)
    world.serve([bucket for bucket in buckets if bucket.reduction.route == "server"])
    return world.end_s


@dataclass(slots=True)
class _Round:
    """One share of every serving rank: how many bytes each sums, and what is still on the way."""

    bucket: CoarseBucket
    members: frozenset[int]
    served: dict[int, int]
    """Bytes by the rank that sums them."""
    total: int
    missing: int
    first_s: float = float("inf")
    last_s: float = 0.0

    def served_by(self, *, workers: bool) -> "_Round":
        """The part that is pulled from workers, whose uplinks push as well, or from servers, who are sooner."""
        part = {rank: payload for rank, payload in self.served.items() if (rank in self.members) == workers}
        return _Round(self.bucket, self.members, part, sum(part.values()), len(part))

    def note(self, start_s: float, end_s: float) -> bool:
        """Take in one sender's job; return whether it was the last."""
        self.first_s, self.last_s = min(self.first_s, start_s), max(self.last_s, end_s)
        self.missing -= 1
        return self.missing == 0


@dataclass(slots=True)
class _Lines:
    """Until when a rank's links and compute lane are taken."""

    up_s: float = 0.0
    down_s: float = 0.0
    lane_s: float = 0.0
    arrived_s: float = 0.0


@dataclass(slots=True)
class _World:
    ranks: tuple[CoarseRank, ...]
    statistics_bytes: int
    lines: list[_Lines] = field(init=False)
    workers: list[int] = field(init=False)
    _heap: list[tuple[float, int, int, bool, _Round]] = field(default_factory=list)
    _sequence: int = 0

    def __post_init__(self) -> None:
        self.lines = [_Lines(lane_s=rank.compute_s) for rank in self.ranks]
        self.workers = [index for index, rank in enumerate(self.ranks) if rank.forwards_s]
        if len(self.workers) > 1 and self.statistics_bytes:
            self._send_statistics()

    @property
    def end_s(self) -> float:
        return max(max(lines.lane_s, lines.up_s, lines.arrived_s) for lines in self.lines)

    def _send_statistics(self) -> None:
        others, rows = len(self.workers) - 1, sum(len(self.ranks[index].forwards_s) for index in self.workers)
        for index in self.workers:
            rank, lines = self.ranks[index], self.lines[index]
            for forward_s in rank.forwards_s:
                own = _seconds(rank.uplink, others * self.statistics_bytes, others)
                lines.up_s = max(lines.up_s, forward_s) + own
            first_s = rank.forwards_s[0]
            incoming = (rows - len(rank.forwards_s)) * self.statistics_bytes
            lines.down_s = first_s + _seconds(rank.downlink, incoming, others)
        last_s = max(self.lines[index].up_s for index in self.workers)
        for index in self.workers:
            lines = self.lines[index]
            lines.arrived_s = max(lines.down_s, last_s) + self._latency_s(index)

    # Ring and local

    def update_locally(self, bucket: CoarseBucket) -> None:
        for index in bucket.reduction.members:
            self.lines[index].lane_s += bucket.update_s / self.ranks[index].speed

    def pass_round(self, bucket: CoarseBucket) -> None:
        """A ring pass: it moves as its slowest link does, and begins when its last member is ready."""
        members, reduction = bucket.reduction.members, bucket.reduction
        ready_s = max(bucket.ready_s[index] for index in members)
        free_s = max(max(self.lines[index].up_s, self.lines[index].down_s) for index in members)
        share = reduction.num_bytes / len(members) * (reduction.addend_bytes / reduction.item_bytes + 1) / 2
        piece = min(share, reduction.piece_elements * reduction.item_bytes or share)
        turn_s = max(self._hop_s(index, share) for index in members)
        message_s = max(self._hop_s(index, piece) + self._latency_s(index) for index in members)
        turns = 2 * (len(members) - 1)
        moved_s = max(ready_s, free_s) + turns * turn_s
        done_s = max(moved_s + max(map(self._latency_s, members)), ready_s + turns * max(turn_s, message_s))
        for index in members:
            lines = self.lines[index]
            lines.up_s = lines.down_s = moved_s
            lines.lane_s = max(lines.lane_s, done_s) + bucket.update_s / self.ranks[index].speed

    def _hop_s(self, index: int, payload_bytes: float) -> float:
        rank = self.ranks[index]
        return max(_seconds(channel, payload_bytes, 1) for channel in (rank.uplink, rank.downlink))

    # Servers

    def serve(self, buckets: list[CoarseBucket]) -> None:
        for bucket in buckets:
            rounds = tuple(_rounds(bucket))
            for index in bucket.reduction.members:
                ready_s = bucket.ready_s[index]
                for each in rounds:
                    self._offer(ready_s, index, each, pulls=False)
        while self._heap:
            time_s, _, index, pulls, each = heappop(self._heap)
            if index == _ARRIVED:
                self._pulled(each) if pulls else self._pushed(each)
                continue
            start_s = max(time_s, self.lines[index].up_s)
            self.lines[index].up_s = start_s + self._up_s(index, each, pulls=pulls)
            if each.note(start_s, self.lines[index].up_s):
                self._offer(each.last_s, _ARRIVED, each, pulls=pulls)

    def _offer(self, time_s: float, index: int, each: _Round, *, pulls: bool) -> None:
        self._sequence += 1
        heappush(self._heap, (time_s, self._sequence, index, pulls, each))

    def _up_s(self, index: int, each: _Round, *, pulls: bool) -> float:
        members, own = each.members, each.served.get(index, 0)
        others = len(members) - (index in members)
        payload, messages = (own * others, others) if pulls else (each.total - own, len(each.served) - (own > 0))
        wider = 1.0 if pulls else each.bucket.reduction.addend_bytes / each.bucket.reduction.item_bytes
        return _seconds(self.ranks[index].uplink, wider * payload, messages)

    def _down_s(self, index: int, each: _Round, payload_bytes: float, messages: int) -> float:
        lines, rank = self.lines[index], self.ranks[index]
        taken_s = _seconds(rank.downlink, payload_bytes, messages)
        lines.down_s = max(lines.down_s, each.first_s) + taken_s
        return max(lines.down_s, each.last_s) + (self._latency_s(index) if messages else 0.0)

    def _pushed(self, each: _Round) -> None:
        """All gradients of a round are sent: its servers update when they have them, and offer the values."""
        members, bucket = each.members, each.bucket
        done: list[tuple[float, int]] = []
        for index, own in each.served.items():
            others = len(members) - (index in members)
            wider = bucket.reduction.addend_bytes / bucket.reduction.item_bytes
            summed_s = self._down_s(index, each, wider * own * others, others)
            lines = self.lines[index]
            step_s = bucket.call_s + (bucket.update_s - bucket.call_s) * own / bucket.reduction.num_bytes
            lines.lane_s = max(lines.lane_s, summed_s) + step_s / self.ranks[index].speed
            done.append((lines.lane_s, index))
        workers, servers = each.served_by(workers=True), each.served_by(workers=False)
        for time_s, index in done:
            self._offer(time_s, index, workers if index in members else servers, pulls=True)

    def _pulled(self, each: _Round) -> None:
        for index in each.members:
            own = each.served.get(index, 0)
            at_s = self._down_s(index, each, each.total - own, len(each.served) - (own > 0))
            self.lines[index].arrived_s = max(self.lines[index].arrived_s, at_s)

    def _latency_s(self, index: int) -> float:
        return self.ranks[index].uplink.latency_s + self.ranks[index].downlink.latency_s


def _rounds(bucket: CoarseBucket) -> Iterator[_Round]:
    """The first share of every serving rank, then the second of every one."""
    by_rank: dict[int, list[Share]] = {}
    for share in bucket.reduction.shares:
        by_rank.setdefault(share.rank, []).append(share)
    item_bytes, members = bucket.reduction.item_bytes, frozenset(bucket.reduction.members)
    for number in range(max(map(len, by_rank.values()), default=0)):
        served = {
            rank: (shares[number].stop - shares[number].start) * item_bytes
            for rank, shares in by_rank.items()
            if number < len(shares)
        }
        yield _Round(bucket, members, served, sum(served.values()), len(members))


def _seconds(channel: Channel, payload_bytes: float, messages: int) -> float:
    """The longer of the wire's time and the processor's: half of a message's work is done at each end, by a thread."""
    return max(payload_bytes / channel.bandwidth_bytes_per_s, channel.end_s(payload_bytes, messages))
