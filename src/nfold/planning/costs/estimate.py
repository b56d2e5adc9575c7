"""Estimates what a proposal costs in a hundredth of the time that compiling and simulating it takes.

Cells are played in virtual time with one message for each pair of cell and rank; a link serves its messages one after
another. Reductions are played bucket by bucket afterwards (`simulation/coarse.py`), and no link can be faster than all
its bytes. What is given up against the simulator: links are not shared fairly, activations and gradients of weights do
not wait for each other, and ranks of a node crowd it evenly.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from nfold.core.cluster import Channel, Node
from nfold.core.graph import ModelGraph
from nfold.core.placement import Reduction
from nfold.core.profile import Profile
from nfold.errors import ClusterError
from nfold.planning.costs.machines import slowness_of
from nfold.planning.costs.peak_memory import most_kept
from nfold.planning.costs.read_ahead import ReadingCosts, contentions_of, read_ahead
from nfold.planning.inputs.facts import Facts, Proposal, commits
from nfold.planning.reductions import norm_messages
from nfold.planning.reductions.buckets import completion, users_of
from nfold.planning.reductions.statistics_groups import statistics_groups
from nfold.planning.scheduling.cell_dependencies import CellDependencies
from nfold.planning.scheduling.order import Cell, play_cells
from nfold.planning.scheduling.segments import INPUTS, cut
from nfold.planning.scheduling.windows import busy_windows
from nfold.simulation.coarse import CoarseBucket, CoarseRank, coarse_step_s

CERTAIN = 0.999
"""Of what a rank sends: a ring's shares are equal but for an element."""
OVERESTIMATED = 1.1
"""By so much a step of data parallelism is overestimated at most: messages that wait for nobody overlap a little."""
MOST_DEVIATIONS = 3
"""By so many the fastest of some tens of unsteady nodes is faster than on average, at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """The estimated cost of a step: about its seconds, and exactly its bytes."""

    step_s: float
    least_step_s: float
    """What no simulated step can be shorter than; 0 where nothing is certain."""
    sent_bytes: int
    """Payload of all ranks together."""
    loads_s: tuple[float, ...]
    """Compute seconds of each rank."""
    working_bytes: tuple[int, ...]
    """Activations and messages of each rank at its peak."""
    sending_s: tuple[float, ...]
    """How long each rank's uplink, or its part of one, is busy."""
    receiving_s: tuple[float, ...]
    """The same of downlinks."""


def estimate(facts: Facts, proposal: Proposal) -> Estimate:
    """Return about what a step of a synchronous proposal costs. O((cells + messages) log cells).

    Args:
        facts: about the operators that the proposal places: parts, if it splits some.
        proposal: to estimate.

    Raises:
        ClusterError: two ranks that talk have no link between them.
    """
    return _Estimating(facts, proposal).estimate()


@dataclass(slots=True)
class _RankChannel:
    """One rank's way to the others."""

    up: Channel
    down: Channel
    up_s: float = 0.0
    """When it is free."""
    down_s: float = 0.0
    sent_s: float = 0.0
    """How long it is busy in all."""
    received_s: float = 0.0
    sent_bytes: float = 0.0
    received_bytes: float = 0.0

    @property
    def wire_s(self) -> float:
        """How long its bytes take if nothing else is in their way."""
        sent_s = self.sent_bytes / self.up.bandwidth_bytes_per_s
        return max(sent_s, self.received_bytes / self.down.bandwidth_bytes_per_s)

    @property
    def latency_s(self) -> float:
        return self.up.latency_s + self.down.latency_s


