"""The worker that the others wait for, where each time it is another one."""

from dataclasses import replace

import pytest
from injected import Injected

from nfold.analysis.measured.measured_facts import gather
from nfold.analysis.rules.peer_wait import peer_wait

WORKERS = 4
NODES = [f"n{rank}" for rank in range(WORKERS)]


def finding(throttled):
    """Of a run in which one is half as fast in every step, each time the next one.

    Args:
        throttled: the nodes whose processor limit holds them back.
    """
    run = Injected(
        workers=WORKERS,
        mbit=5000.0,
        speeds={"n0": 0.5},
        samples={name: {"throttled_s": 0.4} for name in throttled},
    )
    cluster = run._cluster({}, {}, 0.0)
    plan = run._plan(run._question(cluster))
    trace = run._trace(plan)
    parts = tuple(replace(each, rank=(each.rank + each.step) % WORKERS) for each in trace.parts)
    return peer_wait(gather(plan, replace(trace, parts=parts), cluster, 0))


@pytest.mark.parametrize(
    ("throttled", "because", "remedy"),
    [
        ([], "each time another one is last", "See what else runs on the nodes"),
        (NODES[:3], "each time another one is last", "See what else runs on the nodes"),
        (NODES, "each is stopped by its processor limit at moments of its own", "Give all of them more of a processor"),
    ],
    ids=["free", "one is free", "limited"],
)
def test_where_each_time_another_worker_is_last_none_of_them_is_to_blame(throttled, because, remedy):
    found = finding(throttled)
    assert found is not None
    assert found.sub_cause == "changing"
    assert "it works" not in found.evidence, "that would be slower or faster than it is last"
    assert because in found.evidence
    assert found.remedy.startswith(remedy)


def test_others_that_are_as_busy_on_every_node_are_not_denied():
    busy = {name: {"neighbours_cpu_s": 1.87} for name in NODES}
    verdict = Injected(workers=WORKERS, mbit=5000.0, cores=2.0, speeds={"n0": 0.5}, samples=busy).verdict()
    assert verdict.sub_cause == "slower processor"
    assert "others took not much more of its processors than of the other nodes'" in verdict.text
