"""Dozens of runs with a cause put into them: the verdict must find it, name its place and measure its link."""

from dataclasses import replace

import pytest
from injected import Injected

pytestmark = pytest.mark.long

FAST = 5000.0
"""Mbit/s: no link of the model below is a bottleneck."""
QUOTA = {"throttled_s": 0.4}
NEIGHBOURS = {"neighbours_cpu_s": 0.6}
STEAL = {"steal_s": 0.3}


def case(name, kind, place="", sub_cause="", speed=None, **fields):
    return pytest.param(Injected(**fields), kind, place, sub_cause, speed, id=name)


LINKS = [
    case(f"{how} {strategy} x{workers}: {place} at {mbit}", "link", place, speed=mbit, strategy=strategy,
         workers=workers, seed=seed, **{how: {place: mbit}})
    for seed, (how, strategy, workers, place, mbit) in enumerate(
        [
            ("links", "ring", 2, "n1 uplink", 60),
            ("links", "ring", 3, "n0 downlink", 40),
            ("links", "ring", 4, "n2 uplink", 50),
            ("links", "ring", 4, "n3 downlink", 100),
            ("links", "ring", 6, "n5 uplink", 80),
            ("links", "ps", 2, "n0 uplink", 50),
            ("links", "ps", 3, "n1 downlink", 60),
            ("links", "ps", 4, "n2 uplink", 50),
            ("links", "ps", 4, "n0 downlink", 30),
            ("links", "ps", 6, "n3 uplink", 90),
            ("degraded", "ring", 3, "n2 uplink", 20),
            ("degraded", "ring", 4, "n0 uplink", 50),
            ("degraded", "ring", 6, "n4 uplink", 100),
            ("degraded", "ps", 3, "n0 uplink", 20),
            ("degraded", "ps", 4, "n2 downlink", 50),
            ("degraded", "ps", 6, "n1 uplink", 60),
        ]
    )
]  # fmt: skip
WITH_SERVERS = [
    case("a worker's slow link to two servers", "link", "n1 uplink", speed=30, strategy="ps", servers=2,
         links={"n1 uplink": 30}),
    case("a server with a slow link", "link", "n4 downlink", speed=40, strategy="ps", servers=1,
         links={"n4 downlink": 40}),
    case("one server for four", "server", "rank 4 on n4", "incast", 200, strategy="ps", servers=1),
    case("one server for six", "server", "rank 6 on n6", "incast", 100, strategy="ps", servers=1, workers=6, mbit=100),
    case("two servers for six", "server", "rank", "incast", 200, strategy="ps", servers=2, workers=6),
    case("a server that updates slowly", "server", "rank 3 on n3", "summing", strategy="ps", servers=1, workers=3,
         mbit=FAST, server_update_s=0.2),
    case("a server that updates slowly for two", "server", "rank 2 on n2", "summing", strategy="ps", servers=1,
         workers=2, mbit=FAST, server_update_s=0.3),
    case("a server without a processor", "server", "rank 3 on n3", "summing", strategy="ps", servers=1, workers=3,
         mbit=40.0, samples={"n3": {"communication_cpu_s": 0.95, "throttled_s": 0.5}}),
]  # fmt: skip
STRAGGLERS = [
    case("a slow processor", "peer wait", "rank 1 on n1", "slower processor", speeds={"n1": 0.4}, seed=1),
    case("half as fast, two ranks", "peer wait", "rank 0 on n0", "slower processor", workers=2, speeds={"n0": 0.5}),
    case("a third slower, six ranks", "peer wait", "rank 5 on n5", "slower processor", workers=6, speeds={"n5": 0.65}),
    case("quota", "peer wait", "rank 2 on n2", "quota", speeds={"n2": 0.3}, samples={"n2": QUOTA}),
    case("quota, server", "peer wait", "rank 0 on n0", "quota", strategy="ps", speeds={"n0": 0.25},
         samples={"n0": QUOTA}),
    case("neighbours", "peer wait", "rank 3 on n3", "neighbours", speeds={"n3": 0.5}, samples={"n3": NEIGHBOURS}),
    case("neighbours, dedicated server", "peer wait", "rank 1 on n1", "neighbours", strategy="ps", servers=1,
         speeds={"n1": 0.4}, samples={"n1": NEIGHBOURS}),
    case("steal", "peer wait", "rank 1 on n1", "steal", workers=3, speeds={"n1": 0.5}, samples={"n1": STEAL}),
    case("its own input", "peer wait", "rank 2 on n2", "input", input_s={2: 0.1}),
    case("its own input, two ranks", "peer wait", "rank 1 on n1", "input", workers=2, input_s={1: 0.2}),
    case("more samples", "peer wait", "rank", "more samples", workers=2, chunks=3),
    case("more samples, and never a rest from its quota", "peer wait", "rank 0", "more samples", workers=2, chunks=3,
         speeds={"n0": 0.8}, samples={"n0": QUOTA}),
    case("a quota, and more samples", "peer wait", "rank 0", "quota", workers=2, chunks=3, speeds={"n0": 0.25},
         samples={"n0": QUOTA}),
]  # fmt: skip
OTHERS = [
    case("compute, ring", "compute", "all nodes"),
    case("compute, two", "compute", "all nodes", workers=2, seed=3),
    case("compute, server", "compute", "all nodes", strategy="ps", seed=4),
    case("compute, six", "compute", "all nodes", workers=6, batch_size=96),
    case("cpu-bound sending, ring", "transport", "rank", "processor", cpu_s_per_byte=1e-8, seconds_per_sample=1e-4),
    case("cpu-bound sending, server", "transport", "rank", "processor", strategy="ps", cpu_s_per_byte=2e-8,
         seconds_per_sample=1e-4),
    case("throttled senders", "transport", "rank 1 on n1", "quota", mbit=150.0, cpu_s_per_byte=8e-8, cores=0.4,
         seconds_per_sample=1e-4, samples={
             **{f"n{index}": {"communication_cpu_s": 0.05} for index in range(4)},
             "n1": {"throttled_s": 0.3, "communication_cpu_s": 0.2}}),
    case("latency, ring of six", "latency", workers=6, megabytes=0.05, latency_s=0.02),
    case("latency, two", "latency", workers=2, megabytes=0.05, latency_s=0.05),
    case("latency, server", "latency", strategy="ps", megabytes=0.05, latency_s=0.06),
    case("input of all, two", "input", "dataset", workers=2, input_s={0: 0.2, 1: 0.2}),
    case("input of all, four", "input", "dataset", input_s=dict.fromkeys(range(4), 0.15)),
    case("memory", "memory", "n", rss_bytes=950 << 20),
    case("small batch", "small batch", "every worker", seconds_per_sample=2e-5, megabytes=0.1, update_s=0.01),
    case("small batch, two", "small batch", "every worker", workers=2, seconds_per_sample=1e-5, megabytes=0.1,
         update_s=0.02),
]  # fmt: skip
PIPELINES = [
    case("five equal operators on two", "peer wait", "rank", "uneven stages", strategy="pipeline", workers=2,
         chunks=16, batch_size=64),
    case("a pipeline that runs empty", "bubble", "all workers", strategy="pipeline", workers=5, chunks=5),
    case("a stage on a slow processor", "peer wait", "rank 3 on n3", "slower processor", strategy="pipeline",
         workers=5, chunks=32, batch_size=64, speeds={"n3": 0.3}),
    case("quota, pipeline", "peer wait", "rank 1 on n1", "quota", strategy="pipeline", workers=5, chunks=32,
         batch_size=64, speeds={"n1": 0.3}, samples={"n1": QUOTA}),
    case("latency, pipeline", "latency", strategy="pipeline", workers=5, chunks=10, latency_s=0.05),
]  # fmt: skip
BOTH = [
    case("a slow link and a somewhat slow node", "link", "n2 uplink", speed=40, links={"n2 uplink": 40},
         speeds={"n1": 0.6}),
    case("a very slow node and a somewhat slow link", "peer wait", "rank 1 on n1", "slower processor",
         seconds_per_sample=1e-2, speeds={"n1": 0.2}, links={"n3 downlink": 150}),
    case("slow reading and a slow link", "input", "dataset", input_s=dict.fromkeys(range(4), 3.0),
         links={"n2 uplink": 100}),
    case("a slow link and slow reading", "link", "n2 uplink", speed=30, input_s=dict.fromkeys(range(4), 0.1),
         links={"n2 uplink": 30}),
]  # fmt: skip


