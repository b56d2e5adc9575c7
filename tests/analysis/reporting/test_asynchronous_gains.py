"""What changes would win in asynchronous runs: what the changed cluster, simulated from nothing, really wins."""

from dataclasses import replace

import pytest
from drifted import Drifted
from injected import Injected

from nfold.analysis.reporting.resimulation import simulate_changes
from nfold.analysis.resimulating.changed_questions import with_nodes

pytestmark = pytest.mark.long

FAST = 5000.0
SLOW_NODE = {"workers": 3, "mbit": FAST, "seconds_per_sample": 1e-2, "speeds": {"n2": 0.3}}
SLOW_LINK = {"workers": 3, "strategy": "ps-async", "links": {"n1 uplink": 20}}


def gains(drifted):
    report = drifted.report()
    found = {gain.change.split(" (")[0]: gain for gain in report.verdict.gains}
    assert all(gain.speedup >= 1.02 for gain in found.values()), "less than equal runs differ by is never promised"
    return report, found


def wins(before, **changes):
    """What a change made for real wins: the run is played from nothing on both clusters."""
    return before.true_drift().step_s / replace(before, **changes).true_drift().step_s


@pytest.mark.parametrize(
    "drifted",
    [
        Drifted(**SLOW_LINK),
        Drifted(workers=3, strategy="ps-async", degraded={"n0 uplink": 20}),
        Drifted(**SLOW_NODE, strategy="ps-async"),
        Drifted(**SLOW_NODE, strategy="ssp", bound=3),
        Drifted(workers=4, strategy="ps-async", servers=1, mbit=50),
        Drifted(workers=3, strategy="ps-async", servers=1, mbit=FAST, server_update_s=0.1),
    ],
    ids=["slow uplink", "uplink became slow", "slow node", "slow node, bounded", "incast", "slow updates"],
)
def test_the_run_is_simulated_as_it_was(drifted):
    again = drifted.again()
    assert again.as_it_was.step_s == pytest.approx(again.facts.step_s, rel=0.05)


def test_a_faster_link_is_promised_what_it_wins():
    slow = Drifted(**SLOW_LINK)
    report, found = gains(slow)
    link = found["a 60 Mbit/s link for n1"]
    assert link.speedup == pytest.approx(wins(slow, links={"n1 uplink": 60}), rel=0.05)
    assert link.speedup > 1.5
    assert report.verdict.text.startswith("Network, n1's uplink: 2")


@pytest.mark.exhaustive
def test_a_link_that_became_slow_gains_from_its_speed_in_the_run():
    slow = Drifted(workers=3, strategy="ps-async", degraded={"n0 uplink": 20})
    _, found = gains(slow)
    real = wins(slow, degraded={}, links={"n0 uplink": 60})
    assert found["a 60 Mbit/s link for n0"].speedup == pytest.approx(real, rel=0.1)


@pytest.mark.exhaustive
def test_half_the_bytes_and_no_latency_win_what_they_cost():
    slow = Drifted(**SLOW_LINK)
    assert gains(slow)[1]["halving the bytes"].speedup == pytest.approx(wins(slow, megabytes=1.0), rel=0.05)
    late = Drifted(workers=3, strategy="ps-async", mbit=FAST, megabytes=0.05, latency_s=0.06)
    assert gains(late)[1]["no latency"].speedup == pytest.approx(wins(late, latency_s=0.0), rel=0.1)


@pytest.mark.exhaustive
def test_one_server_is_relieved_by_more_of_them_on_hosts_of_their_own():
    one = Drifted(workers=4, strategy="ps-async", servers=1, mbit=50, probe_error=0.0)
    report, found = gains(one)
    assert (report.verdict.kind, report.verdict.sub_cause) == ("server", "incast")
    assert found["`--servers 2`"].change.startswith("`--servers 2` (1 host more)")
    for servers in (2, 4):
        real = wins(one, servers=servers)
        assert found[f"`--servers {servers}`"].speedup == pytest.approx(real, rel=0.1), servers
    assert found["`--strategy ring`"].command == "nfold train my.py -n 4 --strategy ring --chunks 4"


def test_a_worker_that_serves_over_a_slow_link_is_relieved_by_servers_on_hosts_of_their_own():
    slow = Drifted(**SLOW_LINK, probe_error=0.0)
    _, found = gains(slow)
    servers = found["`--servers 3`"]
    assert servers.speedup == pytest.approx(wins(slow, servers=3), rel=0.1)
    assert "(3 hosts more)" in servers.change


