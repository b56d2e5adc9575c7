"""The order of cells: backward first, older chunks first, never too many chunks begun."""

import pytest
from grids import grids
from hypothesis import given, settings
from hypothesis import strategies as st

from nfold.errors import InternalError
from nfold.planning.order import Cell, order_cells
from nfold.planning.schedule import compile_schedule


def forward(rank, chunk, segment=0):
    return Cell(rank, False, chunk, segment)


def backward(rank, chunk, segment=0):
    return Cell(rank, True, chunk, segment)


def pipeline(num_ranks, num_chunks):
    """One segment per rank; forward goes down the ranks, backward comes up."""
    after = {}
    for chunk in range(num_chunks):
        for rank in range(num_ranks):
            after[forward(rank, chunk)] = frozenset({forward(rank - 1, chunk)} if rank else ())
            later = {backward(rank + 1, chunk)} if rank + 1 < num_ranks else set()
            after[backward(rank, chunk)] = frozenset({forward(rank, chunk), *later})
    return after, dict.fromkeys(after, 1.0)


def text(cells):
    return " ".join(f"{'B' if cell.backward else 'F'}{cell.chunk}" for cell in cells)


def test_one_rank_ends_a_chunk_before_it_begins_the_next():
    assert text(order_cells(*pipeline(1, 3), 4)[0]) == "F0 B0 F1 B1 F2 B2"


def test_a_pipeline_of_two_alternates_after_it_has_filled():
    after, _ = pipeline(2, 4)
    order = order_cells(after, {cell: 1.0 - 0.1 * cell.rank for cell in after}, 4)
    assert text(order[1]) == "F0 B0 F1 B1 F2 B2 F3 B3"
    assert text(order[0]) == "F0 F1 F2 B0 F3 B1 B2 B3"


def test_a_window_of_one_chunk_computes_chunk_after_chunk():
    for cells in order_cells(*pipeline(3, 3), 1).values():
        assert text(cells) == "F0 B0 F1 B1 F2 B2"


def test_cells_that_wait_for_each_other_are_our_own_fault():
    one, other = forward(0, 0), forward(0, 1)
    after = {one: frozenset({other}), other: frozenset({one})}
    with pytest.raises(InternalError, match="2 cells wait for each other in a circle"):
        order_cells(after, dict.fromkeys(after, 1.0), 4)


def most_begun(cells, last):
    """The largest number of chunks that were begun and not finished at once."""
    begun, most = set(), 0
    for cell in cells:
        begun.add(cell.chunk)
        most = max(most, len(begun))
        last[cell.chunk] -= 1
        if not last[cell.chunk]:
            begun.discard(cell.chunk)
    return most


@settings(max_examples=20, deadline=None)
@given(grids(), st.integers(1, 3))
def test_no_rank_has_more_chunks_begun_than_its_window(grid, max_chunks):
    graph, placement, reductions = grid
    schedule = compile_schedule(graph, placement, reductions, batch_size=16, max_chunks=max_chunks)
    for rank in schedule.ranks:
        cells = [task for task in rank.tasks if task.kind in ("F", "B")]
        left = {task.chunk: sum(other.chunk == task.chunk for other in cells) for task in cells}
        assert most_begun(cells, left) <= max_chunks


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 4), st.randoms(use_true_random=False))
def test_the_order_does_not_depend_on_how_the_cells_are_listed(num_ranks, num_chunks, max_chunks, generator):
    after, seconds = pipeline(num_ranks, num_chunks)
    seconds = {cell: 1.0 + cell.rank + cell.backward for cell in seconds}
    shuffled = list(after)
    generator.shuffle(shuffled)
    expected = order_cells(after, seconds, max_chunks)
    assert order_cells({cell: after[cell] for cell in shuffled}, seconds, max_chunks) == expected
