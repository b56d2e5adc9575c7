"""How long nobody trained when hosts came and went."""

from types import SimpleNamespace

import pytest

from nfold.core.members import SpeedShift, Turnover
from nfold.core.placement import Placement
from nfold.runtime.control import commands as cmd
from nfold.verbs.running.member_ledger import MemberLedger, share_of


def test_a_pause_lasts_from_the_end_of_a_step_to_the_beginning_of_the_next():
    times = iter([0.0, 10.0, 11.0, 14.5, 15.0])
    ledger = MemberLedger(lambda: next(times), now=lambda: 99.0)
    ledger.begun()
    assert ledger.stepped(1.0) == []
    turnover = Turnover(joined=("pi-3",), left=("pi-1",), lost=("pi-2",), steps_again=2)
    ledger.changed(cmd.Replanned(None, SimpleNamespace(world_size=2), 7, turnover))

    told = [event.told for event in ledger.stepped(0.5)]

    assert told == [
        "pi-2 is lost: 2 ranks train from step 8 on, 2 steps of them for the second time, after a pause of 3.00 s",
        "pi-1 has left: 2 ranks train from step 8 on, after a pause of 3.00 s",
        "pi-3 has joined: 2 ranks train from step 8 on, after a pause of 3.00 s",
    ]
    assert ledger.stepped(0.5) == []


def plan_of(**owners):
    ranks = 3
    placement = Placement(num_chunks=4, world_size=ranks, owners=owners)
    return SimpleNamespace(world_size=ranks, nodes=("a", "b", "c"), placement=placement)


@pytest.mark.parametrize(
    ("slower", "told"),
    [
        (3.9, "computes 3.9 times slower than at the start"),
        (1.05, "computes as fast as at the start again"),
        (0.5, "computes 2.0 times faster than at the start"),
    ],
)
def test_another_speed_is_told_with_what_follows_from_it(slower, told):
    times = iter([0.0, 0.0, 10.0, 14.5])
    ledger = MemberLedger(lambda: next(times), now=lambda: 99.0)
    ledger.begun()
    shifts = (SpeedShift(node="b", times_slower=slower), SpeedShift(node="gone", times_slower=2.0))
    ledger.stepped(1.0)
    ledger.changed(cmd.Replanned(None, plan_of(A=(0, 0, 0, 1), B=(0, 0, 0, 1)), 7, shifts=shifts))
    (event,) = ledger.stepped(1.5)
    assert (event.kind, event.who, event.times_slower) == ("speed", "b", slower)
    assert event.told == f"b {told}: it gets 1 of 4 chunks from step 8 on, after a pause of 3.00 s"


def test_what_a_node_gets():
    whole, cut = plan_of(A=(0, 0, 0, 1), B=(0, 0, 0, 1)), plan_of(A=(0, 0, 0, 0), B=(0, 1, 1, 1))
    assert [share_of(name, whole) for name in "abc"] == ["3 of 4 chunks", "1 of 4 chunks", "none of 4 chunks"]
    assert share_of("b", cut) == "38 % of the cells"
