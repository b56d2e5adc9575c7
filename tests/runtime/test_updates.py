"""Optimizer steps with a part of the learning rate, as asynchronous servers take them."""

import pytest
import torch
from torch import nn

from nfold.capture.stepping import Stepping
from nfold.runtime.updates import Updater

RATE = 0.25
"""A power of two: the product with the learning rate is the same number however it is come by."""


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9),
        lambda weights: torch.optim.AdamW(weights, lr=0.1),
    ],
    ids=["SGD", "AdamW"],
)
def test_a_rate_multiplies_the_learning_rate_of_one_step(optimizer):
    ours, theirs = (nn.Parameter(torch.arange(1.0, 5.0)) for _ in range(2))
    updater, expected = Updater(Stepping(optimizer), [], [("w", ours)]), optimizer([theirs])
    for number, rate in enumerate((1.0, RATE, 1.0)):
        ours.grad, theirs.grad = (torch.tensor([0.5, -1.0, 2.0, 3.0]) * (number + 1) for _ in range(2))
        expected.param_groups[0]["lr"] = 0.1 * rate
        updater.step(rate)
        expected.step()
        assert torch.equal(ours, theirs)
