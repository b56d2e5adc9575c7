"""What must hold of data for a batch to be cut: a number that is made of them is as large for each sample."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition:
    """A loss divides by this number, so it is a mean over samples only while each sample adds as much to it."""

    program: str
    """JSON: the operators that make the number out of data or outputs, see nfold.capture.proof.conditions."""
    per_sample: float
    why: str
    """What the loss does, for people."""
