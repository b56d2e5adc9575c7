"""How often snapshots are taken, by what ranks tell of them."""

from types import SimpleNamespace
from typing import Any

from coordinated import held

from nfold.core.options.protection import steps_between
from nfold.runtime.coordinator.states.protection import Protection
from nfold.runtime.coordinator.states.state_ledger import StateLedger

DAY_S = 86400.0
COST_S, STEP_S = 1.0, 0.5


def protection(protect: str, asynchrony: Any, ledger: StateLedger | None = None) -> Protection:
    """A generation of two hosts has begun."""
    membership = SimpleNamespace(
        ranks=(0, 1), generation=SimpleNamespace(number=0), member=lambda number: SimpleNamespace(host=f"host-{number}")
    )
    settings = SimpleNamespace(protect=protect, hosts_last=DAY_S, keeps_snapshots=True)
    made = Protection(settings, ledger or StateLedger(), membership)
    assert begin(made, asynchrony=asynchrony) == []
    return made


def begin(
    made: Protection,
    *,
    is_replicated: bool = False,
    world_size: int = 2,
    asynchrony: Any = None,
    keepers: tuple[int, ...] | None = None,
) -> list[str]:
    """Let a generation begin; return what the user is told."""
    nodes, keepers = ("a", "b")[:world_size], tuple(range(world_size)) if keepers is None else keepers
    plan = SimpleNamespace(
        world_size=world_size, is_replicated=is_replicated, nodes=nodes, asynchrony=asynchrony, keepers=keepers
    )
    return [each.text for each in made.begin(plan, SimpleNamespace(nodes=()))]


def orders(made: Protection, step: int, step_s: float | None, *seconds: float) -> list[tuple[int, int]]:
    """Let both ranks tell of a snapshot, the first of something that it has alone; return the rhythms ordered."""
    found = []
    for rank, cost_s in enumerate(seconds):
        message = {"is": "snapshot", "step": step, "seconds": cost_s, **held(alone=rank == 0)}
        found += [each for each in made.take(rank, message, step_s) if hasattr(each, "message")]
    return [(order.message["every"], order.message["lag"]) for order in found]


def test_a_snapshot_costs_what_it_costs_the_rank_that_waits_longest():
    made = protection("auto", SimpleNamespace())
    orders(made, 0, None, 0.0, 0.0)
    most = steps_between(COST_S, STEP_S, DAY_S / 2)
    assert orders(made, 8, STEP_S, COST_S, 2e-4) == [((most + 1) // 2, most // 2)]
    assert orders(made, 16, STEP_S, 9 * COST_S, 2e-4) == [((most + 1) // 2, most // 2)], "what only happens once"


def test_a_generation_in_which_ranks_wait_for_no_step_begins_in_the_rhythm_in_which_it_goes_on():
    """Steps that they may begin already keep the first one: it must cost no more than was asked for either."""
    made = protection("7", SimpleNamespace())
    assert made.wishes["protect"] == 4
    assert orders(made, 4, STEP_S, COST_S, COST_S) == [(4, 3)]
    assert protection("7", None).wishes["protect"] == 7


def test_what_a_lost_host_costs_is_told_again_where_one_rank_alone_has_the_state_or_no_longer():
    made = protection("7", None)
    (none_is_lost,) = begin(made, is_replicated=True)
    assert none_is_lost.startswith("note: no step is lost with a host, since each rank has the whole state; snap")
    assert begin(made, world_size=1) == begin(made, is_replicated=True) == []
    (some_are,) = begin(made)
    assert some_are.startswith("note: not each rank has the whole state any more: each rank keeps snapshots")
    assert some_are.endswith("so that a lost host costs at most 7 steps")
    assert begin(made) == []
    told = [made.take(rank, {"is": "snapshot", "step": 7, "seconds": COST_S, **held()}, STEP_S) for rank in (0, 1)]
    assert told[1][-1].text.endswith("a lost host costs at most 7 steps")


def test_who_has_no_part_of_the_state_is_given_snapshots_and_nobody_waits_for_one_of_its_own():
    ledger = StateLedger()
    made = protection("7", None, ledger)
    begin(made, keepers=(1,))
    ahead = {"is": "snapshot", "seconds": 0.0, **held()}
    for step in range(7, 700, 7):
        assert made.take(0, ahead | {"step": step}, STEP_S) == []
    told = {"is": "snapshot", "step": 7, "seconds": COST_S, **held(alone=True)}
    order = made.take(1, told, STEP_S)[0].message
    assert [row[1:3] for row in order["shipments"]] == [[1, 0]]
    assert [state.step for state in ledger.whole(7)] == [7]
