"""Finds out how far an optimizer's update can be cut: by element, by parameter, or not at all.

Whether its state can be cut is found out in `state_scope.py`.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import nn

from nfold.capture.computing.random import RandomState
from nfold.capture.optimizers.step_code import Use
from nfold.capture.optimizers.step_scope import LATE, Scope, Values, step_scope, updated, wider
from nfold.capture.optimizers.stepping import NAMED, Stepping
from nfold.errors import ProgramError
from nfold.program import describe

_SIDES = (6, 4, 3, 2, 2)
_POSITIONS = (0, 1, 3)
"""Steps after which the settings of a schedule are compared."""


class Updates(NamedTuple):
    """How an optimizer updates."""

    scope: Scope
    unseen: str = ""
    """What nobody has seen it do, though its code says so or it could not be tried, where that alone keeps its update
    from being cut."""


def update_scope(stepping: Stepping, model: nn.Module, sparse: Mapping[str, int] | None = None) -> Updates:
    """Compare the optimizer on small weights as a whole, on each alone, and on slices of each.

    That takes milliseconds, and where the optimizer is not torch's own half a second.

    Args:
        stepping: the user's.
        model: whose weights are updated.
        sparse: weights whose gradients are sparse, and in how many dimensions.

    Raises:
        ProgramError: the user's functions fail, or the optimizer cannot step by itself, or not on such gradients.
    """
    sparse = sparse or {}
    trained = trained_in(model)
    _try(stepping, [(name, nn.Parameter(value)) for name, value in trained])
    before = RandomState()
    try:
        together = _settings(stepping, trained)
        examples = _examples(stepping, trained, together, sparse)
        if sparse:
            _check_layouts(stepping, examples, sparse)
        steps, code = step_scope(stepping, examples, sparse)
        scope = wider(_group_scope(stepping, trained, together), steps)
    except ProgramError:
        raise
    except Exception as error:
        # It works on the model's own weights only, so nothing is known about its pieces.
        return Updates("model", f"given some of them, Program(optimizer=...) raised {describe(error)}{_groups(error)}")
    # Noise must be drawn for all weights at once, or it would depend on where each of them is updated.
    return Updates("model") if before.moved() else _with_unseen(scope, code)


def _groups(error: Exception) -> str:
    """Say what to do where the first group of an optimizer has no weight on some ranks."""
    is_empty = "empty parameter list" in str(error)
    return "; give it all groups at once, as SGD([{'params': biases}, {'params': others}])" if is_empty else ""


def _with_unseen(scope: Scope, uses: Sequence[Use]) -> Updates:
    """Widen a scope by what the code of steps may do that no trial has shown."""
    if not uses or scope == "model":
        return Updates(scope)
    name, line, has_run = uses[0]
    if has_run:  # for each weight by itself, or it would have shown
        return Updates("parameter")
    return Updates("model", f"{line} uses {name!r}, which did not run in {LATE} steps of trial")


def trained_in(model: nn.Module) -> Values:
    """Return the weights of a model that need a gradient, by name."""
    return [(name, each.detach()) for name, each in model.named_parameters() if each.requires_grad]


def examples(stepping: Stepping, trained: Values, sparse: Mapping[str, int]) -> Values:
    """Return small stand-ins for trained weights: some of every kind, so that whatever is true of all shows on them.

    Raises:
        Exception: the user's functions do.
    """
    return _examples(stepping, trained, _settings(stepping, trained), sparse)


def _group_scope(stepping: Stepping, trained: Values, together: Sequence[str]) -> Scope:
    """Compare what is set for each weight when the user's functions see all of them, one, or a part of one."""
    if any(_settings(stepping, [each]) != [setting] for each, setting in zip(trained, together, strict=True)):
        return "model"
    for (name, weight), setting in zip(trained, together, strict=True):
        # A single element and the rest: a rule about the size of a weight shows.
        pieces = [(name, piece) for piece in weight.reshape(-1).tensor_split([1]) if piece.numel()]
        if any(_settings(stepping, [piece]) != [setting] for piece in pieces):
            return "parameter"
    return "element"


