"""The speeds of nodes as ranks show them while they train, with and without work."""

from dataclasses import replace

import pytest
from pretended import a_plan, cluster

from nfold.core.cluster import Cluster
from nfold.core.members import SpeedShift
from nfold.core.plan import Plan
from nfold.core.trace import StepParts
from nfold.runtime.control import commands as cmd
from nfold.runtime.measuring.shifting_speeds import ShiftingSpeeds

CLUSTER = Cluster(nodes=tuple(replace(cluster().nodes[0], name=name, speed=0.5) for name in "ab"))
PLAN = replace(a_plan(2), nodes=("a", "b"), loads_s=(0.1, 0.1), batch_size=24)
GAUGE = {"do": "gauge"}


def done(*computed_s: float, samples: int = 100, beside_s=(0.0, 0.0), **fields: float) -> cmd.StepDone:
    nothing = dict.fromkeys(["input_s", "update_s", "communication_s"], 0.0) | fields
    parts = tuple(
        StepParts(
            step=0, rank=rank, step_s=1.0, forward_s=seconds / 2, backward_s=seconds / 2, sent_bytes=0,
            samples=samples if rank == 0 else 0, other_s=beside_s[rank], **nothing,
        )
        for rank, seconds in enumerate(computed_s)
    )  # fmt: skip
    return cmd.StepDone(0, 0, 0.5, parts, None)


def dealt(*counts: int) -> Plan:
    """A plan of so many chunks for each rank, of two samples and a hundredth of a second each on these nodes."""
    owners = tuple(rank for rank, count in enumerate(counts) for _ in range(count))
    placement = replace(PLAN.placement, num_chunks=sum(counts), owners={"A": owners})
    loads_s = tuple(0.01 * count for count in counts)
    return replace(PLAN, chunks=sum(counts), batch_size=2 * sum(counts), placement=placement, loads_s=loads_s)


def watched(plan=PLAN, now=CLUSTER) -> ShiftingSpeeds:
    speeds = ShiftingSpeeds()
    speeds.begin(plan, now)
    return speeds


def play(speeds: ShiftingSpeeds, steps: int, *computed_s: float, **fields) -> list[SpeedShift]:
    return [shift for _ in range(steps) for shift in speeds.look(done(*computed_s, **fields))]


def test_who_slows_down_for_good_is_noticed_once():
    speeds = watched()
    assert play(speeds, 40, 0.2, 0.2) == []
    (slow,) = play(speeds, 40, 0.2, 0.78)
    assert (slow.node, slow.told) == ("b", "computes 3.9 times slower than at the start")
    assert speeds.in_cluster(CLUSTER).node("b").speed == pytest.approx(0.5 / 3.9, rel=0.01)
    assert speeds.in_cluster(CLUSTER).node("a") == CLUSTER.node("a")


def test_what_a_plan_gives_somebody_is_no_change_of_its_speed():
    speeds = watched()
    play(speeds, 40, 0.2, 0.2)
    play(speeds, 20, 0.2, 0.8)
    slower = speeds.in_cluster(CLUSTER)
    speeds.begin(replace(PLAN, loads_s=(0.15, 0.2)), slower)  # half of what it had, at a fourth of the speed
    assert play(speeds, 40, 0.3, 0.4) == []
    (back,) = play(speeds, 40, 0.3, 0.1)
    assert back.told == "computes as fast as at the start again"


def test_what_was_measured_wrong_before_the_run_is_put_right():
    speeds = watched()
    (wrong,) = play(speeds, 40, 0.1, 0.3)
    assert (wrong.node, wrong.told) == ("b", "computes 3.0 times slower than was measured at the start")
    now = speeds.in_cluster(CLUSTER)
    assert now.node("a").speed == pytest.approx(3 * now.node("b").speed, rel=1e-3)
    assert speeds.seen == ("a", "b")
    (slow,) = play(speeds, 40, 0.1, 0.9)
    assert slow.told == "computes 3.0 times slower than at the start"


def test_nodes_that_are_as_unlike_as_was_measured_are_not_corrected():
    unlike = Cluster(nodes=(replace(CLUSTER.nodes[0], speed=0.8), replace(CLUSTER.nodes[1], speed=0.2)))
    speeds = watched(now=unlike)
    assert play(speeds, 40, 0.1, 0.1) == []
    assert speeds.in_cluster(unlike) == unlike
    assert [shift.node for shift in play(speeds, 40, 0.1, 0.3)] == ["b"]


def test_what_was_measured_a_quarter_wrong_is_put_right_where_other_shares_win():
    speeds = watched(dealt(8, 8))
    (wrong,) = play(speeds, 40, 0.8, 1.0, update_s=0.01, beside_s=(0.05, 0.05))
    assert (wrong.node, wrong.told) == ("b", "computes 1.2 times slower than was measured at the start")
    now = speeds.in_cluster(CLUSTER)
    assert now.node("a").speed == pytest.approx(1.25 * now.node("b").speed)
    assert [node.step_cpu_s for node in now.nodes] == pytest.approx([0.005, 0.005]), "all take ten times as long"
    assert play(speeds, 200, 0.8, 1.0, update_s=0.01, beside_s=(0.05, 0.05)) == [], "no plan has followed"


