"""Reports and plans with round figures."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nfold.analysis.measured.winners import takeovers, winners
from nfold.core.cluster import Channel, Cluster, Node
from nfold.core.environment import Environment
from nfold.core.findings.comparison import Compared, Comparison, Throughput
from nfold.core.graph import ModelGraph, Operator
from nfold.core.member_event import MemberEvent
from nfold.core.placement import Placement
from nfold.core.plan import Plan, Prediction, Rejected, Unpredicted
from nfold.core.report import Cause, Gain, PredictedStep, Quantiles, RankLoad, Report, TimeParts, Verdict
from nfold.core.trace import RankUsage, Span, StepParts, StepTrace, SystemSample, Trace
from nfold.view.html import RunFacts, Scaling, ScalingCurve

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
    busiest_sent_bytes_per_step=3_000_000,
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
        sub_cause="summing",
        gains=(
            Gain(change="`--servers 2`", speedup=1.42, command="nfold train digits.py -n 2 --strategy ps --servers 2"),
            Gain(change="halving the bytes (bf16)", speedup=1.05),
        ),
        useful_workers=4,
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
    predicted=PredictedStep(
        step_s=0.055,
        sent_bytes_per_step=6_000_000,
        step_error=0.0577,
        time=TimeParts(compute_s=0.029, exposed_communication_s=0.025, peer_wait_s=0.0, input_s=0.0, update_s=0.001),
    ),
    ledger={"start-up": 4.0, "training": 60.0, "evaluation": 6.0},
    loads=(
        RankLoad(
            rank=0,
            node="here",
            compute_cores=0.81,
            communication_cores=0.12,
            throttled_share=0.35,
            steal_cores=0.0,
            neighbour_cores=0.05,
            peak_rss_bytes=300 << 20,
            disk_bytes_per_s=0.0,
            sent_bytes_per_s=5.1e7,
            received_bytes_per_s=1.2e7,
        ),
    ),
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
    placement=Placement(
        num_chunks=4, world_size=4, owners={"conv": (0, 1, 2, 3), "relu": (0, 1, 2, 3), "loss": (0, 1, 2, 3)}
    ),
    reductions=(),
    loads_s=(0.02,) * 4,
    predicted=Prediction(step_s=0.05, sent_bytes_per_step=12_000_000, peak_memory_bytes=(300 << 20,) * 4),
    rejected=(
        Rejected(
            strategy="ps",
            predicted=Prediction(step_s=0.06, sent_bytes_per_step=16_000_000, peak_memory_bytes=(310 << 20,) * 4),
            why="20 % slower than ring: rank 0 sums for 4 workers while they wait for it",
        ),
        Rejected(strategy="single", predicted=Unpredicted(), why="4 workers were asked for"),
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


EVENTS = (
    MemberEvent(
        at=1e9, kind="join", who="n1", step=10, ranks=2, pause_s=0.08, reason="joined by hand", boot_s=2.5,
        moved_bytes=3 << 20, samples_lost=640.0,
    ),
    MemberEvent(
        at=1e9 + 9, kind="loss", who="n2", step=41, ranks=2, pause_s=0.7, steps_again=1,
        reason="was killed by signal 9 (SIGKILL)", samples_at_stake=128,
    ),
    MemberEvent(at=1e9 + 20, kind="plan", who="", step=50, ranks=2, pause_s=0.3, reason="links have changed"),
)  # fmt: skip


# A run on two nodes, with everything that a page can show

HERE, LINK = (
    Channel(latency_s=1e-4, bandwidth_bytes_per_s=1e9, origin="measured"),
    Channel(latency_s=1e-3, bandwidth_bytes_per_s=12.5e6, origin="declared"),
)


def _graph() -> ModelGraph:
    names = (("conv", "Conv2d"), ("relu", "relu"), ("fc", "Linear"), ("loss", "loss"))
    operators = tuple(Operator(name=n, kind=k, inputs=(), outputs=(), parameters=()) for n, k in names)
    return ModelGraph(operators=operators, tensors=(), parameters=(), capture="fx")


def _spans(first: int, second: int) -> tuple[Span, ...]:
    """Two ranks sum a bucket; rank 1 computes longer."""
    return (
        Span(rank=0, kind="LOAD", name="LOAD 0", start_s=0.0, end_s=0.002),
        Span(rank=0, kind="F", name="F0.0", start_s=0.002, end_s=0.012, chunk=0),
        Span(rank=0, kind="B", name="B0.0", start_s=0.012, end_s=0.03, chunk=0),
        Span(rank=0, kind="SEND", name="reduce b0 to 1", start_s=0.03, end_s=0.04, peer=1, payload_bytes=first),
        Span(rank=0, kind="RECV", name="reduce b0 from 1", start_s=0.0, end_s=0.055, peer=1),
        Span(rank=0, kind="UPDATE", name="UPDATE b0", start_s=0.055, end_s=0.06),
        Span(rank=1, kind="F", name="F0.1", start_s=0.0, end_s=0.02, chunk=1),
        Span(rank=1, kind="B", name="B0.1", start_s=0.02, end_s=0.045, chunk=1),
        Span(rank=1, kind="SEND", name="reduce b0 to 0", start_s=0.045, end_s=0.055, peer=0, payload_bytes=second),
        Span(rank=1, kind="RECV", name="reduce b0 from 0", start_s=0.0, end_s=0.041, peer=0),
        Span(rank=1, kind="UPDATE", name="UPDATE b0", start_s=0.055, end_s=0.06),
    )


def _trace() -> Trace:
    def parts(step: int, rank: int) -> StepParts:
        compute_s, communication_s = ((0.025, 0.03), (0.045, 0.01))[rank]
        return StepParts(
            step=step, rank=rank, step_s=0.06, input_s=0.001, forward_s=compute_s / 2, backward_s=compute_s / 2,
            update_s=0.003, communication_s=communication_s, other_s=0.06 - 0.004 - compute_s - communication_s,
            sent_bytes=600_000, samples=64,
        )  # fmt: skip

    def sample(rank: int, at_s: float) -> SystemSample:
        return SystemSample(
            rank=rank, node=f"n{rank}", at_s=at_s, span_s=1.0, compute_cpu_s=0.5, communication_cpu_s=0.1,
            throttled_s=0.0, steal_s=0.0, neighbours_cpu_s=0.0, rss_bytes=256 << 20, sent_bytes=12_000_000,
            received_bytes=6_250_000, disk_bytes=0,
        )  # fmt: skip

    usage = tuple(
        RankUsage(rank=rank, node=f"n{rank}", role="worker", peak_rss_bytes=256 << 20, cpu_s=3.0, wall_s=6.0)
        for rank in range(2)
    )
    return Trace(
        parts=tuple(parts(step, rank) for step in range(20) for rank in range(2)),
        steps=tuple(
            StepTrace(
                step=step,
                origin="measured",
                step_s=(0.06, 0.06),
                spans=_spans(300_000, 300_000),
                begin_s=(step * 0.06, step * 0.06),
            )
            for step in range(3, 9)
        ),
        usage=usage,
        samples=tuple(sample(rank, at_s) for rank in range(2) for at_s in (1.0, 2.0)),
        staleness={"0": 40, "1": 25, "2": 10, "3": 2},
        ledger=SERVER.ledger,
    )


def _facts(node: Callable[[int], str] = lambda rank: f"n{rank}") -> RunFacts:
    nodes = tuple(
        Node(name=node(rank), cores=2.0, memory_bytes=1 << 30, local=HERE, uplink=LINK, downlink=LINK)
        for rank in range(2)
    )
    trace = _trace()
    owners = {operator.name: (0, 0, 1, 1) for operator in _graph().operators}
    return RunFacts(
        folder="runs/digits-1",
        report=replace(
            SERVER,
            events=EVENTS,
            verdict=replace(
                SERVER.verdict,
                sub_cause="summing",
                advice="Spread the sums over more servers.",
                gains=(
                    Gain(change="a second server", speedup=1.38, command="nfold train digits.py --servers 2"),
                    Gain(change="halve the bytes (bf16)", speedup=1.2),
                ),
            ),
        ),
        plan=replace(
            PLAN,
            workers=2,
            nodes=tuple(each.name for each in nodes),
            threads=(1, 1),
            placement=Placement(num_chunks=4, world_size=2, owners=owners),
        ),
        cluster=Cluster(nodes=nodes),
        graph=_graph(),
        trace=replace(
            trace,
            usage=tuple(replace(each, node=node(each.rank)) for each in trace.usage),
            samples=tuple(replace(each, node=node(each.rank)) for each in trace.samples),
        ),
        history=[
            *({"step": step, "epoch": 1, "loss": 3 / step, "metrics": {}} for step in range(1, 61)),
            *({"step": step, "epoch": 1, "loss": 0.5, "metrics": {"test_loss": 3 / step}} for step in (20, 40, 60)),
        ],
        environment=Environment(
            started="2026-01-02T03:04:05+00:00",
            command=("nfold", "train", "digits.py", "-n", "2"),
            system="Linux 6.1 x86_64",
            processor="Some Processor (2 cores)",
            versions={"python": "3.11.7", "torch": "2.13.0"},
        ),
        scaling=Scaling(
            curves=(
                ScalingCurve(label="ring", origin="measured", workers=(1, 2, 4), speedup=(1.0, 1.8, 3.1)),
                ScalingCurve(
                    label="ring", origin="predicted", workers=(1, 10, 100, 1000), speedup=(1.0, 7.0, 40.0, 210.0)
                ),
                ScalingCurve(label="ps", origin="measured", workers=(1, 2, 4), speedup=(1.0, 1.5, 1.9)),
                ScalingCurve(label="ps", origin="predicted", workers=(1, 10, 100, 1000), speedup=(1.0, 2.0, 2.0, 2.0)),
            )
        ),
    )


@pytest.fixture
def events() -> tuple[MemberEvent, ...]:
    return EVENTS


@pytest.fixture
def facts() -> RunFacts:
    return _facts()


@pytest.fixture
def hostile() -> Callable[[str], RunFacts]:
    """A run in which everything that a user can name has a hostile name."""

    def make(name: str) -> RunFacts:
        facts = _facts(lambda rank: f"{name}{rank}")
        operator = replace(facts.graph.operators[0], name=name)
        owners = {name: (0, 0, 1, 1)}
        steps = tuple(
            replace(step, spans=tuple(replace(span, name=f"{name} to 1") for span in step.spans))
            for step in facts.trace.steps
        )
        verdict = replace(facts.report.verdict, text=name, place=name, advice=name, sub_cause=name)
        causes = tuple(replace(cause, evidence=name, place=name) for cause in facts.report.causes)
        return replace(
            facts,
            folder=name,
            report=replace(
                facts.report,
                strategy=name,
                verdict=verdict,
                causes=causes,
                events=tuple(replace(each, who=name, reason=name) for each in facts.report.events),
                metrics={name: 0.5},
                ledger={name: 1.0},
                next_command=f"nfold train '{name}'",
            ),
            plan=replace(facts.plan, placement=replace(facts.plan.placement, owners=owners), strategy=name),
            graph=replace(facts.graph, operators=(operator,)),
            trace=replace(facts.trace, steps=steps),
            history=[*facts.history, {"step": 60, "epoch": 1, "loss": 0.5, "metrics": {f"loss {name}": 0.4}}],
            environment=replace(facts.environment, command=(name,), versions={name: name}, processor=name, system=name),
            scaling=Scaling(
                curves=tuple(replace(curve, label=f"{name}{curve.label}") for curve in facts.scaling.curves), note=name
            ),
        )

    return make


# A comparison of two architectures at two link speeds


@pytest.fixture
def comparison() -> Callable[..., Comparison]:
    def make(name: str = "") -> Comparison:
        runs = [Compared(name=f"single{name}", folder=f"runs/c/single{name}", report=SINGLE, epoch_s=2.0)]
        for link, speeds in ((6.25e6, (900.0, 700.0)), (125e6, (3400.0, 3500.0))):
            for strategy, samples_per_s in zip(("ring", "ps"), speeds, strict=True):
                report = replace(
                    SERVER, strategy=f"{strategy}{name}", servers=0, world_size=2, samples_per_s=samples_per_s,
                    step_s=Quantiles(p50=128 / samples_per_s, p95=150 / samples_per_s),
                )  # fmt: skip
                runs.append(
                    Compared(
                        name=f"{strategy}{name} x2, {link}",
                        folder=f"runs/c/{strategy}{name}",
                        report=report,
                        link_bytes_per_s=link,
                        epoch_s=1.5,
                        cost_per_epoch=0.0042,
                        time_to_loss_s=None if strategy == "ps" else 12.0,
                        loss_over_time=(
                            (2.0, 2.3),
                            (samples_per_s / 500, 0.9),
                            (14.0, 0.5 if strategy == "ps" else 0.35),
                        ),
                    )
                )
        predicted = tuple(
            Throughput(
                architecture=f"{strategy}{name}", workers=workers, link_bytes_per_s=6.25e6,
                samples_per_s=speed, origin="predicted",
            )
            for strategy, speeds in (("ring", (1500.0, 1600.0)), ("ps", (1400.0, 4000.0)))
            for workers, speed in zip((4, 64), speeds, strict=True)
        )  # fmt: skip
        measured = tuple(
            Throughput(
                architecture=run.report.strategy, workers=2, link_bytes_per_s=run.link_bytes_per_s,
                samples_per_s=run.report.samples_per_s, origin="measured",
            )
            for run in runs[1:]
        )  # fmt: skip
        won = winners((*measured, *predicted))
        return Comparison(runs=tuple(runs), target_loss=0.4, predicted=predicted, winners=won, takeovers=takeovers(won))

    return make
