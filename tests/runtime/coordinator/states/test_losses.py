"""Whole runs that lose a member while they train, and go back to snapshots in memory."""

from typing import Any

import pytest
from elastic import CHUNKS, Elastic
from harness import difference, plain_loop
from nets import program

from nfold.planning.choosing import strategies
from nfold.runtime.step.cells import Cells
from nfold.verbs.ranks.thread_ranks import threads_put_back

MOST = 4
"""Steps that a loss may cost."""


@pytest.fixture(autouse=True)
def threads():
    with threads_put_back():
        yield


def lose_from_snapshot(run: Elastic, killed: int = 1) -> dict[str, Any]:
    """Kill a member that has something alone; the others go back to a snapshot. Return what they have trained."""
    run.train(3 * MOST)
    run.kill(killed)
    run.until_planned(2)
    run.train(MOST)
    trained: dict[str, Any] = run.end().state_dict()
    (loss,) = run.folder.events()
    assert (loss.kind, loss.again_from) == ("loss", "a snapshot")
    assert loss.steps_again <= MOST
    return trained


def difference_from_one_device(run: Elastic, trained: dict[str, Any]) -> float:
    return difference(trained, plain_loop(program("residual"), run.step, CHUNKS).state_dict())


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
    assert difference_from_one_device(run, lose_from_snapshot(run)) <= 1e-9


def test_who_is_killed_and_alone_had_chunks_takes_no_batch_statistics_along(tmp_path, monkeypatch):
    """The other one has the same modules, whose statistics are those from before the first step."""
    dealt = strategies.dealt_chunks

    def dealt_to_one(facts, updated):
        return iter([(1,) * CHUNKS]) if facts.workers == 2 else dealt(facts, updated)

    monkeypatch.setattr(strategies, "dealt_chunks", dealt_to_one)
    run = Elastic(program("residual"), tmp_path / "run", may_lose=True, strategy="ring", protect=MOST)
    assert difference_from_one_device(run, lose_from_snapshot(run)) <= 1e-9


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
    assert difference_from_one_device(run, trained) <= 1e-9


@pytest.mark.parametrize("strategy", ["ssp", pytest.param("ps-async", marks=pytest.mark.exhaustive)])
def test_who_is_killed_in_an_asynchronous_run_takes_few_steps_along(tmp_path, strategy):
    """That of the shard which hands out slices and keeps batch statistics; without staleness all is as on one."""
    wishes = {"staleness": 0} if strategy == "ssp" else {}
    run = Elastic(
        program("residual"), tmp_path / "run", may_lose=True, workers=3, strategy=strategy, protect=MOST, **wishes
    )
    trained = lose_from_snapshot(run, killed=0)
    assert [line["step"] for line in run.folder.history()] == list(range(1, run.step + 1))
    assert all(tensor.isfinite().all() for tensor in trained.values())
    if wishes:
        assert difference_from_one_device(run, trained) <= 1e-9


def test_a_loss_right_before_the_end_of_an_asynchronous_run_does_not_hold_it_up(tmp_path):
    """No further snapshot is due, and others may have left by the time at which buddies would have the last one."""
    wishes = {"workers": 3, "strategy": "ssp", "staleness": 0, "protect": MOST, "steps": 4 * MOST}
    run = Elastic(program("residual"), tmp_path / "run", may_lose=True, **wishes)
    run.train(4 * MOST - 1)
    run.kill(2)
    trained = run.to_the_end().state_dict()
    assert [line["step"] for line in run.folder.history()] == list(range(1, 4 * MOST + 1))
    assert difference(trained, plain_loop(program("residual"), 4 * MOST, CHUNKS).state_dict()) <= 1e-9
