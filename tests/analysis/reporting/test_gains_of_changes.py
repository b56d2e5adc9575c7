"""What changes would win: simulated from runs whose answer is known."""

import pytest
from injected import MBIT, Injected

from nfold.planning.choosing.strategies import named
from nfold.planning.hypergraph.hypergraph_strategy import ByHypergraph

pytestmark = pytest.mark.long


def gains(injected):
    report = injected.report()
    found = {gain.change: gain.speedup for gain in report.verdict.gains}
    assert all(speedup >= 1.02 for speedup in found.values()), "less than equal runs differ by is never promised"
    return report, found


def test_a_slow_link_is_explained_with_what_would_win_and_needs_no_other():
    report, found = gains(Injected(workers=4, megabytes=4, links={"n2 uplink": 50}, probe_error=0.0))
    assert not any("all nodes" in change for change in found)
    verdict = report.verdict
    # The ring is as fast as its slowest link, until the next slowest; the theory of weighted shares says 1.5.
    assert found["a 150 Mbit/s link for n2"] == pytest.approx(3.0, rel=0.05)
    assert found["halving the bytes (bf16)"] == pytest.approx(2.0, rel=0.05)
    assert found["`--strategy weighted`"] == pytest.approx(1.5, rel=0.1)
    assert found["leaving n2 out"] > 3
    assert verdict.text.startswith("Network, n2's uplink: 50 Mbit/s, 100 % busy for 9")
    assert found["`--strategy pipeline`"] > 10, "its activations are next to nothing"
    best = next(gain for gain in verdict.gains if gain.change.startswith("`--strategy"))
    assert f", {best.change} " in verdict.text
    assert report.next_command == best.command
    assert best.command == f"nfold train my.py -n 4 {best.change.strip('`')} --chunks 4"
    assert verdict.value == pytest.approx(50 * MBIT, rel=0.1)


def test_more_chunks_keep_a_pipeline_fuller():
    report, found = gains(Injected(strategy="pipeline", workers=5, chunks=5, batch_size=64, mbit=5000))
    assert report.verdict.kind == "bubble"
    empty, fuller = (5 + 4) / 5, (10 + 4) / 10
    assert found["`--chunks 10`"] == pytest.approx(empty / fuller, rel=0.05)
    (gain,) = [each for each in report.verdict.gains if each.change == "`--chunks 10`"]
    assert gain.command == "nfold train my.py -n 5 --strategy pipeline --chunks 10"


def test_a_link_that_became_slow_gains_from_its_speed_in_the_run():
    report, found = gains(Injected(workers=3, degraded={"n1 uplink": 50}))
    assert found["a 150 Mbit/s link for n1"] == pytest.approx(2.9, rel=0.1)
    assert report.predicted.step_error < -0.5  # it was promised from the link's old speed
    assert report.predicted.time.exposed_communication_s < report.time.exposed_communication_s / 2


def test_one_server_is_relieved_by_more_of_them():
    _, found = gains(Injected(workers=4, strategy="ps", servers=1, probe_error=0.0))
    assert found["`--servers 2` (1 host more)"] > 1.9
    assert found["`--servers 4` (3 hosts more)"] > 3
    assert found["`--strategy ring`"] > 2
    assert found["halving the bytes (bf16)"] == pytest.approx(2.0, rel=0.1)


def test_what_to_type_says_all_that_was_simulated():
    report, _ = gains(Injected(workers=4, strategy="ps", servers=1, mbit=50))
    commands = {gain.change: gain.command for gain in report.verdict.gains}
    assert commands["`--servers 0`"] == "nfold train my.py -n 4 --strategy ps --chunks 4"


def test_a_slow_node_is_worth_what_its_speed_costs():
    report, found = gains(Injected(workers=3, mbit=5000, seconds_per_sample=1e-2, speeds={"n1": 0.5}))
    assert found["making n1 as fast as the others"] == pytest.approx(1.9, rel=0.1)
    assert report.verdict.sub_cause == "slower processor"


