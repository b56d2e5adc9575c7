"""Refuse a chunk whose samples do not count alike, where a loss was proved to be a mean over samples that do."""

from typing import Any

from nfold.capture.batches.tree import shapes_text
from nfold.capture.independence.sample_mean import NO_MEAN
from nfold.capture.proof.conditions import broken
from nfold.core.condition import Condition
from nfold.errors import ProgramError


def refuse_uneven(conditions: tuple[Condition, ...], batch: tuple[Any, ...], size: int) -> None:
    """Compute what the conditions say of a chunk, some operators on its data each.

    Args:
        conditions: without outputs, or with.
        batch: inputs, targets, and outputs if they are needed.
        size: samples.

    Raises:
        ProgramError: it does not meet one, or nobody can tell for data of these shapes.
    """
    try:
        text = broken(conditions, batch, size)
    except Exception as error:
        raise ProgramError(
            f"the loss {conditions[0].why}, and whether it is a mean over samples cannot be told "
            f"for a chunk {shapes_text(batch[:2])}, which is unlike all that were tried before training. "
            "Begin again with -n 1 --strategy single --chunks 1. Or pad all samples to one length."
        ) from error
    if text:
        raise ProgramError(f"{NO_MEAN}: it {text}. Begin again with -n 1 --strategy single --chunks 1.")
