"""What a run's ledger says of hosts that came and went: how long nobody trained, and what that cost."""

from types import SimpleNamespace
from typing import Any

import pytest

from nfold.core.members import SpeedShift, Turnover
from nfold.core.placement import Placement
from nfold.runtime.control import commands as cmd
from nfold.verbs.running.member_ledger import SETTLING_STEPS, MemberLedger, share_of


class Clock:
    """Seconds, as the test lets them pass."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def step(self, ledger: MemberLedger, step_s: float, pause_s: float = 0.0) -> tuple[list[Any], list[Any]]:
        """Let a step be done, after a pause."""
        self.now_s += pause_s + step_s
        return ledger.stepped(step_s)


def followed(next_step: int, ranks: int = 2, **turnover: Any) -> cmd.Replanned:
    return cmd.Replanned(None, SimpleNamespace(world_size=ranks), next_step, Turnover(**turnover))


def ledger_and_clock(steps: int, step_s: float = 1.0) -> tuple[MemberLedger, Clock]:
    """A ledger of a run with a batch of 12 that has done some steps."""
    clock = Clock()
    ledger = MemberLedger(clock, now=lambda: 1000.0 + clock.now_s)
    ledger.begun(12)
    for _ in range(steps):
        assert clock.step(ledger, step_s) == ([], [])
    return ledger, clock


def test_a_pause_lasts_from_the_end_of_a_step_to_the_beginning_of_the_next():
    ledger, clock = ledger_and_clock(1)
    ledger.changed(followed(7, joined=("pi-3",), left=("pi-1",), lost=("pi-2",), steps_again=2))

    begun, _ = clock.step(ledger, 0.5, pause_s=3.0)

    assert [event.told for event in begun] == [
        "pi-2 is lost: 2 ranks train from step 8 on, 2 steps of them for the second time, after a pause of 3.00 s",
        "pi-1 has left: 2 ranks train from step 8 on, after a pause of 3.00 s",
        "pi-3 has joined: 2 ranks train from step 8 on, after a pause of 3.00 s",
    ]
    assert clock.step(ledger, 0.5)[0] == []


def settled(ledger: MemberLedger, clock: Clock, *steps_s: float) -> list[Any]:
    """Let steps be done until rows are complete."""
    for step_s in (*steps_s, *[1.0] * SETTLING_STEPS):
        if complete := clock.step(ledger, step_s)[1]:
            return complete
    raise AssertionError("no row")


def test_a_row_tells_reason_start_bytes_and_the_samples_that_were_not_trained():
    ledger, clock = ledger_and_clock(3)
    why, launched_at = {"pi-3": "joined by hand", "pi-1": "was killed"}, {"pi-3": 1001.0}
    ledger.changed(followed(3, joined=("pi-3",), lost=("pi-1",), steps_again=2, why=why, launched_at=launched_at))
    ledger.moved(900)
    clock.step(ledger, 2.0, pause_s=3.0)
    loss, join = settled(ledger, clock, 1.5)

    assert (loss.kind, loss.reason, loss.boot_s, loss.samples_at_stake) == ("loss", "was killed", None, 24)
    assert (join.kind, join.reason, join.boot_s, join.samples_at_stake) == ("join", "joined by hand", 7.0, 0)
    assert (loss.moved_bytes, join.moved_bytes) == (450, 450)
    pause, again, slow = 3.0 * 12, 2 * 12, (1.0 + 0.5) * 12
    assert loss.samples_lost + join.samples_lost == pause + again + slow
    assert join.costs == (
        "joined by hand; 7.00 s from its start to its first step; 450 B of state moved; "
        "39.0 samples fewer than at the pace before"
    )


def test_changes_before_the_next_step_share_its_pause():
    ledger, clock = ledger_and_clock(2)
    ledger.changed(followed(2, ranks=3, joined=("pi-3",)))
    ledger.changed(followed(2, ranks=2, lost=("pi-3",)))
    begun, _ = clock.step(ledger, 1.0, pause_s=2.0)
    assert [(row.kind, row.who, row.ranks, row.pause_s) for row in begun] == [
        ("join", "pi-3", 2, 2.0),
        ("loss", "pi-3", 2, 2.0),
    ]
    assert sum(row.samples_lost for row in begun) == 24


def test_what_ends_a_generation_with_the_same_ranks_has_a_row_of_its_kind():
    ledger, clock = ledger_and_clock(2)
    ledger.changed(followed(2))
    begun, _ = clock.step(ledger, 1.0, pause_s=2.0)
    assert begun[0].told == "another plan follows: 2 ranks train from step 3 on, after a pause of 2.00 s"
    assert begun[0].reason == "links have changed"


def test_rows_are_complete_at_the_next_change_and_at_the_end():
    ledger, clock = ledger_and_clock(2)
    ledger.changed(followed(2, joined=("pi-3",)))
    clock.step(ledger, 1.0)
    (joined,) = ledger.changed(followed(3, left=("pi-3",)))
    clock.step(ledger, 1.0)
    (left,) = ledger.settled()
    assert (joined.kind, left.kind) == ("join", "leave")
    assert ledger.settled() == []


def test_where_no_step_was_done_before_nobody_knows_what_was_lost():
    ledger, clock = ledger_and_clock(0)
    ledger.changed(followed(0, joined=("pi-3",)))
    ((row,), _) = clock.step(ledger, 1.0, pause_s=2.0)
    assert row.samples_lost is None


def plan_of(**owners: Any) -> Any:
    placement = Placement(num_chunks=4, world_size=3, owners=owners)
    return SimpleNamespace(world_size=3, nodes=("a", "b", "c"), placement=placement)


WHOLE = {"A": (0, 0, 0, 1), "B": (0, 0, 0, 1)}


@pytest.mark.parametrize(
    ("slower", "told"),
    [
        (3.9, "computes 3.9 times slower than at the start"),
        (1.05, "computes as fast as at the start again"),
        (0.5, "computes 2.0 times faster than at the start"),
    ],
)
def test_another_speed_is_told_with_what_follows_from_it(slower, told):
    ledger, clock = ledger_and_clock(1)
    shifts = (SpeedShift(node="b", times_slower=slower), SpeedShift(node="gone", times_slower=2.0))
    ledger.changed(cmd.Replanned(None, plan_of(**WHOLE), 7, shifts=shifts))
    ((event,), _) = clock.step(ledger, 0.5, pause_s=3.0)
    assert (event.kind, event.who, event.reason) == ("speed", "b", told)
    assert event.told == f"b {told}: it gets 1 of 4 chunks from step 8 on, after a pause of 3.00 s"
    assert told not in event.costs


def test_what_a_node_gets():
    whole, cut = plan_of(**WHOLE), plan_of(A=(0, 0, 0, 0), B=(0, 1, 1, 1))
    assert [share_of(name, whole) for name in "abc"] == ["3 of 4 chunks", "1 of 4 chunks", "none of 4 chunks"]
    assert share_of("b", cut) == "38 % of the cells"


def test_hosts_that_are_lost_while_nobody_trains_have_a_row_each_though_no_step_follows():
    ledger = MemberLedger(lambda: 0.0, lambda: 0.0)
    ledger.begun(12)
    ledger.changed(cmd.Departed(Turnover(lost=("b",), steps_again=2), 6))
    ledger.changed(cmd.Departed(Turnover(left=("c",)), 6))
    rows = ledger.unfollowed()
    assert [(row.kind, row.who, row.ranks, row.steps_again) for row in rows] == [
        ("loss", "b", 0, 2),
        ("leave", "c", 0, 0),
    ]
    assert rows[0].told == "b is lost, and no step followed"
