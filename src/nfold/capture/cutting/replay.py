"""Plays a cut program on one device, chunk by chunk: the plainest executor, against which captures are checked."""

from collections.abc import Sequence
from typing import Any

import torch

from nfold.capture.cutting.captured import BoundSegment, Captured
from nfold.capture.program.program_graph import INPUT, LOSS, TARGET


def play_step(captured: Captured, segments: Sequence[BoundSegment], batch: tuple[Any, Any]) -> torch.Tensor:
    """Compute one batch forward and backward; gradients are added to the model's own parameters.

    Args:
        captured: whose segments these are.
        segments: in the order of the graph, covering all its operators.
        batch: (input, target).

    Returns:
        The loss, detached.
    """
    needs = {tensor.name: tensor.requires_grad for tensor in captured.graph.tensors}
    values: dict[str, Any] = {INPUT: batch[0], TARGET: batch[1]}
    played = []
    for segment in segments:
        given = {name: _cut_off(values[name], needs[name]) for name in segment.inputs}
        made = dict(zip(segment.outputs, segment(*given.values()), strict=True))
        values.update({name: _sent(captured, name, value) for name, value in made.items()})
        played.append((given, made))
    gradients: dict[str, torch.Tensor] = {LOSS: torch.ones_like(values[LOSS])}
    for given, made in reversed(played):
        _backward(given, made, gradients)
    return values[LOSS].detach()  # type: ignore[no-any-return]


def segments_of(captured: Captured, pieces: Sequence[Sequence[str]], random: Any) -> list[BoundSegment]:
    """Compile runs of operators as segments."""
    return [captured.segment(piece, *captured.boundary(piece), random) for piece in pieces]


def _sent(captured: Captured, name: str, value: torch.Tensor) -> torch.Tensor:
    """Return a value as it comes out of a message: without history, and laid out in memory as the message had it."""
    spec = captured.spec(name)
    return spec.unpack(spec.pack(value.detach()).clone())


def _cut_off(value: Any, needs_gradient: bool) -> Any:
    return value.detach().requires_grad_() if needs_gradient else value


def _backward(given: dict[str, Any], made: dict[str, torch.Tensor], gradients: dict[str, torch.Tensor]) -> None:
    known = [name for name in made if name in gradients and made[name].requires_grad]
    if known:
        torch.autograd.backward([made[name] for name in known], [gradients[name] for name in known])
    for name, value in given.items():
        if isinstance(value, torch.Tensor) and value.grad is not None:
            gradients[name] = gradients[name] + value.grad if name in gradients else value.grad
