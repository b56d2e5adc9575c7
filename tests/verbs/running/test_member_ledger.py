"""How long nobody trained when hosts came and went."""

from types import SimpleNamespace

from nfold.core.members import Turnover
from nfold.runtime.control import commands as cmd
from nfold.verbs.running.member_ledger import MemberLedger


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
