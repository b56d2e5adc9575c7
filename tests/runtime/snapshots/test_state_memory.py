"""What a process holds of states: a snapshot stays as it was, whatever training and the program do to its tensors."""

from typing import Any

import torch
from torch import nn

from nfold.runtime.checkpoint.checkpoint_format import Offer, StatePart
from nfold.runtime.snapshots.state_memory import HeldState, copied_state


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
