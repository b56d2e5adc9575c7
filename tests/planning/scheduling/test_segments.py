"""Maximal runs of a rank's operators, and what goes in and out of them."""

from itertools import pairwise

from grids import chain, grids, model, parameter, place
from hypothesis import given, settings

from nfold.core.graph import ModelGraph
from nfold.core.schedule import Segment
from nfold.planning.scheduling.segments import cut


def test_a_rank_that_owns_everything_has_one_segment():
    (cells,) = cut(chain(1, 1), place(dict.fromkeys(("A", "B", "Loss"), (0, 0)), 1))
    assert cells.segments == (
        Segment(operators=("A", "B", "Loss"), inputs=("input", "target"), outputs=("loss",), backward=True),
    )
    assert cells.by_chunk == {0: (0,), 1: (0,)}


def test_a_run_ends_where_another_rank_goes_on():
    first, second = cut(chain(1, 1, 1), place({"A": (0,), "B": (1,), "C": (0,), "Loss": (0,)}, 2))
    assert [segment.operators for segment in first.segments] == [("A",), ("C", "Loss")]
    assert [segment.inputs for segment in first.segments] == [("input",), ("b", "target")]
    assert [segment.outputs for segment in first.segments] == [("a",), ("loss",)]
    assert [segment.operators for segment in second.segments] == [("B",)]


def test_chunks_that_run_the_same_operators_share_a_segment():
    (first, _) = cut(chain(1, 1), place({"A": (0, 0, 1), "B": (0, 1, 0), "Loss": (0, 1, 0)}, 2))
    assert [segment.operators for segment in first.segments] == [("A", "B", "Loss"), ("A",), ("B", "Loss")]
    assert first.by_chunk == {0: (0,), 1: (1,), 2: (2,)}


def test_a_rank_without_cells_has_no_segments():
    cells = cut(chain(1), place({"A": (0,), "Loss": (0,)}, 2))[1]
    assert (cells.segments, cells.by_chunk) == ((), {})


def test_frozen_layers_before_all_trained_ones_need_no_backward():
    weights = (parameter("a", 1, "A", trainable=False), parameter("b", 1, "B"))
    graph = model({"A": ("input",), "B": ("a",), "Loss": ("b", "target")}, weights)
    first, second, third = cut(graph, place({"A": (0,), "B": (1,), "Loss": (2,)}, 3))
    assert [cells.segments[0].backward for cells in (first, second, third)] == [False, True, True]


def test_a_tensor_used_here_and_elsewhere_is_still_an_output():
    graph = model({"A": ("input",), "B": ("a",), "Loss": ("a", "b", "target")}, (parameter("w", 1, "A"),))
    first, second = cut(graph, place({"A": (0,), "B": (0,), "Loss": (1,)}, 2))
    assert first.segments[0].outputs == ("a", "b")
    assert second.segments[0].inputs == ("a", "b", "target")


@settings(max_examples=20, deadline=None)
@given(grids())
def test_segments_are_runs_that_cover_what_a_rank_owns(grid):
    graph, placement, _ = grid
    order = {operator.name: index for index, operator in enumerate(graph.operators)}
    for rank, cells in enumerate(cut(graph, placement)):
        for chunk in range(placement.num_chunks):
            runs = [cells.segments[index].operators for index in cells.by_chunk.get(chunk, ())]
            owned = [name for name in order if placement.owners[name][chunk] == rank]
            assert [name for run in runs for name in run] == owned
            for run in runs:
                assert [order[name] for name in run] == list(range(order[run[0]], order[run[0]] + len(run)))
            for left, right in pairwise(runs):
                if order[right[0]] == order[left[-1]] + 1:
                    both = (*left, right[0])
                    assert waits_of(graph, both, right[0]) != waits_of(graph, both, left[0])


def waits_of(graph: ModelGraph, run: tuple[str, ...], name: str) -> set[str]:
    """Which operators outside a run, of those that any of the run takes from, an operator needs."""
    producers = {tensor.name: tensor.producer for tensor in graph.tensors}
    makers = {each.name: {producers[used] for used in each.inputs} - {""} for each in graph.operators}

    def needed(operator: str) -> set[str]:
        return makers[operator].union(*(needed(maker) for maker in makers[operator]))

    outside = set().union(*(makers[each] for each in run)) - set(run)
    return outside & needed(name)


def test_branches_side_by_side_do_not_wait_for_each_other():
    graph = model({"A": ("input",), "B": ("a",), "C": ("input",), "D": ("c",), "Loss": ("b", "d", "target")}, ())
    alone, _ = cut(graph, place({"A": (0,), "B": (1,), "C": (1,), "D": (1,), "Loss": (1,)}, 2))[::-1]
    assert [segment.operators for segment in alone.segments] == [("B",), ("C", "D"), ("Loss",)]


def test_a_skip_from_before_a_run_does_not_end_it():
    graph = model({"A": ("input",), "B": ("a",), "C": ("b",), "Loss": ("a", "c", "target")}, ())
    _, last = cut(graph, place({"A": (0,), "B": (0,), "C": (1,), "Loss": (1,)}, 2))
    assert [segment.operators for segment in last.segments] == [("C", "Loss")]
