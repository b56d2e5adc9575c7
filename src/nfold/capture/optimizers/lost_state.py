"""Says what of an optimizer a run that goes on would not have, and what to write instead."""

from collections.abc import Sequence

LONG = 128
"""Steps until something that was not kept must have shown."""

_WAYS_OUT = "or train with --checkpoint-every 0, which keeps nothing to go on from."
_KEEP_ALL = (
    "Keep all that step() makes in self.state or self.param_groups, or write state_dict() and load_state_dict() that "
    "give and take it."
)


def told_broken(kind: str, broken: str, names: Sequence[str]) -> str:
    """Say why a run would not go on as it was.

    Args:
        kind: the optimizer's class.
        broken: what went wrong.
        names: of what is lost, in the schedule too.
    """
    lost = [each for each in names if not each.startswith("schedule")]
    if names and not lost:
        return (
            f"the schedule would not go on after --resume as it was: {', '.join(names[:3])} of it follows from "
            "more than the step, and it is built anew and stepped as often. Use one that follows from the step alone, "
            f"{_WAYS_OUT}"
        )
    what = f", so that {listed(lost)} would begin anew" if lost else ""
    return (
        f"the optimizer {kind} would not go on after --resume as it was: {broken}{what}. Keep all that step() "
        "changes in self.state or self.param_groups, or write state_dict() and load_state_dict() that give and take it "
        f"as tensors, numbers, texts, lists and dicts, {_WAYS_OUT}"
    )


def told_lost(kind: str, lost: Sequence[str]) -> str:
    """Say what is not kept, where nothing came of it."""
    return (
        f"step() changes {listed(lost)} of the optimizer {kind}, which its state_dict() does not keep: after --resume "
        f"that begins anew. {LONG} steps came out the same without it"
    )


def listed(names: Sequence[str]) -> str:
    """Return the names of some things that an optimizer holds, at most the first few."""
    shown = [each or "what is in it" for each in names[:3]]
    return ", ".join(shown) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def told_shared(kind: str, names: Sequence[str]) -> str:
    """Say what steps change outside of their optimizer, where nothing came of it."""
    return (
        f"step() of the optimizer {kind} changes {listed(names)}, which lies outside of it: each rank has its own, and "
        f"no checkpoint has it. {LONG} steps came out the same whatever it was"
    )


def tell_shared(kind: str, names: Sequence[str]) -> str:
    """Say what steps change outside of their optimizer, and what to write instead."""
    return (
        f"step() of the optimizer {kind} changes {listed(names)}, which lies outside of the "
        "optimizer: each rank has its own, every optimizer that is built goes on with it, and no checkpoint has it. "
        "Keep it in self.state[parameter] or self.param_groups, or in an attribute that state_dict() gives and "
        "load_state_dict() takes."
    )


def tell_forgotten(kind: str, names: Sequence[str]) -> str:
    """Say what is lost, and what to write instead."""
    return (
        f"the optimizer {kind} holds {listed(names)} by now, which no checkpoint has: after --resume it would begin "
        f"anew. {_KEEP_ALL}"
    )


def tell_broken(kind: str, how: str) -> str:
    """Say that the state cannot be taken out and in."""
    return f"taking the state of the optimizer {kind} out and in raised {how}. {_KEEP_ALL}"
