"""Programs of the zoo as nfold's workers find them: functions of a script."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from programs.zoo import ZOO

import nfold


def plain() -> nfold.Program:
    """A lost or doubled gradient, a wrong weight of the short last batch."""
    return ZOO["plain"].program()


def residual() -> nfold.Program:
    """Batch statistics taken over other samples, running statistics folded in another order."""
    return ZOO["residual"].program()


def gpt() -> nfold.Program:
    """Random numbers that depend on the rank, a gradient counted once for a weight that is used twice."""
    return ZOO["gpt"].program()


def integers() -> nfold.Program:
    """Any error at all: sums of whole numbers have no rounding to hide in."""
    return ZOO["integers"].program()
