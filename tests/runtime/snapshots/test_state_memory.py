"""What a process holds of states: a snapshot stays as it was, whatever training and the program do to its tensors."""

from typing import Any

import pytest
import torch
from torch import nn

from nfold.runtime.checkpoint.checkpoint_format import Offer, StatePart
from nfold.runtime.snapshots.state_memory import HeldState, StateMemory, copied_state, live_state


def snapshot(
    facts: dict[str, Any] | None = None, written: tuple[str, ...] = ()
) -> tuple[list[nn.Parameter], HeldState]:
    """Return a trained, a frozen and a written weight, and their snapshot."""
    weights = [
        nn.Parameter(torch.ones(3), requires_grad=name == "trained") for name in ("trained", "frozen", "written")
    ]
    parts = [StatePart(f"model.{name}", (3,), 0, each) for name, each in zip(("a", "b", "c"), weights, strict=True)]
    return weights, copied_state((0, 4), 7, Offer(parts[:1], parts[1:], facts or {}), (), written)


def test_only_weights_that_nobody_changes_are_not_copied():
    weights, state = snapshot(written=("c",))
    with torch.no_grad():
        for each in weights:
            each.add_(1.0)
    assert [float(state.pieces[7, index].values[0]) for index in range(3)] == [1.0, 2.0, 1.0]


def test_what_a_module_says_beside_tensors_stays_as_it_was_too():
    said = {"extras": {"queue": [1, 2]}}
    _, state = snapshot(said)
    said["extras"]["queue"].append(3)
    assert state.told is not None
    assert state.told["facts"] == {"extras": {"queue": [1, 2]}}


def test_a_snapshot_outlasts_the_step_that_changes_what_was_held_after_the_same_step():
    """Ranks stop after a step of which they have a snapshot, hold what they have trained, and train it on."""
    weight = nn.Parameter(torch.ones(3))
    memory, offer = StateMemory(), Offer([StatePart("model.a", (3,), 0, weight)], [], {})
    memory.put(copied_state((0, 4), 7, offer))
    memory.put(live_state((0, 4), 7, offer, is_whole=True))
    memory.put(live_state((0, 5), 7, offer))
    memory.drop_live()
    with torch.no_grad():
        weight.add_(1.0)
    (left,) = memory.all()
    assert (left.label, left.is_whole, float(left.pieces[7, 0].values[0])) == ((0, 4), True, 1.0)
    assert memory.copied_steps() == [4]
    memory.put(live_state((0, 6), 7, offer))
    memory.let_live_last()
    memory.drop_live()
    assert memory.copied_steps() == [4, 6], "another model is trained from now on"


@pytest.mark.parametrize("is_copied_first", [True, False])
def test_of_one_step_a_copy_lasts_whichever_comes_first(is_copied_first):
    weight, memory = nn.Parameter(torch.ones(3)), StateMemory()
    offer = Offer([StatePart("model.a", (3,), 0, weight)], [], {})
    both = [copied_state((0, 4), 7, offer), live_state((0, 4), 7, offer)]
    for state in both if is_copied_first else both[::-1]:
        memory.put(state)
    memory.drop_live()
    with torch.no_grad():
        weight.add_(1.0)
    (left,) = memory.all()
    assert (float(left.pieces[7, 0].values[0]), left.own) == (1.0, {(7, 0)})


def test_pieces_of_one_step_are_not_mixed_where_they_are_in_another_order():
    """An evaluation after the step may change a buffer, which then counts among what is trained."""
    seen, weight, given = (StatePart(f"model.{name}", (3,), 0, torch.ones(3)) for name in ("seen", "weight", "given"))
    memory = StateMemory()
    memory.put(copied_state((0, 4), 7, Offer([weight], [seen], {})))
    memory.add((0, 4), {(8, 0): given})
    memory.put(live_state((0, 4), 7, Offer([seen, weight], [], {})))
    held = memory.get((0, 4))
    assert {piece: part.name for piece, part in held.pieces.items()} == {
        (7, 0): "model.seen",
        (7, 1): "model.weight",
        (8, 0): "model.given",
    }
    assert (held.is_live, held.own) == (True, frozenset())


def test_who_is_ahead_of_those_who_give_it_snapshots_keeps_the_last_of_theirs():
    memory = StateMemory()
    for label in ((0, 90), (1, 4), (1, 6), (1, 2)):
        memory.add(label, {})
    memory.drop_all_but(3)
    assert sorted(state.label for state in memory.all()) == [(1, 2), (1, 4), (1, 6)]
