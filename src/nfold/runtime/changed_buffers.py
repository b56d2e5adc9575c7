"""Finds the buffers that a rank's forward passes have changed: where a model is cut, no other rank has their values.

Batch norms are no concern here: their running statistics are folded in on every owner.
"""

from collections.abc import Container

import torch
from torch import nn


class ChangedBuffers:
    """Remembers the buffers of a model as they were: written to in place they count a version, else they are others."""

    def __init__(self, model: nn.Module, but: Container[str]) -> None:
        """Look at a model that is ready to train.

        Args:
            model: the rank's.
            but: modules to leave out.
        """
        self._model, self._but = model, but
        self._before = {name: (buffer, buffer._version) for name, buffer in self._buffers()}

    def modules(self) -> tuple[str, ...]:
        """Return the modules with a changed buffer."""
        changed = (name for name, buffer in self._buffers() if not self._is_as_before(name, buffer))
        return tuple(dict.fromkeys(name.rpartition(".")[0] for name in changed))

    def _buffers(self) -> list[tuple[str, torch.Tensor]]:
        named = self._model.named_buffers()
        return [(name, buffer) for name, buffer in named if name.rpartition(".")[0] not in self._but]

    def _is_as_before(self, name: str, buffer: torch.Tensor) -> bool:
        before, version = self._before.get(name, (None, 0))
        return buffer is before and buffer._version == version
