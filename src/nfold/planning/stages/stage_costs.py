"""What a stage costs on some machines: the seconds of its busiest rank or link, bytes, and whether it fits the memory.

A rank computes its chunks and then waits for the ring of its replicas; meanwhile its link carries activations,
gradients and the ring. So a stage takes max(compute + ring, everything on its link); how well stages overlap is for
the simulator to say.
"""

import numpy as np

from nfold.planning.costs.machines import Machine
from nfold.planning.costs.operator_runs import Array, Runs, add_up, interval_sums
from nfold.planning.costs.read_ahead import CoreContention, busy_s
from nfold.planning.inputs.chunk_counts import deal, share_chunks
from nfold.planning.inputs.facts import Facts
from nfold.planning.scheduling.windows import lean_window
from nfold.planning.stages.stage_division import Stage


class Grid:
    """A model cut into runs and a batch cut into chunks, with the costs of every span of runs on any machine."""

    def __init__(self, facts: Facts, runs: Runs, num_chunks: int) -> None:
        self.num_runs, self.num_chunks = len(runs), num_chunks
        self.chunk_size = facts.batch_size / num_chunks
        self.spans = add_up(facts.graph, runs, facts.batch_size, num_chunks)
        self._facts = facts
        self._computing_s: dict[int, Array] = {}
        self._seconds: dict[tuple[int, float, CoreContention], Array] = {}
        self._kinds: dict[object, int] = {}
        self.known: dict[object, Array] = {}
        """Costs of stages, by what makes them alike: the orders of one team have most of them in common."""
        profile = facts.profiles[min(facts.profiles)]
        trained = max(1, facts.graph.parameter_bytes)
        self.base_bytes = profile.process_bytes
        self.state_factor = 2 + profile.optimizer_bytes / trained
        saved = profile.saved_bytes()
        largest = max(facts.chunk_sizes(num_chunks))
        self.saved_bytes = largest * interval_sums([sum(saved[name] for name in run) for run in runs])

    def seconds(self, machine: Machine) -> Array:
        """Return by span the seconds that a chunk keeps a machine busy: forward, backward and reading its samples."""
        key = machine.threads, machine.pace, machine.contention
        if key not in self._seconds:
            read_s = self._facts.profiles[machine.threads].load_s(self.chunk_size, 1 / machine.pace)
            computing = self._of_threads(machine.threads) * machine.pace
            self._seconds[key] = busy_s(self.spans.reads * read_s, computing, machine.contention)
        return self._seconds[key]

    def kind(self, machine: Machine) -> int:
        """Return a number that is the same for equal machines."""
        return self._kinds.setdefault(machine.kind, len(self._kinds))

    def _of_threads(self, threads: int) -> Array:
        """Return how long a chunk computes with so many threads, as profiled."""
        if threads not in self._computing_s:
            each = self._facts.profiles[threads].operators_s(self.chunk_size)
            self._computing_s[threads] = interval_sums(
                [sum(sum(each[name]) for name in run) for run in self.spans.runs]
            )
        return self._computing_s[threads]

    def owners(self, machines: tuple[Machine, ...], stages: tuple[Stage, ...]) -> dict[str, tuple[int, ...]]:
        """Return the placement of stages on machines: for each operator the rank of every chunk."""
        table: dict[str, tuple[int, ...]] = {}
        for stage in stages:
            members = machines[stage.first : stage.last]
            turns = deal(self.shares(members))
            ranks = tuple(members[position].rank for position in turns)
            table.update((name, ranks) for run in self.spans.runs[stage.start : stage.stop] for name in run)
        return table

    def shares(self, machines: tuple[Machine, ...]) -> tuple[int, ...]:
        """Return the number of chunks that each of a stage's machines gets."""
        whole = self.num_runs
        return share_chunks(self.num_chunks, tuple(float(self.seconds(each)[0, whole]) for each in machines))


class StageCosts:
    """The costs of every stage on one order of machines."""

    def __init__(self, grid: Grid, machines: tuple[Machine, ...], *, limited: bool) -> None:
        self.grid, self.machines = grid, machines
        self._limited = limited
        self._kinds = tuple(map(grid.kind, machines))
        self._of_machines: dict[tuple[int, int], Array] = {}

    def seconds(self, first: int, last: int) -> Array:
        """Return by span its bottleneck in seconds on machines [first, last); infinite where it does not fit."""
        if (first, last) not in self._of_machines:
            self._of_machines[first, last] = self._seconds(first, last)
        return self._of_machines[first, last]

    def _seconds(self, first: int, last: int) -> Array:
        """Equal machines cost the same wherever they are, so few stages are worked out."""
        members = self.machines[first:last]
        shares = self.grid.shares(members)
        window = lean_window(1 + len(self.machines) - last)
        in_flight = tuple(min(share, window) if self._limited else 0 for share in shares)
        key = self._kinds[first:last], in_flight, self._limited
        if key not in self.grid.known:
            self.grid.known[key] = self._stage_s(members, shares, in_flight)
        return self.grid.known[key]

    def bytes(self, first: int, last: int) -> Array:
        """Return by span the bytes that it adds to a step on machines [first, last)."""
        key = last - first
        if key not in self.grid.known:
            self.grid.known[key] = self.grid.spans.traffic_bytes(last - first)
        return self.grid.known[key]

    def _stage_s(self, members: tuple[Machine, ...], shares: tuple[int, ...], in_flight: tuple[int, ...]) -> Array:
        spans = self.grid.spans
        cost = np.zeros_like(spans.reads)
        slowest = min(machine.bandwidth_bytes_per_s for machine in members)
        turns = 2 * (len(members) - 1)
        trained = spans.first_bytes + spans.tied_bytes
        ring_bytes = turns / len(members) * trained
        ring_s = ring_bytes / slowest + turns * members[0].latency_s * (trained > 0)
        unlike = {
            (machine.kind, share, flight): machine
            for machine, share, flight in zip(members, shares, in_flight, strict=True)
        }
        for (_, share, flight), machine in unlike.items():
            part = share / self.grid.num_chunks
            received = part * (spans.arriving_bytes + spans.awaited_bytes) + ring_bytes
            sent = part * (spans.leaving_bytes + spans.returned_bytes) + ring_bytes
            computing = share * self.grid.seconds(machine)
            moving = np.maximum(received, sent) / machine.bandwidth_bytes_per_s
            cost = np.maximum(cost, np.maximum(computing + ring_s, moving))
            if self._limited:
                cost = np.where(self._needs_bytes(len(members), flight) <= machine.memory_bytes, cost, np.inf)
        possible = np.triu(np.ones_like(cost, dtype=bool), 1) & (min(shares) > 0)
        return np.where(possible, cost, np.inf)

    def _needs_bytes(self, replicas: int, in_flight: int) -> Array:
        """Memory of a rank: the state of its parameters, a copy of what a ring brings, and what its chunks keep."""
        grid, spans = self.grid, self.grid.spans
        trained = spans.first_bytes + spans.tied_bytes
        state = trained * (grid.state_factor + (replicas > 1)) + spans.frozen_bytes
        return grid.base_bytes + state + in_flight * grid.saved_bytes
