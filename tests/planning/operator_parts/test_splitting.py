"""Operators cut into parts: the same tensors, weights and seconds in smaller pieces."""

from dataclasses import replace

import grids
import pytest
from towers import towers

from nfold.errors import PlanError
from nfold.planning.operator_parts.parts import cut_into_parts
from nfold.planning.operator_parts.splitting import split_facts, split_graph, split_profile
from nfold.planning.reductions.buckets import buckets_of
from nfold.planning.scheduling.schedule_compiler import compile_schedule


def inputs(graph):
    return {operator.name: operator.inputs for operator in graph.operators}


def assert_sound(graph):
    """Producers come before consumers, and operators, tensors and parameters name each other."""
    made, operators = {"input", "target"}, {each.name: each for each in graph.operators}
    for operator in graph.operators:
        assert set(operator.inputs) <= made
        made |= set(operator.outputs)
    for tensor in graph.tensors:
        assert tensor.consumers == tuple(name for name, each in operators.items() if tensor.name in each.inputs)
        assert not tensor.producer or tensor.name in operators[tensor.producer].outputs
    for parameter in graph.parameters:
        assert parameter.users == tuple(name for name, each in operators.items() if parameter.name in each.parameters)


def test_parts_take_the_operators_place_and_consumers_take_all_parts():
    split = split_graph(towers(), {"F": 3})
    assert_sound(split)
    assert [each.name for each in split.operators] == ["A", "R", "G", "F[0/3]", "F[1/3]", "F[2/3]", "Loss"]
    assert inputs(split)["Loss"] == ("f[0/3]", "f[1/3]", "f[2/3]", "target")
    assert inputs(split)["F[1/3]"] == ("g",)


def test_parts_of_towers_stay_together_and_never_see_each_other():
    split = split_graph(towers(), {"A": 2, "G": 2})
    assert_sound(split)
    assert [each.name for each in split.operators] == [
        "A[0/2]", "R[0/2]", "G[0/2]", "A[1/2]", "R[1/2]", "G[1/2]", "F", "Loss",
    ]  # fmt: skip
    assert inputs(split)["G[1/2]"] == ("r[1/2]",)


def test_a_group_whose_input_is_whole_is_handed_its_channels():
    split = split_graph(towers(), {"G": 2})
    assert_sound(split)
    assert inputs(split)["G[input]"] == ("r",)
    assert inputs(split)["G[1/2]"] == ("G[1/2 input]",)
    sizes = {tensor.name: tensor.bytes_per_sample for tensor in split.tensors}
    assert sizes["G[0/2 input]"] == sizes["r"] / 2


def test_groups_take_what_overlaps_of_other_parts():
    graph = towers()
    parts = cut_into_parts(graph, {"A": 3, "G": 2})  # channels 0 1 | 2 | 3 for groups 0 1 | 2 3
    assert parts.of["G"][0].inputs == ("r[0/3]",)
    assert parts.of["G"][1].inputs == ("r[1/3]", "r[2/3]")
    parts = cut_into_parts(graph, {"A": 4, "G": 2})
    assert (parts.of["G"][1].inputs, parts.of["G"][1].taken) == (("r[2/4]", "r[3/4]"), None)


def test_groups_take_a_range_of_a_part_that_is_too_wide():
    graph = towers()
    wider = tuple(
        replace(each, channels=replace(each.channels, groups=4)) if each.name == "G" else each
        for each in graph.operators
    )
    parts = cut_into_parts(replace(graph, operators=wider), {"A": 2, "G": 4})
    assert [(part.inputs, part.taken) for part in parts.of["G"]] == [
        (("r[0/2]",), (0, 1)), (("r[0/2]",), (1, 2)), (("r[1/2]",), (0, 1)), (("r[1/2]",), (1, 2)),
    ]  # fmt: skip


@pytest.mark.parametrize("splits", [{"A": 3}, {"G": 2}, {"F": 4}, {"A": 2, "G": 2, "F": 6}])
def test_nothing_is_lost_or_counted_twice(splits):
    graph = towers()
    split, profile = split_graph(graph, splits), split_profile(grids.profile(graph), graph, splits)
    assert_sound(split)
    assert sum(each.num_elements for each in split.parameters) == sum(each.num_elements for each in graph.parameters)
    assert split.parameter_bytes == graph.parameter_bytes
    assert {each.operator for each in profile.operators} == {each.name for each in split.operators}
    together = [sum(pair[side] for pair in profile.operators_s(16).values()) for side in (0, 1)]
    assert together == pytest.approx(grids.profile(graph).whole_s(16))


def test_rows_lie_one_after_another_in_the_whole_parameter():
    split = split_graph(towers(), {"F": 4})
    rows = [(each.name, each.rows.start, each.rows.stop, each.num_elements) for each in split.parameters if each.rows]
    assert rows == [
        ("f.weight[0:2]", 0, 2, 16),
        ("f.weight[2:4]", 2, 4, 16),
        ("f.weight[4:5]", 4, 5, 8),
        ("f.weight[5:6]", 5, 6, 8),
    ]
    assert split.is_split
    assert not towers().is_split


def test_towers_on_two_ranks_send_each_other_only_what_is_joined():
    split = split_graph(towers(), {"A": 2, "G": 2})
    owners = {each.name: (int(each.name.endswith("[1/2]")),) for each in split.operators}
    placement = grids.place(owners, 2)
    schedule = compile_schedule(split, placement, buckets_of(split, placement, "ring", 1 << 20), batch_size=10)
    assert schedule.sent_bytes == 2 * 10 * 4  # half of g (8 bytes a sample) forth, its gradient back


def test_a_follower_is_not_cut_by_itself():
    with pytest.raises(PlanError, match="cut when the operator before it is"):
        split_graph(towers(), {"R": 2})


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ({"A": 5}, "it has 4 channels"),
        ({"G": 3}, "it has 2 groups"),
        ({"F": 1}, "1 parts"),
        ({"Loss": 2}, "neither a convolution nor a linear layer"),
        ({"B": 2}, "no such operator"),
    ],
)
def test_what_cannot_be_cut_is_said(splits, message):
    with pytest.raises(PlanError, match=message):
        split_graph(towers(), splits)


@pytest.mark.parametrize("scope", ["parameter", "model"])
def test_an_optimizer_that_must_see_whole_parameters_keeps_them_whole(scope):
    with pytest.raises(PlanError, match="must see whole parameters"):
        split_graph(towers(update_scope=scope), {"A": 2})


def test_facts_about_the_split_graph():
    facts = grids.facts(towers())
    assert split_facts(facts, {}) is facts
    split = split_facts(facts, {"A": 2})
    assert split.graph.is_split
    assert split.profiles[1].operators[0].operator == "A[0/2]"
