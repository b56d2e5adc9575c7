"""Deeper networks made of a captured one."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "planning-time"))

from deepening import deepened
from programs.counted import GRAPHS, question

from nfold.core import codec
from nfold.core.graph import ModelGraph
from nfold.planning.choosing.search import plan

RESNET101_PARAMETERS = 44_549_160
"""He et al. 2016, for 1000 classes."""


@pytest.fixture(scope="module")
def resnet50():
    return codec.load(ModelGraph, GRAPHS / "resnet50.json")


def test_resnet50_with_17_blocks_more_is_resnet101(resnet50):
    deeper = deepened(resnet50, "12", 17)
    assert sum(each.num_elements for each in deeper.parameters) == RESNET101_PARAMETERS
    assert len([each for each in deeper.operators if each.kind == "Conv2d"]) == 104
    assert len(deeper.statistics) == 104


def test_copies_stand_in_a_row(resnet50):
    deeper = deepened(resnet50, "12", 2)
    tensors = {tensor.name: tensor for tensor in deeper.tensors}
    assert tensors["12.relu@3"].consumers == ("12+1.first", "12+1.past")
    assert tensors["12+2.relu@3"].consumers == ("13.first", "13.past")
    made: set[str] = set()
    for operator in deeper.operators:
        assert {name for name in operator.inputs if tensors[name].producer} <= made
        made |= set(operator.outputs)
    for parameter in deeper.parameters:
        assert [each.name for each in deeper.operators if parameter.name in each.parameters] == list(parameter.users)


def test_no_copies_change_nothing(resnet50):
    assert deepened(resnet50, "12", 0) == resnet50


def test_a_copy_equals_the_block_that_stands_beside_it(resnet50):
    deeper = deepened(resnet50, "12", 1)
    copies, siblings = (
        [(each.kind, each.flops_per_sample) for each in deeper.operators if each.name.startswith(prefix)]
        for prefix in ("12+1.", "13.")
    )
    assert copies == siblings


def test_what_changes_shape_or_is_no_block_is_refused(resnet50):
    with pytest.raises(ValueError, match="cannot follow itself"):
        deepened(resnet50, "11", 1)
    with pytest.raises(ValueError, match="one each is needed"):
        deepened(resnet50, "nothing", 1)


def test_a_deeper_network_is_planned_as_any(resnet50):
    facts = question(deepened(resnet50, "12", 1), 32, 2, None)
    assert plan(facts, "pipeline").placement.owners.keys() == {each.name for each in facts.graph.operators}
