"""Ranks whose coordinator is gone are brought together again; who they are is made up here."""

from types import SimpleNamespace
from typing import Any

import pytest

from nfold.core.trace import StepParts
from nfold.planning.residency.epoch_steps import EpochSteps
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.control.order_log import MOST, NUMBER, OrderLog
from nfold.runtime.coordinator.reunion import TAG, Kept, NotKept, Reunion, RunSoFar

PLAN: Any = SimpleNamespace(world_size=2, asynchrony=None)
FILE: Any = SimpleNamespace(drop=lambda: None)
PARTS = {"step_s": 1.0, "input_s": 0.0, "forward_s": 0.0, "backward_s": 0.0, "update_s": 0.0, "communication_s": 0.0}
PARTS |= {"other_s": 0.0, "sent_bytes": 0, "samples": 1}


def said(member: int, what: str, file: Any = None, **told: Any) -> ev.Said:
    return ev.Said(member, {"is": what, **told}, file)


def hello(member: int, **told: Any) -> ev.Said:
    held = {"generation": 4, "members": [0, 3], "stop": 12, "has_test": True}
    held |= {"last_order": 40, "since_order": 30, "orders": []}
    return said(member, "hello", **held | told)


def steps(member: int, rank: int, *numbers: int) -> ev.Said:
    reports = [
        {"step": step, "parts": _row(step, rank), "reductions": [], "losses": [[rank, 0.5]], "spans": [], "notes": []}
        for step in numbers
    ]
    return said(member, "steps", steps=reports, samples=[], under_way=None)


def _row(step: int, rank: int) -> Any:
    return StepParts(step=step, rank=rank, **PARTS).to_row()


@pytest.fixture
def reunion() -> Reunion:
    return Reunion(RunSoFar(plan=PLAN, kept_step=5, last_step=10, epochs=EpochSteps.even(100)))


def take(reunion: Reunion, *events: Any) -> list[cmd.Send]:
    return [order for event in events for order in reunion.take(event)]


def test_all_play_as_far_as_any_was_allowed_and_give_a_checkpoint_of_that(reunion):
    assert take(reunion, hello(0, stop=12)) == []
    assert reunion.missing == (3,)
    assert take(reunion, hello(3, stop=13)) == [
        cmd.Send((0, 3), {"do": "until", "step": 13, NUMBER: 41}),
        cmd.Send((0, 3), {"do": "checkpoint", "tag": TAG, "evaluates": False, NUMBER: 42}),
    ]
    take(reunion, said(0, "checkpoint", FILE, step=13, unkept=""), said(3, "checkpoint", step=13, unkept=""))
    assert reunion.result == Kept(13, FILE, ())


def test_steps_that_nobody_has_written_down_are_told_whenever_they_come(reunion):
    take(reunion, hello(0), steps(0, 0, 9, 10), hello(3), steps(3, 1, 9, 10, 11), steps(0, 0, 11))
    take(reunion, said(3, "checkpoint", step=12, unkept=""), said(0, "checkpoint", FILE, step=12, unkept=""))
    assert isinstance(reunion.result, Kept)
    assert [(done.step, done.loss) for done in reunion.result.steps] == [(10, 1.0), (11, 1.0)]


def test_what_is_told_of_steps_behind_the_last_one_is_of_no_use(reunion):
    take(reunion, hello(0), steps(0, 0, *range(10, 18)), hello(3), steps(3, 1, *range(10, 18)))
    take(reunion, said(3, "checkpoint", step=12, unkept=""), said(0, "checkpoint", FILE, step=12, unkept=""))
    assert [done.step for done in reunion.result.steps] == [10, 11]


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"generation": 3, "members": [0, 3]}, "while members came and went"),
        ({"last_order": 90, "since_order": 41}, "reached some of the ranks only"),
        ({"last_order": 41, "orders": [{"do": "hand", NUMBER: 41}]}, "while members came and went"),
    ],
)
def test_ranks_that_are_not_at_one_are_not_gone_on_with(reunion, told, why):
    assert take(reunion, hello(0), hello(3, **told)) == []
    assert why in reunion.result.why


def log_of(*orders: Any) -> dict[str, Any]:
    """What a rank tells of the orders that it has got, given with their numbers."""
    log = OrderLog()
    log.take({"do": "connect", NUMBER: 1})
    for number, order in orders:
        log.take({**order, NUMBER: number})
    return log.told


KEEP, PROBE = {"do": "checkpoint", "tag": 7, "evaluates": True}, {"do": "probe", "round": 1, "patience_s": 9.0}
COMMON = (*((number, {"do": "hold"}) for number in (5, 6)), (7, {"do": "until", "step": 11}))
LONE = (8, {"do": "until", "step": 12}), (9, {"do": "until", "step": 13}), (10, KEEP), (11, {"do": "gauge"})


def test_who_lacks_orders_that_others_have_got_is_given_them_first_and_their_files_are_of_no_use(reunion):
    """A state that is sent late is of another step."""
    dropped = []
    early: Any = SimpleNamespace(drop=lambda: dropped.append("early"))
    ahead, behind = hello(3, stop=13, **log_of(*COMMON, *LONE)), hello(0, stop=11, **log_of(*COMMON))
    orders = take(reunion, ahead, behind)
    assert [(order.members, order.message["do"], order.message[NUMBER]) for order in orders] == [
        ((0,), "until", 9),
        ((0,), "checkpoint", 10),
        ((0, 3), "until", 12),
        ((0, 3), "checkpoint", 13),
    ]
    take(reunion, said(0, "checkpoint", early, step=12, unkept=""), said(3, "checkpoint", step=13, unkept=""))
    assert dropped == ["early"]
    take(reunion, said(0, "checkpoint", FILE, step=13, unkept=""))
    assert reunion.result == Kept(13, FILE, ())


