"""Runs with a cause put into them: a simulated cluster is made slow somewhere, and a trace is written as if measured.

    believed cluster --plan--> what was promised                      the report sees this
    true cluster     --simulate, a few steps with jitter--> spans --> trace as real ranks write it
                                                                      the report sees this

What a real trace lacks is taken away: receives carry no bytes, and a send is over when the kernel has taken its bytes,
before they are gone.
"""

import random
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from grids import chain, profile

from nfold.analysis.measured.measured_facts import gather
from nfold.analysis.reporting.resimulation import Resimulated, simulate_as_it_was
from nfold.analysis.reporting.run_report import Result, report
from nfold.analysis.reporting.verdict import main_finding, verdict
from nfold.analysis.resimulating.playback import play_back
from nfold.analysis.resimulating.simulated_parts import parts_of
from nfold.analysis.rules.causes import findings
from nfold.core.chunks import chunk_sizes
from nfold.core.cluster import Channel, Cluster, Node
from nfold.core.plan import Plan
from nfold.core.profile import OperatorProfile, Timing
from nfold.core.report import Report, Verdict
from nfold.core.trace import RankUsage, ReductionParts, Span, StepParts, StepTrace, SystemSample, Trace
from nfold.planning.choosing.candidates import simulate_proposal
from nfold.planning.choosing.strategies import named
from nfold.planning.inputs.facts import Facts

