"""What an optimizer keeps for parameters, by the names that the user has for them."""

from dataclasses import dataclass, field

import torch

from nfold.errors import ProgramError

Scalar = bool | int | float | str | None
Plain = Scalar | tuple[Scalar, ...]
"""What is kept of hyper-parameters; `betas` is a pair."""


@dataclass(slots=True)
class OptimizerState:
    """The state of an optimizer, by the user's names of parameters."""

    tensors: dict[str, dict[str, torch.Tensor]] = field(default_factory=dict)
    elementwise: frozenset[str] = frozenset()
    """Tensors with an element for each of the parameter's: they are flat, of the elements that were asked for. Others
    (a step count, means of rows) are as the optimizer had them."""
    scalars: dict[str, dict[str, Scalar]] = field(default_factory=dict)
    groups: dict[str, dict[str, Plain]] = field(default_factory=dict)
    """Hyper-parameters of each parameter's group, as far as they are plain values."""
    kind: str = ""
    """The optimizer's class; empty where nothing is held, or an older version did not write it down."""


def check_plain(parameter: str, key: str, value: object, kind: str) -> None:
    """Refuse a value that is no number, no text, no boolean and not None: no checkpoint can hold it.

    Raises:
        ProgramError: this is one.
    """
    if not (value is None or isinstance(value, (bool, int, float, str))):
        raise ProgramError(
            f"{kind} keeps {key!r} of {parameter} as a {type(value).__name__}, which a checkpoint cannot hold. "
            "Keep tensors, numbers and texts, or train with --checkpoint-every 0."
        )
