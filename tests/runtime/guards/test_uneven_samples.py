"""Chunks whose samples do not count alike."""

import json

import pytest
import torch

from nfold.core.condition import Condition
from nfold.errors import ProgramError
from nfold.runtime.guards.uneven_samples import refuse_uneven

VIEW = {"op": "aten.view.default", "args": [{"data": [1]}, [{"size": [4, 0]}]], "kwargs": {}}
SUM = {"op": "aten.sum.default", "args": [{"step": 0, "out": 0}], "kwargs": {}}
PROGRAM = json.dumps({"steps": [VIEW, SUM], "result": {"step": 1, "out": 0}})
CONDITION = Condition(program=PROGRAM, per_sample=4.0, why="divides by the number of words (net.py, line 3)")


def test_a_chunk_that_counts_as_all_others_is_taken():
    refuse_uneven((CONDITION,), (torch.zeros(3, 4), torch.ones(3, 4)), 3)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (torch.ones(3, 4).tril(), r"not a mean over samples: it divides .*, which is 6 for 3 samples .* 12 elsewhere"),
        (torch.ones(3, 9), r"loss divides .*cannot be told for a chunk \(float32\[3, 9\], float32\[3, 9\]\)"),
    ],
)
def test_one_that_does_not_or_of_which_nobody_can_tell_ends_the_run(words, told):
    with pytest.raises(ProgramError, match=told):
        refuse_uneven((CONDITION,), (words, words), 3)