def test_a_little_slower_is_enough_where_other_shares_win():
    speeds = watched(dealt(10, 10))
    assert play(speeds, 40, 0.8, 0.8) == []
    (slow,) = play(speeds, 40, 0.8, 0.96)
    assert (slow.node, slow.told) == ("b", "computes 1.2 times slower than at the start")
    speeds.begin(dealt(11, 9), speeds.in_cluster(CLUSTER))
    assert play(speeds, 40, 0.88, 0.864) == [], "as it was planned"


def test_chunks_of_unlike_sizes_are_no_reason_for_other_shares():
    uneven = replace(dealt(2, 2), batch_size=6, loads_s=(0.02, 0.01))  # chunks of 2, 2, 1 and 1 samples
    assert play(watched(uneven), 60, 0.4, 0.2, beside_s=(0.01, 0.01)) == []


def test_who_is_busy_beside_its_chunks_is_not_called_slow():
    speeds = watched(dealt(8, 8))
    play(speeds, 40, 0.5, 0.5)
    (busy,) = play(speeds, 60, 0.5, 0.5, beside_s=(0.05, 0.3))
    assert (busy.node, busy.told) == ("b", "computes about as fast as was planned, and others wait for it")


def test_a_slower_node_that_no_plan_follows_is_told_once():
    speeds = watched(dealt(8, 8))
    play(speeds, 40, 0.5, 0.5)
    assert [shift.node for shift in play(speeds, 400, 0.5, 0.9)] == ["b"]


def test_who_comes_again_is_as_fast_as_it_is_measured_then():
    speeds = watched(dealt(8, 8))
    play(speeds, 40, 0.8, 0.8)
    (slow,) = play(speeds, 20, 0.8, 3.2)
    assert slow.node == "b"
    speeds.begin(replace(PLAN, nodes=("a",), loads_s=(0.16,), workers=1), Cluster(nodes=CLUSTER.nodes[:1]))
    speeds.begin(dealt(8, 8), CLUSTER)
    assert speeds.seen == ("a",)
    assert play(speeds, 80, 0.8, 0.8) == []
    assert speeds.in_cluster(CLUSTER) == CLUSTER


def test_a_plan_that_is_kept_is_compared_with_the_speeds_that_it_was_made_for():
    plan = dealt(1, 1)
    speeds = watched(plan)
    play(speeds, 40, 0.2, 0.2)
    assert [shift.node for shift in play(speeds, 40, 0.2, 0.36)] == ["b"]
    slower = speeds.in_cluster(CLUSTER)
    speeds.begin(plan, slower)  # a newcomer has gone before the next generation began
    assert play(speeds, 200, 0.2, 0.36) == []
    assert speeds.in_cluster(slower) == slower


def test_parts_of_a_model_are_not_compared_with_each_other():
    cut = replace(PLAN.placement, owners={"A": (0, 0), "B": (1, 1)})
    assert play(watched(replace(PLAN, placement=cut)), 60, 0.1, 0.3) == []


def test_short_batches_tell_nothing():
    speeds = watched()
    play(speeds, 40, 0.2, 0.2)
    assert play(speeds, 40, 0.2, 0.8, samples=PLAN.batch_size - 1) == []


def test_ranks_of_one_node_are_not_watched():
    speeds = watched(replace(PLAN, nodes=("a", "a")))
    assert play(speeds, 100, 0.2, 0.2) + play(speeds, 100, 0.2, 0.9) == []


def test_another_strategy_is_compared_anew():
    speeds = watched()
    play(speeds, 40, 0.2, 0.2)
    cut = replace(PLAN.placement, owners={"A": (0, 0), "B": (1, 1)})
    speeds.begin(replace(PLAN, strategy="pipeline", placement=cut), CLUSTER)
    assert play(speeds, 40, 0.9, 0.2) == []


IDLE = replace(PLAN, loads_s=(0.2, 0.0))


def orders(speeds: ShiftingSpeeds, shifts=()) -> list[tuple[int, ...]]:
    commands = speeds.orders(shifts)
    assert all(isinstance(each, cmd.Order) and each.message == GAUGE for each in commands)
    return [each.ranks for each in commands if isinstance(each, cmd.Order)]


def test_who_has_no_work_is_gauged_now_and_then_until_it_is_fast_again():
    speeds = watched(IDLE)
    assert orders(speeds) == [(1,)]
    assert orders(speeds) == [], "one at a time"
    assert speeds.gauged(1, 4e-6) == ()
    play(speeds, 4, 0.4, 0.0)
    assert orders(speeds) == [], "every five seconds"
    play(speeds, 1, 0.4, 0.0)
    assert orders(speeds) == [(1,)]
    assert speeds.gauged(1, 1e-6) == (), "it may have been chance"
    play(speeds, 5, 0.4, 0.0)
    assert orders(speeds) == [(1,)]
    (fast,) = speeds.gauged(1, 1e-6)
    assert (fast.node, fast.times_slower) == ("b", 0.25)
    assert speeds.in_cluster(CLUSTER).node("b").speed == 2.0


def test_chance_does_not_make_somebody_fast():
    speeds = watched(IDLE)
    for bit_s in (4e-6, 1e-6, 4e-6, 1e-6, 5e-6, 9e-6, 1e-6):
        assert speeds.gauged(1, bit_s) == ()


def test_who_has_just_slowed_down_is_gauged_at_once():
    """If it gets no work now, it is known later what it was slow against."""
    speeds = watched()
    assert orders(speeds, [SpeedShift(node="b", times_slower=4.0)]) == [(1,)]
    assert speeds.gauged(1, 4e-6) == ()
    speeds.begin(IDLE, CLUSTER)
    assert orders(speeds) == []
