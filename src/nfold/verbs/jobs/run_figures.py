"""How far a run is, from what its command hears anyway. Pure."""

from collections import deque
from collections.abc import Mapping
from math import isfinite

from nfold.analysis.measured.recent_steps import RecentSteps, StepShares
from nfold.core.cluster import Cluster
from nfold.core.member_event import MemberEvent
from nfold.core.plan import Plan
from nfold.core.run_state import LinkState, Phase, RankState, RunEvent, RunState
from nfold.core.text.units import count
from nfold.core.trace import SystemSample
from nfold.planning.residency.epoch_steps import EpochSteps
from nfold.runtime.control import commands as cmd

MOST_EVENTS = 20
MOST_CHARACTERS = 300
_BEGUN_BY: dict[type, Phase] = {
    cmd.RanksStarted: "planning",
    cmd.Planned: "building",
    cmd.TrainingBegins: "training",
}


class RunFigures:
    """Collects the events of a run; `state` sums them up, which takes milliseconds."""

    def __init__(self) -> None:
        self.phase: Phase = "starting"
        self._plan: Plan | None = None
        self._recent: RecentSteps | None = None
        self._cluster: Cluster | None = None
        self._total_steps, self._epochs = 0, EpochSteps.even(1)
        self._step = self._kept_step = 0
        self._loss: float | None = None
        self._metrics: dict[str, float | None] = {}
        self._samples: dict[int, SystemSample] = {}
        self._events: deque[RunEvent] = deque(maxlen=MOST_EVENTS)
        self._ledger: deque[MemberEvent] = deque(maxlen=MOST_EVENTS)

    def take(self, happening: object, at: float) -> None:
        """Take in an event that the run's command received at a time, in seconds since 1970."""
        self.phase = _BEGUN_BY.get(type(happening), self.phase)
        if isinstance(happening, cmd.StepDone):
            self._take_step(happening)
        elif isinstance(happening, cmd.Sampled):
            self._samples |= {sample.rank: sample for sample in happening.samples}
        elif isinstance(happening, cmd.Planned):
            self._take_plan(happening, at)
        elif isinstance(happening, cmd.Replanned):
            if (steps := happening.run_steps) is not None:
                self._total_steps, self._epochs = steps.total_steps, steps.by_epoch
            self._begin(happening.plan, happening.known.cluster, at)
        elif isinstance(happening, cmd.LinksChanged):
            self._cluster = happening.cluster
            self.note(f"the links have changed, from step {happening.next_step + 1} on", at)
        elif isinstance(happening, cmd.Evaluated):
            self._metrics = {name: _finite(value) for name, value in happening.metrics.items()}
        elif isinstance(happening, cmd.KeepCheckpoint):
            self._kept_step = happening.step
        elif isinstance(happening, MemberEvent):
            self._ledger.append(happening)

    def note(self, text: str, at: float) -> None:
        """Take in a line that the user is told at a time, in seconds since 1970."""
        self._events.append(RunEvent(at=at, text=text[:MOST_CHARACTERS]))

    def state(self, at: float) -> RunState:
        """Return how far the run is at a time, in seconds since 1970."""
        plan, recent = self._plan, self._recent
        if plan is None or recent is None:
            return RunState(at=at, phase=self.phase, events=tuple(self._events))
        return RunState(
            at=at,
            phase=self.phase,
            strategy=plan.strategy,
            workers=plan.workers,
            servers=plan.servers,
            step=self._step,
            kept_step=self._kept_step,
            total_steps=self._total_steps,
            epoch=self._epochs.begun(self._step),
            num_epochs=self._epochs.begun(self._total_steps),
            loss=self._loss,
            metrics=self._metrics,
            samples_per_s=recent.samples_per_s,
            left_s=recent.left_s(self._total_steps - self._step),
            parts=recent.parts,
            ranks=_ranks(plan, recent.shares(), self._samples),
            links=() if self._cluster is None else _links(plan, self._cluster),
            events=tuple(self._events),
            ledger=tuple(self._ledger),
        )

    def _take_step(self, done: cmd.StepDone) -> None:
        assert self._recent is not None, "a plan comes before its steps"
        self._step, self._loss = done.step + 1, _finite(done.loss)
        self._recent.keep(done.parts)

    def _take_plan(self, planned: cmd.Planned, at: float) -> None:
        self._total_steps, self._epochs = planned.total_steps, planned.epochs
        self._step = planned.first_step
        self._begin(planned.plan, planned.known.cluster, at)

    def _begin(self, plan: Plan, cluster: Cluster, at: float) -> None:
        """What was measured under an earlier plan says nothing of this one."""
        self._plan, self._cluster, self._recent = plan, cluster, RecentSteps(plan)
        self._samples = {}
        servers = f" and {count(plan.servers, 'server')}" if plan.servers else ""
        self.note(f"planned: {plan.strategy}, {count(plan.workers, 'worker')}{servers}", at)


def _ranks(plan: Plan, shares: Mapping[int, StepShares], samples: Mapping[int, SystemSample]) -> tuple[RankState, ...]:
    return tuple(
        _rank(rank, node, "worker" if rank < plan.workers else "server", shares.get(rank), samples.get(rank))
        for rank, node in enumerate(plan.nodes)
    )


def _rank(rank: int, node: str, role: str, shares: StepShares | None, sample: SystemSample | None) -> RankState:
    span_s = max(sample.span_s, 1e-9) if sample is not None else 0.0
    return RankState(
        rank=rank,
        node=node,
        role="worker" if role == "worker" else "server",
        compute_share=None if shares is None else shares.compute,
        communication_share=None if shares is None else shares.communication,
        input_share=None if shares is None else shares.input,
        compute_cores=None if sample is None else sample.compute_cpu_s / span_s,
        communication_cores=None if sample is None else sample.communication_cpu_s / span_s,
        throttled_share=None if sample is None else sample.throttled_s / span_s,
        rss_bytes=None if sample is None else sample.rss_bytes,
        sent_bytes_per_s=None if sample is None else sample.sent_bytes / span_s,
        received_bytes_per_s=None if sample is None else sample.received_bytes / span_s,
    )


def _links(plan: Plan, cluster: Cluster) -> tuple[LinkState, ...]:
    """Return the links of the nodes in use; none where one node holds all ranks, which talk within it."""
    used = list(dict.fromkeys(plan.nodes))
    nodes = [cluster.node(name) for name in used] if len(used) > 1 else []
    return tuple(
        LinkState(
            node=node.name,
            uplink_bytes_per_s=node.uplink.bandwidth_bytes_per_s,
            downlink_bytes_per_s=node.downlink.bandwidth_bytes_per_s,
            origin=node.uplink.origin,
        )
        for node in nodes
        if node.uplink is not None and node.downlink is not None
    )


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
