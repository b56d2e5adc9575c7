"""Whether an optimizer's learning rate weighs a gradient."""

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from nfold.capture.optimizers.stepping import Stepping
from nfold.capture.optimizers.weighing import why_unweighable


class Fixed(torch.optim.Optimizer):
    """Has what it is given in its groups, and no use for it."""

    def __init__(self, parameters, **settings):
        super().__init__(parameters, settings)

    def step(self, closure=None):
        for group in self.param_groups:
            for each in group["params"]:
                each.data.add_(each.grad, alpha=-0.1)


def why(factory, scheduler=None) -> str:
    return why_unweighable(Stepping(factory, scheduler), nn.Linear(3, 2), {})


@pytest.mark.parametrize(
    "factory",
    [
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.1),
        lambda parameters: torch.optim.Adam(parameters, lr=torch.tensor(0.1), weight_decay=0.1),
        torch.optim.Adafactor,
    ],
)
def test_a_learning_rate_weighs(factory):
    assert why(factory) == ""


@pytest.mark.parametrize(
    ("factory", "reason"),
    [
        (Fixed, "a group of the optimizer has no learning rate `lr`"),
        (lambda parameters: Fixed(parameters, lr=None), "has no learning rate"),
        (lambda parameters: Fixed(parameters, lr="auto"), "has a learning rate `lr` that is 'auto'"),
        (lambda parameters: Fixed(parameters, lr=0.1), "as long with half of its learning rate"),
        (torch.optim.Rprop, "as long with half of its learning rate"),
    ],
)
def test_without_one_that_counts_no_gradient_can_be_weighed(factory, reason):
    assert reason in why(factory)


def test_a_schedule_that_begins_at_nothing_hides_no_learning_rate():
    assert why(lambda p: torch.optim.SGD(p, lr=0.1), lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.0)) == ""