def test_where_data_live_on_nodes_nothing_is_advised_that_they_rule_out():
    uneven = Injected(workers=3, mbit=50, seconds_per_sample=1e-2, speeds={"n1": 0.4}, chunk_shares=(0.3, 0.4, 0.3))
    report, found = gains(uneven)
    verdict = report.verdict
    assert (verdict.kind, verdict.place) == ("peer wait", "rank 1 on n1")
    assert verdict.useful_workers is None
    assert not any("chunks" in change or "leaving" in change for change in found)
    assert "-n " not in report.next_command
    slow, _ = gains(Injected(workers=4, megabytes=4, links={"n2 uplink": 50}, chunk_shares=(0.25,) * 4))
    (typed,) = {gain.command for gain in slow.verdict.gains if gain.command}
    assert typed == "nfold train my.py --strategy weighted"


def test_of_two_nodes_the_slower_one_is_worth_what_it_costs():
    _, found = gains(Injected(workers=2, mbit=5000, seconds_per_sample=1e-2, speeds={"n1": 0.8}, seed=1))
    assert found["making n1 as fast as the others"] == pytest.approx(1.25, rel=0.05)


def test_computing_gains_from_one_more_node_until_it_does_not():
    report, found = gains(Injected(workers=2, mbit=5000, seconds_per_sample=1e-2, batch_size=24))
    assert found["one more node like these"] == pytest.approx(1.45, rel=0.1)
    assert report.verdict.useful_workers is None
    small, _ = gains(Injected(workers=2, mbit=20, batch_size=24))
    assert small.verdict.useful_workers == 1
    text = small.verdict.text
    assert "`--strategy pipeline`" in text
    assert text.endswith("; with ring, more than 1 worker will not help."), "a pipeline on both would"


def test_one_worker_of_a_cluster_is_asked_what_another_node_would_bring():
    alone = {"workers": 1, "strategy": "single", "mbit": 5000, "seconds_per_sample": 1e-2, "batch_size": 24}
    of_many, found = gains(Injected(**alone, idle_nodes=3))
    assert found["one more node like these"] == pytest.approx(1.9, rel=0.1)
    assert of_many.verdict.useful_workers is None
    assert "will not help" not in of_many.verdict.text
    on_one_machine, _ = gains(Injected(**alone))
    assert on_one_machine.verdict.useful_workers == 1


def test_what_does_not_fit_the_memory_is_not_promised():
    """A pipeline holds a half of the model on each rank; all strategies that cut only the batch hold it whole."""
    cut = {"strategy": "pipeline", "workers": 2, "chunks": 2, "megabytes": 64, "mbit": 1e6, "cpu_s_per_byte": 0.0}
    whole = {f"`--strategy {name}`" for name in ("ring", "ps", "weighted")}
    assert whole <= set(gains(Injected(**cut))[1])
    tight = set(gains(Injected(**cut, memory_bytes=120 << 20))[1])
    assert not whole & tight
    assert "`--chunks 4`" in tight


def test_a_strategy_is_promised_no_less_than_those_that_it_contains(monkeypatch):
    """Also where its own search finds nothing better than a ring."""
    monkeypatch.setattr(ByHypergraph, "propose", lambda self, facts, contained: named("ring").propose(facts))
    _, found = gains(Injected(workers=4, mbit=20))
    assert found["`--strategy hypergraph`"] >= 0.99 * found["`--strategy pipeline`"] > 10


def test_slow_reading_gains_from_input_that_is_ready():
    _, found = gains(Injected(workers=2, mbit=5000, input_s={0: 0.2, 1: 0.2}))
    assert found["input that is ready in time"] > 3


def test_latency_is_left_out_of_the_step():
    _, found = gains(Injected(workers=4, megabytes=0.05, latency_s=0.02, mbit=5000))
    assert found["no latency"] > 3


def test_links_that_are_all_slow_gain_from_all_of_them():
    _, found = gains(Injected(workers=4, mbit=50, probe_error=0.0))
    assert found["150 Mbit/s links for all nodes"] == pytest.approx(3.0, rel=0.1)
    assert not any(change.startswith("a ") for change in found), "one faster link would win nothing"


