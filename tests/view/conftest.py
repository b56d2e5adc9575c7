"""Reports and plans with round figures."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nfold.core.placement import Placement
from nfold.core.plan import Plan, Prediction, Rejected
from nfold.core.report import Cause, PredictedStep, Quantiles, Report, TimeParts, Verdict

SINGLE = Report(
    strategy="single",
    world_size=1,
    workers=1,
    servers=0,
    chunks=4,
    batch_size=128,
    num_steps=95,
    step_s=Quantiles(p50=0.070, p95=0.082),
    samples_per_s=1828.6,
    efficiency=0.99,
    sent_bytes_per_step=0,
    bus_bandwidth_bytes_per_s=None,
    time=TimeParts(
        compute_s=0.064, exposed_communication_s=0.0, peer_wait_s=0.0, input_s=0.002, update_s=0.003, other_s=0.001
    ),
    peak_rss_bytes=300 << 20,
    worker_rss_bytes=300 << 20,
    server_rss_bytes=None,
    cpu_cores=1.9,
    final_loss=0.312,
    metrics={"accuracy": 0.9731},
    verdict=Verdict(kind="compute", place="here", value=91.4, unit="%", text="Compute: 2 cores do 91 % of each step."),
    causes=(),
    predicted=PredictedStep(step_s=0.068, sent_bytes_per_step=0, step_error=-0.0286),
)
SERVER = replace(
    SINGLE,
    strategy="ps",
    world_size=3,
    workers=2,
    servers=1,
    step_s=Quantiles(p50=0.052, p95=0.060),
    samples_per_s=2461.5,
    efficiency=0.67,
    sent_bytes_per_step=6_000_000,
    bus_bandwidth_bytes_per_s=1.2e8,
    time=TimeParts(
        compute_s=0.030, exposed_communication_s=0.015, peer_wait_s=0.004, input_s=0.001, update_s=0.0, other_s=0.002
    ),
    server_rss_bytes=210 << 20,
    verdict=Verdict(
        kind="server",
        place="rank 2 on here",
        value=11.0,
        unit="ms",
        text="Server: rank 2 sums for 2 workers and works 11.0 ms of each step, while the workers wait 15.0 ms. "
        "Spread the sums: more servers (--servers), or --strategy ring.",
    ),
    causes=(
        Cause(
            kind="compute",
            place="here",
            lost_s=0.030,
            share=0.577,
            what_if_speedup=None,
            evidence="forward and backward are 58 % of each step (30.0 ms of 52.0 ms)",
        ),
        Cause(
            kind="server",
            place="rank 2 on here",
            lost_s=0.015,
            share=0.288,
            what_if_speedup=1.38,
            evidence="rank 2 sums for 2 workers and works 11.0 ms of each step",
        ),
        Cause(kind="other", place="runtime", lost_s=1e-6, share=2e-5, what_if_speedup=None, evidence="nothing"),
    ),
    predicted=PredictedStep(step_s=0.055, sent_bytes_per_step=6_000_000, step_error=0.0577),
    ledger={"start-up": 4.0, "training": 60.0, "evaluation": 6.0},
    next_command="nfold train digits.py -n 2 --strategy ps --servers 2",
)
PLAN = Plan(
    strategy="ring",
    chunks=4,
    batch_size=128,
    workers=4,
    servers=0,
    nodes=("here",) * 4,
    threads=(1,) * 4,
    placement=Placement(num_chunks=4, world_size=4, owners={}),
    reductions=(),
    loads_s=(0.02,) * 4,
    predicted=Prediction(step_s=0.05, sent_bytes_per_step=12_000_000, peak_memory_bytes=(300 << 20,) * 4),
    rejected=(
        Rejected(
            strategy="ps",
            predicted=Prediction(step_s=0.06, sent_bytes_per_step=16_000_000, peak_memory_bytes=(310 << 20,) * 4),
            why="20 % slower than ring: rank 0 sums for 4 workers while they wait for it",
        ),
        Rejected(strategy="single", predicted=None, why="4 workers were asked for"),
    ),
)


@pytest.fixture
def single() -> Report:
    return SINGLE


@pytest.fixture
def server() -> Report:
    return SERVER


@pytest.fixture
def plan() -> Plan:
    return PLAN


@pytest.fixture
def golden() -> Callable[[str], str]:
    return lambda name: (Path(__file__).parent / "golden" / f"{name}.txt").read_text()
