"""The digits with an average of the weights."""

import sys
from dataclasses import replace
from pathlib import Path

import nfold

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import digits  # its folder is found only after this


def program() -> nfold.Program:
    """Return the digits' program, averaged after each step."""
    return replace(digits.program(), averages=nfold.Averages(decay=0.99))
