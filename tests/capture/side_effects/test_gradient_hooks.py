"""Hooks on gradients of weights that keep something: chunks call them more often, and no checkpoint holds it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from zoo import CLASSES, Net, rows

from nfold.capture.capture import capture
from nfold.errors import ProgramError

Hook = Callable[[torch.Tensor], Any]


class Warming:
    """A hook that is an object: it lets gradients grow with each call."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, gradient: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return gradient * min(1.0, self.calls / 20)


class Late(Warming):
    """One that shows later than any trial."""

    def __call__(self, gradient: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return gradient * (0.1 if self.calls > 1000 else 1.0)


def momentum() -> Hook:
    kept: dict[str, torch.Tensor] = {}

    def hook(gradient: torch.Tensor) -> torch.Tensor:
        kept["m"] = 0.9 * kept.get("m", torch.zeros_like(gradient)) + gradient
        return kept["m"]

    return hook


def warming_accumulated() -> Hook:
    calls = [0]

    def hook(parameter: torch.Tensor) -> None:
        calls[0] += 1
        assert parameter.grad is not None
        parameter.grad.mul_(min(1, calls[0] / 20))

    return hook


def notes_with(hook: Callable[[], Hook], register: str = "register_hook") -> tuple[str, ...]:
    def build() -> nn.Module:
        model = nn.Linear(12, CLASSES)
        getattr(model.weight, register)(hook())
        return model.double()

    return capture(build(), F.cross_entropy, Net(build, rows).example(), rebuild=build).graph.notes


@pytest.mark.parametrize(
    ("hook", "register", "name"),
    [
        (momentum, "register_hook", "kept"),
        (Warming, "register_hook", "Warming"),
        (lambda: Warming().__call__, "register_hook", "Warming"),
        (warming_accumulated, "register_post_accumulate_grad_hook", "calls"),
    ],
    ids=["closure", "object", "method", "accumulated"],
)
def test_a_hook_from_whose_memory_gradients_follow_is_refused(
    hook: Callable[[], Hook], register: str, name: str
) -> None:
    with pytest.raises(ProgramError, match=f"a hook on a gradient changes {name}, .* gradients follow from it"):
        notes_with(hook, register)


def test_a_hook_whose_memory_does_not_show_is_told() -> None:
    (note,) = notes_with(Late)
    assert note.startswith("a hook on a gradient changes Late,")


def test_a_hook_that_keeps_nothing_is_not_told() -> None:
    assert notes_with(lambda: lambda gradient: 0.1 * gradient) == ()


def failing(gradient: torch.Tensor) -> None:
    raise ValueError("no gradient today")


@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_a_hook_that_raises_is_named_as_what_backward_did(register: str) -> None:
    with pytest.raises(ProgramError, match="the backward pass of Linear raised ValueError: no gradient today"):
        notes_with(lambda: failing, register)


def stepping_hook(drops: bool) -> Hook:
    def hook(weight: torch.Tensor) -> None:
        if drops:
            weight.grad = None
        else:
            torch.optim.SGD([weight], lr=0.0).step()

    return hook


@pytest.mark.parametrize(
    ("drops", "words"),
    [(False, "changes weight, as an optimizer does. "), (True, "drops the gradient of weight. ")],
    ids=["steps", "drops"],
)
def test_a_hook_that_steps_is_refused_even_where_the_weights_stay_what_they_were(drops: bool, words: str) -> None:
    with pytest.raises(ProgramError, match=f"a hook on a gradient {words}.* return one optimizer of all weights"):
        notes_with(lambda: stepping_hook(drops), "register_post_accumulate_grad_hook")


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # when it is imported
def test_torchs_own_optimizer_in_backward_is_refused() -> None:
    from torch.distributed.optim import _apply_optimizer_in_backward

    def build() -> nn.Module:
        model = nn.Linear(12, CLASSES).double()
        _apply_optimizer_in_backward(torch.optim.SGD, model.parameters(), {"lr": 0.1})
        return model

    with pytest.raises(ProgramError, match="a hook on a gradient changes weight and 1 more, as an optimizer does"):
        capture(build(), F.cross_entropy, Net(build, rows).example(), rebuild=build)