MBIT = 1e6 / 8
KERNEL_BYTES = 128 << 10
"""What a socket's buffer takes of a message that has not left."""
NUM_STEPS, NUM_SIMULATED = 12, 2
SHIFT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Injected:
    """A run of a model on nodes n0, n1, .., one rank each, servers last."""

    strategy: str = "ring"
    workers: int = 4
    servers: int = 0
    megabytes: float = 2.0
    seconds_per_sample: float = 1e-3
    """Forward; backward takes twice as long."""
    operators: tuple[float, ...] = (0.2, 0.2, 0.2, 0.2, 0.2)
    """Share of each of the five in that, the loss last."""
    batch_size: int = 32
    chunks: int | None = None
    chunk_shares: tuple[float, ...] = ()
    """Of a batch, where each rank trains on what lives on its node."""
    mbit: float = 200.0
    latency_s: float = 1e-4
    cpu_s_per_byte: float = 1e-10
    update_s: float = 1e-3
    cores: float = 1.0
    shares: dict[str, float] = field(default_factory=dict)
    """Node -> cores, where it has others."""
    quota_period_s: float = 0.0
    links: dict[str, float] = field(default_factory=dict)
    """`n2 uplink` -> Mbit/s, known before the run."""
    degraded: dict[str, float] = field(default_factory=dict)
    """The same, but it happened after the links were probed."""
    speeds: dict[str, float] = field(default_factory=dict)
    """Node -> relative speed, found out by the run."""
    input_s: dict[int, float] = field(default_factory=dict)
    """Rank -> seconds that it waits for data in each step."""
    samples: dict[str, dict[str, float]] = field(default_factory=dict)
    """Node -> fields of SystemSample, per second."""
    server_update_s: float | None = None
    activation_bytes_per_sample: float = 0.0
    rss_bytes: int = 100 << 20
    memory_bytes: int = 1 << 30
    memories: dict[str, int] = field(default_factory=dict)
    """Node -> bytes, where it has others."""
    probe_error: float = 0.03
    is_emulated: bool = False
    idle_nodes: int = 0
    """Nodes of the cluster that the run does not use."""
    seed: int = 0

    def report(self) -> Report:
        question = self._question(self._cluster(self.links, {}, self.probe_error))
        planned = self._plan(question)
        trace = self._trace(planned)
        return report(planned, trace, question.cluster, Result(program="my.py"), question=question, skip=2)

    def verdict(self) -> Verdict:
        """What the report would say, without the time that it takes to simulate changes."""
        return verdict(main_finding(findings(self.again().facts)), None, self.strategy, "my.py")

    def check_verdict(self, kind: str, place: str, sub_cause: str, speed: float | None) -> None:
        """Assert what the verdict names; a link's speed in Mbit/s is known within 10 %."""
        found = self.verdict()
        assert (found.kind, found.sub_cause) == (kind, sub_cause), found.text
        assert found.place.startswith(place), found.text
        if speed is not None:
            assert found.unit == "bytes/s"
            assert found.value == pytest.approx(speed * MBIT, rel=0.1), found.text

    def again(self) -> Resimulated:
        """The run simulated again as it was."""
        question = self._question(self._cluster(self.links, {}, self.probe_error))
        planned = self._plan(question)
        return simulate_as_it_was(gather(planned, self._trace(planned), question.cluster, 2), question)

    def turned_into(self, later: "Injected", *, is_noticed: bool = True) -> Report:
        """The report of a run whose cluster became another one half-way; noticed: its links were probed again."""
        planned = self._plan(self._question(self._cluster(self.links, {}, self.probe_error)))
        first, second = self._trace(planned), shifted(later._trace(planned), NUM_STEPS, SHIFT_S)
        joined = {
            name: getattr(first, name) + getattr(second, name) for name in ("parts", "steps", "reductions", "samples")
        }
        trace = replace(first, **joined, num_steps=2 * NUM_STEPS, ledger={"steps": 10.0})
        known = later if is_noticed else self
        if is_noticed:
            trace = replace(trace, since_step=NUM_STEPS, since_s=SHIFT_S)
        question = self._question(known._cluster(known.links, {}, known.probe_error))
        return report(planned, trace, question.cluster, Result(program="my.py"), question=question, skip=2)

    @property
    def world_size(self) -> int:
        return self.workers + self.servers

    def _cluster(self, links: dict[str, float], speeds: dict[str, float], error: float) -> Cluster:
        dice = random.Random(self.seed)

        def channel(place: str) -> Channel:
            speed = links.get(place, self.mbit) * MBIT * (1 + dice.uniform(-error, error))
            return Channel(
                latency_s=self.latency_s / 2,
                bandwidth_bytes_per_s=speed,
                origin="measured",
                cpu_s_per_byte=self.cpu_s_per_byte,
            )

        return Cluster(
            is_emulated=self.is_emulated,
            nodes=tuple(
                Node(
                    name=name,
                    cores=self.shares.get(name, self.cores),
                    quota_period_s=self.quota_period_s,
                    memory_bytes=self.memories.get(name, self.memory_bytes),
                    speed=speeds.get(name, 1.0),
                    local=Channel(latency_s=1e-5, bandwidth_bytes_per_s=1e9, origin="measured"),
                    uplink=channel(f"{name} uplink"),
                    downlink=channel(f"{name} downlink"),
                )
                for name in (*self._nodes, *(f"idle{index}" for index in range(self.idle_nodes)))
            ),
        )

    @property
    def _nodes(self) -> tuple[str, ...]:
        return tuple(f"n{rank}" for rank in range(self.world_size))

    def _question(self, cluster: Cluster) -> Facts:
        elements = int(self.megabytes * (1 << 20) / 4 / 4)
        graph = chain(elements, elements, elements, elements)
        update = Timing(median_s=self.update_s, spread_s=0.0, repeats=1)
        fields = {"activation_bytes_per_sample": self.activation_bytes_per_sample, "update": update}
        equal = profile(graph, self.seconds_per_sample, **fields)
        profiles = {1: replace(equal, operators=tuple(map(_times, equal.operators, self.operators)))}
        return Facts(
            graph=graph,
            profiles=profiles,
            cluster=cluster,
            nodes=self._nodes,
            workers=self.workers,
            servers=self.servers,
            batch_size=self.batch_size,
            chunks=self.chunks,
            chunk_shares=self.chunk_shares,
        )

    def _plan(self, question: Facts) -> Plan:
        """The first proposal: `planning.plan` would simulate every other strategy too."""
        proposal = next(iter(named(self.strategy).propose(question)))
        candidate = simulate_proposal(question, self.strategy, proposal)
        return Plan(
            strategy=self.strategy,
            chunks=proposal.placement.num_chunks,
            chunk_shares=question.chunk_shares,
            batch_size=self.batch_size,
            workers=self.workers,
            servers=self.servers,
            nodes=self._nodes,
            threads=candidate.threads,
            placement=proposal.placement,
            reductions=proposal.reductions,
            loads_s=candidate.loads_s,
            predicted=candidate.predicted,
        )

    def _trace(self, planned: Plan) -> Trace:
        dice = random.Random(self.seed + 1)
        truth = self._cluster({**self.links, **self.degraded}, self.speeds, 0.0)
        num_simulated = self.world_size if self.quota_period_s else NUM_SIMULATED
        steps = [self._true_step(planned, _turned(truth, step), dice) for step in range(num_simulated)]
        parts: list[StepParts] = []
        for step in range(NUM_STEPS):
            parts.extend(self._parts(planned, steps[step % num_simulated], step))
        shown = tuple(replace(_as_measured(step, self), step=3 + index) for index, step in enumerate(steps))
        return Trace(
            parts=tuple(parts),
            steps=shown,
            usage=self._usage(),
            reductions=tuple(_reductions(shown)),
            samples=tuple(self._sample(rank, parts) for rank in range(self.world_size)),
        )

    def _true_step(self, planned: Plan, truth: Cluster, dice: random.Random) -> StepTrace:
        """One step on the true cluster, each node a little faster or slower than it is."""
        jittered = Cluster(
            nodes=tuple(replace(node, speed=node.speed * dice.uniform(0.96, 1.04)) for node in truth.nodes)
        )
        question = self._question(jittered)
        if self.server_update_s is not None:
            update = Timing(median_s=self.server_update_s, spread_s=0.0, repeats=1)
            question = replace(question, profiles={1: replace(question.profiles[1], update=update)})
        return play_back(planned, question).trace

    def _usage(self) -> tuple[RankUsage, ...]:
        return tuple(
            RankUsage(
                rank=rank,
                node=self._nodes[rank],
                role="worker" if rank < self.workers else "server",
                peak_rss_bytes=self.rss_bytes,
                cpu_s=1.0,
                wall_s=10.0,
            )
            for rank in range(self.world_size)
        )

    def _parts(self, planned: Plan, truth: StepTrace, step: int) -> list[StepParts]:
        """A rank that waits for data comes that much later; the others wait for it."""
        owners = next(iter(planned.placement.owners.values()))
        sizes = chunk_sizes(self.batch_size, planned.chunks)
        samples = [
            sum(size for size, owner in zip(sizes, owners, strict=True) if owner == rank)
            for rank in range(self.world_size)
        ]
        latest = max(self.input_s.values(), default=0.0)
        late = [self.input_s.get(rank, 0.0) for rank in range(self.world_size)]
        found = []
        for parts, own in zip(parts_of(truth, samples), late, strict=True):
            is_server = parts.rank >= self.workers
            found.append(
                replace(
                    parts,
                    step=step,
                    step_s=parts.step_s + latest,
                    input_s=own,
                    communication_s=parts.communication_s + latest - own,
                    update_s=0.0 if is_server else parts.update_s,
                    other_s=parts.update_s if is_server else 0.0,
                )
            )
        return found

    def _sample(self, rank: int, parts: list[StepParts]) -> SystemSample:
        own = [each for each in parts if each.rank == rank]
        span_s = sum(each.step_s for each in own)
        moved = 2 * sum(each.sent_bytes for each in own)
        given: dict[str, Any] = {
            "compute_cpu_s": sum(each.compute_s + each.update_s for each in own),
            "communication_cpu_s": moved * self.cpu_s_per_byte / 2,
            "throttled_s": 0.0,
            "steal_s": 0.0,
            "neighbours_cpu_s": 0.0,
            "disk_bytes": 0,
            "rss_bytes": self.rss_bytes,
        }
        per_second = self.samples.get(self._nodes[rank], {})
        return SystemSample(
            rank=rank,
            node=self._nodes[rank],
            at_s=span_s,
            span_s=span_s,
            sent_bytes=sum(each.sent_bytes for each in own),
            received_bytes=sum(each.sent_bytes for each in own),
            **{**given, **{name: value * span_s for name, value in per_second.items()}},
        )