class _Estimating:
    def __init__(self, facts: Facts, proposal: Proposal) -> None:
        self._facts, self._placement, self._reductions = facts, proposal.placement, proposal.reductions
        self._commits = commits(facts, proposal)
        self._nodes = [facts.cluster.node(name) for name in facts.nodes[: proposal.placement.world_size]]
        self._threads = facts.threads(proposal.placement.world_size)
        self._sizes = facts.chunk_sizes(proposal.placement.num_chunks)
        self._windows = dict(enumerate(proposal.windows)) or busy_windows(facts.graph, proposal.placement)
        self._ports = _ports(self._nodes)
        self._cells = cut(facts.graph, proposal.placement)
        self._dependencies = CellDependencies(facts.graph, self._cells)
        self._after = self._dependencies.after()
        self._seconds = {
            (count, size): _operator_seconds(facts.graph, facts.profiles[count], size)
            for count in set(self._threads)
            for size in set(self._sizes)
        }
        self._slowness = slowness_of(self._nodes, self._threads)
        self._computing_s: dict[tuple[int, bool, int, int], float] = {}
        """By rank, direction, segment and samples: a segment takes as long for every chunk of one size."""
        self._reading = self._read_ahead()
        self._payloads = self._messages()
        self._sent_bytes = self._norm_bytes()
        """Of gradients, values and all else that is no tensor between operators; counted on the way."""

    def estimate(self) -> Estimate:
        seconds = {cell: self._cell_s(cell) for cell in self._after}
        played = play_cells(self._after, seconds, self._windows, self._deliver)
        ends_s: dict[int, float] = defaultdict(float)
        for cell, end_s in played.ends_s.items():
            ends_s[cell.rank] = max(ends_s[cell.rank], end_s)
        self._count_statistics()
        self._count_reductions()
        ranks = tuple(self._rank(rank, ends_s[rank]) for rank in range(self._placement.world_size))
        busy_s = max(max(port.sent_s, port.received_s) for port in self._ports)
        loads_s: dict[int, float] = defaultdict(float)
        for cell in seconds:
            loads_s[cell.rank] += self._compute_s(cell)
        buckets = tuple(self._buckets(played.ends_s, seconds))
        step_s = max(busy_s, coarse_step_s(ranks, buckets, commits=self._commits))
        return Estimate(
            step_s=step_s,
            least_step_s=self._least_s(loads_s, step_s),
            sent_bytes=sum(self._payloads.values()) + round(self._sent_bytes),
            loads_s=tuple(loads_s[rank] for rank in range(self._placement.world_size)),
            working_bytes=self._working_bytes(played.order),
            sending_s=tuple(port.sent_s for port in self._ports),
            receiving_s=tuple(port.received_s for port in self._ports),
        )

    def _least_s(self, loads_s: Mapping[int, float], step_s: float) -> float:
        """What the busiest link or rank takes, where each rank has a node of its own.

        A node with a part of a core may have rested and then be faster for a while, and unsteady ones are sometimes
        faster than on average. If no tensor crosses between ranks, all that is sent is buckets, and the whole step is
        estimated well.
        """
        if len({node.name for node in self._nodes}) < len(self._nodes):
            return 0.0
        if not any(self._payloads.values()):
            return 0.0 if any(node.meets_its_quota for node in self._nodes) else step_s / OVERESTIMATED
        computing = (
            loads_s[rank] * max(0.0, 1 - MOST_DEVIATIONS * node.unsteadiness)
            for rank, node in enumerate(self._nodes)
            if node.cores == int(node.cores)
        )
        sending = (port.wire_s for port in self._ports) if len(self._nodes) > 1 else ()
        return CERTAIN * max((*computing, *sending), default=0.0)

    def _working_bytes(self, order: Mapping[int, Sequence[Cell]]) -> tuple[int, ...]:
        received: Counter[int] = Counter()
        for (_, rank), payload in self._payloads.items():
            received[rank] += payload
        kept = (
            most_kept(
                ((cell.backward, cell.segment, cell.chunk) for cell in order.get(rank, ())),
                self._cells[rank].segments,
                self._profile(rank).saved_bytes(),
                self._sizes,
            )
            for rank in range(self._placement.world_size)
        )
        return tuple(round(most) + received[rank] for rank, most in enumerate(kept))

    # Cells

    def _cell_s(self, cell: Cell) -> float:
        """Seconds that a cell keeps its rank busy: it computes, and reads its samples if it is the first."""
        if not self._reads(cell):
            return self._compute_s(cell)
        read_s = self._profile(cell.rank).load_s(self._sizes[cell.chunk], 1 / self._slowness[cell.rank])
        return self._compute_s(cell) + read_s * self._reading[cell.rank].waited

    def _reads(self, cell: Cell) -> bool:
        return not cell.backward and not set(INPUTS).isdisjoint(self._dependencies.segment(cell).inputs)

    def _compute_s(self, cell: Cell) -> float:
        return self._bare_s(cell) * self._slowness[cell.rank] * self._reading[cell.rank].stretch

    def _bare_s(self, cell: Cell) -> float:
        """Seconds as profiled, which a cell takes where nothing goes on beside it."""
        size = self._sizes[cell.chunk]
        key = cell.rank, cell.backward, cell.segment, size
        if key not in self._computing_s:
            each = self._seconds[self._threads[cell.rank], size]
            self._computing_s[key] = sum(
                each[name][cell.backward] for name in self._dependencies.segment(cell).operators
            )
        return self._computing_s[key]

    def _read_ahead(self) -> list[ReadingCosts]:
        """What each rank waits for samples, and what reading the next ones takes from its computing."""
        load_s, bare_s = ([0.0] * len(self._nodes) for _ in range(2))
        for cell in self._after:
            bare_s[cell.rank] += self._bare_s(cell) / self._nodes[cell.rank].speed
            if self._reads(cell):
                load_s[cell.rank] += self._profile(cell.rank).load_s(
                    self._sizes[cell.chunk], self._nodes[cell.rank].speed
                )
        threads = [count if own else 0 for count, own in zip(self._threads, bare_s, strict=True)]
        reads = [self._profile(rank).reading_cores if own else 0.0 for rank, own in enumerate(load_s)]
        contentions = contentions_of(self._facts, self._nodes, threads, reads)
        return [read_ahead(*each) for each in zip(load_s, bare_s, contentions, strict=True)]

    def _messages(self) -> Counter[tuple[Cell, int]]:
        """Bytes that a rank gets from a cell that has ended; a gradient goes back from the first taker's cell."""
        found: Counter[tuple[Cell, int]] = Counter()
        for (name, chunk), maker in self._dependencies.made.items():
            tensor, size = self._dependencies.tensors[name], self._sizes[chunk]
            payload = round(tensor.bytes_per_sample * size) + tensor.fixed_bytes if size else 0
            for rank, takers in self._dependencies.remote_takers(name, chunk).items():
                found[maker, rank] += payload
                if self._dependencies.flows_back(name):
                    found[takers[0]._replace(backward=True), maker.rank] += payload
        return found

    def _deliver(self, cell: Cell, rank: int, now_s: float) -> float:
        payload, source, target = self._payloads[cell, rank], self._ports[cell.rank], self._ports[rank]
        if not payload:
            return now_s
        sent_s, received_s = _wire_s(source.up, payload, 1), _wire_s(target.down, payload, 1)
        begin_s = max(now_s, source.up_s)
        source.up_s = begin_s + sent_s
        target.down_s = max(begin_s, target.down_s) + received_s
        source.sent_s += sent_s
        source.sent_bytes += payload
        target.received_s += received_s
        target.received_bytes += payload
        return max(source.up_s, target.down_s) + (source.latency_s + target.latency_s) / 2

    # Weights

    def _buckets(self, ends_s: Mapping[Cell, float], seconds: Mapping[Cell, float]) -> list[CoarseBucket]:
        """All reductions, in the order in which they are complete everywhere."""
        profile = self._profile(0)
        trained = sum(parameter.num_elements for parameter in self._facts.graph.trained) or 1
        found = [
            CoarseBucket(
                reduction=reduction,
                ready_s=self._ready_s(reduction, ends_s, seconds),
                update_s=profile.update_s(reduction.num_elements / trained),
                call_s=profile.call_s,
            )
            for reduction in self._reductions
        ]
        return sorted(found, key=lambda bucket: max(bucket.ready_s.values()))

    def _ready_s(
        self, reduction: Reduction, ends_s: Mapping[Cell, float], seconds: Mapping[Cell, float]
    ) -> dict[int, float]:
        """A bucket is complete on a rank when the last backward cell that feeds it has passed its first layer."""
        users, found = users_of(self._facts.graph, reduction), {}
        for rank in reduction.members:
            each = self._seconds[self._threads[rank], max(self._sizes)]
            rest = {
                index: 1 - completion(segment.operators, users, each)
                for index, segment in enumerate(self._cells[rank].segments)
                if segment.backward and not users.isdisjoint(segment.operators)
            }
            feeders = (
                Cell(rank, True, chunk, index)
                for chunk, indices in self._cells[rank].by_chunk.items()
                for index in indices
                if index in rest
            )
            found[rank] = max((ends_s[cell] - rest[cell.segment] * seconds[cell] for cell in feeders), default=0.0)
        return found

    def _norm_bytes(self) -> float:
        """What it takes to agree on the norm of all gradients; see `planning/reductions/norm_messages.py`."""
        if not self._facts.graph.clips_gradients:
            return 0.0
        updating = {rank for each in self._reductions for rank in ([s.rank for s in each.shares] or each.members)}
        both_ways = norm_messages.ITEM_BYTES * (norm_messages.width_of(self._reductions) + 1)
        return float(both_ways * max(0, len(updating) - 1))

    def _count_reductions(self) -> None:
        """Add what gradients and values keep the links busy."""
        for reduction in self._reductions:
            for rank, (sent, received) in _traffic(reduction).items():
                port = self._ports[rank]
                self._sent_bytes += sent
                port.sent_s += _wire_s(port.up, sent, 0)
                port.sent_bytes += sent
                port.received_s += _wire_s(port.down, received, 0)
                port.received_bytes += received

    def _count_statistics(self) -> None:
        """Add what rows of batch statistics keep the links busy: each chunk's go from its owner to all others."""
        for group in statistics_groups(self._facts.graph, self._placement):
            row, others = group.num_elements * group.item_bytes, len(group.members) - 1
            own = Counter(self._placement.owners[group.operators[0]])
            for rank in group.members:
                port, rows = self._ports[rank], own[rank]
                self._sent_bytes += rows * others * row
                port.sent_s += _wire_s(port.up, rows * others * row, rows * others)
                received = self._placement.num_chunks - rows
                port.received_s += _wire_s(port.down, received * row, received)

    def _rank(self, rank: int, end_s: float) -> CoarseRank:
        node, port = self._nodes[rank], self._ports[rank]
        return CoarseRank(
            forwards_s=(),
            compute_s=end_s,
            cores=node.cores,
            speed=1 / self._slowness[rank],
            uplink=port.up,
            downlink=port.down,
        )

    def _profile(self, rank: int) -> Profile:
        return self._facts.profiles[self._threads[rank]]


