"""What the benchmark of traffic says that torch.distributed.pipelining sends."""

import sys
from itertools import combinations, pairwise
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "traffic"))

from pipelined import begin_of, crossing, most_even, sent_bytes
from programs.counted import GRAPHS, profile

from nfold.core import codec
from nfold.core.graph import ModelGraph


@pytest.fixture(scope="module")
def graphs():
    return {name: codec.load(ModelGraph, GRAPHS / f"{name}.json") for name in ("alexnet", "resnet50")}


def seconds_of(graph):
    return {name: sum(pair) for name, pair in profile(graph).operators_s(1).items()}


def test_a_cut_sends_what_crosses_it_there_and_back(graphs):
    alexnet = graphs["alexnet"]
    begin = begin_of(alexnet, 3)
    assert [(each.name, each.bytes_per_sample) for each in crossing(alexnet, begin)] == [("2", 64 * 27 * 27 * 4)]
    assert sent_bytes(alexnet, [begin], 128) == 2 * 128 * 64 * 27 * 27 * 4


def test_inside_a_residual_block_two_tensors_cross_so_nobody_cuts_there(graphs):
    resnet50 = graphs["resnet50"]
    inside = next(index for index, each in enumerate(resnet50.operators) if each.name == "12.second")
    assert len(crossing(resnet50, inside)) == 2
    split = most_even(resnet50, seconds_of(resnet50), 8)
    assert all(len(crossing(resnet50, begin)) == 1 for begin in split.begins)


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_no_split_has_a_faster_slowest_stage(graphs, stages):
    alexnet = graphs["alexnet"]
    seconds = seconds_of(alexnet)
    each = [seconds[operator.name] for operator in alexnet.operators]

    def slowest(begins):
        bounds = (0, *begins, len(each))
        return max(sum(each[begin:end]) for begin, end in pairwise(bounds))

    found = most_even(alexnet, seconds, stages)
    least = min(slowest(begins) for begins in combinations(range(1, len(each) - 1), stages - 1))
    assert slowest(found.begins) == pytest.approx(least) == max(found.loads)
    assert sum(found.loads) == pytest.approx(sum(each))
    as_fast = [b for b in combinations(range(1, len(each) - 1), stages - 1) if slowest(b) <= least * (1 + 1e-9)]
    assert sent_bytes(alexnet, found.begins, 1) == min(sent_bytes(alexnet, begins, 1) for begins in as_fast)


def test_too_many_stages_are_refused(graphs):
    with pytest.raises(ValueError, match="too few for 40 stages"):
        most_even(graphs["alexnet"], seconds_of(graphs["alexnet"]), 40)
