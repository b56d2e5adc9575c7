"""Which averages of a model's weights are kept beside them, as torch.optim.swa_utils forms them. Needs no torch."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from nfold.core.options.whole import whole
from nfold.errors import ProgramError

EPOCH: Literal["epoch"] = "epoch"
DECAY = 0.999
"""Of torch.optim.swa_utils.get_ema_multi_avg_fn, too."""
_PREFIX = "averaged_"


@dataclass(frozen=True, kw_only=True, slots=True)
class Averages:
    """An average of the weights, taken after steps of the optimizer.

    Raises:
        ProgramError: (also a ValueError) a field makes no sense.
    """

    kind: Literal["ema", "swa"] = "ema"
    """`ema`: exponential, `decay * average + (1 - decay) * weights`; `swa`: the mean of all that was taken."""
    decay: float | None = None
    """Of `ema`, from 0 to 1; None: 0.999. `swa` has none."""
    every: int | Literal["epoch"] = 1
    """Steps between two that are taken; "epoch": the last step of each epoch."""
    start_step: int = 0
    """Steps before averaging begins: with `every=1` the next one is the first that is taken."""
    start_epoch: int = 0
    """Or epochs before it begins."""
    use_buffers: bool = False
    """Average buffers, too, such as batch norm's statistics; else they are the model's when it was averaged last."""

    def __post_init__(self) -> None:
        if self.kind not in ("ema", "swa"):
            raise ProgramError(f"Averages(kind={self.kind!r}): it must be 'ema' or 'swa'")
        if self.kind == "swa" and self.decay is not None:
            raise ProgramError(f"Averages(kind='swa', decay={self.decay!r}): a mean has no decay. Leave it out.")
        if self.kind == "ema":
            object.__setattr__(self, "decay", DECAY if self.decay is None else _checked_decay(self.decay))
        for name, least in (("every", 1), ("start_step", 0), ("start_epoch", 0)):
            self._take_number(name, least)
        if self.start_step and self.start_epoch:
            raise ProgramError(
                f"Averages(start_step={self.start_step}, start_epoch={self.start_epoch}) says twice when averaging "
                "begins. Leave one of them out."
            )
        if self.use_buffers not in (True, False):
            raise ProgramError(f"Averages(use_buffers={self.use_buffers!r}): it must be True or False")

    def _take_number(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if name == "every" and value == EPOCH:
            return
        number = whole(value)
        if number is None or number < least:
            other = " or 'epoch'" if name == "every" else ""
            raise ProgramError(f"Averages({name}={value!r}): it must be a whole number of at least {least}{other}")
        object.__setattr__(self, name, number)

    def count(self, steps: int, steps_per_epoch: int) -> int:
        """Return how often weights have been taken after so many steps of the run."""
        first = self.start_epoch * steps_per_epoch if self.start_epoch else self.start_step
        if self.every == EPOCH:
            return max(0, steps // steps_per_epoch - first // steps_per_epoch)
        return max(0, steps - first) // int(self.every)

    def is_due(self, steps: int, steps_per_epoch: int) -> bool:
        """Return whether the weights after this step, the first is 1, are taken."""
        return self.count(steps, steps_per_epoch) > self.count(steps - 1, steps_per_epoch)

    def __str__(self) -> str:
        """Return it as it would be written, but for what goes without saying."""
        plain = {"kind": "ema", "decay": DECAY, "every": 1, "start_step": 0, "start_epoch": 0, "use_buffers": False}
        said = [f"{name}={getattr(self, name)!r}" for name, value in plain.items() if getattr(self, name) != value]
        return f"Averages({', '.join(each for each in said if each != 'decay=None')})"


def averaged(metric: str) -> str:
    """Return what a metric, or the test loss, is called when the averaged weights are evaluated."""
    return f"{_PREFIX}{metric}"


def is_averaged(metric: str) -> bool:
    """Return whether a metric of a program with averages is one of the averaged weights."""
    return metric.startswith(_PREFIX)


def check_averages(value: Any, metrics: Collection[str]) -> None:
    """Refuse what is no `Averages`, and a metric whose name one of the averaged weights would have.

    Raises:
        ProgramError: with what to write instead.
    """
    if value is None:
        return
    if not isinstance(value, Averages):
        kind = value.__name__ if isinstance(value, type) else type(value).__name__
        raise ProgramError(
            f"Program(averages=...) must be nfold.Averages, got {kind}. Write averages=nfold.Averages(decay=0.999) for "
            "AveragedModel with get_ema_multi_avg_fn(0.999), or averages=nfold.Averages(kind='swa') for its mean."
        )
    if taken := sorted(filter(is_averaged, metrics)):
        raise ProgramError(
            f"Program(metrics=...) has {taken[0]!r}, and with Program(averages=...) metrics of the averaged weights "
            f"are called so. Give yours a name without {_PREFIX!r} before it."
        )


def _checked_decay(value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not 0 <= value <= 1:
        raise ProgramError(f"Averages(decay={value!r}): it must be a number from 0 to 1, as 0.999")
    return float(value)
