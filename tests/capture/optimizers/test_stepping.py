"""Optimizers and schedules over whole models and pieces of them."""

import inspect
import re
import warnings

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW
from torch.optim import lr_scheduler as schedules

from nfold.capture.optimizers.stepping import Stepping
from nfold.capture.optimizers.update_scope import update_scope
from nfold.errors import ProgramError


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 4))


def weights() -> list[tuple[str, nn.Parameter]]:
    return list(net().named_parameters())


def sgd(params):
    return SGD(params, lr=0.1, momentum=0.9)


def no_decay_on_biases_and_norms(named_parameters):
    pairs = list(named_parameters)
    free = [p for name, p in pairs if name.endswith("bias") or name.startswith("1.")]
    decayed = [p for name, p in pairs if not (name.endswith("bias") or name.startswith("1."))]
    return AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": free, "weight_decay": 0.0}], lr=0.01)


def by_shape(params):
    params = list(params)
    return AdamW(
        [
            {"params": [p for p in params if p.ndim > 1], "weight_decay": 0.1},
            {"params": [p for p in params if p.ndim <= 1], "weight_decay": 0.0},
        ],
        lr=0.01,
    )


SCHEDULES = {
    "lambda": lambda optimizer: schedules.LambdaLR(optimizer, lambda step: 1 / (1 + step)),
    "cosine": lambda optimizer: schedules.CosineAnnealingLR(optimizer, T_max=9),
    "restarts": lambda optimizer: schedules.CosineAnnealingWarmRestarts(optimizer, T_0=3),
    "one cycle": lambda optimizer: schedules.OneCycleLR(optimizer, max_lr=0.5, total_steps=12),
    "cyclic": lambda optimizer: schedules.CyclicLR(optimizer, 0.01, 0.1, step_size_up=3),
    "warm-up": lambda optimizer: schedules.SequentialLR(
        optimizer,
        [schedules.LinearLR(optimizer, 0.1, total_iters=3), schedules.ExponentialLR(optimizer, 0.9)],
        milestones=[3],
    ),
    "steps": lambda optimizer: schedules.MultiStepLR(optimizer, [2, 5]),
}


def settings(optimizer: torch.optim.Optimizer) -> list[object]:
    return [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
def test_a_replayed_schedule_is_bit_for_bit_where_the_played_one_was(schedule):
    stepping = Stepping(sgd, schedule)
    played = stepping.build(weights())
    for step in range(11):
        replayed = stepping.build(weights())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            replayed.replay(step)
        assert settings(replayed.optimizer) == settings(played.optimizer), step
        played.optimizer.step()
        played.advance(step + 1)


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
def test_schedules_do_not_keep_an_update_from_being_cut(schedule):
    assert update_scope(Stepping(sgd, schedule), net()).scope == "element"


def test_a_schedule_that_follows_the_weights_is_not_cut():
    def larger_is_slower(optimizer):
        size = sum(p.numel() for group in optimizer.param_groups for p in group["params"])
        return schedules.LambdaLR(optimizer, lambda step: 1.0 if step == 0 else 1 / size)

    assert update_scope(Stepping(sgd, larger_is_slower), net()).scope == "model"


@pytest.mark.parametrize(
    ("factory", "scope"),
    [
        (no_decay_on_biases_and_norms, "element"),
        (by_shape, "parameter"),
        (lambda named_parameters: AdamW(named_parameters, lr=0.01), "element"),
        (lambda named_parameters: AdamW(dict(named_parameters).values(), lr=0.01), "element"),
        (lambda named_parameters: SGD([dict(named_parameters)["0.weight"]], lr=0.1), "model"),
    ],
    ids=["by name", "by shape", "torch's own pairs", "a dict", "one that must be there"],
)
def test_groups_by_name_can_be_updated_in_pieces(factory, scope):
    assert update_scope(Stepping(factory), net()).scope == scope


def test_names_are_given_only_where_they_are_asked_for():
    assert Stepping(no_decay_on_biases_and_norms).takes_names
    assert not Stepping(by_shape).takes_names
    assert not Stepping(torch.optim.SGD).takes_names
    decayed, free = Stepping(no_decay_on_biases_and_norms).build(weights()).optimizer.param_groups
    assert [len(decayed["params"]), len(free["params"])] == [2, 4]


@pytest.mark.parametrize(
    ("scheduler", "words"),
    [
        (lambda optimizer: schedules.ReduceLROnPlateau(optimizer), "follows a measured loss"),
        (lambda optimizer: 0.1, "must return a schedule of torch.optim.lr_scheduler, it returned float"),
        (lambda optimizer: schedules.StepLR(sgd([nn.Parameter(torch.zeros(1))]), 3), "of another optimizer"),
        (lambda optimizer: schedules.StepLR(optimizer), "raised TypeError"),
        (schedules.OneCycleLR, "raised TypeError"),
    ],
    ids=["plateau", "number", "another's", "raises", "arguments"],
)
def test_schedules_that_cannot_work(scheduler, words):
    with pytest.raises(ProgramError, match=re.escape(words)):
        update_scope(Stepping(sgd, scheduler), net())


def test_a_schedule_that_ends_too_early_says_after_which_step():
    stepper = Stepping(sgd, lambda optimizer: schedules.OneCycleLR(optimizer, max_lr=0.5, total_steps=4)).build(
        weights()
    )
    stepper.replay(4)
    with pytest.raises(ProgramError, match=r"after step 5\. It is called once for each step"):
        stepper.replay(5)


def test_the_optimizer_is_told_of_in_a_message_about_names():
    def broken(named_parameters):
        return SGD([p for p in named_parameters if p.ndim], lr=0.1)

    assert list(inspect.signature(broken).parameters) == ["named_parameters"]
    with pytest.raises(ProgramError, match=r"as \(name, parameter\) pairs"):
        update_scope(Stepping(broken), net())


@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_an_optimizer_that_steps_in_the_backward_pass_is_refused(register):
    def hooked(params):
        for weight in params:
            getattr(weight, register)(lambda _: None)
        return sgd(params)

    with pytest.raises(ProgramError, match=r"Program\(optimizer=...\) registers hooks on the gradients of weights\. "):
        update_scope(Stepping(hooked), net())
