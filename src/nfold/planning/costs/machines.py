"""What a rank has of its node: its speed in computing, its bandwidth, and its memory."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from nfold.core.cluster import Node
from nfold.planning.costs.memory_needs import least_bytes, rooms, whole_bytes
from nfold.planning.costs.read_ahead import CoreContention, contentions_of
from nfold.planning.inputs.chunk_counts import chunk_counts
from nfold.planning.inputs.facts import ABOUT_AS_FAST, Facts
from nfold.planning.reductions.server_shares import link_rates

MUCH_WORSE = 1.5
"""So many times as slow, badly linked or short of room as the next better one, or the best: a step may be shorter
without it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """One rank's share of its node."""

    rank: int
    threads: int
    pace: float
    """Seconds that it takes for a second's work of the node that was profiled."""
    chunk_s: float
    """That the smallest chunk of the batch takes it, with its threads."""
    bandwidth_bytes_per_s: float
    latency_s: float
    memory_bytes: float
    tightness: float
    """1 where it has room for the whole model; by how many times that is too large where not, `MUCH_WORSE` times; and
    infinite where there is no room for any part of it."""
    contention: CoreContention
    """While all ranks of its node compute, and read if reading takes any time."""

    @property
    def kind(self) -> tuple[object, ...]:
        """A key that is equal for two ranks that can be exchanged without changing any cost."""
        return self.threads, self.pace, self.bandwidth_bytes_per_s, self.latency_s, self.memory_bytes, self.contention


def machines_of(facts: Facts) -> tuple[Machine, ...]:
    """Return the workers' machines, in the order of their ranks.

    Raises:
        ClusterError: ranks are on several nodes, and one of those has no link.
    """
    nodes = facts.nodes[: facts.workers]
    threads = facts.threads(facts.workers)
    rates = link_rates(facts.cluster, nodes)
    at = [facts.cluster.node(name) for name in nodes]
    slower = slowness_of(at, threads)
    profiles = facts.profiles_of(threads)
    contentions = contentions_of(facts, at, threads, [profile.reading_cores for profile in profiles])
    chunk_size = facts.batch_size / chunk_counts(facts)[-1]
    whole_s = [sum(profile.whole_s(chunk_size)) or 1.0 for profile in profiles]
    tight = _tightness(facts)
    machines = []
    for rank, (name, node) in enumerate(zip(nodes, at, strict=True)):
        channel = node.local if len(set(nodes)) == 1 or node.uplink is None else node.uplink
        machines.append(
            Machine(
                rank=rank,
                threads=threads[rank],
                pace=slower[rank],
                chunk_s=whole_s[rank] * slower[rank],
                bandwidth_bytes_per_s=rates[rank],
                latency_s=channel.latency_s,
                memory_bytes=node.memory_bytes / nodes.count(name),
                tightness=tight[rank],
                contention=contentions[rank],
            )
        )
    return tuple(machines)


def _tightness(facts: Facts) -> list[float]:
    having, needed = rooms(facts), whole_bytes(facts)
    if min(having) >= needed:
        return [1.0] * len(having)
    least = max(least_bytes(facts), 1.0)
    return [_times_too_large(needed, room) if room >= least else math.inf for room in having]


def _times_too_large(needed: float, room: float) -> float:
    return 1.0 if room >= needed else MUCH_WORSE * needed / room


def slowness_of(nodes: Sequence[Node], threads: Sequence[int]) -> list[float]:
    """Return the factors by which ranks compute longer than alone on a node of speed 1, while all ranks compute.

    Args:
        nodes: of each rank.
        threads: of each rank.
    """
    busy: Counter[str] = Counter()
    for node, count in zip(nodes, threads, strict=True):
        busy[node.name] += count
    return [
        node.slowdown(busy[node.name]) / node.slowdown(count) / node.speed
        for node, count in zip(nodes, threads, strict=True)
    ]


def paces_of(facts: Facts, threads: tuple[int, ...], chunks: int) -> tuple[float, ...]:
    """Return what `all_paces` does; nothing where all are about as fast, so that orders of cells do not hang on chance.

    Args:
        facts: about the machines.
        threads: of each rank.
        chunks: of a batch.
    """
    paces = all_paces(facts, threads, chunks)
    return paces if max(paces) > ABOUT_AS_FAST * min(paces) else ()


def all_paces(facts: Facts, threads: tuple[int, ...], chunks: int) -> tuple[float, ...]:
    """Return how much longer each rank computes a chunk than the profile of the first rank's threads says.

    Args:
        facts: about the machines.
        threads: of each rank.
        chunks: of a batch.
    """
    slower = slowness_of([facts.cluster.node(name) for name in facts.nodes[: len(threads)]], threads)
    whole_s = {count: sum(facts.profiles[count].whole_s(facts.batch_size / chunks)) for count in set(threads)}
    return tuple(
        pace * whole_s[count] / (whole_s[threads[0]] or 1.0) for pace, count in zip(slower, threads, strict=True)
    )


