"""Calls a model once and notes what its modules put out, and how its loss differentiates; see `core.outputs`."""

import contextlib
from functools import partial
from itertools import islice
from math import ceil
from typing import Any

import torch
from torch import nn

from nfold.capture.batches.tree import map_tensors, strided_parts, tensors_of
from nfold.capture.computing.random import seed_all
from nfold.capture.program.calling import call, uncompiled
from nfold.capture.program.program_graph import Loss
from nfold.core.outputs import ModuleOutput

MOST_ELEMENTS = 4096
"""Of a tensor that are looked at, from all over it."""
_SIGNS = torch.randint(0, 2, (MOST_ELEMENTS,), generator=torch.Generator().manual_seed(0), device="cpu") * 2.0 - 1.0

_DEVICES = ("cpu", "cuda")
_MOST_WEIGHTS = 8
"""That are tried for one which the loss hangs on, from the last on."""
_EVEN = 0.25 + 0.5 * (torch.arange(MOST_ELEMENTS, dtype=torch.float64, device="cpu") * 0.6180339887498949 % 1)
"""Multiples of the golden ratio, modulo 1, are spread evenly; no two are equal."""


def outputs_of(model: nn.Module, loss: Loss, batch: tuple[Any, Any]) -> list[ModuleOutput]:
    """Return what each call of a module put out, in their order, and the loss. One forward pass.

    Args:
        model: its buffers may change.
        loss: (outputs, targets) -> scalar.
        batch: inputs and targets.
    """
    return _passed(model, loss, batch)[0]


def outputs_and_gradients(
    model: nn.Module, loss: Loss, batch: tuple[Any, Any]
) -> tuple[list[ModuleOutput], list[ModuleOutput]]:
    """Return what each call of a module put out, and how the loss differentiates: two losses may have one value.

    The loss is differentiated by outputs that are the same everywhere, between 0.25 and 0.75 as a probability may be.
    At the model's own, gradients may cancel out or jump, and then processors that round otherwise have others. Where
    an output is a scalar, the loss may be inside the model, so it is differentiated by the last weight as well.

    Args:
        model: its buffers may change.
        loss: (outputs, targets) -> scalar. Called twice.
        batch: inputs and targets.

    Returns:
        modules' outputs as `outputs_of` does, and gradients; of those none where the loss raises for such outputs.
    """
    found, outputs, value = _passed(model, loss, batch)
    gradients = []
    if any(each.dim() == 0 for each in tensors_of(outputs)):
        with contextlib.suppress(Exception):  # it has no gradient: the capture says so
            gradients = _by_last_weight(value, model)
    return found, gradients + _by_even_outputs(loss, outputs, batch[1])


def _by_last_weight(value: torch.Tensor, model: nn.Module) -> list[ModuleOutput]:
    weights = ((name, each) for name, each in reversed([*model.named_parameters()]) if each.requires_grad)
    for name, weight in islice(weights, _MOST_WEIGHTS):
        (gradient,) = torch.autograd.grad(value, weight, retain_graph=True, allow_unused=True)
        if gradient is not None:
            return [_seen(f"loss, differentiated by {name}", gradient)]
    return []


def _by_even_outputs(loss: Loss, outputs: Any, targets: Any) -> list[ModuleOutput]:
    given: list[torch.Tensor] = []

    def evenly(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point() or tensor.layout is not torch.strided:
            return tensor.detach()
        values = _EVEN.to(tensor.device, tensor.dtype).repeat(ceil(tensor.numel() / len(_EVEN)))
        even = values[: tensor.numel()].reshape(tensor.shape)
        given.append(even.requires_grad_())
        return even

    seed_all(0)
    try:
        value = loss(map_tensors(evenly, outputs), targets)
        if not value.requires_grad:
            return []
        gradients = torch.autograd.grad(value, given, allow_unused=True)
    except Exception:  # it wants outputs of another kind, or has no gradient
        return []
    by = [f"loss, differentiated by output {index}" for index in range(len(given))]
    found = [_seen(name, each) for name, each in zip(by, gradients, strict=True) if each is not None]
    return [*found, _seen("loss of even outputs", value)]


def _passed(model: nn.Module, loss: Loss, batch: tuple[Any, Any]) -> tuple[list[ModuleOutput], Any, torch.Tensor]:
    """Return what each call of a module put out, what the model did, and the loss."""
    found: list[ModuleOutput] = []

    def note(name: str, _module: nn.Module, _inputs: Any, output: Any) -> None:
        found.append(_seen(name, output))

    with contextlib.ExitStack() as hooks:
        for path, module in model.named_modules():
            name = f"{path or 'model'} ({type(module).__name__})"
            hooks.enter_context(module.register_forward_hook(partial(note, name)))
        outputs = call(uncompiled(model), batch[0])
        value = loss(outputs, batch[1])
        found.append(_seen("loss", value))
    return found, outputs, value


def _seen(name: str, output: Any) -> ModuleOutput:
    dense = (part.detach() for each in tensors_of(output) for part in strided_parts(each.detach()))
    tensors = [each for each in dense if each.is_floating_point()]
    parts = [_some(each) for each in tensors]
    return ModuleOutput(
        module=name,
        norm=float(sum(part.square().sum() for part in parts)) ** 0.5,
        projection=float(sum((part * _SIGNS[: len(part)]).sum() for part in parts)),
        is_coarse=any(each.element_size() < 4 for each in tensors) or any(map(torch.is_autocast_enabled, _DEVICES)),
    )


def _some(tensor: torch.Tensor) -> torch.Tensor:
    """Return some of its elements; what is no number counts as none."""
    flat = tensor.reshape(-1)
    return flat[:: max(1, ceil(flat.numel() / MOST_ELEMENTS))].double().cpu().nan_to_num(0.0, 0.0, 0.0)
