"""Calls a model once and notes what its modules put out; see `core.outputs`."""

import contextlib
from functools import partial
from math import ceil
from typing import Any

import torch
from torch import nn

from nfold.capture.batches.tree import strided_parts, tensors_of
from nfold.capture.program.calling import call, uncompiled
from nfold.capture.program.program_graph import Loss
from nfold.core.outputs import ModuleOutput

MOST_ELEMENTS = 4096
"""Of a tensor that are looked at, from all over it."""
_SIGNS = torch.randint(0, 2, (MOST_ELEMENTS,), generator=torch.Generator().manual_seed(0), device="cpu") * 2.0 - 1.0

_DEVICES = ("cpu", "cuda")


def outputs_of(model: nn.Module, loss: Loss, batch: tuple[Any, Any]) -> list[ModuleOutput]:
    """Return what each call of a module put out, in their order, and the loss. One forward pass.

    Args:
        model: its buffers may change.
        loss: (outputs, targets) -> scalar.
        batch: inputs and targets.
    """
    found: list[ModuleOutput] = []

    def note(name: str, _module: nn.Module, _inputs: Any, output: Any) -> None:
        found.append(_seen(name, output))

    with contextlib.ExitStack() as hooks:
        for path, module in model.named_modules():
            name = f"{path or 'model'} ({type(module).__name__})"
            hooks.enter_context(module.register_forward_hook(partial(note, name)))
        found.append(_seen("loss", loss(call(uncompiled(model), batch[0]), batch[1])))
    return found


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
