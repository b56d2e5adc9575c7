"""Plays an asynchronous plan in virtual time: the rules of the shards decide, a cluster's cores and links take time.

    worker   ask, wait for a ticket and values | compute the slice | push .. ask ..
    shard    apply: a job on its node's cores  | answer

What is predicted of a step is its payload, and the mean time in which as many gradients are taken in as it has slices,
once all workers are under way. Whole steps end in bursts, when a slow worker's slice of several of them comes in.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from nfold.core.chunks import chunk_sizes
from nfold.core.cluster import Cluster
from nfold.core.placement import Reduction
from nfold.core.plan import Asynchrony
from nfold.errors import InternalError
from nfold.planning.asynchronous.staleness import (
    NO_TICKET,
    REPLY_BYTES,
    REQUEST_BYTES,
    Allowed,
    Answer,
    Apply,
    Asked,
    Command,
    Event,
    Pulled,
    Pushed,
    Shard,
)
from nfold.simulation.cores import Cores
from nfold.simulation.messages import Courier, Message
from nfold.simulation.virtual_time import Action, VirtualTime

STEPS = 32
"""Steps that are played."""
COUNTED = range(8, 24)
"""Those that count: all workers are under way, and none runs out of work yet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """The plan, machines and number of steps that are played."""

    workers: int
    asynchrony: Asynchrony
    cluster: Cluster
    nodes: tuple[str, ...]
    """Of each rank."""
    threads: tuple[int, ...]
    """Compute threads of each rank."""
    owners: tuple[int, ...]
    """Of each chunk, its slice."""
    batch_size: int
    least_chunk: int = 2
    """See `ModelGraph`."""
    reductions: tuple[Reduction, ...]
    statistics_bytes: int
    """Batch statistics of one chunk, which travel to the first shard."""
    compute_s: Callable[[int, int], float]
    """(rank, chunk size) -> seconds of one chunk there, on an idle node of speed 1."""
    load_s_per_sample: float
    load_wait: float
    """Share of that in which no core is busy."""
    update_s: float
    """One optimizer step over everything."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulatedRun:
    """The result of playing an asynchronous plan: seconds of a step, bytes, and gradients by staleness."""

    step_s: float
    sent_bytes_per_step: int
    compute_s: float
    """Seconds per step that a worker computed, mean over the workers, each alone on its node."""
    staleness: dict[int, int]
    """Gradients by the updates that the first shard had made since their values."""
    sample_s: tuple[float, ...]
    """What each worker computed a sample in, with all that its node does beside it; 0.0: it took no slice."""
    update_s: dict[int, float]
    """What each serving rank applied a gradient in, with all that its node does beside it."""
    waits_s: tuple[float, ...]
    """Seconds per step that each worker waited for tickets and values."""


def drift(question: Question) -> SimulatedRun:
    """Play a number of steps. Deterministic; O(steps x workers x servers x log messages).

    Raises:
        InternalError: the play came to a stop.
    """
    return _World(question).play()


class _World:
    """All workers and shards."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._timeline = VirtualTime()
        nodes = question.cluster.nodes
        self._cores = {node.name: Cores(self._timeline, node) for node in nodes}
        self._courier = Courier(self._timeline, question.cluster, question.nodes, self._cores)
        self._shares = _share_bytes(question.reductions)
        self._servers = sorted(self._shares)
        asynchrony = question.asynchrony
        self._rules = {
            server: Shard(question.workers, bound=asynchrony.bound, staleness_aware=asynchrony.staleness_aware)
            for server in self._servers
        }
        self._busy: dict[int, list[Action]] = {server: [] for server in self._servers}
        self._workers = [_Worker() for _ in range(question.workers)]
        self._sizes = chunk_sizes(question.batch_size, len(question.owners), question.least_chunk)
        self._taken_s: list[float] = []
        """When the first shard had taken in each gradient."""
        self._updates_s: dict[int, list[float]] = {server: [] for server in self._servers}
        self._sent_bytes: dict[int, int] = {}
        self._computed_s = 0.0

    def play(self) -> SimulatedRun:
        for server in self._servers:
            self._handle(server, Allowed(steps=STEPS))
        for worker in range(self._question.workers):
            self._ask(worker)
        self._timeline.run()
        workers = self._question.workers
        if len(self._taken_s) < STEPS * workers:
            taken = len(self._taken_s)
            raise InternalError(f"an asynchronous plan came to a stop after {taken} of {STEPS * workers} slices")
        first, last = COUNTED[0] * workers - 1, (COUNTED[-1] + 1) * workers - 1
        sent = sum(self._sent_bytes.get(step, 0) for step in COUNTED)
        return SimulatedRun(
            step_s=(self._taken_s[last] - self._taken_s[first]) / len(COUNTED),
            sent_bytes_per_step=round(sent / len(COUNTED)),
            compute_s=self._computed_s / STEPS / workers,
            staleness=dict(sorted(self._rules[self._servers[0]].histogram.items())),
            sample_s=tuple(_ratio(state.computed_s, state.samples) for state in self._workers),
            update_s={server: _ratio(sum(each), len(each)) for server, each in self._updates_s.items()},
            waits_s=tuple(state.waited_s / STEPS for state in self._workers),
        )

    # Workers

    def _ask(self, worker: int) -> None:
        state = self._workers[worker]
        state.asked_s = self._timeline.now
        asked = Asked(worker=worker, clock=state.clock, steps=STEPS)
        self._to_server(worker, self._servers[0], REQUEST_BYTES, asked)

    def _answered(self, server: int, answer: Answer) -> None:
        state, worker = self._workers[answer.worker], answer.worker
        if answer.ticket == NO_TICKET:
            return
        state.versions[server] = answer.version
        if server == self._servers[0]:
            self._count(worker, server, answer.ticket, REQUEST_BYTES)
            for other in self._servers[1:]:
                pulled = Pulled(worker=worker, clock=state.clock, ticket=answer.ticket)
                self._count(worker, other, answer.ticket, REQUEST_BYTES)
                self._to_server(worker, other, REQUEST_BYTES, pulled)
        if len(state.versions) == len(self._servers):
            state.waited_s += self._timeline.now - state.asked_s
            self._compute(worker, answer.ticket)

    def _compute(self, worker: int, ticket: int) -> None:
        question, state = self._question, self._workers[worker]
        sizes = self._slice(ticket)
        node = question.cluster.node(question.nodes[worker])
        seconds = sum(question.compute_s(worker, size) for size in sizes) / node.speed
        read_s = question.load_s_per_sample * sum(sizes)
        wait_s = read_s * question.load_wait
        self._computed_s += seconds
        width = max(1, question.threads[worker])
        cores = self._cores[node.name]

        def loaded() -> None:
            begin_s = self._timeline.now

            def computed() -> None:
                state.computed_s += self._timeline.now - begin_s
                state.samples += sum(sizes)
                self._push(worker, ticket)

            cores.start(seconds, width, computed)

        cores.read((read_s - wait_s) / node.speed, wait_s, loaded)

    def _push(self, worker: int, ticket: int) -> None:
        state = self._workers[worker]
        versions, state.versions = state.versions, {}
        state.clock += 1
        sizes = self._slice(ticket)
        weight = sum(sizes) / self._question.batch_size
        for server in self._servers:
            rows = self._question.statistics_bytes * len(sizes) if server == self._servers[0] else 0
            num_bytes = REQUEST_BYTES + (self._shares[server] + rows if weight else 0)
            pushed = Pushed(worker=worker, ticket=ticket, version=versions[server], weight=weight)
            self._count(worker, server, ticket, num_bytes)
            self._to_server(worker, server, num_bytes, pushed)
        self._ask(worker)

    def _slice(self, ticket: int) -> tuple[int, ...]:
        """Samples of the ticket's chunks."""
        mine = ticket % self._question.workers
        return tuple(
            size for size, owner in zip(self._sizes, self._question.owners, strict=True) if owner == mine and size
        )

    # Shards

    def _to_server(self, worker: int, server: int, num_bytes: int, event: Event) -> None:
        self._send(worker, server, num_bytes, lambda: self._handle(server, event))

    def _handle(self, server: int, event: Event) -> None:
        """Requests are dealt with one after another."""
        queue = self._busy[server]
        queue.append(lambda: self._serve(server, event))
        if len(queue) == 1:
            queue[0]()

    def _serve(self, server: int, event: Event) -> None:
        commands = self._rules[server].handle(event)
        is_update = any(isinstance(command, Apply) for command in commands)  # one at most: gradients come one by one
        served = partial(self._served, server, event, commands, self._timeline.now)
        if not is_update:
            served()
            return
        node = self._question.cluster.node(self._question.nodes[server])
        share = self._shares[server] / sum(self._shares.values())
        self._cores[node.name].start(self._question.update_s * share / node.speed, 1, served)

    def _served(self, server: int, event: Event, commands: Sequence[Command], begin_s: float) -> None:
        now = self._timeline.now
        if server == self._servers[0] and isinstance(event, Pushed):
            self._taken_s.append(now)
        for command in commands:
            if isinstance(command, Answer):
                self._answer(server, command)
            else:
                self._updates_s[server].append(now - begin_s)
        queue = self._busy[server]
        queue.pop(0)
        if queue:
            self._timeline.at(now, queue[0])

    def _answer(self, server: int, answer: Answer) -> None:
        num_bytes = REPLY_BYTES + self._shares[server]
        if answer.ticket != NO_TICKET:
            self._count(server, answer.worker, answer.ticket, num_bytes)
        self._send(server, answer.worker, num_bytes, lambda: self._answered(server, answer))

    # Messages

    def _send(self, sender: int, receiver: int, num_bytes: int, arrived: Action) -> None:
        if sender == receiver:
            self._timeline.at(self._timeline.now, arrived)
            return
        self._courier.send(
            Message(sender=sender, receiver=receiver, payload_bytes=num_bytes, gone=_nothing, arrived=arrived)
        )

    def _count(self, sender: int, receiver: int, ticket: int, num_bytes: int) -> None:
        if sender != receiver:
            step = ticket // self._question.workers
            self._sent_bytes[step] = self._sent_bytes.get(step, 0) + num_bytes


class _Worker:
    """What a worker has."""

    def __init__(self) -> None:
        self.clock = 0
        self.versions: dict[int, int] = {}
        self.computed_s = 0.0
        self.samples = 0
        self.asked_s = 0.0
        self.waited_s = 0.0


def _share_bytes(reductions: tuple[Reduction, ...]) -> dict[int, int]:
    """Return the bytes of parameters that each server holds."""
    shares: dict[int, int] = {}
    for reduction in reductions:
        for share in reduction.shares:
            num_bytes = (share.stop - share.start) * reduction.item_bytes
            shares[share.rank] = shares.get(share.rank, 0) + num_bytes
    return shares


def _ratio(total_s: float, count: int) -> float:
    return total_s / count if count else 0.0


def _nothing() -> None: ...
