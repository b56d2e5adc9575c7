"""Lets the tests of the verbs ask the questions that the tests of planning ask; a run as its command hears of it."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from nfold.core.cluster import Channel, Cluster, Node
from nfold.core.placement import Placement
from nfold.core.plan import Plan, Prediction
from nfold.core.trace import StepParts, SystemSample
from nfold.planning.residency.epoch_steps import EpochSteps
from nfold.runtime.control import commands as cmd

sys.path.append(str(Path(__file__).parents[1] / "planning"))

LINK = Channel(latency_s=1e-3, bandwidth_bytes_per_s=12.5e6, origin="measured")
CLUSTER = Cluster(
    nodes=tuple(
        Node(name=name, cores=2.0, memory_bytes=1 << 30, local=LINK, uplink=LINK, downlink=LINK)
        for name in ("n1", "n2")
    )
)
PLAN = Plan(
    strategy="ring",
    chunks=2,
    batch_size=16,
    workers=2,
    servers=0,
    nodes=("n1", "n2"),
    threads=(1, 1),
    placement=Placement(num_chunks=2, world_size=2, owners={"op": (0, 1)}),
    reductions=(),
    loads_s=(0.02, 0.02),
    predicted=Prediction(step_s=0.05, sent_bytes_per_step=0, peak_memory_bytes=()),
)


def step_done(step: int, loss: float = 0.5) -> cmd.StepDone:
    """One of 100 ms: 60 % computing, 30 % messages, 10 % input."""
    parts = tuple(
        StepParts(
            step=step, rank=rank, step_s=0.1, input_s=0.01, forward_s=0.02, backward_s=0.03, update_s=0.01,
            communication_s=0.03, other_s=0.0, sent_bytes=100, samples=8,
        )
        for rank in range(2)
    )  # fmt: skip
    return cmd.StepDone(step=step, epoch=step // 10, loss=loss, parts=parts, trace=None)


def sampled(rank: int) -> cmd.Sampled:
    """Of two seconds, in which half a core computed."""
    return cmd.Sampled(
        samples=(
            SystemSample(
                rank=rank, node=f"n{rank + 1}", at_s=2.0, span_s=2.0, compute_cpu_s=1.0, communication_cpu_s=0.2,
                throttled_s=0.1, steal_s=0.0, neighbours_cpu_s=0.0, rss_bytes=300 << 20, sent_bytes=2000,
                received_bytes=4000, disk_bytes=0,
            ),
        )
    )  # fmt: skip


def planned(first_step: int = 0) -> cmd.Planned:
    """40 steps in epochs of 10."""
    known = SimpleNamespace(cluster=CLUSTER)
    epochs = EpochSteps.even(10)
    return cmd.Planned(
        known=known, plan=PLAN, total_steps=40, epochs=epochs, first_step=first_step, recipe=SimpleNamespace()
    )


@pytest.fixture
def happenings() -> SimpleNamespace:
    """Of a run on two nodes."""
    return SimpleNamespace(planned=planned, step_done=step_done, sampled=sampled, plan=PLAN, cluster=CLUSTER)
