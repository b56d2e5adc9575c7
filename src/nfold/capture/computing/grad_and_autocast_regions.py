"""Where a program computes under no_grad or autocast: recorded while tracing, entered again when its cut pieces run."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch

_AUTOCAST_DEVICES = ("cpu", "cuda")


@dataclass(frozen=True, slots=True)
class Region:
    """The gradient and autocast modes that are in force at one point of a program."""

    grad: bool
    inference: bool
    autocast: tuple[tuple[str, bool, torch.dtype], ...]
    """(device type, enabled, dtype)."""
    keeps_casts: bool = True
    """Whether autocast keeps what it made of a weight for the weight's next use."""

    @classmethod
    def current(cls) -> "Region":
        """Return the modes in force now."""
        return cls(
            grad=torch.is_grad_enabled(),
            inference=torch.is_inference_mode_enabled(),
            autocast=tuple(
                (device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
                for device in _AUTOCAST_DEVICES
            ),
            keeps_casts=torch.is_autocast_cache_enabled(),
        )

    @contextlib.contextmanager
    def enter(self) -> Iterator[None]:
        """Put these modes in force for a block."""
        with contextlib.ExitStack() as stack:
            if self.inference != torch.is_inference_mode_enabled():
                stack.enter_context(torch.inference_mode(self.inference))
            stack.enter_context(torch.set_grad_enabled(self.grad))
            for device, enabled, dtype in self.autocast:
                if enabled or torch.is_autocast_enabled(device):
                    kept = self.keeps_casts
                    stack.enter_context(torch.autocast(device, enabled=enabled, dtype=dtype, cache_enabled=kept))
            yield

    @property
    def is_autocast(self) -> bool:
        """Whether autocast chooses the types of operators."""
        return any(enabled for _, enabled, _ in self.autocast)

    @property
    def is_severable(self) -> bool:
        """Whether the region may be left and entered again between any two operators, because it keeps nothing."""
        return self.grad and not self.inference and self.is_autocast and not self.keeps_casts

    @property
    def lowest_precision(self) -> float:
        """Relative rounding of the coarsest type that autocast chooses here; 0 without autocast."""
        return max((torch.finfo(dtype).eps for _, enabled, dtype in self.autocast if enabled), default=0.0)
