"""A report for every verdict class."""

import re
from dataclasses import replace

import pytest
from injected import Injected

from nfold.analysis.measured.measured_facts import gather
from nfold.analysis.measured.node_loads import node_resident_bytes, rank_loads
from nfold.analysis.reporting.gains_of_changes import PossibleGains, TriedChange
from nfold.analysis.reporting.run_report import Result, report
from nfold.analysis.reporting.verdict import main_finding, next_command
from nfold.analysis.reporting.verdict import verdict as verdict_of
from nfold.analysis.rules.causes import findings, ranked_causes
from nfold.analysis.rules.communication import communication
from nfold.analysis.rules.workers import reading
from nfold.core.cluster import Channel, Cluster
from nfold.core.codec import dumps, encode, loads
from nfold.core.placement import Share
from nfold.core.plan import Asynchrony
from nfold.core.report import Gain, Report

HALVES = ((0.0, 0.01, 500_000), (0.01, 0.02, 500_000))


def test_compute_that_fills_the_machine(run):
    verdict = run().report().verdict
    assert (verdict.kind, verdict.place, verdict.unit) == ("compute", "here", "%")
    assert verdict.value == pytest.approx(80)
    assert verdict.text == (
        "Compute: 2 cores do 80 % of each step (40.0 ms of 50.0 ms). "
        "More ranks on this machine will not help; a second machine would."
    )


def test_more_ranks_than_cores_are_said(run):
    report = run(workers=4, compute_s=(0.04,) * 4, communication_s=(0.01,) * 4).report()
    assert report.verdict.text.startswith("Compute: 4 ranks share 2 cores of here, which do 80 % of each step")
    shared = next(cause for cause in report.causes if cause.kind == "shared cores")
    assert shared.lost_s == pytest.approx(0.02)
    assert shared.evidence == "part of compute: 4 ranks with 4 threads share 2 cores"


def test_a_rank_with_less_than_a_core_shares_it_with_nobody(run):
    report = run(workers=1, cores=0.4, compute_s=(0.04,), communication_s=(0.01,)).report()
    assert report.verdict.text.startswith("Compute: 1 rank has 0.4 cores of here, which do 80 % of each step")


def test_ranks_that_crowd_a_cache_are_told_from_ranks_that_share_cores(run):
    causes = run(crowding=(1.0, 1.25)).report().causes
    shared = next(cause for cause in causes if cause.kind == "shared cores")
    assert shared.lost_s == pytest.approx(0.04 * 0.2)
    assert shared.evidence == "part of compute: 2 ranks with 2 threads slow each other (caches, memory) on 2 cores"


def test_idle_cores_are_offered(run):
    report = run(cores=8.0).report()
    assert "6 cores of here would be free for more ranks." in report.verdict.text
    assert report.next_command == "nfold compare examples/digits.py -n 2,8"


def test_waiting_for_a_slow_rank(run):
    compute_s, planned_s = (0.01, 0.01, 0.05), (0.01, 0.01, 0.01)
    slow = run(workers=3, cores=4, compute_s=compute_s, planned_s=planned_s, communication_s=(0.045, 0.045, 0.005))
    verdict = slow.report().verdict
    assert (verdict.kind, verdict.place) == ("peer wait", "rank 2 on here")
    assert verdict.value == pytest.approx(40)  # what it works longer than a typical worker
    assert "comes last in 100 % of the steps; it works 50.0 ms a step, a typical worker 10.0 ms" in verdict.text


def test_input(run):
    verdict = run(input_s=0.1).report().verdict
    assert (verdict.kind, verdict.place) == ("input", "dataset")
    assert "Input: reading takes 100 ms of each step, 1.56 ms a sample." in verdict.text


@pytest.mark.parametrize(
    ("cores", "input_s", "loaders", "advised"),
    [(2, 0.1, 0, 0), (3, 0.1, 0, 0), (4, 0.1, 0, 2), (20, 0.1, 0, 3), (20, 0.1, 2, 6), (4, 0.1, 2, 0), (9, 0.9, 0, 4)],
)  # fmt: skip
def test_loaders_are_advised_where_cores_are_free_for_more(run, cores, input_s, loaders, advised):
    slow = run(cores=cores, input_s=input_s)
    plan = replace(slow.plan(), loaders=loaders)
    found = reading(gather(plan, slow.trace(), slow.cluster(), skip=2))
    assert ("--loaders" in found.remedy) == bool(advised)
    assert found.next_command.endswith(f"--strategy ring --loaders {advised}" if advised else "-n 1 --steps 20")
    async_plan = replace(plan, asynchrony=Asynchrony(bound=None))
    assert "--loaders" not in reading(gather(async_plan, slow.trace(), slow.cluster(), skip=2)).remedy