def _settings(stepping: Stepping, weights: Values) -> list[str]:
    """Return the hyper-parameters of each weight at some steps, in words; empty if the optimizer leaves it out."""
    parameters = [(name, nn.Parameter(weight)) for name, weight in weights]
    stepper = stepping.build(parameters)
    found: dict[int, str] = defaultdict(str)
    for position in _POSITIONS if stepping.scheduler else (0,):
        stepper.replay(position)
        for group in stepper.optimizer.param_groups:
            text = repr(sorted((key, value) for key, value in group.items() if key not in ("params", "param_names")))
            for parameter in group["params"]:
                found[id(parameter)] += text
    return [found[id(parameter)] for _, parameter in parameters]


def _check_layouts(stepping: Stepping, values: Values, sparse: Mapping[str, int]) -> None:
    """Refuse an optimizer that steps on gradients that are all sparse or all dense, and not on those of the program."""
    error = _failure(stepping, values, sparse)
    if error is None:
        return
    for others in ({}, {name: 1 for name, _ in values}):
        unlike = [name for name, _ in values if (name in sparse) != (name in others)]
        if unlike and _failure(stepping, values, others) is None:
            kind = "sparse" if unlike[0] in sparse else "dense"
            raise ProgramError(
                f"Program(optimizer=...) raised {describe(error)}. The gradient of {unlike[0]} is {kind}. Use an "
                "optimizer that takes such gradients, or make them sparse or dense alike (Embedding(.., sparse=..))."
            ) from error


def _failure(stepping: Stepping, values: Values, sparse: Mapping[str, int]) -> Exception | None:
    try:
        updated(stepping, [values], sparse)
    except Exception as error:
        return error
    return None


def _examples(stepping: Stepping, trained: Values, settings: Sequence[str], sparse: Mapping[str, int]) -> Values:
    """Return small stand-ins: two weights of every number of dimensions, type and setting; one if there is one name."""
    kinds: dict[tuple[int, torch.dtype, str, int], list[str]] = defaultdict(list)
    for (name, weight), setting in zip(trained, settings, strict=True):
        kinds[weight.ndim, weight.dtype, setting, sparse.get(name, 0)].append(name)
    chosen = [
        (names[-turn], *kind[:2])
        for turn in (0, 1)
        for kind, names in kinds.items()
        if not turn or len(names) > 1 or not stepping.takes_names
    ]
    return [(name, small(ndim, dtype, seed)) for seed, (name, ndim, dtype) in enumerate(chosen)]


def _try(stepping: Stepping, weights: Sequence[tuple[str, nn.Parameter]]) -> None:
    parameters = [parameter for _, parameter in weights]
    try:
        optimizer = stepping.optimizer(list(weights) if stepping.takes_names else parameters)
    except Exception as error:
        raise ProgramError(
            f"Program(optimizer=...) raised {describe(error)} when given the {len(parameters)} trainable parameters "
            f"of the model{' as (name, parameter) pairs' if stepping.takes_names else ''}. It must be a function of a "
            "list of parameters, such as lambda params: torch.optim.SGD(params, lr=0.1); if its argument is called "
            f"{NAMED}, it gets their names too."
        ) from error
    if not isinstance(optimizer, torch.optim.Optimizer):
        kind = type(optimizer).__name__
        advice = (
            f"Make {kind} a subclass of it: call super().__init__(parameters, {{}}); if it holds other optimizers, "
            "set self.param_groups to theirs."
            if callable(getattr(optimizer, "step", None))
            else "Write lambda params: torch.optim.SGD(params, lr=0.1)."
        )
        raise ProgramError(f"Program(optimizer=...) must return a torch.optim.Optimizer, it returned {kind}. {advice}")
    given = {id(parameter) for parameter in parameters}
    if any(id(parameter) not in given for group in optimizer.param_groups for parameter in group["params"]):
        raise ProgramError(
            "Program(optimizer=...) returned an optimizer over other parameters than those that it was given. Each "
            "rank has a model of its own, so use the argument: lambda params: torch.optim.SGD(params, lr=0.1). Weights "
            "of a loss must be the model's to be trained: it may return all that the loss needs."
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ProgramError(
            "LBFGS evaluates the loss several times in a step, which nfold does not do: it computes the gradients "
            "once and steps. Use SGD, Adam or another optimizer whose step() needs no closure."
        )
    stepping.build(weights).replay(1)


def small(ndim: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Return a small random weight of so many dimensions."""
    generator = torch.Generator().manual_seed(seed)
    shape = [_SIDES[min(axis, len(_SIDES) - 1)] for axis in range(ndim)]
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
