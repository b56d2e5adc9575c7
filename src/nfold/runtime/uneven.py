"""Refuse a chunk whose samples do not count alike, where a loss was proved to be a mean over samples that do."""

from typing import Any

from nfold.capture.proof.conditions import broken
from nfold.capture.sample_mean import NO_MEAN
from nfold.core.condition import Condition
from nfold.errors import ProgramError


def refuse_uneven(conditions: tuple[Condition, ...], batch: tuple[Any, Any], size: int) -> None:
    """Compute what the conditions say of a chunk, some operators on its data each.

    Raises:
        ProgramError: it does not meet one.
    """
    if text := broken(conditions, *batch, size):
        raise ProgramError(f"{NO_MEAN}: it {text}. Begin again with -n 1 --strategy single --chunks 1.")