@pytest.mark.parametrize(
    ("disk_bytes", "evidence", "remedy"),
    [(0, "next to nothing of it from a disk", "decode once"), (9e6, "a rank's disk moves 9.00 MB/s", "a faster disk")],
)
def test_reading_is_told_from_computing_samples_by_what_disks_move(disk_bytes, evidence, remedy):
    busy = {"n0": {"disk_bytes": disk_bytes}}
    verdict = Injected(workers=2, mbit=5000, input_s={0: 0.2, 1: 0.2}, samples=busy).verdict()
    assert verdict.kind == "input"
    assert evidence in verdict.text
    assert remedy in verdict.advice


def test_no_rank_is_throttled_longer_than_there_was_time(run):
    sample = replace(Injected(workers=2)._sample(0, [*run().trace().parts]), throttled_s=1.06, span_s=1.0)
    (load,) = rank_loads(replace(run().trace(), samples=(sample,))).values()
    assert load.throttled_share == 1.0


def test_a_link_that_is_one_of_several_alike_says_so_first():
    even = Injected(workers=4, mbit=30, megabytes=4, probe_error=0.0).verdict()
    assert re.match(r"Network, n\d's uplink, one of 4 alike: 30 Mbit/s", even.text)
    assert " alike" not in Injected(workers=4, megabytes=4, links={"n2 uplink": 40}).verdict().text


def test_no_link_is_fuller_than_full(run):
    """The probe ran on a starved processor and found a fraction of what the run moved."""
    local = Channel(latency_s=0, bandwidth_bytes_per_s=1e5, origin="measured")
    text = run(**SLOW_NETWORK, messages=HALVES, local=local).report().verdict.text
    assert "here's loopback moves 50.0 MB/s, more than the 100 KB/s measured" in text

    links = [f"n{index} {side}" for index in range(4) for side in ("uplink", "downlink")]
    starved = Injected(
        cpu_s_per_byte=1e-8,
        seconds_per_sample=1e-4,
        links=dict.fromkeys(links, 2),
        degraded=dict.fromkeys(links, 5000),
    ).verdict()
    assert starved.kind == "transport"
    assert re.search(r"and n\d's (up|down)link moves \d+ .bit/s, more than when it was probed", starved.text)


def test_small_batch(run):
    verdict = (
        run(compute_s=(0.001, 0.001), communication_s=(0.001, 0.001), update_s=0.002, other_s=0.001).report().verdict
    )
    assert (verdict.kind, verdict.value, verdict.unit) == ("small batch", 64, "samples")
    assert "not help" not in verdict.text, "other numbers of workers were not simulated"


def test_update_and_other_are_only_causes_while_compute_outweighs_them(run):
    kinds = [cause.kind for cause in run(update_s=0.002, other_s=0.001).report().causes]
    assert kinds == ["compute", "transport", "update", "other"]


def test_pages_that_ranks_share_are_counted_once(run):
    made = run(rss_bytes=1000 << 20)
    both = zip(made.trace().usage, (400, 300), strict=True)
    usage = tuple(replace(each, shared_rss_bytes=shared << 20) for each, shared in both)
    (used,) = node_resident_bytes(replace(made.trace(), usage=usage)).items()
    assert used == ("here", (600 + 700 + 400 << 20) + 1), "rank 1 has a byte more than rank 0"


def test_steps_are_counted_though_not_all_are_kept(run):
    made = run(num_steps=100)
    whole = made.trace()
    kept = tuple(parts for parts in whole.parts if parts.step % 4 == 0)
    for parts, num_steps, judged in ((whole.parts, 100, 95), (kept, 99, 91), (kept, None, 23)):
        trace = replace(whole, parts=parts, num_steps=num_steps)
        assert report(made.plan(), trace, made.cluster(), Result()).num_steps == judged, "5 steps of the run warm up"


def test_memory_comes_first(run):
    verdict = run(rss_bytes=1 << 30, memory_bytes=2 << 30).report().verdict
    assert (verdict.kind, verdict.place) == ("memory", "here")
    assert verdict.value == pytest.approx(100)


SLOW_NETWORK = {"compute_s": (0.005, 0.005), "communication_s": (0.02, 0.02)}


def test_a_full_link(run):
    local = Channel(latency_s=0, bandwidth_bytes_per_s=5.5e7, origin="measured")
    verdict = run(**SLOW_NETWORK, messages=HALVES, local=local).report().verdict
    assert (verdict.kind, verdict.place, verdict.unit) == ("link", "here loopback", "bytes/s")
    assert verdict.value == pytest.approx(50e6)
    assert "moves 50.0 MB/s, 91 % of the 55.0 MB/s that it can" in verdict.text