def test_a_slow_node_costs_its_share_although_nobody_waits_for_it():
    slow = Drifted(**SLOW_NODE, strategy="ps-async")
    report, found = gains(slow)
    assert report.verdict.kind == "compute"
    even = found["making n2 as fast as the others"]
    assert even.speedup == pytest.approx(wins(slow, speeds={}), rel=0.05)
    assert even.speedup == pytest.approx(3 / 2.3, rel=0.1)
    assert "3 instead of 8 at most" in even.change, "its gradients are no longer three times as old"
    assert even.change in report.verdict.text
    assert "leaving n2 out" not in found, "it takes what it can, and holds up nobody"


def test_a_slow_node_that_is_waited_for_costs_what_all_wait():
    slow = Drifted(**SLOW_NODE, strategy="ssp", bound=3)
    report, found = gains(slow)
    assert report.verdict.kind == "peer wait"
    assert found["making n2 as fast as the others"].speedup == pytest.approx(wins(slow, speeds={}), rel=0.05)
    assert found["leaving n2 out"].speedup == pytest.approx(2 / 0.9, rel=0.1)
    free = found["`--strategy ps-async`"]
    assert free.speedup == pytest.approx(wins(slow, strategy="ps-async", bound=None), rel=0.05)
    assert "(gradients 2.0 instead of 1.1 updates old" in free.change, "it is paid for with older gradients"
    assert free.command == "nfold compare my.py -n 3 --strategies ssp,ps-async", "the time to a loss has to say"


@pytest.mark.exhaustive
def test_a_synchronous_strategy_is_compared_by_its_pass_over_the_data():
    slow = Drifted(**SLOW_LINK, probe_error=0.0)
    _, found = gains(slow)
    ring = found["`--strategy ring`"]
    real = Injected(**{**SLOW_LINK, "strategy": "ring"}, probe_error=0.0)
    planned = real._plan(real._question(real._cluster(real.links, {}, 0.0)))
    assert ring.speedup == pytest.approx(slow.true_drift().step_s / planned.predicted.step_s, rel=0.05)
    assert ring.change == "`--strategy ring` (no gradient is old)"


def test_the_text_says_what_steps_are_worth():
    report, _ = gains(Drifted(**SLOW_LINK))
    text, ages = report.verdict.text, {int(age): number for age, number in report.staleness.items()}
    mean = sum(age * number for age, number in ages.items()) / sum(ages.values())
    assert " In steps a second, " in text
    assert f"Gradients were {mean:.1f} updates old on average, {max(ages)} at most: a step is worth less" in text


@pytest.mark.exhaustive
def test_with_fresh_gradients_steps_are_worth_what_others_are():
    report, found = gains(Drifted(**{**SLOW_LINK, "strategy": "ssp"}, bound=0))
    assert set(report.staleness) == {"0"}
    assert found["`--strategy pipeline`"].speedup > 2
    assert not any("gradient" in gain.change for gain in report.verdict.gains)
    assert "updates old" not in report.verdict.text
    assert " would be " in report.verdict.text


def test_nothing_is_promised_where_nothing_would_win():
    even = Drifted(workers=3, strategy="ps-async", mbit=FAST, seconds_per_sample=1e-2, probe_error=0.0)
    report, found = gains(even)
    assert report.verdict.kind == "compute"
    assert set(found) == {"one more node like these"}
    assert found["one more node like these"].speedup == pytest.approx(wins(even, workers=4), rel=0.05)


@pytest.mark.exhaustive
def test_nothing_is_promised_where_no_simulation_is_like_the_run():
    slow = Drifted(**SLOW_LINK)
    facts, question = slow.facts(), slow.again().question
    assert simulate_changes(facts, question).possible_gains is not None
    costly = with_nodes(question, lambda node: replace(node, uplink=replace(node.uplink, cpu_s_per_byte=1e-5)))
    assert simulate_changes(facts, costly).possible_gains is None


def test_causes_say_what_their_absence_would_win():
    slow = Drifted(**SLOW_NODE, strategy="ssp", bound=3).report()
    (waited,) = [cause for cause in slow.causes if cause.kind == "peer wait"]
    assert waited.what_if_speedup == pytest.approx(1 / 0.3, rel=0.1)
