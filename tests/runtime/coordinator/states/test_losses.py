"""Whole runs that lose a member while they train, and go back to snapshots in memory."""

import pytest
from elastic import CHUNKS, Elastic
from harness import difference, plain_loop
from nets import program

from nfold.verbs.ranks.thread_ranks import threads_put_back

MOST = 4
"""Steps that a loss may cost."""


@pytest.fixture(autouse=True)
def threads():
    with threads_put_back():
        yield


@pytest.mark.parametrize(
    "strategy",
    [
        "ring",
        "pipeline",
        pytest.param("ps", marks=pytest.mark.exhaustive),
        pytest.param("hypergraph", marks=pytest.mark.exhaustive),
    ],
)
def test_who_is_killed_takes_few_steps_along_and_the_result_is_one_devices(tmp_path, strategy):
    run = Elastic(program("residual"), tmp_path / "run", may_lose=True, workers=3, strategy=strategy, protect=MOST)
    run.train(3 * MOST)
    run.kill(1)
    run.until_planned(2)
    run.train(MOST)
    trained = run.end().state_dict()
    (loss,) = run.folder.events()
    assert (loss.kind, loss.again_from) == ("loss", "a snapshot")
    assert loss.steps_again <= MOST
    assert difference(trained, plain_loop(program("residual"), run.step, CHUNKS).state_dict()) <= 1e-9