def test_many_small_messages(run):
    many = tuple((0.001 * index, 0.001 * (index + 1), 3072) for index in range(20))
    local = Channel(latency_s=0.0006, bandwidth_bytes_per_s=1e9, origin="measured")
    verdict = run(**SLOW_NETWORK, messages=many, local=local).report().verdict
    assert verdict.kind == "latency"
    assert verdict.text.startswith("Latency: 20 messages of 3.00 KiB a step, 600 us each before any byte")


def test_a_transport_that_fills_no_link(run):
    verdict = run(**SLOW_NETWORK, messages=HALVES).report().verdict
    assert (verdict.kind, verdict.place) == ("transport", "here loopback")
    assert "here's loopback moves 50.0 MB/s, 5 % of what it can" in verdict.text


def test_a_transport_of_which_no_message_was_traced(run):
    verdict = run(**SLOW_NETWORK).report().verdict
    assert (verdict.kind, verdict.place) == ("transport", "network")


def test_a_busy_server(run):
    report = run(**SLOW_NETWORK, servers=1, server_s=0.018, messages=HALVES).report()
    assert (report.verdict.kind, report.verdict.place) == ("server", "rank 2 on here")
    assert report.verdict.text.startswith("Server: rank 2 sums for 2 workers and works 18.0 ms of each step")
    assert report.next_command == "nfold train examples/digits.py -n 2 --strategy ps --servers 2"
    assert report.server_rss_bytes == (100 << 20) + 2
    assert report.worker_rss_bytes == (100 << 20) + 1


def test_bus_bandwidth_is_bytes_to_send_over_the_time_of_use(run):
    report = run(messages=HALVES).report()
    assert report.bus_bandwidth_bytes_per_s == pytest.approx(1e6 / 0.02)  # 2(n-1)/n of 1 MB in 20 ms
    assert run().report().bus_bandwidth_bytes_per_s is None


def test_prediction_error_has_its_sign(run):
    assert run(predicted_s=0.04).report().predicted.step_error == pytest.approx(-0.2)
    assert run(predicted_s=0.06).report().predicted.step_error == pytest.approx(+0.2)


def test_efficiency_is_against_a_plain_run(run):
    # 128 samples in 50 ms by two workers; one alone does 1600 in a second.
    assert run(alone_samples_per_s=1600.0).report().efficiency == pytest.approx(1.6)
    assert run().report().efficiency == pytest.approx(0.8)


def test_what_ifs_become_speedups(run):
    slow = run()
    facts = gather(slow.plan(), slow.trace(), slow.cluster(), 2)
    what_ifs = {"as planned": 0.05, "network": 0.04, "compute": 0.01, "peer wait": 0.05}
    causes = ranked_causes(findings(replace(facts, what_ifs=what_ifs)), facts.step_s)
    assert {cause.kind: cause.what_if_speedup for cause in causes} == {
        "compute": None,
        "transport": pytest.approx(1.25),
    }
    assert [cause.share for cause in causes] == pytest.approx([0.8, 0.2])


def test_a_cause_wins_no_more_than_its_share_and_what_waits_for_it(run):
    made = run(update_s=0.01)
    (ring,) = made.plan().reductions
    served = replace(ring, route="server", shares=(Share(rank=0, start=0, stop=ring.num_elements),))

    def speedup(whole_s, without_s, reduction=served):
        facts = gather(replace(made.plan(), reductions=(reduction,)), made.trace(), made.cluster(), 2)
        what_ifs = {"as planned": whole_s, "peer wait": whole_s, "compute": whole_s / 5, "update": without_s}
        causes = ranked_causes(findings(replace(facts, what_ifs=what_ifs)), facts.step_s)
        return next(each.what_if_speedup for each in causes if each.kind == "update")

    # 40 ms compute, 10 ms waiting for messages, 10 ms update.
    assert speedup(0.06, 0.052) == pytest.approx(60 / 52), "less than its share: something takes over"
    assert speedup(0.06, 0.045) == pytest.approx(60 / 45), "messages waited for it"
    assert speedup(0.06, 0.03) == pytest.approx(60 / 40), "computing did not wait for it"
    assert speedup(0.06, 0.045, ring) == pytest.approx(60 / 50), "nobody waits for what everybody does"
    assert speedup(0.08, 0.02) is None, "that is another step"


