"""How many chunks each rank may have begun, and that memory makes it fewer before it makes a plan impossible."""

import re
from dataclasses import replace

import pytest
from grids import chain, channel, facts, grids, model, place, profile
from hypothesis import given, settings

from nfold.analysis.resimulating.playback import play_back
from nfold.core import codec
from nfold.core.cluster import Cluster, Node
from nfold.core.plan import Plan
from nfold.errors import PlanError
from nfold.planning.choosing.search import plan_as_asked
from nfold.planning.choosing.strategies import named
from nfold.planning.inputs.facts import Facts
from nfold.planning.scheduling.windows import busy_window, busy_windows, lean_window, narrower, window_notes

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


def test_where_messages_take_no_time_as_many_do_as_ranks_are_behind():
    assert [busy_window(ranks) for ranks in (1, 2, 3, 4)] == [1, 3, 5, 7]
    assert [lean_window(ranks) for ranks in (1, 2, 3, 4)] == [1, 2, 3, 4], "1F1B"


def test_windows_are_halved_until_one_chunk_is_left():
    assert list(narrower((7, 5, 3, 1))) == [(4, 3, 2, 1), (2, 2, 1, 1), (1, 1, 1, 1)]
    assert list(narrower((1, 1))) == []


def test_fewer_chunks_than_keep_a_rank_busy_are_told():
    assert window_notes(()) == ()
    assert "at most 4 unfinished chunks at a time" in window_notes((4, 3, 2, 1))[0]
    assert "at most 1 unfinished chunk at a time" in window_notes((1, 1))[0]


GRAPH = chain(10, 10, 10, 10)


def roomy(memory_bytes: int, kept_bytes: float = 5e5) -> Facts:
    """Four nodes, and a model that keeps 100 kB of each sample for each of five operators."""
    link = channel(1e6, latency_s=5e-3)
    nodes = tuple(
        Node(name=name, cores=1.0, memory_bytes=memory_bytes, local=link, uplink=link, downlink=link) for name in "abcd"
    )
    profiles = {1: profile(GRAPH, activation_bytes_per_sample=kept_bytes)}
    return facts(
        GRAPH, 4, cluster=Cluster(nodes=nodes), nodes=tuple("abcd"), batch_size=32, chunks=8, profiles=profiles
    )


def pipeline(memory_bytes: int, kept_bytes: float = 5e5) -> Plan:
    return plan_as_asked(roomy(memory_bytes, kept_bytes), "pipeline", among=(named("pipeline"),))


def test_a_plan_begins_fewer_chunks_where_its_memory_is_short():
    free = pipeline(1 << 30)
    assert free.windows == ()
    needed = max(free.predicted.peak_memory_bytes)
    short = pipeline(needed * 3 // 4)
    assert 1 <= max(short.windows) < 7
    assert max(short.predicted.peak_memory_bytes) <= needed * 3 // 4
    assert short.predicted.step_s >= free.predicted.step_s
    assert any("unfinished chunk" in note for note in short.notes)
    with pytest.raises(PlanError, match="1 rank needs"):
        pipeline(needed // 16)


def test_a_refusal_names_what_one_chunk_at_a_time_needs():
    """So much is enough, and less is not."""
    with pytest.raises(PlanError) as caught:
        pipeline(100 << 20, kept_bytes=5e8)
    needed = max(int(number) for number in re.findall(r"needs (\d+) MiB", str(caught.value)))
    assert max(pipeline((needed + 1) << 20, kept_bytes=5e8).windows) <= 2
    with pytest.raises(PlanError, match=f"needs {needed} MiB"):
        pipeline((needed - 1) << 20, kept_bytes=5e8)


def test_the_plan_alone_says_how_many_chunks_are_begun():
    asked = roomy(max(pipeline(1 << 30).predicted.peak_memory_bytes) * 3 // 4)
    found = codec.loads(Plan, codec.dumps(plan_as_asked(asked, "pipeline", among=(named("pipeline"),))))
    steps = {
        windows: max(play_back(replace(found, windows=windows), asked).trace.step_s) for windows in (found.windows, ())
    }
    assert steps[found.windows] == found.predicted.step_s
    assert steps[()] < steps[found.windows], "with more chunks begun it would wait less"
