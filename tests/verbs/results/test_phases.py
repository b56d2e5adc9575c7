"""The wall time of a run, booked to the event that ends each stretch."""

from pathlib import Path

import pytest

from nfold.runtime.control import commands as cmd
from nfold.runtime.control.spool import Arrived
from nfold.verbs.results.phases import Phases


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


def step(index):
    return cmd.StepDone(step=index, epoch=0, loss=0.0, parts=(), trace=None)


def test_every_instant_is_in_one_phase(clock):
    phases = Phases(clock)
    for after_s, happening in [
        (1.5, cmd.RanksStarted()),
        (2.0, cmd.Noted("profiled")),  # ends nothing
        (0.5, cmd.TrainingBegins()),
        (0.1, step(0)),
        (0.2, cmd.Sampled(())),  # taken while the next step is played
        (0.3, step(1)),
        (0.7, cmd.Evaluated(step=2, epoch=0, metrics={})),
        (0.25, cmd.KeepCheckpoint(step=2, file=Arrived(Path("x"), 1))),
        (0.4, cmd.Finished()),
    ]:
        clock.now_s += after_s
        phases.happened(happening)
    clock.now_s += 0.05
    spent = phases.book("ending")
    assert spent == pytest.approx(
        {"start-up": 1.5, "building": 2.5, "steps": 0.6, "evaluation": 0.7, "checkpoints": 0.25, "ending": 0.45}
    )
    assert sum(spent.values()) == pytest.approx(clock.now_s - 100)


def test_a_ledger_may_begin_before_it_is_made_and_go_on_after_the_end(clock):
    phases = Phases(clock, begun_s=97.0)
    phases.happened(cmd.RanksStarted())
    clock.now_s += 1.0
    assert phases.book("ending") == pytest.approx({"start-up": 3.0, "ending": 1.0})
    clock.now_s += 0.5
    assert phases.book("writing") == pytest.approx({"start-up": 3.0, "ending": 1.0, "writing": 0.5})


def test_a_users_own_loop_is_no_step(clock):
    phases = Phases(clock)
    clock.now_s += 1.0
    phases.happened(step(0))
    clock.now_s += 5.0
    phases.returned()
    clock.now_s += 1.0
    phases.happened(step(1))
    assert phases.book("ending") == pytest.approx({"steps": 2.0, "your own loop": 5.0, "ending": 0.0})
