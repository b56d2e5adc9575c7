"""The order of cells: backward first, older chunks first, never too many chunks begun."""

import pytest
from grids import grids
from hypothesis import given, settings
from hypothesis import strategies as st

from nfold.errors import InternalError
from nfold.planning.scheduling.order import Cell, order_cells
from nfold.planning.scheduling.schedule_compiler import compile_schedule


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


def same(window, after):
    """The same window on every rank."""
    return dict.fromkeys({cell.rank for cell in after}, window)


def text(cells):
    return " ".join(f"{cell.rank}{'B' if cell.backward else 'F'}{cell.chunk}" for cell in cells)


def test_one_rank_ends_a_chunk_before_it_begins_the_next():
    assert text(order_cells(*pipeline(1, 3), {0: 4})[0]) == "0F0 0B0 0F1 0B1 0F2 0B2"


def test_a_pipeline_of_two_alternates_after_it_has_filled():
    after, _ = pipeline(2, 4)
    order = order_cells(after, {cell: 1.0 - 0.1 * cell.rank for cell in after}, same(4, after))
    assert text(order[1]) == "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3"
    assert text(order[0]) == "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3"


def test_what_becomes_ready_in_the_instant_in_which_a_rank_is_free_counts():
    # At 3 s rank 0 ends 0F2 and rank 1 ends 1B0: the gradient is there as soon as the rank is free for 0F3.
    order = order_cells(*pipeline(2, 4), {0: 4, 1: 4})
    assert text(order[0]) == "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3"


def one_forward_one_backward(stage, num_stages, num_chunks):
    """The textbook's order: forwards until the pipeline is full, then one backward and one forward in turn."""
    first = min(num_stages - stage, num_chunks)
    cells = [f"{stage}F{chunk}" for chunk in range(first)]
    for chunk in range(num_chunks):
        cells.append(f"{stage}B{chunk}")
        cells += [f"{stage}F{chunk + first}"] if chunk + first < num_chunks else []
    return " ".join(cells)


def test_the_textbook_in_full_for_three_stages_and_four_chunks():
    assert [one_forward_one_backward(stage, 3, 4) for stage in range(3)] == [
        "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3",
        "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3",
        "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3",
    ]


@pytest.mark.parametrize("backward_s", [1.0, 2.0])
@pytest.mark.parametrize("num_chunks", range(4, 9))
@pytest.mark.parametrize("num_stages", [2, 3, 4])
def test_windows_that_shrink_along_a_pipeline_make_it_1f1b(num_stages, num_chunks, backward_s):
    after, _ = pipeline(num_stages, num_chunks)
    seconds = {cell: backward_s if cell.backward else 1.0 for cell in after}
    order = order_cells(after, seconds, {stage: num_stages - stage for stage in range(num_stages)})
    assert [text(order[stage]) for stage in range(num_stages)] == [
        one_forward_one_backward(stage, num_stages, num_chunks) for stage in range(num_stages)
    ]


def test_a_window_of_one_chunk_computes_chunk_after_chunk():
    after, seconds = pipeline(3, 3)
    for rank, cells in order_cells(after, seconds, same(1, after)).items():
        assert text(cells) == " ".join(f"{rank}F{chunk} {rank}B{chunk}" for chunk in range(3))


def test_cells_that_wait_for_each_other_are_our_own_fault():
    one, other = forward(0, 0), forward(0, 1)
    after = {one: frozenset({other}), other: frozenset({one})}
    with pytest.raises(InternalError, match="2 cells wait for each other in a circle"):
        order_cells(after, dict.fromkeys(after, 1.0), {0: 4})


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
def test_no_rank_has_more_chunks_begun_than_its_window_and_the_oldest(grid, max_chunks):
    graph, placement, reductions = grid
    windows = (max_chunks,) * placement.world_size
    schedule = compile_schedule(graph, placement, reductions, batch_size=16, windows=windows)
    for rank in schedule.ranks:
        cells = [task for task in rank.tasks if task.kind in ("F", "B")]
        left = {task.chunk: sum(other.chunk == task.chunk for other in cells) for task in cells}
        assert most_begun(cells, left) <= max_chunks + 1


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 4), st.randoms(use_true_random=False))
def test_the_order_does_not_depend_on_how_the_cells_are_listed(num_ranks, num_chunks, max_chunks, generator):
    after, seconds = pipeline(num_ranks, num_chunks)
    seconds = {cell: 1.0 + cell.rank + cell.backward for cell in seconds}
    shuffled = list(after)
    generator.shuffle(shuffled)
    expected = order_cells(after, seconds, same(max_chunks, after))
    assert order_cells({cell: after[cell] for cell in shuffled}, seconds, same(max_chunks, after)) == expected