def fast(param):
    """Links are no bottleneck, where the case says nothing of them."""
    injected = param.values[0]
    untouched = injected.mbit == 200.0 and not injected.links and not injected.degraded
    return pytest.param(replace(injected, mbit=FAST) if untouched else injected, *param.values[1:], id=param.id)


@pytest.mark.parametrize(
    ("injected", "kind", "place", "sub_cause", "speed"),
    [*LINKS, *WITH_SERVERS, *map(fast, STRAGGLERS), *map(fast, OTHERS), *map(fast, PIPELINES), *BOTH],
)
def test_the_verdict_finds_what_was_injected(injected, kind, place, sub_cause, speed):
    injected.check_verdict(kind, place, sub_cause, speed)


@pytest.mark.parametrize(("limit_mib", "is_near"), [(104, True), (110, True), (130, False)])
def test_a_node_near_its_limit_of_memory_is_named_with_how_full_it_is(limit_mib, is_near):
    made = Injected(mbit=FAST, memories={"n2": limit_mib << 20}).verdict()
    if not is_near:
        assert made.kind != "memory"
        return
    assert (made.kind, made.place, made.unit) == ("memory", "n2", "%")
    assert made.value == pytest.approx(100 * 100 / limit_mib)
    assert f"1 rank peaks at 100 MiB, {made.value:.0f} % of n2's {limit_mib} MiB" in made.text


@pytest.mark.parametrize("disturbed", [NEIGHBOURS, STEAL])
def test_what_disturbs_a_whole_machine_is_no_emulated_nodes_reason(disturbed):
    made = Injected(mbit=FAST, speeds={"n3": 0.5}, samples={"n3": disturbed}, is_emulated=True).verdict()
    assert (made.kind, made.place, made.sub_cause) == ("peer wait", "rank 3 on n3", "slower processor")
    assert "who else used this machine is not known of a node" in made.text
