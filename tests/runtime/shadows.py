"""Newcomers that follow as shadows, and a program that has all that a step may change."""

from collections import OrderedDict
from dataclasses import replace
from math import inf
from typing import Any

import pytest
import torch
from elastic import CHUNKS, Elastic
from harness import plain_loop
from nets import adamw, program
from torch import nn

from nfold.core.options.averages import Averages
from nfold.program import Program
from nfold.runtime.coordinator.members import following
from nfold.runtime.snapshots.shadow import Shadow
from nfold.runtime.step.replica import Replica

DECAY = 0.8


def rich(dropout: float = 0.0, **more: Any) -> Program:
    """Batch norm, a frozen layer, a schedule, clipping and averages, with an optimizer that keeps two tensors each.

    The batch norm has the name of the first bucket.
    """

    def model() -> nn.Module:
        first = nn.Linear(128, 9).requires_grad_(False)
        layers = {"flat": nn.Flatten(), "first": first, "b0": nn.BatchNorm1d(9), "tanh": nn.Tanh()}
        layers |= {"dropout": nn.Dropout(dropout)} if dropout else {}
        return nn.Sequential(OrderedDict({**layers, "last": nn.Linear(9, 4)})).double()

    return replace(
        program("plain", adamw),
        model=model,
        clip_norm=0.1,
        scheduler=lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9),
        averages=Averages(decay=DECAY),
        **more,
    )


class Averaging(torch.optim.lr_scheduler.ExponentialLR):
    """A schedule that averages the weights after each step."""

    found: tuple[torch.Tensor, ...] = ()

    def step(self, epoch: int | None = None) -> None:
        super().step()
        if self.last_epoch:
            now = [each.detach().clone() for each in self.optimizer.param_groups[0]["params"]]
            old = self.found or now
            self.found = tuple(DECAY * a + (1 - DECAY) * b for a, b in zip(old, now, strict=True))


def one_device(steps: int) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The end of one device's training, and that of its average."""
    made: list[Averaging] = []

    def schedule(optimizer: torch.optim.Optimizer) -> Averaging:
        made.append(Averaging(optimizer, 0.9))
        return made[0]

    model = plain_loop(replace(rich(), scheduler=schedule), steps, CHUNKS)
    names = [name for name, _ in model.named_parameters()]
    return model.state_dict(), {**model.state_dict(), **dict(zip(names, made[0].found, strict=True))}


class Followed:
    """What shadows do in a run."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        """That were played after the others."""
        self.are_held = False
        """Whether they say nothing of how far they are."""


def watch_shadows(monkeypatch: pytest.MonkeyPatch) -> Followed:
    """Let each newcomer follow, however quick its link is, and play two steps at least."""
    found, replay, tell = Followed(), Replica.replay, Shadow._tell_if_ahead

    def note(self, index, sums):
        replay(self, index, sums)
        found.steps.append(index)

    def tell_late(self, step):
        if not found.are_held and step >= self._to_follow.label[1] + 2:
            tell(self, step)

    monkeypatch.setattr(following, "following_rate", lambda *_: inf)
    monkeypatch.setattr(Replica, "replay", note)
    monkeypatch.setattr(Shadow, "_tell_if_ahead", tell_late)
    return found


def until_followed(run: Elastic, followed: Followed) -> None:
    """Let another one come, and train until it has played a step after the others."""
    run.train(2)
    run.session.request()
    while not followed.steps:
        assert not any("follows no more" in note for note in run.told.notes)
        run.train(1)
