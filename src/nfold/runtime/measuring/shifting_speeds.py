"""How fast nodes compute while they train, beside what they were planned with. Pure.

    works      its compute seconds over what its part of the plan is at speed 1; a change that lasts changes its speed,
               and so does a first value that its speed does not explain: before a run, that is measured for a moment
    shares     where others would win (see `better_shares.py`), every node has the speed that it shows, however near
               that is to the one it was planned with
    has none   now and then it times a fixed piece of bookkeeping, beside others' steps, to see when it is fast again

A speed is relative to the node that was profiled. What ranks compute in other ways (another strategy, other threads)
is compared anew, and where the model is cut, not with each other. All ranks on one
node are as fast as each other, so there is nothing to watch.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import log
from statistics import fmean, median_high, median_low

from nfold.core.cluster import Cluster, Node
from nfold.core.members import SpeedShift
from nfold.core.plan import Plan
from nfold.core.trace import StepParts
from nfold.planning.costs.machines import slowness_of
from nfold.planning.inputs.facts import ABOUT_AS_FAST
from nfold.runtime.control import commands as cmd
from nfold.runtime.measuring.better_shares import BetterShares, RankTimes
from nfold.runtime.measuring.lasting_change import FACTOR, LastingChange

GAUGE_EVERY_S = 5.0
GAUGE_FACTOR = 1.5
"""Two gauges in a row that differ by more from the first are a change."""


@dataclass(frozen=True, slots=True)
class _Gauge:
    """A fixed piece of bookkeeping, and the speed that the node had by then."""

    bit_s: float
    speed: float


class ShiftingSpeeds:
    """The speeds of a run's nodes, whatever generations it has."""

    def __init__(self) -> None:
        self._at_first: dict[str, float] = {}
        self._speeds: dict[str, float] = {}
        self._kinds: dict[str, object] = {}
        self._changes: dict[str, LastingChange] = {}
        self._gauges: dict[str, _Gauge] = {}
        self._suspects: dict[str, float] = {}
        """Nodes whose last gauge differed, and by what factor they seemed faster."""
        self._gauged_s: dict[str, float] = {}
        self._asked: set[int] = set()
        self._now_s = 0.0
        self._plan: Plan | None = None
        self._is_compared, self._typical = False, 1.0
        """How much slower all are than was measured before the run; known once they are compared."""
        self._works: dict[str, float] = {}
        """Seconds that each node's part of a step takes at speed 1."""
        self._shares = BetterShares()
        self._sharing: tuple[int, ...] = ()
        """Ranks that have chunks; empty: shares are no matter of speed."""
        self._chunk_sizes: tuple[float, ...] = ()
        """Of their chunks; see `RankTimes`."""
        self._bookkeeping_s: dict[str, float] = {}
        """Of a rank on each node in a step, as it was seen."""

    def begin(self, plan: Plan, cluster: Cluster) -> None:
        """Watch the ranks of a generation from now on.

        Args:
            plan: of the generation.
            cluster: with the speeds that it was planned with.
        """
        is_kept, self._plan = plan == self._plan, plan
        self._asked, self._suspects = set(), {}
        self._speeds = {name: cluster.node(name).speed for name in dict.fromkeys(plan.nodes)}
        self._forget_gone()
        if not is_kept:  # else its loads are still those of the speeds that it was planned with
            self._works = self._works_of(plan)
        for rank, name in enumerate(plan.nodes):
            self._at_first.setdefault(name, self._speeds[name])
            kind = (plan.strategy, plan.threads[rank])
            if self._kinds.get(name) != kind or name not in self._changes:
                self._kinds[name], self._changes[name], self._is_compared = kind, LastingChange(), False
            if plan.loads_s[rank] > 0:
                self._gauges.pop(name, None)
        is_dealt = not (plan.placement.is_cut or plan.splits or plan.chunk_shares)
        self._sharing = tuple(rank for rank, seconds in enumerate(plan.loads_s) if is_dealt and seconds > 0)
        owners = next(iter(plan.placement.owners.values()))
        counts = [owners.count(rank) for rank in self._sharing]
        if not is_kept:
            self._chunk_sizes = self._chunk_sizes_of(plan, cluster, counts)
        self._shares.begin(counts)

    def _forget_gone(self) -> None:
        """Keep nothing of nodes that have gone but what they were at first: who comes again is measured anew."""
        for known in (self._kinds, self._changes, self._gauges, self._gauged_s, self._bookkeeping_s):
            for name in known.keys() - self._speeds.keys():
                del known[name]

    def _works_of(self, plan: Plan) -> dict[str, float]:
        works = dict.fromkeys(self._speeds, 0.0)
        for rank, name in enumerate(plan.nodes):
            works[name] += plan.loads_s[rank] * self._speeds[name]
        return works

    def _chunk_sizes_of(self, plan: Plan, cluster: Cluster, counts: Sequence[int]) -> tuple[float, ...]:
        """Return how much longer a chunk of each rank takes than chunks do on average, if all ranks were as fast."""
        is_even = plan.batch_size % plan.chunks == 0 and plan.batch_size >= 2 * plan.chunks
        if len(counts) < 2 or is_even or len({plan.threads[rank] for rank in self._sharing}) > 1:
            return (1.0,) * len(counts)
        slower = slowness_of([cluster.node(name) for name in plan.nodes], plan.threads)
        bare_s = [plan.loads_s[rank] / slower[rank] for rank in self._sharing]
        chunk_s = sum(bare_s) / sum(counts)
        return tuple(each_s / count / chunk_s for each_s, count in zip(bare_s, counts, strict=True))

    def look(self, done: cmd.StepDone) -> tuple[SpeedShift, ...]:
        """Take in a step; return whose speed has changed for good.

        Steps of short batches are left out.
        """
        plan = self._plan
        if plan is None or len(self._speeds) < 2 or sum(part.samples for part in done.parts) < plan.batch_size:
            return ()
        self._now_s += (step_s := max(part.step_s for part in done.parts))
        computed_s = dict.fromkeys(self._speeds, 0.0)
        for part in done.parts:
            computed_s[plan.nodes[part.rank]] += part.compute_s
        found = []
        for name, seconds in computed_s.items():
            if self._works[name] <= 0 or seconds <= 0:
                continue
            if (slower := self._changes[name].take(seconds / self._works[name], step_s)) is not None:
                found.append(self._shift(name, self._speeds[name] / slower))
        if not found and (seen := self._seen_with_chunks(done.parts, step_s)):
            return seen
        if changed := tuple(found) or self._compared():
            self._shares.back_off()
        return changed

    @property
    def seen(self) -> tuple[str, ...]:
        """Nodes whose speed has been seen while they trained."""
        return tuple(name for name in self._speeds if self._changes[name].usual is not None or name in self._gauges)

    def _seen_with_chunks(self, parts: Sequence[StepParts], step_s: float) -> tuple[SpeedShift, ...]:
        """Take in a step; if other shares would win, let all nodes be as fast as they are seen to be, and return whose
        speed that changes most."""
        assert self._plan is not None, "it is looked at"
        own = zip(map(parts.__getitem__, self._sharing), self._chunk_sizes, strict=True)
        ranks = [RankTimes(part.compute_s, part.input_s + part.update_s, part.other_s, size) for part, size in own]
        if not all(rank.chunks_s > 0 for rank in ranks) or not (typical := self._shares.take(step_s, ranks)):
            return ()
        by_node: dict[str, list[RankTimes]] = {}
        for rank, seen in zip(self._sharing, typical, strict=True):
            by_node.setdefault(self._plan.nodes[rank], []).append(seen)
        for name, each in by_node.items():
            self._changes[name].settle(sum(seen.chunks_s for seen in each) / self._works[name])
        slower = self._slower_than_planned(by_node)
        self._bookkeeping_s |= {
            name: fmean(seen.bookkeeping_s for seen in each) / self._typical for name, each in by_node.items()
        }
        far = [name for name, factor in slower.items() if not 1 / ABOUT_AS_FAST <= factor <= ABOUT_AS_FAST]
        shifts = {name: self._shown(name, self._speeds[name] / factor) for name, factor in slower.items()}
        self._is_compared = True
        if far:
            return tuple(shifts[name] for name in far)
        last = max(by_node, key=lambda name: max(seen.busy_s for seen in by_node[name]))
        return (replace(shifts[last], is_waited_for=True),)

    def _compared(self) -> tuple[SpeedShift, ...]:
        """Compare each node with its own speed once all of them are known; return whose was measured wrong."""
        assert self._plan is not None, "it is looked at"
        works = [name for name, work in self._works.items() if work > 0]
        is_known = all(self._changes[name].usual is not None for name in works)
        if self._is_compared or self._plan.placement.is_cut or not is_known:
            return ()
        slower = self._slower_than_planned(works)
        wrong = {name: factor for name, factor in slower.items() if not 1 / FACTOR <= factor <= FACTOR}
        shifts = tuple(self._shown(name, self._speeds[name] / factor) for name, factor in wrong.items())
        self._is_compared = True
        return shifts

    def _slower_than_planned(self, names: Iterable[str]) -> dict[str, float]:
        """Return how much slower each node usually is than it was planned with, beside what is typical of all.

        By how much all are typically slower or faster is no node's fault, and no reason for other shares. Of two that
        are in the middle, the one that differs less from what was typical before is typical.
        """
        usual = {name: self._changes[name].usual for name in names}
        known = {name: each * self._speeds[name] for name, each in usual.items() if each is not None}
        middle = median_low(known.values()), median_high(known.values())
        self._typical = min(middle, key=lambda factor: abs(log(factor / self._typical)))
        return {name: factor / self._typical for name, factor in known.items()}

    def _shown(self, name: str, speed: float) -> SpeedShift:
        """Let a node have the speed that it shows; until nodes were compared, another one was measured wrong."""
        if self._is_compared:
            return self._shift(name, speed)
        shift = SpeedShift(node=name, times_slower=self._speeds[name] / speed, is_correction=True)
        self._speeds[name] = self._at_first[name] = speed
        return shift

    def orders(self, shifts: Iterable[SpeedShift]) -> list[cmd.Command]:
        """Return the orders to gauge those who have no work, if it is time, and those who have just slowed down."""
        plan = self._plan
        if plan is None or len(self._speeds) < 2:
            return []
        slow = {shift.node for shift in shifts if shift.times_slower > 1}
        due = [
            rank
            for rank, name in enumerate(plan.nodes[: plan.workers])
            if rank not in self._asked and (name in slow or (plan.loads_s[rank] <= 0 and self._is_due(name)))
        ]
        self._asked.update(due)
        self._gauged_s |= {plan.nodes[rank]: self._now_s for rank in due}
        return [cmd.Order((rank,), {"do": "gauge"}) for rank in due]

    def gauged(self, rank: int, bit_s: float) -> tuple[SpeedShift, ...]:
        """Take in how long the bookkeeping took on a rank; return whether its node's speed has changed."""
        assert self._plan is not None, "a generation has begun, or nobody would have been asked"
        name = self._plan.nodes[rank]
        self._asked.discard(rank)
        first = self._gauges.setdefault(name, _Gauge(bit_s, self._speeds[name]))
        if self._plan.loads_s[rank] > 0:
            return ()  # it only had to be known how slow this is
        faster, before = first.bit_s / bit_s, self._suspects.pop(name, 1.0)
        if 1 / GAUGE_FACTOR <= faster <= GAUGE_FACTOR:
            return ()
        if (faster > 1) != (before > 1) or before == 1.0:
            self._suspects[name] = faster
            return ()
        self._gauges[name] = _Gauge(bit_s, first.speed * faster)
        self._changes[name] = LastingChange()
        return (self._shift(name, first.speed * faster),)

    def in_cluster(self, cluster: Cluster) -> Cluster:
        """Return a cluster whose nodes have the speeds that they show now, and as much bookkeeping."""
        return replace(cluster, nodes=tuple(map(self._as_seen, cluster.nodes)))

    def _as_seen(self, node: Node) -> Node:
        seen_s = self._bookkeeping_s.get(node.name)
        step_cpu_s = node.step_cpu_s if seen_s is None else seen_s / node.slowdown(1)
        return replace(node, speed=self._speeds.get(node.name, node.speed), step_cpu_s=step_cpu_s)

    def _shift(self, name: str, speed: float) -> SpeedShift:
        self._speeds[name] = speed
        return SpeedShift(node=name, times_slower=self._at_first[name] / speed)

    def _is_due(self, name: str) -> bool:
        return name not in self._gauges or self._now_s - self._gauged_s.get(name, 0.0) >= GAUGE_EVERY_S
