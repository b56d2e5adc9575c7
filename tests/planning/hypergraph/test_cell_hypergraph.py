"""The hypergraph of a model's cells: its connectivity is what a schedule sends, whatever the placement."""

from dataclasses import replace

import pytest
from grids import chain, graphs, model, parameter
from hypothesis import given, settings
from hypothesis import strategies as st

from nfold.core.chunks import chunk_sizes
from nfold.core.graph import ModelGraph, Statistic
from nfold.core.placement import Placement
from nfold.planning.hypergraph.cell_hypergraph import Costs, Hypergraph, blocks_of, build, loads_s, owners_of, traffic
from nfold.planning.inputs.operator_groups import coarsen
from nfold.planning.reductions.buckets import buckets_of
from nfold.planning.scheduling.schedule_compiler import compile_schedule

CASES = settings(max_examples=30, deadline=None)


def seconds_of(graph: ModelGraph, **fields: float) -> dict[str, tuple[float, float]]:
    return {operator.name: (fields.get(operator.name, 1.0),) * 2 for operator in graph.operators}


def hypergraph(
    graph: ModelGraph, batch_size: int, chunks: int, *, homes=(), most_groups=1000, **seconds: float
) -> Hypergraph:
    sizes = chunk_sizes(batch_size, chunks)
    each = seconds_of(graph, **seconds)
    groups = coarsen(graph, {name: sum(pair) for name, pair in each.items()}, most_groups)
    costs = Costs(seconds=dict.fromkeys(sizes, each), saved_bytes_per_sample={}, state_factor=3.0)
    return build(graph, groups, sizes, costs, homes)


def sent_bytes(graph: ModelGraph, cells: Hypergraph, blocks, world: int, batch_size: int) -> int:
    placement = Placement(num_chunks=cells.num_chunks, world_size=world, owners=owners_of(cells, blocks))
    reductions = buckets_of(graph, placement, "ring", 24)
    return compile_schedule(graph, placement, reductions, batch_size=batch_size).sent_bytes


@CASES
@given(st.data(), graphs(), st.integers(1, 4), st.integers(1, 5), st.integers(1, 17))
def test_connectivity_is_exactly_what_a_schedule_sends(data, graph, chunks, world, batch_size):
    light = {op.name: data.draw(st.sampled_from([0.0, 1.0])) for op in graph.operators}
    cells = hypergraph(graph, batch_size, chunks, **light)
    blocks = [data.draw(st.integers(0, world - 1)) for _ in range(cells.num_cells)]
    unclipped = replace(graph, clips_gradients=False)  # ranks agree on a norm in a few bytes that no layout changes
    assert traffic(cells, blocks) == sent_bytes(unclipped, cells, blocks, world, batch_size)


@CASES
@given(st.data(), graphs(), st.integers(1, 4))
def test_renaming_ranks_changes_no_byte(data, graph, chunks):
    cells = hypergraph(graph, 12, chunks)
    blocks = [data.draw(st.integers(0, 3)) for _ in range(cells.num_cells)]
    names = data.draw(st.permutations(range(4)))
    assert traffic(cells, [names[block] for block in blocks]) == traffic(cells, blocks)


def test_data_parallelism_costs_a_ring_and_a_pipeline_its_activations():
    graph = chain(100, 300)
    cells = hypergraph(graph, 16, 4)
    assert len(cells.groups) == 3
    whole_s = sum(cells.seconds)
    assert traffic(cells, [0, 1, 2, 3] * 3) == 2 * 3 * graph.parameter_bytes
    assert traffic(cells, [0] * 4 + [1] * 8) == 2 * 16 * 8, "8 bytes a sample, forth and back"
    assert loads_s(cells, [0] * 4 + [1] * 8, 2) == [whole_s / 3, 2 * whole_s / 3]


def test_a_tied_weight_is_one_net_and_a_frozen_one_none():
    weights = (parameter("tied", 10, "A", "B"), parameter("frozen", 99, "A", trainable=False))
    cells = hypergraph(model({"A": ("input",), "B": ("a",), "Loss": ("b", "target")}, weights), 4, 2)
    nets = {net.pins: net.num_bytes for net in cells.nets}
    assert nets[0, 1, 2, 3] == 2 * 40
    assert 99 * 4 not in {net.num_bytes // times for net in cells.nets for times in (1, 2)}
    assert {(state.num_bytes, state.groups) for state in cells.states} == {(3 * 40, (0, 1)), (99 * 4, (0,))}


def test_samples_cost_their_bytes_where_they_do_not_live():
    graph = chain(1)
    free, pinned = hypergraph(graph, 4, 2), hypergraph(graph, 4, 2, homes=(1, 0))
    layout = [0, 1, 0, 1]
    homes = [1, 0]
    assert pinned.fixed == {4: 1, 5: 0}
    inputs_and_targets = 2 * 4 * 4
    assert traffic(pinned, layout + homes) == traffic(free, layout) + inputs_and_targets
    assert traffic(pinned, [1, 0, 1, 0, *homes]) == traffic(free, layout)


# Coarsening


def groups_of(graph: ModelGraph, most_groups: int = 1000, **seconds: float) -> list[str]:
    each = {operator.name: seconds.get(operator.name, 1.0) for operator in graph.operators}
    return ["+".join(group) for group in coarsen(graph, each, most_groups)]


def test_a_light_operator_rides_with_its_producer_and_a_first_one_with_its_consumer():
    graph = chain(1, 1, 1)
    assert groups_of(graph, B=0.0, Loss=0.0) == ["A+B", "C+Loss"]
    assert groups_of(graph, A=0.0) == ["A+B", "C", "Loss"]


def test_a_light_operator_that_makes_its_tensor_larger_rides_with_its_consumer():
    graph = chain(1, 1, 1)
    grown = tuple(replace(each, bytes_per_sample=64.0) if each.name == "b" else each for each in graph.tensors)
    assert groups_of(replace(graph, tensors=grown), B=0.0) == ["A", "B+C", "Loss"]


def test_operators_that_change_state_of_one_module_stay_together():
    graph = chain(1, 1, 1)
    shared = tuple(replace(op, state=("module",)) if op.name in "AC" else op for op in graph.operators)
    assert groups_of(replace(graph, operators=shared)) == ["A+C", "B", "Loss"]


def test_operators_of_one_batch_norm_stay_together():
    graph = chain(1, 1, 1)
    shared = tuple(replace(op, statistics=("norm",)) if op.name in "AC" else op for op in graph.operators)
    statistics = (Statistic(module="norm", num_channels=3, num_calls=2, dtype="float32"),)
    assert groups_of(replace(graph, operators=shared, statistics=statistics)) == ["A+C", "B", "Loss"]


@pytest.mark.parametrize("most", [2, 5, 20])
def test_many_operators_are_joined_until_they_are_few_and_none_grows_large(most):
    graph = chain(*[1] * 20)
    groups = coarsen(graph, {op.name: 1.0 for op in graph.operators}, most)
    assert sorted(name for group in groups for name in group) == sorted(op.name for op in graph.operators)
    assert len(groups) < 21
    assert max(map(len, groups)) <= 2 * 21 / most


def test_a_placement_becomes_blocks_again():
    graph = chain(1, 1)
    cells = hypergraph(graph, 4, 2, B=0.0, Loss=0.0)
    placement = Placement(num_chunks=2, world_size=2, owners={"A": (0, 1), "B": (1, 1), "Loss": (1, 0)})
    assert blocks_of(cells, placement, seconds_of(graph, B=0.0, Loss=0.0)) == [0, 1]