@pytest.mark.parametrize("measures", [True, False])
@pytest.mark.parametrize("has_other", [True, False])
def test_the_other_side_of_a_probe_is_told_of_it_unless_it_was(reunion, measures, has_other):
    """Each side gets an order of its own, one after the other."""
    one = (8, {**PROBE, "peer": 1, "measures": measures})
    other = (9, {**PROBE, "peer": 0, "measures": not measures})
    begins = log_of((2, {**PROBE, "peer": 0, "measures": True}), (3, {"do": "build"}), *COMMON, one)
    orders = take(reunion, hello(0, **begins), hello(3, **log_of(*COMMON, *[other] * has_other)))
    lone = [] if has_other else [cmd.Send((3,), {**other[1], NUMBER: 8})]
    assert orders[:-2] == lone


def test_ranks_know_their_last_orders_only(reunion):
    many = [(10 + number, {**KEEP, "tag": number}) for number in range(MOST + 1)]
    orders = take(reunion, hello(0, **log_of(*many)), hello(3, **log_of(*many[:1])))
    assert len(orders) == MOST + 2
    other = Reunion(RunSoFar(plan=PLAN, kept_step=5, last_step=10, epochs=EpochSteps.even(100)))
    assert take(other, hello(0, **log_of(*many)), hello(3, **log_of((9, KEEP)))) == []
    assert isinstance(other.result, NotKept)


def test_ranks_behind_the_history_are_of_an_earlier_generation(reunion):
    assert take(reunion, hello(0, stop=9), hello(3, stop=9)) == []
    assert reunion.result == NotKept("they are at step 9, and the run has been at step 10")


def test_a_plan_for_others_is_not_theirs():
    run = RunSoFar(
        plan=SimpleNamespace(world_size=3, asynchrony=None), kept_step=0, last_step=0, epochs=EpochSteps.even(9)
    )
    reunion = Reunion(run)
    assert take(reunion, hello(0), hello(3)) == []
    assert isinstance(reunion.result, NotKept)


@pytest.mark.parametrize(
    ("evaluated", "has_test", "keeps"),
    [({4, 8}, True, True), ({4}, True, False), ({8}, True, False), (set(), False, True), ({4, 8, 12}, True, True)],
)
def test_an_evaluation_that_nobody_has_heard_of_is_done_again(evaluated, has_test, keeps):
    """One that is due after the very last step is done when the run goes on."""
    steps_of = {"kept_step": 4, "last_step": 9, "epochs": EpochSteps.even(4)}
    reunion = Reunion(RunSoFar(plan=PLAN, **steps_of, evaluated=frozenset(evaluated), evaluates=True))
    told = {"stop": 12, "has_test": has_test}
    assert bool(take(reunion, hello(0, **told), hello(3, **told))) == keeps


def test_one_that_fails_or_is_lost_while_it_catches_up_is_told(reunion):
    take(reunion, hello(0), hello(3), said(3, "failed", text="no space"))
    assert reunion.result == NotKept("member 3 failed: no space")


def test_one_that_has_lost_a_sample_which_nobody_gives_it_is_told(reunion):
    take(reunion, hello(0), hello(3), said(3, "lacks", number=7))
    assert reunion.result == NotKept("the disk of member 3 has lost sample 7")


def test_one_that_is_lost_before_all_are_there_may_come_again(reunion):
    take(reunion, hello(0), ev.Left(0, "closed its connection"), hello(3))
    assert (reunion.missing, reunion.result, reunion.has_begun) == ((0,), None, False)
    assert take(reunion, hello(0))
    take(reunion, ev.Left(3, "closed its connection"))
    assert reunion.result == NotKept("member 3 was lost once more")


def test_one_that_had_just_been_started_holds_nothing_and_nobody_minds_how_it_ends(reunion):
    starts = said(7, "hello", host="h", pid=1)
    assert take(reunion, starts, hello(0), said(7, "failed", text="its script is gone"), hello(3), starts)
    assert reunion.result is None
    assert reunion.has_starters


def test_a_state_that_nobody_can_go_on_from_is_dropped(reunion):
    take(reunion, hello(0), hello(3), said(3, "checkpoint", step=12, unkept=""))
    take(reunion, said(0, "checkpoint", FILE, step=12, unkept="a generator."))
    assert reunion.result == NotKept("a generator.")


def test_ranks_that_wait_for_no_common_step_play_to_the_last_one_that_any_was_allowed():
    serves = SimpleNamespace(shares=(SimpleNamespace(rank=1),))
    plan: Any = SimpleNamespace(world_size=2, asynchrony=object(), reductions=(serves,))
    reunion = Reunion(RunSoFar(plan=plan, kept_step=5, last_step=10, epochs=EpochSteps.even(100)))
    orders = take(reunion, hello(0, stop=26), hello(3, stop=12))
    assert orders[0] == cmd.Send((0, 3), {"do": "until", "step": 26, NUMBER: 41})
    take(reunion, steps(0, 0, *range(10, 26)), steps(3, 1, *range(10, 26)))
    take(reunion, said(0, "checkpoint", FILE, step=26, unkept=""), said(3, "checkpoint", step=26, unkept=""))
    assert isinstance(reunion.result, Kept)
    assert [done.step for done in reunion.result.steps] == [*range(10, 26)]
