"""Finds the buffers that a rank's forward passes have changed: where a model is cut, no other rank has their values.

Not by their versions: `F.batch_norm` writes to those that it is given and counts none.

Batch norms are no concern here: their running statistics are folded in on every owner.
"""

import zlib
from collections.abc import Container

import torch
from torch import nn

from nfold.runtime.parameters.buffers import as_bytes


class ChangedBuffers:
    """Tells which buffers have changed, by a checksum of their bytes: about a second for each GB."""

    def __init__(self, model: nn.Module, but: Container[str]) -> None:
        """Note the buffers of a model as they are before training.

        Args:
            model: the rank's.
            but: modules to leave out.
        """
        self._model, self._but = model, but
        self._before = {name: _mark(buffer) for name, buffer in self._buffers()}

    @property
    def may_be_any(self) -> bool:
        """Whether there are buffers that a forward pass may change."""
        return bool(self._before)

    def modules(self) -> tuple[str, ...]:
        """Return the names of the modules of which a buffer has changed since."""
        changed = (name for name, buffer in self._buffers() if self._before.get(name) != _mark(buffer))
        return tuple(dict.fromkeys(name.rpartition(".")[0] for name in changed))

    def _buffers(self) -> list[tuple[str, torch.Tensor]]:
        named = self._model.named_buffers()
        return [(name, buffer) for name, buffer in named if name.rpartition(".")[0] not in self._but]


def _mark(buffer: torch.Tensor) -> tuple[object, ...]:
    """Return what tells a buffer from a changed one; a sparse one counts its versions."""
    if buffer.layout is not torch.strided:
        return id(buffer), buffer._version
    return buffer.shape, buffer.dtype, zlib.crc32(as_bytes(buffer.detach().cpu().resolve_conj().resolve_neg()))