def _traffic(reduction: Reduction) -> dict[int, tuple[float, float]]:
    """Return the bytes that each rank sends and receives for a reduction."""
    members = reduction.members
    if reduction.route == "ring":
        both_ways = reduction.num_elements * (reduction.addend_bytes + reduction.item_bytes)
        each = (len(members) - 1) / len(members) * both_ways
        return dict.fromkeys(members, (each, each))
    served: Counter[int] = Counter()
    for share in reduction.shares:
        served[share.rank] += share.stop - share.start
    found = {}
    for rank in reduction.holders if reduction.shares else ():
        others = reduction.num_elements - served[rank] if rank in members else 0
        own = served[rank] * (len(members) - (rank in members))
        sent = others * reduction.addend_bytes + own * reduction.item_bytes
        received = own * reduction.addend_bytes + others * reduction.item_bytes
        found[rank] = (float(sent), float(received))
    return found


def _operator_seconds(graph: ModelGraph, profile: Profile, chunk_size: int) -> dict[str, tuple[float, float]]:
    """Seconds of every operator; nothing for an empty chunk, equal parts of the whole where none was timed alone."""
    if not chunk_size:
        return {operator.name: (0.0, 0.0) for operator in graph.operators}
    known = profile.operators_s(chunk_size)
    if all(operator.name in known for operator in graph.operators):
        return known
    forward_s, backward_s = profile.whole_s(chunk_size)
    count = len(graph.operators)
    return {operator.name: (forward_s / count, backward_s / count) for operator in graph.operators}


def _ports(nodes: Sequence[Node]) -> list[_RankChannel]:
    """Ranks of one node share its links to others; on a single node they talk over its own channel."""
    count = Counter(node.name for node in nodes)
    if len(count) == 1:
        return [_RankChannel(node.local, node.local) for node in nodes]
    return [
        _RankChannel(_shared(node, "uplink", count[node.name]), _shared(node, "downlink", count[node.name]))
        for node in nodes
    ]


def _shared(node: Node, side: Literal["uplink", "downlink"], num_ranks: int) -> Channel:
    channel = node.uplink if side == "uplink" else node.downlink
    if channel is None:
        raise ClusterError(
            f"node {node.name} has no {side}, so its ranks cannot talk to other nodes: measure or declare it in "
            "the cluster file, or keep all ranks on one node"
        )
    return replace(channel, bandwidth_bytes_per_s=channel.bandwidth_bytes_per_s / num_ranks)


def _wire_s(channel: Channel, payload_bytes: float, num_messages: int) -> float:
    """The longer of the wire's time and the processor's: half of a message's work is done at each end."""
    return max(payload_bytes / channel.bandwidth_bytes_per_s, channel.end_s(payload_bytes, num_messages))
