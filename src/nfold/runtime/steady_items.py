"""Refuses data whose items depend on what was read before: ranks read other items, and a run that goes on read none."""

from collections.abc import Callable, Mapping
from typing import Any

from nfold.capture.joining import Collate
from nfold.capture.moving import Mover, Moving
from nfold.errors import ProgramError

_MORE = 16
"""Items that are read as well where something could draw, since only some items may."""

Read = Callable[[int], Any]
"""Reads an item by its index as in the first epoch, under its seed, and returns its checksum."""


def check_items(
    dataset: Any, collate: Collate | None, read: Read, known: Mapping[int, Any], what: str = "train_data"
) -> None:
    """Read a few items again, and look at what that moves.

    Args:
        dataset: the user's.
        collate: the program's; None: torch's.
        read: how to read.
        known: what reading some items gave before; None where one could not be read.
        what: gave the data set.

    Raises:
        ProgramError: an item came out otherwise, or reading it moved what later ones are made with.
    """
    moving = {f"{what}()": Moving([dataset]), "Program(collate=...)": Moving([collate])}
    for index, before in known.items():
        if before is None:
            continue
        found = [check_moved(moving, lambda index=index: read(index), index, what)]  # type: ignore[misc]
        if found[0] != before:
            raise ProgramError(_told_other(index, what))
    if any(each.draws for each in moving.values()):
        step = max(1, len(dataset) // _MORE)
        for index in range(step // 2, len(dataset), step):
            check_moved(moving, lambda index=index: read(index), index, what)  # type: ignore[misc]


def check_moved(moving: Mapping[str, Moving], read: Callable[[], Any], index: int, what: str) -> Any:
    """Read an item, again if that moves something; return what came of it.

    Args:
        moving: by who holds it, what is looked at.
        read: reads the item, drawing what it draws each time.
        index: of the item.
        what: gave the data set.

    Raises:
        ProgramError: it is moved each time. What an item seeds for itself comes to the same place.
    """
    before = {owner: each.state() for owner, each in moving.items()}
    found = read()
    if not any(each.moved(before[owner]) for owner, each in moving.items()):
        return found
    before = {owner: each.state() for owner, each in moving.items()}
    found = read()
    for owner, each in moving.items():
        if moved := each.moved(before[owner]):
            raise ProgramError(_told_moved(owner, moved[0], index, what))
    return found


def _told_moved(owner: str, mover: Mover, index: int, what: str) -> str:
    named = f"reading item {index} of {what}() moves the {mover.kind} {mover.name or 'itself'} of {owner}"
    why = "so an item depends on all that was read before it: ranks read other items each, and a run that goes on none"
    if mover.kind == "generator":
        return (
            f"{named}, {why}. Draw from torch's, numpy's or Python's own generator (torch.rand(3), np.random.rand(3), "
            "random.random()), which nfold seeds for each item, or seed yours from one of these whenever an item is "
            "read, as generator.manual_seed(int(torch.randint(2**62, ()))) does."
        )
    return f"{named}, {why}. Let items follow from their index, and from what they draw, alone."


def _told_other(index: int, what: str) -> str:
    return (
        f"item {index} of {what}() is another one when it is read again under the same seed. Items must follow from "
        "their index, and from what they draw from torch's, numpy's or Python's own generator, which nfold seeds for "
        "each item: leave out generators without a seed (np.random.default_rng()) and the clock, and clone what is "
        "stored before it is changed in place."
    )
