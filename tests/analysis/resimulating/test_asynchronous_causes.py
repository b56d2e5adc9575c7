"""Asynchronous runs with a cause put into them: the verdict must tell links, latency, servers and workers apart."""

from statistics import fmean

import pytest
from drifted import Drifted

from nfold.analysis.measured.bound_waits import bound_waits_s

pytestmark = pytest.mark.long

FAST = 5000.0


def case(name, kind, place="", sub_cause="", speed=None, **fields):
    fields = {"workers": 3, "strategy": "ps-async", **fields}
    return pytest.param(Drifted(**fields), kind, place, sub_cause, speed, id=name)


CASES = [
    case("a slow uplink", "link", "n1 uplink", speed=20, links={"n1 uplink": 20}),
    case("a slow downlink", "link", "n2 downlink", speed=20, links={"n2 downlink": 20}),
    case("a link that became slow", "link", "n0 uplink", speed=20, degraded={"n0 uplink": 20}),
    case("a slow uplink, bounded", "link", "n1 uplink", speed=20, strategy="ssp", bound=3, links={"n1 uplink": 20}),
    case("a server with a slow link", "link", "n3 downlink", speed=20, servers=1, links={"n3 downlink": 20}),
    case("one server for four", "server", "rank 4 on n4", "incast", 50, workers=4, servers=1, mbit=50),
    case("a server that updates slowly", "server", "rank 3 on n3", "summing", servers=1, mbit=FAST,
         server_update_s=0.1),
    case("latency", "latency", "n", mbit=FAST, megabytes=0.05, latency_s=0.06),
    case("latency, bounded", "latency", "n", strategy="ssp", bound=3, mbit=FAST, megabytes=0.05, latency_s=0.06),
    case("latency, one server", "latency", "n", servers=1, mbit=FAST, megabytes=0.05, latency_s=0.1),
    case("compute", "compute", "all nodes", mbit=FAST, seconds_per_sample=1e-2),
    case("a slow processor, bounded", "peer wait", "rank 2 on n2", "slower processor", strategy="ssp", bound=3,
         mbit=FAST, seconds_per_sample=1e-2, speeds={"n2": 0.3}),
    case("a slow processor, bounded, one server", "peer wait", "rank 1 on n1", "slower processor", strategy="ssp",
         bound=1, servers=1, mbit=FAST, seconds_per_sample=1e-2, speeds={"n1": 0.4}),
]  # fmt: skip


@pytest.mark.parametrize(("drifted", "kind", "place", "sub_cause", "speed"), CASES)
def test_the_verdict_finds_what_was_injected(drifted, kind, place, sub_cause, speed):
    drifted.check_verdict(kind, place, sub_cause, speed)


def test_where_nothing_bounds_staleness_nobody_waits_for_a_slow_worker():
    slow = Drifted(workers=3, strategy="ps-async", mbit=FAST, seconds_per_sample=1e-2, speeds={"n2": 0.3})
    assert slow.facts().parts.peer_wait_s == 0.0
    assert slow.verdict().kind == "compute"


def test_what_is_waited_for_slow_workers_is_not_counted_as_communication():
    common = {"workers": 3, "strategy": "ssp", "bound": 3, "mbit": FAST, "seconds_per_sample": 1e-2}
    even, slow = (Drifted(**common, speeds=speeds).facts() for speeds in ({}, {"n2": 0.3}))
    assert even.parts.peer_wait_s < 0.02 * even.step_s
    assert slow.parts.peer_wait_s > 0.2 * slow.step_s
    assert slow.parts.exposed_communication_s < 0.1 * slow.step_s
    held_s = bound_waits_s(slow.plan, slow.trace)
    assert held_s[2] < 0.1 * min(held_s[0], held_s[1]), "nobody is slower than the slowest"
    assert fmean(held_s.values()) == pytest.approx(slow.parts.peer_wait_s)
