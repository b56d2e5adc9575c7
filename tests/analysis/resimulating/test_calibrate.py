"""What a run says of its nodes, so that other placements can be simulated on them."""

import pytest
from injected import Injected

from nfold.analysis.resimulating.calibrate import ALIKE

pytestmark = pytest.mark.long


def seconds_per_sample(injected):
    """Forward of one sample on each worker's node, as the calibrated question has it."""
    question = injected.again().question
    (profile,) = question.profiles.values()
    forward_s, _ = profile.whole_s(injected.batch_size)
    return {
        name: forward_s / injected.batch_size / question.cluster.node(name).speed
        for name in question.nodes[: question.workers]
    }


def test_a_run_says_how_fast_its_nodes_compute():
    found = seconds_per_sample(Injected(workers=3, mbit=5000, speeds={"n0": 0.5, "n1": 0.5, "n2": 0.5}))
    assert found == {name: pytest.approx(2e-3, rel=0.05) for name in ("n0", "n1", "n2")}


def test_a_slow_node_stays_slow():
    found = seconds_per_sample(Injected(workers=3, mbit=5000, speeds={"n1": 0.5}))
    assert found["n1"] == pytest.approx(2 * found["n0"], rel=0.1)
    assert found["n0"] == found["n2"]


def test_nodes_that_differ_by_a_few_per_cent_are_taken_for_equal():
    found = seconds_per_sample(Injected(workers=4, mbit=5000, speeds={"n1": 1.05, "n3": 0.97}))
    assert len(set(found.values())) == 1
    apart = seconds_per_sample(Injected(workers=4, mbit=5000, speeds={"n1": 1.1 * ALIKE}))
    assert apart["n1"] < apart["n0"]


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_slow_half_stays_slow(nodes):
    """The median of all is between both halves, and each is near it."""
    slow = [f"n{index}" for index in range(nodes)]
    found = seconds_per_sample(Injected(workers=2 * nodes, mbit=5000, speeds=dict.fromkeys(slow, 0.8), seed=1))
    fast = found[f"n{nodes}"]
    assert [found[name] for name in slow] == [pytest.approx(fast / 0.8, rel=0.1)] * nodes
    assert len(set(found.values())) == 2


@pytest.mark.parametrize("seconds", [2e-4, 1e-3])
@pytest.mark.parametrize("seed", range(3))
def test_bursts_under_a_quota_tell_what_computing_all_the_time_takes(seconds, seed):
    """A run that waits for its links computes from full grants, at most for some milliseconds."""
    waiting = Injected(workers=4, cores=0.3, quota_period_s=0.01, mbit=20, seconds_per_sample=seconds, seed=seed)
    found = seconds_per_sample(waiting)
    assert len(set(found.values())) == 1, "no node is luckier than another"
    assert found["n0"] == pytest.approx(seconds, rel=0.15)


def test_what_a_run_waited_for_its_data_is_waited_for_again():
    """Whatever was profiled of reading, and though computing would hide it."""
    again = Injected(workers=2, mbit=5000, input_s={0: 0.02, 1: 0.02}).again()
    loads = [span.end_s - span.start_s for span in again.as_it_was.trace.spans if span.kind == "LOAD"]
    assert sum(loads) / 2 == pytest.approx(0.02, rel=0.01)
    assert again.as_it_was.step_s == pytest.approx(again.facts.step_s, rel=0.1)


def test_what_the_run_was_simulates_like_it():
    injected = Injected(workers=4, cores=0.3, quota_period_s=0.01, mbit=100, speeds={"n2": 0.4})
    again = injected.again()
    assert again.as_it_was.step_s == pytest.approx(again.facts.step_s, rel=0.05)
