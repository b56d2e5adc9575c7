"""Finds out how far an optimizer's update can be cut: by element, by parameter, or not at all."""

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import nn

from nfold.capture.computing.random import RandomState
from nfold.capture.computing.step_outcome import close
from nfold.capture.optimizers.stepping import NAMED, Stepping
from nfold.capture.optimizers.touched_rows import touched_only
from nfold.errors import ProgramError
from nfold.program import describe

Scope = Literal["element", "parameter", "model"]
Values = Sequence[tuple[str, torch.Tensor]]
"""Weights, or pieces of them, by the names of the parameters that they are of."""

_SIDES = (6, 4, 3, 2, 2)
_ONWARD = 12
"""First steps to try, the same way: what an optimizer estimates of the way to its goal begins to grow only then."""
_SIZES = (1e-3, 1.0, 1e6)
"""Of the gradients of the next ones: a limit on their norm shows at one of them, whatever it is."""
_LATE = 1000
"""Steps to try of an optimizer that is not torch's: it may look at a weight as a whole only after a warm-up."""
_POSITIONS = (0, 1, 3)
"""Steps after which the settings of a schedule are compared."""


def update_scope(stepping: Stepping, model: nn.Module, sparse: Mapping[str, int] | None = None) -> Scope:
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
        scope = _wider(_group_scope(stepping, trained, together), _step_scope(stepping, examples, sparse))
    except ProgramError:
        raise
    except Exception:
        # It works on the model's own weights only, so nothing is known about its pieces.
        return "model"
    # Noise must be drawn for all weights at once, or it would depend on where each of them is updated.
    return "model" if before.moved() else scope


def trained_in(model: nn.Module) -> Values:
    """Return the weights of a model that are trained."""
    return [(name, each.detach()) for name, each in model.named_parameters() if each.requires_grad]


def parameters_of(values: Values) -> list[tuple[str, nn.Parameter]]:
    """Return weights to step, copies of some values."""
    return [(name, nn.Parameter(value.detach().clone())) for name, value in values]


def give_gradients(
    parameters: Sequence[nn.Parameter], values: Values, sparse: Mapping[str, int], turn: int, size: float = 1.0
) -> None:
    """Give weights gradients made of each element's value, so that a slice of a weight gets the slice of its own.

    Args:
        parameters: to give them to.
        values: of the same weights, from which gradients are made.
        sparse: weights whose gradients are sparse, and in how many dimensions.
        turn: others for each.
        size: what they are multiplied by.
    """
    for parameter, (name, value) in zip(parameters, values, strict=True):
        parameter.grad = _gradient(name, value, sparse, turn, size)


def _gradient(name: str, value: torch.Tensor, sparse: Mapping[str, int], turn: int, size: float = 1.0) -> torch.Tensor:
    return touched_only(torch.sin(value * 7.0 + turn) * size, sparse.get(name, 0))


def examples(stepping: Stepping, trained: Values, sparse: Mapping[str, int]) -> Values:
    """Return small stand-ins for trained weights: some of every kind, so that whatever is true of all shows on them.

    Raises:
        Exception: the user's functions do.
    """
    return _examples(stepping, trained, _settings(stepping, trained), sparse)


def _wider(one: Scope, other: Scope) -> Scope:
    scopes: tuple[Scope, ...] = ("element", "parameter", "model")
    return max(one, other, key=scopes.index)


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
        _updated(stepping, [values], sparse)
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


def _step_scope(stepping: Stepping, values: Values, sparse: Mapping[str, int]) -> Scope:
    """Compare a few steps on all weights with those on each alone and on slices."""
    played = [_updated] if _is_torchs(stepping, values) else [_updated, _updated_for_long]
    scope: Scope = "element"
    for play in played:
        together = play(stepping, [values], sparse)
        if not _equal(together, play(stepping, [[value] for value in values], sparse)):
            return "model"
        apart = play(stepping, [[(name, piece)] for name, value in values for piece in sliced(value)], sparse)
        pieces = [piece for value in together for piece in sliced(value)]
        scope = scope if _equal(pieces, apart) else "parameter"
    return scope


def _is_torchs(stepping: Stepping, values: Values) -> bool:
    """Tell whether an optimizer does at each step what torch's do, and nothing of its own."""
    return type(stepping.build(parameters_of(values)).optimizer).__module__.startswith("torch.optim.")


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
            "rank has a model of its own, so use the argument: lambda params: torch.optim.SGD(params, lr=0.1)."
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ProgramError(
            "LBFGS evaluates the loss several times in a step, which nfold does not do: it computes the gradients "
            "once and steps. Use SGD, Adam or another optimizer whose step() needs no closure."
        )
    stepping.build(weights).replay(1)


def small(ndim: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Return a small weight of so many dimensions."""
    generator = torch.Generator().manual_seed(seed)
    shape = [_SIDES[min(axis, len(_SIDES) - 1)] for axis in range(ndim)]
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def sliced(value: torch.Tensor) -> list[torch.Tensor]:
    """Cut a weight into two runs of elements, as shards of a bucket are."""
    flat = value.reshape(-1)
    half = flat.numel() // 2
    return [flat[:half], flat[half:]] if half else [flat]


def _updated(stepping: Stepping, groups: Sequence[Values], sparse: Mapping[str, int]) -> list[torch.Tensor]:
    """Take a few steps with one optimizer per group; return all weights after the first step, then the second .."""
    turns = [(0, 1.0)] * _ONWARD + list(enumerate(_SIZES, 1))
    histories: list[list[torch.Tensor]] = [[] for _ in turns]
    for group in groups:
        optimizer, parameters = _built(stepping, group)
        for (turn, size), history in zip(turns, histories, strict=True):
            give_gradients(parameters, group, sparse, turn, size)
            optimizer.step()
            history += [parameter.detach().clone() for parameter in parameters]
    return list(itertools.chain(*histories))


def _updated_for_long(stepping: Stepping, groups: Sequence[Values], sparse: Mapping[str, int]) -> list[torch.Tensor]:
    """Take many steps with one optimizer per group; return all weights after the last one, where they are numbers."""
    found: list[torch.Tensor] = []
    for group in groups:
        optimizer, parameters = _built(stepping, group)
        gradients = [[_gradient(*each, sparse, turn) for each in group] for turn in (0, 1, 2)]
        for step in range(_LATE):
            for parameter, gradient in zip(parameters, gradients[step % len(gradients)], strict=True):
                parameter.grad = gradient.clone()
            optimizer.step()
        found += [parameter.detach().nan_to_num() for parameter in parameters]
    return found


def _built(stepping: Stepping, values: Values) -> tuple[torch.optim.Optimizer, list[nn.Parameter]]:
    weights = parameters_of(values)
    return stepping.build(weights).optimizer, [parameter for _, parameter in weights]


def _equal(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    return all(close(a, b) for a, b in zip(one, other, strict=True))
