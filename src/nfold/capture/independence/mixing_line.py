"""Finds the line of the user's at which samples of a batch first come out otherwise than in a part of it."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nfold.capture.batches.tree import tensors_of
from nfold.capture.independence.batch_cut import are_its_rows
from nfold.capture.program.users_line import place_here


class _Seen(NamedTuple):
    """A call of an operator."""

    operator: Any
    value: torch.Tensor | None
    """What it gave first, if that was computed from numbers with a fraction."""
    place: str


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[_Seen] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        given = [each for each in tensors_of([args, kwargs]) if each.is_floating_point()]
        first = next(iter(tensors_of(found)), None) if given else None
        self.seen.append(_Seen(func, None if first is None else first.detach().clone(), place_here()))
        return found


def mixing_line(forward: Callable[[Any], Any], whole: Any, parts: Sequence[Any], sizes: tuple[int, ...]) -> str:
    """Return the line, as it is written; empty if no operator shows it.

    Args:
        forward: of the model. It is called once on each.
        whole: inputs.
        parts: the same samples in parts.
        sizes: samples of each part.
    """
    with contextlib.suppress(Exception):  # there is no such line in a program that cannot be watched
        full, *pieces = (_watched(forward, each) for each in (whole, *parts))
        for index, call in enumerate(full):
            others = [each[index] for each in pieces if index < len(each)]
            if len(others) < len(sizes) or any(each.operator is not call.operator for each in others):
                return call.place  # Python went another way
            found = [each.value for each in others if each.value is not None]
            if call.value is not None and not are_its_rows(call.value, found, sizes):
                return call.place
    return ""


def _watched(forward: Callable[[Any], Any], inputs: Any) -> list[_Seen]:
    watch = _Watch()
    with watch:
        forward(inputs)
    return watch.seen
