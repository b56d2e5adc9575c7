"""What an optimizer makes after the steps that were tried is found when a checkpoint is written."""

import pytest
import torch
from coordinated import Job, file, orders
from optimizers import OPTIMIZERS
from torch import nn
from torch.optim import SGD

from nfold.capture.optimizers.state_scope import keeping
from nfold.capture.optimizers.stepping import Stepping
from nfold.capture.optimizers.update_scope import update_scope
from nfold.runtime.control import commands as cmd
from nfold.runtime.parameters.buffers import Piece
from nfold.runtime.parameters.held_pieces import Held
from nfold.runtime.parameters.optimizer_updates import Updater

SHARED = {}


class Later(SGD):
    """Makes slow weights at its sixteenth step."""

    def __init__(self, params):
        super().__init__(params, lr=0.1, momentum=0.9)

    @torch.no_grad()
    def step(self, closure=None):
        super().step()
        group = self.param_groups[0]
        group["n"] = group.get("n", 0) + 1
        if group["n"] == 16:
            self.make(group["params"])

    def make(self, params):
        self.slow = [p.clone() for p in params]


class LaterInState(Later):
    def make(self, params):
        for p in params:
            self.state[p]["slow"] = p.clone()


class LaterOutside(Later):
    def make(self, params):
        SHARED["slow"] = [p.clone() for p in params]


class Logging(SGD):
    calls = 0

    def step(self, closure=None):
        self.calls += 1
        super().step()


class LaterNumber(Later):
    """Has had it from the beginning."""

    phase = 0

    def make(self, params):
        self.phase = 1


def stepped(factory, steps, scheduler=None, **more):
    weights = [(name, nn.Parameter(torch.randn(4, 3))) for name in "ab"]
    held = [Held(Piece(name, 0, 12, 0), name, weight) for name, weight in weights]
    updater = Updater(Stepping(factory, scheduler), held, [("frozen", nn.Parameter(torch.ones(2)))], **more)
    for step in range(steps):
        for _, weight in weights:
            weight.grad = torch.sin(weight.detach() + step)
        updater.step()
        updater.advance(step + 1)
    return updater


@pytest.mark.parametrize(("kind", "name"), [(Later, "slow"), (LaterNumber, "phase"), (LaterOutside, "SHARED")])
def test_what_comes_later_and_is_kept_nowhere_is_named(kind, name):
    SHARED.clear()
    assert stepped(kind, 15).why_unkept() == ""
    told = stepped(kind, 16).why_unkept()
    assert kind.__name__ in told
    assert name in told


def cosine(optimizer):
    optimizer.horizon = 0  # what a schedule sets on its optimizer is there again when it is played again
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: setattr(optimizer, "horizon", step) or 1.0)
    return torch.optim.lr_scheduler.ChainedScheduler(
        [schedule, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)]
    )


@pytest.mark.parametrize(
    ("factory", "scheduler"),
    [
        (LaterInState, None),
        (lambda params: SGD(params, lr=0.1, momentum=0.9), cosine),
        *((each, None) for each in OPTIMIZERS.values()),
    ],
)
def test_what_a_checkpoint_brings_back_is_no_loss(factory, scheduler):
    model = nn.Module()
    model.a, model.b = (nn.Parameter(torch.randn(4, 3)) for _ in range(2))
    stepping = Stepping(factory, scheduler)
    found = keeping(stepping, model, update_scope(stepping, model).scope)
    updater = stepped(factory, 20, scheduler, is_kept_whole=found.form == "whole", forgets=found.forgets)
    values, draws = [each.detach().clone() for each in updater._tensors], torch.get_rng_state()
    assert updater.why_unkept() == ""
    assert all(map(torch.equal, values, updater._tensors))
    assert torch.equal(draws, torch.get_rng_state())


def test_what_was_found_to_change_nothing_is_no_loss():
    assert stepped(lambda params: Logging(params, lr=0.1), 3, forgets=("calls",)).why_unkept() == ""
    assert "calls" in stepped(lambda params: Logging(params, lr=0.1), 3).why_unkept()


def test_a_run_goes_on_without_checkpoints_that_nobody_could_go_on_from():
    job = Job()
    assert orders(job.until_training()) == ["01 until 4", "01 checkpoint"]
    job.all_step(0, 1, 2, 3)
    job.say(0, "checkpoint", file("state"), unkept="it holds slow")
    assert job.say(1, "checkpoint") == [cmd.Unkept(4, file("state"), "it holds slow")]
    later = [*orders(job.all_step(4, 5)), *orders(job.all_step(6, 7))]
    assert [each for each in later if each != "StepDone"] == ["01 until 8", "01 deliver"]
