"""Finds out whether an optimizer's learning rate weighs a gradient, as servers without a common step want of it.

There a worker's gradient is applied alone, with the learning rate times its samples over those of the step. An
optimizer that has no `lr`, or sets its own, would apply each of n gradients in full.
"""

from collections.abc import Mapping
from numbers import Real

import torch
from torch import nn

from nfold.capture.computing.random import RandomState, seed_all
from nfold.capture.computing.step_outcome import close
from nfold.capture.optimizers.step_scope import Values, give_gradients, parameters_of
from nfold.capture.optimizers.stepping import Stepping
from nfold.capture.optimizers.update_scope import examples, trained_in

_RATE = 0.5


def why_unweighable(stepping: Stepping, model: nn.Module, sparse: Mapping[str, int]) -> str:
    """Return why no gradient can be weighed by the learning rate; empty if it can. Milliseconds.

    Args:
        stepping: the user's.
        model: whose weights are updated.
        sparse: weights whose gradients are sparse, and in how many dimensions.
    """
    alone = Stepping(stepping.optimizer)  # a schedule may begin at 0
    before = RandomState()
    try:
        values = examples(alone, trained_in(model), sparse)
        one, other = (_moved(alone, values, sparse, rate) for rate in (1.0, _RATE))
    except _WithoutRate as missing:
        return str(missing)
    except Exception:
        return ""  # it works on the model's own weights only; then no server can run it anyway
    finally:
        before.restore()
    if any(whole.any() and close(whole, part) for whole, part in zip(one, other, strict=True)):
        return "the optimizer's steps are as long with half of its learning rate `lr`"
    return ""


class _WithoutRate(Exception):
    pass


def _moved(stepping: Stepping, values: Values, sparse: Mapping[str, int], rate: float) -> list[torch.Tensor]:
    """Return how far a second step moves the weights whose learning rate is multiplied by `rate`."""
    seed_all(0)
    exact = [(name, value.to(torch.promote_types(value.dtype, torch.float64))) for name, value in values]
    named = parameters_of(exact)
    optimizer, weights = stepping.build(named).optimizer, [weight for _, weight in named]
    before = []
    for number in range(2):
        before = [weight.detach().clone() for weight in weights]
        give_gradients(weights, exact, sparse, number)
        if number:
            _scale(optimizer, rate)
        optimizer.step()
    return [weight.detach() - old for weight, old in zip(weights, before, strict=True)]


def _scale(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        own = group.get("lr")
        if not isinstance(own, Real | torch.Tensor):
            has = "has no learning rate `lr`" if own is None else f"has a learning rate `lr` that is {own!r}"
            raise _WithoutRate(f"a group of the optimizer {has}")
        group["lr"] = own * rate
