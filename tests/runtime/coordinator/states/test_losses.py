"""Whole runs that lose a member while they train, and go back to snapshots in memory."""

import pytest
from elastic import CHUNKS, Elastic
from harness import difference, plain_loop
from nets import program

from nfold.runtime.step.cells import Cells
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


@pytest.mark.parametrize("killed", [0, 1, 2])
def test_no_step_is_lost_where_each_rank_has_the_whole_state(tmp_path, monkeypatch, killed):
    """The member dies within a step, after its losses are known and before its gradients are."""
    backward, armed = Cells._backward, []

    def kill_and_go_on(self, task, emit):
        if armed and self._schedule.rank == killed:
            armed.pop()()
        backward(self, task, emit)

    monkeypatch.setattr(Cells, "_backward", kill_and_go_on)
    run = Elastic(program("residual"), tmp_path / "run", may_lose=True, workers=3, strategy="ring", protect=MOST)
    run.train(MOST + 1)
    armed.append(lambda: run.cut_off(killed))
    run.until_planned(2)
    run.train(MOST)
    trained = run.end().state_dict()
    (loss,) = run.folder.events()
    assert (loss.kind, loss.again_from, loss.steps_again) == ("loss", "the step under way", 0)
    assert [line["step"] for line in run.folder.history()] == list(range(1, run.step + 1))
    assert difference(trained, plain_loop(program("residual"), run.step, CHUNKS).state_dict()) <= 1e-9


@pytest.mark.parametrize("strategy", ["ssp", "ps-async"])
@pytest.mark.parametrize("killed", [0, 1])
def test_who_is_killed_in_an_asynchronous_run_takes_few_steps_along(tmp_path, strategy, killed):
    """A worker with its shard, at any moment; without staleness the result is that of one device."""
    staleness = {"staleness": 0} if strategy == "ssp" else {}
    wishes = {"workers": 3, "strategy": strategy, "protect": MOST, **staleness}
    run = Elastic(program("residual"), tmp_path / "run", may_lose=True, **wishes)
    run.train(3 * MOST)
    run.kill(killed)
    run.until_planned(2)
    run.train(MOST)
    trained = run.end().state_dict()
    (loss,) = run.folder.events()
    assert (loss.kind, loss.again_from) == ("loss", "a snapshot")
    assert loss.steps_again <= MOST
    assert [line["step"] for line in run.folder.history()] == list(range(1, run.step + 1))
    assert all(tensor.isfinite().all() for tensor in trained.values())
    if staleness:
        assert difference(trained, plain_loop(program("residual"), run.step, CHUNKS).state_dict()) <= 1e-9