def _times(operator: OperatorProfile, share: float) -> OperatorProfile:
    """The same operator, with another share of the work than a fifth."""

    def changed(timing: Timing) -> Timing:
        return replace(timing, median_s=5 * share * timing.median_s)

    timings = (
        replace(each, forward=changed(each.forward), backward=changed(each.backward)) for each in operator.timings
    )
    return replace(operator, timings=tuple(timings))


def _turned(cluster: Cluster, by: int) -> Cluster:
    """The same, but quotas are granted at other moments: that follows from the order of the nodes."""
    by %= len(cluster.nodes)
    return replace(cluster, nodes=(*cluster.nodes[by:], *cluster.nodes[:by]))


def _as_measured(step: StepTrace, injected: Injected) -> StepTrace:
    """As real ranks note it."""
    early_s = KERNEL_BYTES / (injected.mbit * MBIT)
    return replace(step, origin="measured", spans=tuple(_noted(span, early_s) for span in step.spans))


def _noted(span: Span, early_s: float) -> Span:
    if span.kind == "RECV":
        return replace(span, payload_bytes=0)
    if span.kind == "SEND":
        return replace(span, end_s=max(span.start_s + 1e-5, span.end_s - early_s))
    return span


def _reductions(steps: tuple[StepTrace, ...]) -> list[ReductionParts]:
    found = []
    for step in steps:
        groups: dict[tuple[int, str], list[Span]] = {}
        for span in step.spans:
            if span.reduction and span.kind in ("SEND", "RECV"):
                groups.setdefault((span.rank, span.reduction), []).append(span)
        for (rank, name), spans in groups.items():
            begin = min((span.start_s for span in spans if span.kind == "SEND"), default=0.0)
            found.append(
                ReductionParts(
                    step=step.step,
                    rank=rank,
                    reduction=name,
                    queue_s=0.0,
                    duration_s=max(span.end_s for span in spans) - begin,
                    sent_bytes=sum(span.payload_bytes for span in spans if span.kind == "SEND"),
                )
            )
    return found


def shifted(trace: Trace, steps: int, seconds: float) -> Trace:
    """The same, but later."""
    return replace(
        trace,
        parts=tuple(replace(each, step=each.step + steps) for each in trace.parts),
        steps=tuple(replace(each, step=each.step + steps) for each in trace.steps),
        reductions=tuple(replace(each, step=each.step + steps) for each in trace.reductions),
        samples=tuple(replace(each, at_s=each.at_s + seconds) for each in trace.samples),
    )
