"""Refuses data whose items depend on what was read before: ranks read other items, and a run that goes on read none."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from nfold.capture.batches.joining import Collate
from nfold.capture.batches.tree import tensors_of
from nfold.capture.side_effects.freezing import freeze, same
from nfold.capture.side_effects.moving import Mover, Moving
from nfold.errors import ProgramError

_MORE = 16
"""Items that are read as well where something could draw, since only some items may."""

Read = Callable[[int], Any]
"""Reads an item by its index as in the first epoch, under its seed, and returns its checksum."""


Items = Callable[[], Any]
"""Reads an item under its seed, and returns it as the data set gave it."""
Join = Callable[[Any], Any]
"""Joins such an item with no other."""


def check_items(
    dataset: Any,
    collate: Collate | None,
    read: Read,
    known: Mapping[int, Any],
    check_kept: Callable[[int], None],
    what: str = "train_data",
    *,
    draws: bool = False,
) -> None:
    """Read a few items again, and look at what that moves.

    Args:
        dataset: the user's.
        collate: the program's; None: torch's.
        read: how to read.
        known: what reading some items gave before; None where one could not be read.
        check_kept: see the function.
        what: gave the data set.
        draws: whether items draw random numbers, which decide what is done with them.

    Raises:
        ProgramError: an item came out otherwise, or reading it moved what later ones are made with.
    """
    moving = {f"{what}()": Moving([dataset]), "Program(collate=...)": Moving([collate])}
    for index, before in known.items():
        if before is None:
            continue
        found = [check_moved(moving, lambda index=index: read(index), index, what)]  # type: ignore[misc]
        if found[0] != before:
            check_kept(index)
            raise ProgramError(_told_other(index, what, joined=collate is not None))
    is_moving = any(each.draws for each in moving.values())
    step = max(1, len(dataset) // _MORE)
    for index in range(step // 2, len(dataset), step) if is_moving or draws else ():
        if draws:
            check_kept(index)
        if is_moving:
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


def check_kept(items: Items, join: Join, index: int, what: str) -> None:
    """Refuse an item that is made from what the data set keeps by changing that: read again, it is another one.

    Args:
        items: reads it.
        join: the program's, or torch's.
        index: of the item.
        what: gave the data set.

    Raises:
        ProgramError: reading or joining changes it.
    """
    item = items()
    first = freeze(item)
    if not same(first, freeze(items())) and not same(first, freeze(item)):
        raise ProgramError(_told_in_place(f"reading item {index} of {what}()", "x = self.data[i]"))
    item = items()
    first = freeze(item)
    join(item)
    if not same(first, freeze(item)) and not same(first, freeze(items())):
        raise ProgramError(_told_in_place(f"Program(collate=...), given item {index} of {what}(),", "x = x"))


class Kept:
    """Notices that what a data set keeps, and gives as items or parts of it, has been written to since."""

    def __init__(self) -> None:
        self._versions: Any = WeakTensorKeyDictionary()
        """How often each had been written to when it was last seen."""

    def was_written(self, items: Any) -> bool:
        """Look at items that have just been read. About 1 us for each, and 20 for one that is part of nothing else."""
        found = False
        for base in _bases(items):
            known, now = self._versions.get(base), base._version
            if known != now:
                found = found or known is not None
                self._versions[base] = now
        return found


def _bases(items: Any) -> Iterable[torch.Tensor]:
    """Return what items are or are parts of, each once."""
    found: dict[int, torch.Tensor] = {}
    for tensor in tensors_of(items):
        if not tensor.is_inference() and tensor.layout is torch.strided:
            base = tensor._base
            base = tensor if base is None else base
            found[id(base)] = base
    return found.values()


def _told_in_place(who: str, taken: str) -> str:
    return (
        f"{who} changes in place what the data set keeps, so it is another item each time: ranks read other items "
        f"each, and a run that goes on begins with none changed. Change a copy: {taken}.clone() ({taken}.copy() of an "
        "array), or make a new one, as x = x + noise does."
    )


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


def _told_other(index: int, what: str, *, joined: bool) -> str:
    by = ", joined by Program(collate=...)," if joined else ""
    keeps = " A collate keeps nothing between calls." if joined else ""
    return (
        f"item {index} of {what}(){by} is another one when it is read again under the same seed. Items must follow "
        "from their index, and from what they draw from torch's, numpy's or Python's own generator, which nfold seeds "
        "for each item: leave out generators without a seed (np.random.default_rng()) and the clock, and clone what is "
        f"stored before it is changed in place.{keeps}"
    )
