"""Plan + Trace + Cluster -> the numbers that every finding is drawn from, gathered once."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean

from nfold.analysis.measured.bound_waits import bound_wait_s, told_apart
from nfold.analysis.measured.breakdown import WorkerStep, time_parts, worker_steps
from nfold.analysis.measured.channel_use import ChannelUse, channel_uses
from nfold.analysis.measured.node_loads import rank_loads
from nfold.core.cluster import Cluster, Node
from nfold.core.plan import Plan
from nfold.core.report import RankLoad, TimeParts
from nfold.core.trace import Trace


@dataclass(frozen=True, kw_only=True, slots=True)
class CoreUse:
    """Ranks that compute on one node."""

    node: Node
    num_ranks: int
    threads: int
    """Of all of them together."""

    @property
    def idle_cores(self) -> float:
        """Cores that no rank computes on."""
        return max(0.0, self.node.cores - self.threads)

    @property
    def shared_share(self) -> float:
        """Share of the compute time that is there only because ranks share the cores."""
        alone = self.node.slowdown(self.threads / max(1, self.num_ranks))
        return max(0.0, 1.0 - alone / self.node.slowdown(self.threads))


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredFacts:
    """What a run looked like, ready to be judged."""

    plan: Plan
    trace: Trace
    cluster: Cluster
    steps: tuple[WorkerStep, ...]
    """Workers that have something to do, after warm-up."""
    parts: TimeParts
    step_s: float
    """The sum of the parts."""
    channels: tuple[ChannelUse, ...]
    cores: tuple[CoreUse, ...]
    """The busiest node first."""
    server_busy_s: dict[int, float]
    """Seconds per step that each dedicated server worked and did not wait for messages."""
    loads: dict[int, RankLoad]
    """Of the ranks whose processors were sampled."""
    what_ifs: Mapping[str, float] = field(default_factory=dict)
    """Simulated step seconds by variant; empty where nothing could be simulated."""

    @property
    def busy_workers(self) -> tuple[int, ...]:
        """Workers that have something to do."""
        return tuple(sorted({own.rank for step in self.steps for own in step}))

    def mean_s(self, rank: int, part: str) -> float:
        """Return the mean seconds per step of a part (a field of StepParts) on a worker."""
        return fmean([getattr(own, part) for step in self.steps for own in step if own.rank == rank] or [0.0])


def gather(plan: Plan, trace: Trace, cluster: Cluster, skip: int) -> MeasuredFacts:
    """Return the facts of a run.

    Args:
        plan: what was meant to happen.
        trace: what happened.
        cluster: where.
        skip: steps left out as warm-up.

    Raises:
        InternalError: the trace holds no step.
    """
    parts = _with_bound_waits(time_parts(trace, skip), plan, trace)
    return MeasuredFacts(
        plan=plan,
        trace=trace,
        cluster=cluster,
        steps=worker_steps(trace, skip),
        parts=parts,
        step_s=sum(
            (
                parts.compute_s,
                parts.exposed_communication_s,
                parts.peer_wait_s,
                parts.input_s,
                parts.update_s,
                parts.other_s,
            )
        ),
        channels=channel_uses(plan, trace, cluster),
        cores=_core_uses(plan, cluster),
        server_busy_s=_server_busy_s(trace),
        loads=rank_loads(trace, share_a_machine=cluster.is_emulated),
    )


def _with_bound_waits(parts: TimeParts, plan: Plan, trace: Trace) -> TimeParts:
    """Tell what workers wait because staleness is bounded from what they wait for messages."""
    held_s = bound_wait_s(plan, trace)
    exposed_s, peer_wait_s = told_apart(parts.exposed_communication_s, parts.peer_wait_s, held_s)
    return replace(parts, exposed_communication_s=exposed_s, peer_wait_s=peer_wait_s)


def _core_uses(plan: Plan, cluster: Cluster) -> tuple[CoreUse, ...]:
    workers = plan.placement.working
    uses = []
    for name in dict.fromkeys(plan.nodes[rank] for rank in workers):
        threads = [plan.threads[rank] for rank in workers if plan.nodes[rank] == name]
        uses.append(CoreUse(node=cluster.node(name), num_ranks=len(threads), threads=sum(threads)))
    return tuple(sorted(uses, key=lambda use: -use.threads / max(use.node.cores, 1e-9)))


def _server_busy_s(trace: Trace) -> dict[int, float]:
    servers = [usage.rank for usage in trace.usage if usage.role == "server"]
    busy = {rank: [p.step_s - p.communication_s for p in trace.parts if p.rank == rank] for rank in servers}
    return {rank: fmean(seconds) for rank, seconds in busy.items() if seconds}
