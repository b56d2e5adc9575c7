"""Finds what an optimizer holds that one which goes on from a checkpoint would not hold.

The trial before training (`capture/optimizers/state_scope.py`) sees the first steps. What an optimizer makes later,
as averages from some step on, shows when a checkpoint is written: a twin over the same memory takes what the checkpoint
has, and must hold the same. It takes no step. O(what both hold); memory only for what the optimizer copies when it is
built.
"""

import json
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from nfold.capture.computing.random import LOCK, RandomState
from nfold.capture.optimizers.state_scope import plain_settings
from nfold.capture.optimizers.state_tree import from_tree, to_tree
from nfold.capture.optimizers.stepping import Stepper, Stepping, Weights
from nfold.capture.side_effects.held_values import alike, differences, held_by


def forgotten(stepping: Stepping, stepper: Stepper, weights: Weights, *, num_kept: int | None) -> list[str]:
    """Return in words what of an optimizer a checkpoint does not bring back.

    Args:
        stepping: builds the twin.
        stepper: the optimizer that trains, between two steps.
        weights: that it was built over.
        num_kept: of how many of them, the first ones, the checkpoint has the state; None: it has state_dict().

    Raises:
        CannotHold: the checkpoint cannot hold something of state_dict().
        Exception: the user's functions do.
    """
    own = [tensor for _, tensor in weights]
    held = held_by(stepper.optimizer, own, but=[stepper.scheduler])
    found: list[str] = []
    # What a schedule sets beside the rate is there once it is played, which takes a while.
    for step in (0,) if stepper.scheduler is None else (0, stepper.position):
        with LOCK:
            before = RandomState()
            try:
                twins = [(name, nn.Parameter(each.detach(), each.requires_grad)) for name, each in weights]
                twin = stepping.build(twins)
                twin.replay(step)
                others = [tensor for _, tensor in twins]
                _give(stepper.optimizer, own, twin.optimizer, others, num_kept)
            finally:
                before.restore()
        found = differences(held, held_by(twin.optimizer, others, but=[twin.scheduler]), _same)
        if not found:
            break
    return found


def _give(
    optimizer: torch.optim.Optimizer,
    own: Sequence[torch.Tensor],
    twin: torch.optim.Optimizer,
    others: Sequence[torch.Tensor],
    num_kept: int | None,
) -> None:
    """Give a twin what a checkpoint has of an optimizer. Tensors are not copied."""
    if num_kept is None:
        tree = to_tree(optimizer.state_dict())
        twin.load_state_dict(from_tree(json.loads(json.dumps(tree.plain)), tree.tensors.__getitem__))
        return
    settings = {id(each): plain_settings(group) for group in optimizer.param_groups for each in group["params"]}
    number = {id(other): index for index, other in enumerate(others)}
    for group in twin.param_groups:
        for other in group["params"]:
            if number[id(other)] < num_kept:
                group.update(settings.get(id(own[number[id(other)]]), {}))
    for each, other in zip(own, others, strict=True):
        # Of a frozen one the checkpoint has none, and what follows from a weight that stays is made again.
        if each in optimizer.state:
            twin.state[other] = dict(optimizer.state[each])


def _same(one: Any, other: Any) -> bool:
    """Whether two values are the same; those at one place in memory are, and need not be read."""
    if one is other:
        return True
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and _place(one) == _place(other):
        return True
    return alike(one, other)


def _place(value: torch.Tensor) -> tuple[Any, ...]:
    if value.layout is not torch.strided:
        return (id(value),)
    return value.data_ptr(), value.shape, value.stride(), value.dtype
