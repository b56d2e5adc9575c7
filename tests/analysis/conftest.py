"""Synthetic runs: a plan, a trace and a cluster with the numbers that a test is about."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from nfold.analysis.reporting.run_report import Result, report
from nfold.core.cluster import Channel, Cluster, Node
from nfold.core.placement import Placement, Reduction
from nfold.core.plan import Plan, Prediction
from nfold.core.report import Report
from nfold.core.trace import RankUsage, Span, StepParts, StepTrace, Trace

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "planning")]

LOCAL = Channel(latency_s=1e-4, bandwidth_bytes_per_s=1e9, origin="measured", cpu_s_per_byte=1e-9)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run on one node; times in seconds per step."""

    workers: int = 2
    servers: int = 0
    cores: float = 2.0
    threads: int = 1
    crowding: tuple[float, ...] = (1.0,)
    compute_s: tuple[float, ...] = (0.04, 0.04)
    planned_s: tuple[float, ...] = ()
    """Where the plan expected other compute seconds than those."""
    communication_s: tuple[float, ...] = (0.01, 0.01)
    input_s: float = 0.0
    update_s: float = 0.0
    other_s: float = 0.0
    server_s: float = 0.0
    """Seconds per step that a server works."""
    sent_bytes: int = 1_000_000
    messages: tuple[tuple[float, float, int], ...] = ()
    """(start, end, bytes) of each send of each worker to the next rank, and of the matching receive."""
    num_steps: int = 10
    rss_bytes: int = 100 << 20
    memory_bytes: int = 4 << 30
    local: Channel = LOCAL
    predicted_s: float = 0.05
    alone_samples_per_s: float | None = None
    skip: int = 2

    @property
    def world_size(self) -> int:
        return self.workers + self.servers

    def cluster(self) -> Cluster:
        node = Node(
            name="here",
            cores=self.cores,
            memory_bytes=self.memory_bytes,
            local=self.local,
            crowding=self.crowding,
        )
        return Cluster(nodes=(node,))

    def plan(self) -> Plan:
        reduction = Reduction(
            name="b0",
            parameters=("w",),
            num_elements=self.sent_bytes // 4,
            dtype="float32",
            item_bytes=4,
            members=tuple(range(self.workers)),
            route="ring",
        )
        return Plan(
            strategy="ps" if self.servers else "ring",
            chunks=4,
            batch_size=128,
            workers=self.workers,
            servers=self.servers,
            nodes=("here",) * self.world_size,
            threads=(self.threads,) * self.world_size,
            placement=Placement(
                num_chunks=self.workers, world_size=self.world_size, owners={"op": tuple(range(self.workers))}
            ),
            reductions=(reduction,),
            loads_s=self.planned_s or self.compute_s,
            predicted=Prediction(step_s=self.predicted_s, sent_bytes_per_step=2_000_000, peak_memory_bytes=()),
        )

    def trace(self) -> Trace:
        ranks = range(self.world_size)
        parts = tuple(self._parts(step, rank) for step in range(self.num_steps) for rank in ranks)
        usage = tuple(
            RankUsage(
                rank=rank,
                node="here",
                role="worker" if rank < self.workers else "server",
                peak_rss_bytes=self.rss_bytes + rank,
                cpu_s=0.5,
                wall_s=1.0,
            )
            for rank in ranks
        )
        return Trace(parts=parts, steps=(self._step(),) if self.messages else (), usage=usage, ledger={"training": 1.0})

    def _parts(self, step: int, rank: int) -> StepParts:
        is_worker = rank < self.workers
        compute_s = self.compute_s[rank] if is_worker else 0.0
        communication_s = self.communication_s[rank] if is_worker else 0.001
        other_s = self.other_s if is_worker else self.server_s
        input_s, update_s = (self.input_s, self.update_s) if is_worker else (0.0, 0.0)
        return StepParts(
            step=step,
            rank=rank,
            step_s=compute_s + communication_s + input_s + update_s + other_s,
            input_s=input_s,
            forward_s=compute_s / 4,
            backward_s=compute_s * 3 / 4,
            update_s=update_s,
            communication_s=communication_s,
            other_s=other_s,
            sent_bytes=self.sent_bytes if self.world_size > 1 else 0,
            samples=64 if is_worker else 0,
        )

    def _step(self) -> StepTrace:
        spans = [
            Span(
                rank=rank,
                kind=kind,
                name="m",
                start_s=start,
                end_s=end,
                peer=peer % self.world_size,
                payload_bytes=size,
            )
            for rank in range(self.workers)
            for start, end, size in self.messages
            for kind, peer in (("SEND", rank + 1), ("RECV", rank - 1))
        ]
        return StepTrace(step=5, origin="measured", step_s=(0.05,) * self.world_size, spans=tuple(spans))

    def report(self, **changes: Any) -> Report:
        run = replace(self, **changes)
        return report(
            run.plan(),
            run.trace(),
            run.cluster(),
            Result(
                alone_samples_per_s=run.alone_samples_per_s,
                final_loss=0.3,
                metrics={"accuracy": 0.97},
                program="examples/digits.py",
            ),
            skip=run.skip,
        )


@pytest.fixture
def run() -> Callable[..., Run]:
    return Run


@pytest.fixture(scope="session")
def run_class() -> Callable[..., Run]:
    """For Hypothesis, which makes many runs within one test."""
    return Run
