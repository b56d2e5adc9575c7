"""The order in which a program's own sampler visits the samples: the same on every rank, and checked before use.

Epochs differ in order and not in length: the steps of a run, its schedule and where it goes on follow from that.
"""

import zlib
from array import array
from collections.abc import Iterable, Sized
from itertools import islice
from typing import Any

import torch

from nfold.capture.moving import Mover, Moving
from nfold.capture.random import LOCK, RandomState, seed_all
from nfold.core.whole import whole
from nfold.errors import ProgramError, one_line
from nfold.program import Program, describe
from nfold.runtime.data import Order, Sampler

_SHOWN = 3
_MOST_TIMES, _MOST_UNSIZED = 10, 1_000_000
"""Of what does not say how much it is: so many times all samples, or so many indices, are read at most."""


def sampler_of(program: Program, dataset: Any, batch_size: int, num_chunks: int) -> Sampler:
    """Return what maps steps and chunks to samples, for a program."""
    order = order_of(program, dataset)
    count = len(dataset) if order is None else len(order(0))
    return Sampler(count, batch_size, num_chunks, program.seed, _of_one_length(order, count) if order else None)


def order_of(program: Program, dataset: Any) -> Order | None:
    """Return the program's own order, checked epoch by epoch; None: it has none."""
    if program.sampler is None:
        return None

    def order(epoch: int) -> list[int]:
        return _checked(_asked(program, dataset, epoch), len(dataset), epoch)

    return order


def orders_to_compare(program: Program, dataset: Any) -> dict[str, list[int]] | None:
    """Return number and checksum of the indices of some epochs, for ranks to be compared; None: no sampler.

    Raises:
        ProgramError: the sampler raised, gave what no index is, other lengths, or other indices when asked again.
    """
    order = order_of(program, dataset)
    if order is None:
        return None
    found = {epoch: _summed(order(epoch)) for epoch in sorted({0, min(1, program.epochs - 1), program.epochs - 1})}
    for epoch, (count, _) in found.items():
        _check_length(count, found[0][0], epoch)
    if _summed(order(0)) != found[0]:
        raise ProgramError(
            "Program(sampler=...) gives other indices when it is asked for epoch 0 again. They must follow from its "
            "arguments alone: draw from the generator that it is given, and keep nothing between calls."
        )
    return {str(epoch): list(pair) for epoch, pair in found.items()}


def _of_one_length(order: Order, count: int) -> Order:
    def checked(epoch: int) -> list[int]:
        indices = order(epoch)
        _check_length(len(indices), count, epoch)
        return indices

    return checked


def _check_length(count: int, first: int, epoch: int) -> None:
    if count != first:
        raise ProgramError(
            f"Program(sampler=...) gave {first} indices for epoch 0 and {count} for epoch {epoch}. Each epoch must "
            "have as many: the steps of a run and its schedule follow from it. Repeat some, or draw with replacement."
        )


def _asked(program: Program, dataset: Any, epoch: int) -> Any:
    """Ask for the indices of an epoch. What is drawn, from whatever generator, is the same on every rank."""
    assert program.sampler is not None, "there is an order of the program's own"
    seed = (program.seed * 1_000_003 + epoch) % (1 << 63)
    generator = torch.Generator().manual_seed(seed)
    with LOCK:
        before, moving = RandomState(), Moving([dataset])
        was = moving.state()
        try:
            seed_all(seed)
            found = program.sampler(dataset, epoch, generator)
            found = found.tolist() if isinstance(found, torch.Tensor) or hasattr(found, "tolist") else found
            indices = _read(found, len(dataset), epoch) if isinstance(found, Iterable) else found
            _refuse_moved(moving.moved(was), epoch)
            return indices
        except ProgramError:
            raise
        except Exception as error:
            raise ProgramError(
                f"Program(sampler=...) raised {describe(error)} for epoch {epoch}. It is given (dataset, epoch, "
                "generator), and must return the indices that the epoch visits."
            ) from error
        finally:
            before.restore()


def _read(found: Iterable[Any], num_samples: int, epoch: int) -> list[Any]:
    """Read the indices of an epoch, no more than memory has room for."""
    most = len(found) if isinstance(found, Sized) else max(_MOST_TIMES * num_samples, _MOST_UNSIZED)
    indices = list(islice(found, most + 1))
    if len(indices) > most:
        says = (
            f"says that it has {most}" if isinstance(found, Sized) else f"is a {type(found).__name__} without a len()"
        )
        raise ProgramError(
            f"Program(sampler=...) does not end: what it returned for epoch {epoch} {says} and gave more than {most} "
            f"indices, and train_data() has {num_samples} samples. It must return the indices of one epoch, and end: "
            "a list, or itertools.islice(.., len(dataset))."
        )
    return indices


def _refuse_moved(moved: list[Mover], epoch: int) -> None:
    """Refuse a sampler that tells the data set of the epoch, as `set_epoch` does.

    Items are read ahead and by several processes, some of an epoch before and some after the sampler is asked for the
    next one, and loaders never ask it.
    """
    if moved:
        raise ProgramError(
            f"Program(sampler=...) changes {moved[0].name} of train_data() when it is asked for epoch {epoch}, while "
            "items of the epoch before are still read, by other processes too. Items must follow from their index "
            "alone: make the data set as many times longer as there are epochs, and let the sampler give the indices "
            "of its epoch."
        )


def _checked(found: Any, num_samples: int, epoch: int) -> list[int]:
    if not isinstance(found, list) or not found:
        raise ProgramError(
            f"Program(sampler=...) returned {one_line(repr(found))} for epoch {epoch}. It must return the indices of "
            "samples, at least one: a list, or a tensor of one dimension."
        )
    indices = [whole(each) for each in found]
    wrong = [
        f"{one_line(repr(each))} at place {place}"
        for place, (each, index) in enumerate(zip(found, indices, strict=True))
        if index is None or not 0 <= index < num_samples
    ]
    if wrong:
        more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise ProgramError(
            f"Program(sampler=...) gave {', '.join(wrong[:_SHOWN])}{more} for epoch {epoch}. Indices must be whole "
            f"numbers from 0 to {num_samples - 1}: train_data() has {num_samples} samples."
        )
    return [index for index in indices if index is not None]


def _summed(indices: list[int]) -> tuple[int, int]:
    return len(indices), zlib.crc32(array("q", indices).tobytes())
