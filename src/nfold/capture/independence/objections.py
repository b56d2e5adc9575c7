"""Says from a model's weights alone, without computing, why its batch must not be spread."""

import itertools
from collections.abc import Callable

import torch
from torch import nn

from nfold.capture.computing.step_outcome import close

_SCALES = (1e-3, 1.0, 1e6)
"""Of made-up gradients: a hook that clips shows at one of them, whatever its limit is."""


def why_unfit(model: nn.Module) -> str:
    """Say why the model must not be spread, in the user's words; empty if it may be. O(parameters)."""
    return _shared_memory(model) or _gradient_hooks(model)


def _shared_memory(model: nn.Module) -> str:
    """Find weights that lie in each other's memory: a rank that moves one of them would tear them apart."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    dense = ((name, tensor) for name, tensor in tensors if tensor.numel() and tensor.layout is torch.strided)
    places = sorted((*_extent(tensor), name) for name, tensor in dense)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    for (storage, _, stop, name), (other_storage, start, _, other) in itertools.pairwise(places):
        if storage == other_storage and start < stop and trained & {name, other}:
            return (
                f"{name} and {other} are two tensors in the same memory, so a step on one of them changes the other. "
                "Tie the weight itself (b.weight = a.weight, not .data), or clone it"
            )
    return ""


def _extent(tensor: torch.Tensor) -> tuple[int, int, int]:
    """Return the storage and the elements of it, from the first to behind the last, that a tensor lies in."""
    start = int(tensor.storage_offset())
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int(tensor.untyped_storage()._cdata), start, start + int(last) + 1


def _gradient_hooks(model: nn.Module) -> str:
    """Find hooks that treat the gradient of a chunk otherwise than as a part of the batch's."""
    for name, parameter in model.named_parameters():
        if parameter._post_accumulate_grad_hooks:
            return (
                f"{name} has a hook that runs after its gradient is accumulated, which happens once for each chunk. "
                "Do it in the optimizer's step()"
            )
        for hook in (parameter._backward_hooks or {}).values():
            if not _is_linear(hook, parameter):
                return (
                    f"a hook on the gradient of {name} is no linear function, and it is given the gradients of chunks, "
                    "not their sum. Do it in the optimizer's step()"
                )
    return ""


def _is_linear(hook: Callable[[torch.Tensor], torch.Tensor | None], parameter: nn.Parameter) -> bool:
    generator = torch.Generator().manual_seed(0)

    def answer(gradient: torch.Tensor) -> torch.Tensor:
        given = gradient.clone()
        result = hook(given)
        return given if result is None else result

    for scale in _SCALES:
        one, other = (
            torch.randn(parameter.shape, generator=generator).to(parameter.device, parameter.dtype) * scale
            for _ in range(2)
        )
        if not close(answer(one + other), answer(one) + answer(other)):
            return False
    return True
