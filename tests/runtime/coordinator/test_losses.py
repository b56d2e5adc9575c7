"""Whole runs that lose a member while they train, and go back to snapshots in memory."""

import pytest
from elastic_runs import Elastic, one_device
from harness import difference
from nets import program

from nfold.verbs.ranks.thread_ranks import threads_put_back

MOST = 4
"""Steps that a loss may cost."""


@pytest.fixture(autouse=True)
def threads():
    with threads_put_back():
        yield


@pytest.mark.parametrize("strategy", ["ring", "pipeline", "ps", "hypergraph"])
def test_who_is_killed_takes_few_steps_along_and_the_result_is_one_devices(tmp_path, strategy):
    run = Elastic(program("residual"), tmp_path / "run", may_lose=True, workers=3, strategy=strategy, protect=MOST)
    run.train(3 * MOST)
    run.kill(1)
    run.until_planned(2)
    run.train(MOST)
    (loss,) = run.folder.events()
    assert (loss.kind, loss.again_from) == ("loss", "a snapshot")
    assert loss.steps_again <= MOST
    assert difference(run.end().state_dict(), one_device(run.step, "residual")) <= 1e-9
