"""Counts floating-point operations as torch computes them, also those of a gradient that forward itself asks for."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

_ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention
_SAME_AS = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _ATTENTION}
"""What torch's own table leaves out: on processors attention is a kernel of its own."""


class FlopCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the floating-point operations of what is computed under it.

    torch's own FlopCounterMode also hangs hooks on modules, with which torch.autograd.grad inside a forward fails.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute, and look up what it cost."""
        result = func(*args, **(kwargs or {}))
        packet = func._overloadpacket
        count = flop_registry.get(_SAME_AS.get(packet, packet))
        if count is not None:
            self.total += count(*args, **(kwargs or {}), out_val=result)
        return result