QUOTA = {"mbit": 5000, "seconds_per_sample": 1e-2, "quota_period_s": 0.01, "cpu_s_per_byte": 1e-8}


def test_a_node_with_a_small_share_gains_the_whole_processor_of_the_others():
    """Moving bytes and updates take its small share too, so it is not enough that it computes as fast."""
    slow = Injected(workers=2, cores=0.3, shares={"n1": 0.1}, speeds={"n1": 1 / 3}, **QUOTA)
    even = Injected(workers=2, cores=0.3, **QUOTA)
    report, found = gains(slow)
    assert report.verdict.kind == "peer wait"
    real = report.step_s.p50 / even.report().step_s.p50
    assert found["making n1 as fast as the others"] == pytest.approx(real, rel=0.05)


def test_computing_under_a_limit_gains_from_twice_the_share():
    report, found = gains(Injected(workers=2, cores=0.3, **QUOTA))
    assert report.verdict.kind == "compute"
    assert found["twice the share of a processor for every node"] == pytest.approx(2.0, rel=0.05)
    assert "twice the share of a processor" in report.verdict.text


def test_no_share_is_doubled_beyond_a_core_or_without_a_limit():
    for injected in (Injected(workers=2, cores=0.6, **QUOTA), Injected(workers=2, mbit=5000, seconds_per_sample=1e-2)):
        assert not any("share" in change for change in gains(injected)[1])


def test_memory_gains_from_smaller_chunks_at_the_price_of_the_step():
    crowded = Injected(
        workers=2, mbit=5000, activation_bytes_per_sample=4 << 20, memories={"n1": 105 << 20}, chunks=2, batch_size=32
    )
    verdict = crowded.report().verdict
    (gain,) = [gain for gain in verdict.gains if gain.change.startswith("`--chunks 4`")]
    assert (verdict.kind, verdict.place) == ("memory", "n1")
    assert f"{gain.change} would take steps {1 / gain.speedup:.2f}x as long." in verdict.advice
    assert "fewer ranks" not in verdict.advice, "it has one"
    assert crowded.report().next_command == "nfold train my.py -n 2 --strategy ring --chunks 4"


def test_no_smaller_chunks_are_advised_where_weights_fill_the_memory():
    report = Injected(workers=2, mbit=5000, memories={"n1": 105 << 20}, chunks=2).report()
    assert report.verdict.kind == "memory"
    assert not [gain for gain in report.verdict.gains if "chunks 4" in gain.change]
    assert report.verdict.advice.startswith("`--strategy pipeline` (2.50 MiB instead of 5.50 MiB on n1, predicted)")
    assert report.verdict.advice.endswith("Give n1 more memory.")
    assert report.next_command.startswith("nfold train my.py -n 2 --strategy pipeline --chunks")


def test_one_workers_own_input_wins_what_it_costs():
    def waited(**given):
        causes = Injected(workers=3, mbit=5000, **given).report().causes
        return {cause.kind: cause for cause in causes}

    own = waited(input_s={2: 0.1})["peer wait"]
    assert own.what_if_speedup == pytest.approx(1 + 0.1 / 0.035, rel=0.15)
    both = waited(input_s={0: 0.05, 1: 0.05, 2: 0.1})
    assert both["peer wait"].lost_s == pytest.approx(0.05, rel=0.1)
    assert both["input"].lost_s == pytest.approx(0.05, rel=0.1)


def test_more_samples_and_bubbles_have_what_ifs():
    uneven = Injected(workers=2, mbit=5000, seconds_per_sample=1e-2, chunks=3).report()
    (waited,) = [cause for cause in uneven.causes if cause.kind == "peer wait"]
    assert uneven.verdict.sub_cause == "more samples"
    assert waited.what_if_speedup == pytest.approx(22 / 16, rel=0.05), (
        "22 samples against 10, where 16 are an even part"
    )
    empty = Injected(strategy="pipeline", workers=5, chunks=5, batch_size=64, mbit=5000).report()
    (bubble,) = [cause for cause in empty.causes if cause.kind == "bubble"]
    assert bubble.what_if_speedup == pytest.approx((5 + 4) / 5, rel=0.1)
