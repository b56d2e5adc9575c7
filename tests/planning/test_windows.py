"""How many chunks each rank may have begun."""

from grids import grids, model, place
from hypothesis import given, settings

from nfold.planning.windows import busy_windows

CHAIN = model({"A": ("input",), "B": ("a",), "C": ("b",), "D": ("c", "target")})


def test_a_stage_of_a_pipeline_has_one_chunk_for_each_rank_and_each_message_behind_it():
    placement = place({"A": (0,) * 8, "B": (1,) * 8, "C": (2,) * 8, "D": (3,) * 8}, 4)
    assert busy_windows(CHAIN, placement) == {0: 7, 1: 5, 2: 3, 3: 1}


def test_who_computes_whole_chunks_has_one_at_a_time():
    assert busy_windows(CHAIN, place(dict.fromkeys("ABCD", (0, 0, 1, 1)), 2)) == {0: 1, 1: 1}


def test_the_replicas_of_a_stage_do_not_count_for_each_other():
    placement = place({"A": (0, 1, 2), "B": (0, 1, 2), "C": (3, 3, 3), "D": (3, 3, 3)}, 4)
    assert busy_windows(CHAIN, placement) == {0: 3, 1: 3, 2: 3, 3: 1}


def test_a_rank_that_a_chunk_comes_back_to_counts_once():
    assert busy_windows(CHAIN, place({"A": (0,), "B": (1,), "C": (0,), "D": (1,)}, 2)) == {0: 3, 1: 3}


def test_who_computes_nothing_still_has_a_window():
    assert busy_windows(CHAIN, place(dict.fromkeys("ABCD", (0, 0)), 2)) == {0: 1, 1: 1}


@settings(max_examples=25, deadline=None)
@given(grids())
def test_a_window_is_never_more_than_all_ranks_and_messages_need(grid):
    graph, placement, _ = grid
    found = busy_windows(graph, placement)
    assert sorted(found) == list(range(placement.world_size))
    assert all(1 <= window <= 2 * placement.world_size - 1 for window in found.values())
