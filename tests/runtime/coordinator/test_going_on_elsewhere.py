"""Where the data of a run are when it goes on with other nodes."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfold.core.residency import (
    EpochSamples,
    NodeData,
    PlacedData,
    PlacedRun,
    RankSamples,
    Residency,
    ResidencyPlan,
    RunCost,
    SampleMove,
)
from nfold.errors import ClusterError
from nfold.runtime.coordinator.placing.kept_placement import lists_at, lists_beside_leavers, repairs, stages

COST = RunCost(move_s=0.0, first_epoch_s=1.0, epoch_s=1.0, compute_s=1.0, sync_s=0.0, run_s=1.0)
PLAN = ResidencyPlan(
    method="auto", moving="nothing", epochs=1, batch_size=10, traffic="ring", nodes=(), transfers=(), cost=COST,
    unmoved=None, before=Residency(holdings=(), sample_bytes=1.0),
)  # fmt: skip


def kept(*runs, held=(60, 40)):
    members = tuple(NodeData(node=f"n{number}", num_samples=count) for number, count in enumerate(held))
    return PlacedData(members=members, key="key", sample_bytes=1.0, runs=runs, plan=PLAN)


def run(first_step, members, epochs, moves=()):
    stretches = tuple(EpochSamples(from_epoch=epoch, by_rank=ranks) for epoch, ranks in epochs)
    nodes = tuple(f"n{number}" for number in members)
    return PlacedRun(first_step=first_step, members=members, nodes=nodes, epochs=stretches, moves=moves)


def own(*spans):
    return RankSamples(own=spans)


MOVED = run(
    0, (0, 1), [(0, (own((0, 30)), own((60, 100), (30, 60))))], (SampleMove(source=0, target=1, spans=((30, 60),)),)
)


def test_what_has_moved_stays_where_it_is():
    assert lists_at(kept(MOVED), 5, 0, (0, 1)) == [((0, 30),), ((60, 100), (30, 60))]
    assert repairs(kept(MOVED), [((0, 30),), ((60, 100), (30, 60))], (0, 1)) == MOVED.moves


BEGUN = (own((0, 60)), own((60, 100)), own())
BROUGHT = run(
    7,
    (0, 1, 2),
    [(1, BEGUN), (2, (BEGUN[0], own((60, 100), (105, 110)), own((100, 105))))],
    (SampleMove(source=2, target=1, spans=((105, 110),)),),
)
"""A third node has brought ten samples in the second epoch, which count from the third one on, and given half away."""


def test_what_was_brought_is_needed_by_who_comes_after_it_once_it_counts():
    found = kept(run(0, (0, 1), [(0, BEGUN[:2])]), BROUGHT, held=(60, 40, 10))
    found = replace(found, members=(*found.members[:2], replace(found.members[2], is_brought=True)))
    assert lists_at(found, 8, 1, (0, 1, 2)) == [((0, 60),), ((60, 100), (105, 110)), ((100, 105),)]
    assert lists_at(found, 8, 1, (0, 1)) == [((0, 60),), ((60, 100), (105, 110))]
    assert lists_beside_leavers(found, 8, 1, (0, 1, 2), {2})[2] == ((100, 105),)
    with pytest.raises(ClusterError, match="5 samples that the run trains on live on nodes that are not there, n2"):
        lists_at(found, 30, 2, (0, 1))


def test_what_was_brought_is_not_needed_where_all_go_back_to_the_first_step_that_it_counts_in():
    found = kept(run(0, (0, 1), [(0, BEGUN[:2])]), BROUGHT, held=(60, 40, 10))
    found = replace(found, members=(*found.members[:2], replace(found.members[2], is_brought=True)))
    assert lists_at(found, 10, 2, (0, 1), is_begun=False) == [((0, 60),), ((60, 100), (105, 110))]
    assert lists_beside_leavers(found, 10, 2, (0, 1), (), is_begun=False) == [((0, 60),), ((60, 100), (105, 110))]
    with pytest.raises(ClusterError, match="40 samples that the run trains on live on nodes that are not there, n1"):
        lists_at(found, 10, 2, (0, 2), is_begun=False)
    with pytest.raises(ClusterError, match="5 samples that the run trains on live on nodes that are not there, n2"):
        lists_at(found, 15, 3, (0, 1), is_begun=False)


def test_what_nobody_has_counted_on_is_there_as_long_as_its_node_is():
    found = kept(run(0, (0, 1), [(0, BEGUN[:2])]), held=(60, 40, 10))
    found = replace(found, members=(*found.members[:2], replace(found.members[2], is_brought=True)))
    assert lists_at(found, 8, 1, (0, 1, 2))[2] == ((100, 110),)
    assert lists_at(found, 8, 1, (0, 1)) == [((0, 60),), ((60, 100),)]
    assert lists_beside_leavers(found, 8, 1, (0, 1, 2), {2})[2] == ()


def test_what_a_node_gave_away_is_its_own_again_where_the_other_is_gone():
    with pytest.raises(ClusterError, match="40 samples that the run trains on live on nodes that are not there, n1"):
        lists_at(kept(MOVED), 5, 0, (0,))
    drained = run(0, (0,), [(0, (own((0, 60), (60, 100)),))], (SampleMove(source=1, target=0, spans=((60, 100),)),))
    assert lists_at(kept(drained), 5, 0, (1, 0)) == [(), ((0, 100),)]
    assert lists_at(kept(drained), 5, 0, (0,)) == [((0, 100),)], "who has given all away need not come back"


def test_what_is_still_on_its_way_is_where_it_came_from():
    coming = (RankSamples(own=((0, 30),)), RankSamples(own=((60, 100),), arriving=((30, 60),)))
    move = SampleMove(source=0, target=1, spans=((30, 60),), epoch=2)
    beside = run(0, (0, 1), [(0, (own((0, 60)), own((60, 100)))), (2, coming)], (move,))
    assert lists_at(kept(beside), 5, 2, (0, 1)) == [((0, 60),), ((60, 100),)]
    assert lists_at(kept(beside), 9, 3, (0, 1)) == [((0, 30),), ((60, 100), (30, 60))]


def test_what_was_on_its_way_stays_with_who_passes_it_on():
    """It lived on a node that is not there any more."""
    first = own((0, 60), (60, 100))
    coming = (first, RankSamples(own=(), arriving=()))
    later = (own((0, 60)), RankSamples(own=(), arriving=((60, 100),)))
    move = SampleMove(source=0, target=2, spans=((60, 100),), epoch=2)
    beside = run(0, (0, 2), [(0, coming), (2, later)], (move,))
    assert lists_at(kept(beside, held=(60, 40, 0)), 5, 2, (0, 2)) == [((0, 100),), ()]


@pytest.mark.parametrize("last", [0, 2])
def test_what_was_to_move_twice_is_not_yet_where_it_was_to_move_on_from(last):
    """It is where it was sent from first, though it comes back there, and is lost with that node."""
    there = (RankSamples(own=((0, 40),)), own(), own())
    coming = (there[0], RankSamples(own=(), arriving=((40, 100),)), there[2])
    onwards = tuple(
        RankSamples(own=each.own, arriving=((40, 100),) if n == last else ()) for n, each in enumerate(there)
    )
    moves = [SampleMove(source=0, target=1, spans=((40, 100),), epoch=2)]
    moves.append(SampleMove(source=1, target=last, spans=((40, 100),), epoch=3))
    found = kept(run(0, (0, 1, 2), [(2, coming), (3, onwards)], tuple(reversed(moves))), held=(40, 0, 0, 60))
    assert lists_at(found, 5, 2, (0, 1, 2)) == [((0, 100),), (), ()]
    with pytest.raises(ClusterError, match="100 samples that the run trains on live on nodes that are not there"):
        lists_at(found, 5, 2, (1, 2))


def test_who_leaves_holds_what_nobody_has_who_stays():
    lists = lists_beside_leavers(kept(MOVED), 5, 0, (0, 1), {1})
    assert lists == [((0, 60),), ((60, 100),)], "the copies that came to it are still where they came from"
    assert lists_beside_leavers(kept(MOVED), 5, 0, (1, 0), {0}) == [((60, 100), (30, 60)), ((0, 30),)]


def test_what_neither_who_stays_nor_who_leaves_holds_is_missed():
    with pytest.raises(ClusterError, match="40 samples that the run trains on live on nodes that are not there, n1"):
        lists_beside_leavers(kept(MOVED, held=(60, 40, 0)), 5, 0, (0, 2), {2})


def test_what_is_passed_on_is_repaired_first():
    repair, onwards = (SampleMove(source=one, target=one + 1, spans=((0, 5),)) for one in (0, 1))
    assert stages([onwards, repair], kept(held=(60, 40, 0)).members) == [(repair,), (onwards,)]


def test_a_place_that_was_not_trained_under_may_not_have_moved():
    assert lists_at(kept(MOVED), 0, 0, (0, 1)) == [((0, 60),), ((60, 100),)]
    assert lists_at(kept(replace(MOVED, has_moved=True)), 0, 0, (0, 1)) == [((0, 30),), ((60, 100), (30, 60))]


@given(st.permutations([0, 1, 2]), st.sets(st.sampled_from([0, 1, 2])), st.integers(0, 60), st.integers(0, 40))
def test_no_sample_is_lost_or_doubled_whoever_leaves(numbers, leavers, from_first, from_second):
    moved = ((60 - from_first, 60), (100 - from_second, 100))
    whole = (own((0, 60 - from_first)), own((60, 100 - from_second)), own(*moved))
    lists = lists_beside_leavers(kept(run(0, (0, 1, 2), [(0, whole)]), held=(60, 40, 0)), 5, 0, numbers, leavers)
    assert sorted(number for spans in lists for first, end in spans for number in range(first, end)) == [*range(100)]
    holds = dict(zip(numbers, lists, strict=True))
    assert not holds[2] or 2 not in leavers or {0, 1} & leavers, "it has only what came from those who stay"


@given(st.permutations([0, 1, 2]), st.integers(0, 60), st.integers(0, 40))
def test_no_sample_is_lost_or_doubled_whoever_comes(numbers, from_first, from_second):
    moved = ((60 - from_first, 60), (100 - from_second, 100))
    whole = (own((0, 60 - from_first)), own((60, 100 - from_second)), own(*moved))
    lists = lists_at(kept(run(0, (0, 1, 2), [(0, whole)]), held=(60, 40, 0)), 5, 0, numbers)
    assert sorted(number for spans in lists for first, end in spans for number in range(first, end)) == [*range(100)]