@pytest.mark.parametrize("compute_s", [(0.06, 0.1, 0.1), (0.06, 0.08, 0.1), (0.1, 0.06, 0.1)])
def test_causes_of_a_step_do_not_overlap(run, compute_s):
    slowest_s = max(compute_s)
    uneven = run(
        workers=3, cores=4, compute_s=compute_s, communication_s=tuple(slowest_s + 0.002 - own for own in compute_s)
    ).report()
    assert sum(cause.share for cause in uneven.causes) == pytest.approx(1.0)


def test_few_steps_are_too_few_to_say_how_efficient_a_run_is(run):
    assert run(num_steps=6).report().is_short
    assert not run(num_steps=7).report().is_short, "two warm up"


def test_one_worker_has_no_network(run):
    report = run(workers=1, compute_s=(0.04,), communication_s=(0.001,), sent_bytes=0).report()
    assert report.bus_bandwidth_bytes_per_s is None
    assert report.sent_bytes_per_step == 0
    assert [cause.kind for cause in report.causes] == ["compute"]


def test_a_report_reads_back_from_json_with_the_keys_that_tools_rely_on(run):
    report = run().report()
    assert loads(Report, dumps(report)) == report
    document = encode(report)
    assert document["verdict"]["class"] == "compute"
    assert set(document["step_s"]) == {"p50", "p95"}
    assert document["cpu_cores"] == pytest.approx(1.0)
    assert report.num_steps == 8


def test_threads_that_fill_the_machine_are_told_to_try_ranks(run):
    report = run(workers=1, threads=2, compute_s=(0.04,), communication_s=(0.0,)).report()
    assert "a rank for each may use them better" in report.verdict.text
    assert report.next_command == "nfold compare examples/digits.py -n 1,2"


@pytest.mark.parametrize(
    ("useful_workers", "num_nodes", "command"),
    [
        (1, 1, ""),
        (None, 1, "nfold compare {file} -n 1,2"),
        (3, 1, "nfold compare {file} -n 1,2"),
        (1, 4, "nfold compare {file} -n 1,4"),
    ],
)
@pytest.mark.parametrize("update_s", [0.0, 0.2])
def test_one_worker_is_told_to_compare_only_where_that_is_open(run, update_s, useful_workers, num_nodes, command):
    alone = run(workers=1, cores=2.0, compute_s=(0.04,), communication_s=(0.0,), update_s=update_s)
    (here,) = alone.cluster().nodes
    cluster = Cluster(nodes=(here, *(replace(here, name=f"n{number}") for number in range(1, num_nodes))))
    plan = alone.plan()
    main = main_finding(findings(gather(plan, alone.trace(), cluster, 2)))
    assert main.kind == ("small batch" if update_s else "compute")
    possible_gains = PossibleGains(tried=(), useful_workers=useful_workers)
    assert next_command(main, possible_gains, plan, cluster) == command


@pytest.mark.parametrize(
    ("speedup", "advice"),
    [(1.35, "Twice the batch size would be 1.4x faster."), (1.01, "No change that was simulated wins 2 %.")],
)
def test_what_wins_is_named_though_it_has_nothing_to_do_with_the_cause(run, speedup, advice):
    made = run()
    main = main_finding(findings(gather(made.plan(), made.trace(), made.cluster(), 2)))
    gain = Gain(change="twice the batch size", speedup=speedup, command="")
    tried = TriedChange(kind="batch", gain=gain, changed=None)
    told = verdict_of(main, PossibleGains(tried=(tried,), useful_workers=None), "ring", "my.py")
    assert (told.kind, told.advice) == ("compute", advice)


@pytest.mark.parametrize("slow", ["n0", "n1", "n2"])
def test_of_links_that_measure_alike_the_one_that_was_declared_slowest_is_named(slow):
    again = Injected(workers=3, megabytes=4, mbit=48, probe_error=0.0).again().facts

    def declared(node):
        rate = (50 if node.name == slow else 100) * 1e6 / 8
        return {side: replace(getattr(node, side), declared_bytes_per_s=rate) for side in ("uplink", "downlink")}

    nodes = tuple(replace(node, **declared(node)) for node in again.cluster.nodes)
    uses = tuple(
        replace(use, channel=next(getattr(node, use.side) for node in nodes if node.name == use.node))
        for use in again.channels
    )
    facts = replace(again, cluster=replace(again.cluster, nodes=nodes), channels=uses)
    assert communication(facts).place == f"{slow} uplink"


def test_one_worker_on_one_core_is_told_nothing(run):
    assert run(workers=1, cores=1.0, compute_s=(0.04,), communication_s=(0.0,)).report().next_command == ""
