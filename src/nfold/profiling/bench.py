"""A captured program with what it takes to measure it."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn

from nfold.capture import Captured, Example
from nfold.capture.side_effects.module_states import copied_on_write
from nfold.profiling.measure import Meter
from nfold.program import Program


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """A captured program, batches for it, and the clock that it is timed by."""

    program: Program
    captured: Captured
    example: Example
    """Where batches come from."""
    meter: Meter
    after_forward: Callable[[], None]
    """Called when a forward's activations are alive."""
    _first: "_FirstBuffers" = field(init=False)

    def __post_init__(self) -> None:
        """Note what buffers are before anything is measured."""
        object.__setattr__(self, "_first", _FirstBuffers(self.model))

    def begin_anew(self) -> None:
        """Put buffers back: a queue that passes fill would be full, or would not fit a batch of another size."""
        self._first.put_back()

    @property
    def model(self) -> nn.Module:
        """The user's module; its weights change."""
        return self.captured.model


class _FirstBuffers:
    """Buffers of a model and what was in them. It takes memory for those alone that are written to."""

    def __init__(self, model: nn.Module) -> None:
        self._kept = [
            (module, name, buffer, copied_on_write(buffer.detach()), buffer._version)
            for module in model.modules()
            for name, buffer in module.named_buffers(recurse=False)
            if buffer.layout is torch.strided
        ]

    def put_back(self) -> None:
        with torch.no_grad():
            for index, (module, name, buffer, value, version) in enumerate(self._kept):
                module._buffers[name] = buffer
                if buffer._version != version:
                    buffer.copy_(value)
                    self._kept[index] = (module, name, buffer, value, buffer._version)
