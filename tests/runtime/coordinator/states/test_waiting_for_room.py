"""Whole runs that lose a member without which there is no plan, and go on with another one."""

import pytest
from elastic import CHUNKS, Elastic
from harness import difference, plain_loop
from nets import program

from nfold.errors import PlanError
from nfold.runtime.checkpoint.state_file import StoredState
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.job_planning import JobPlanning
from nfold.verbs.options.option_checks import Options
from nfold.verbs.ranks.thread_ranks import threads_put_back
from nfold.verbs.run_folder.files import CHECKPOINT, MODEL

MOST, HOSTS = 4, 3
"""Steps that a loss may cost, and the fewest hosts that have room for the model."""


@pytest.fixture(autouse=True)
def threads():
    with threads_put_back():
        yield


@pytest.fixture(autouse=True)
def no_plan_for_few(monkeypatch):
    plan = JobPlanning.plan

    def plan_for_enough(self, *given):
        if self.settings.workers < HOSTS:
            raise PlanError("it does not fit")
        return plan(self, *given)

    monkeypatch.setattr(JobPlanning, "plan", plan_for_enough)
    monkeypatch.setattr(Options, "waits_s", 600.0)


@pytest.mark.parametrize("lost_too", [(), pytest.param((2,), marks=pytest.mark.exhaustive)])
def test_what_was_learnt_is_in_a_checkpoint_and_the_result_is_one_devices(tmp_path, lost_too):
    """Each rank has a part of the model; of two that are lost one after the other nobody else has a part."""
    run = Elastic(program("residual"), tmp_path / "run", may_lose=True, workers=3, strategy="pipeline", protect=MOST)
    run.train(3 * MOST)
    noted = run.told.noted

    def noted_and_answered(text):
        noted(text)
        if text.startswith("waiting for another host"):
            for member in lost_too:
                run.kill(member)
            run.session.request(1 + len(lost_too))

    run.told.noted = noted_and_answered
    run.kill(1)
    run.until_planned(2)
    kept = StoredState.open(run.folder.path / CHECKPOINT)
    run.train(MOST)
    trained = run.end().state_dict()
    assert kept.step % 2 == 0, "a snapshot's"
    kinds = [row.kind for row in run.folder.events()]
    assert sorted(kinds) == sorted(["loss", "join"] * (1 + len(lost_too)))
    assert difference(trained, plain_loop(program("residual"), run.step, CHUNKS).state_dict()) <= 1e-9


def test_the_model_of_a_run_whose_time_is_over_while_it_waits_is_that_of_its_checkpoint(tmp_path):
    run = Elastic(program("plain"), tmp_path / "run", may_lose=True, workers=HOSTS)
    run.train(2)
    (run.folder.path / MODEL).write_bytes(b"of the part of the run before")
    run.kill(1)
    run.session._events.put(ev.TimeUp(1.0))
    ended = run.to_the_end()
    assert ended.is_stopped
    kept = StoredState.open(run.folder.path / CHECKPOINT)
    assert run.folder.holds(MODEL, kept.model())
