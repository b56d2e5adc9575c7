"""Programs that compute on batches of one size alone, as a queue does whose length is a multiple of the batch."""

from collections.abc import Callable
from dataclasses import replace

from torch import nn

from nfold.capture.batches.example import Example
from nfold.capture.independence.least_samples import Least
from nfold.capture.program.program_graph import Loss
from nfold.capture.program.trial import innermost, try_step
from nfold.errors import ProgramError
from nfold.program import describe


def whole_batches(
    fresh: Callable[[], nn.Module], loss: Loss, example: Example, refusal: ProgramError
) -> tuple[Example, Least, str] | None:
    """Try a program that refused a few samples on as many as it is trained on.

    Args:
        fresh: makes copies of the model.
        loss: the user's.
        example: where batches come from.
        refusal: of a few samples.

    Returns:
        Batches of that size alone, the fewest samples that the last batch may have, and why no batch can be cut; None:
        the program does not compute on those either, or nobody says how many there are.
    """
    cause = refusal.__cause__
    only = replace(example, only=example.largest)
    if cause is None or not example.largest or not _computes(fresh(), loss, only):
        return None
    last = example.last()
    computes_on_last = bool(last) and _computes(fresh(), loss, replace(example, only=last))
    least = Least(last if computes_on_last else only.only, innermost(fresh(), cause), describe(cause))
    count = f"{only.only} sample{'s' if only.only != 1 else ''}"
    return only, least, f"the program computes on all {count} of a batch, and raises on others: {describe(cause)}"


def _computes(model: nn.Module, loss: Loss, example: Example) -> bool:
    try:
        try_step(model, loss, example.batch(example.only))
    except ProgramError:
        return False
    return True