def teams(machines: tuple[Machine, ...]) -> Iterator[tuple[Machine, ...]]:
    """Yield all machines, then who is left without those that are much slower than the others, much worse linked, much
    shorter of room for the model, or several of that; then single ones.

    A machine is much worse where there is a gap: `MUCH_WORSE` times between it and the next better one. Where all gaps
    are small, it is that much worse than the best.
    """
    everyone = {machine.rank for machine in machines}
    badnesses: tuple[Callable[[Machine], float], ...] = (
        lambda machine: machine.tightness,
        lambda machine: 1 / machine.bandwidth_bytes_per_s,
        lambda machine: machine.chunk_s,
    )
    worst_last = [[everyone, *_without_worst(machines, badness)] for badness in badnesses]
    known = {(), machines[:1]}  # the first alone is what strategy `single` is for
    for chosen in (*itertools.starmap(set.intersection, itertools.product(*worst_last)), *_alone(machines)):
        team = tuple(machine for machine in machines if machine.rank in chosen)
        if team not in known:
            known.add(team)
            yield team


def _alone(machines: tuple[Machine, ...]) -> Iterator[set[int]]:
    """Yield the fastest, then the fastest of those that have more memory, up to the roomiest.

    Nothing sends less, and with slow links nothing may be faster; and where others lack the memory, nothing else fits.
    """
    seconds = _told_apart([machine.chunk_s for machine in machines])
    memory = _told_apart([machine.memory_bytes for machine in machines])
    most = -math.inf
    for _, room, machine in sorted(zip(seconds, memory, machines, strict=True), key=_fast_then_roomy):
        if room > ABOUT_AS_FAST * most:
            most = room
            yield {machine.rank}


def _told_apart(figures: list[float]) -> list[float]:
    """Return the figures; where none differs from another by more than noise, all the same."""
    return figures if max(figures) > ABOUT_AS_FAST * min(figures) else [0.0] * len(figures)


def _fast_then_roomy(each: tuple[float, float, Machine]) -> tuple[float, float, int]:
    seconds, room, machine = each
    return seconds, -room, machine.rank


def _without_worst(machines: tuple[Machine, ...], badness: Callable[[Machine], float]) -> list[set[int]]:
    """Return the ranks that are left above each gap, and those that are about as good as the best; most first."""
    ordered = sorted(machines, key=lambda machine: (badness(machine), machine.rank))
    gaps = {
        count for count in range(1, len(ordered)) if badness(ordered[count]) > MUCH_WORSE * badness(ordered[count - 1])
    }
    good = sum(badness(machine) <= MUCH_WORSE * badness(ordered[0]) for machine in ordered)
    return [
        {machine.rank for machine in ordered[:count]} for count in sorted({*gaps, good} - {len(ordered)}, reverse=True)
    ]


def orders(machines: tuple[Machine, ...], most: int) -> Iterator[tuple[Machine, ...]]:
    """Yield at most so many orders of machines along a pipeline that are not the same for equal machines.

    All of them where there are few; else fast ones first or last, from every one on, in pairs of fast and slow.
    """
    ordered = sorted(machines, key=lambda machine: (machine.pace, machine.rank))
    if _num_orders(ordered) <= most:
        every = _distinct(ordered)
    else:
        every = itertools.chain.from_iterable((each, each[::-1]) for each in _sensible(ordered))
    seen: set[tuple[object, ...]] = set()
    for order in every:
        kinds = tuple(machine.kind for machine in order)
        if kinds not in seen and len(seen) < most:
            seen.add(kinds)
            yield tuple(order)


def _num_orders(machines: list[Machine]) -> int:
    """How many orders there are when equal machines count as one: a multinomial coefficient."""
    total, placed = 1, 0
    for kind in dict.fromkeys(machine.kind for machine in machines):
        for nth in range(1, sum(machine.kind == kind for machine in machines) + 1):
            placed += 1
            total = total * placed // nth
    return total


def _distinct(machines: list[Machine]) -> Iterator[list[Machine]]:
    """Every order, equal machines in the order of their ranks."""
    if not machines:
        yield []
    for kind in dict.fromkeys(machine.kind for machine in machines):
        index = next(index for index, machine in enumerate(machines) if machine.kind == kind)
        for rest in _distinct(machines[:index] + machines[index + 1 :]):
            yield [machines[index], *rest]


def _sensible(ordered: list[Machine]) -> Iterator[list[Machine]]:
    yield ordered
    half = (len(ordered) + 1) // 2
    yield [each for pair in itertools.zip_longest(ordered[:half], ordered[: half - 1 : -1]) for each in pair if each]
    for start in range(1, len(ordered)):
        yield ordered[start:] + ordered[:start]
