"""Asks a program's own sampler which samples an epoch visits, and checks what it says."""

import functools
from collections.abc import Callable, Iterable, Sized
from itertools import islice
from typing import Any

import torch

from nfold.capture.computing.random import LOCK, RandomState, seed_all
from nfold.capture.side_effects.moving import Mover, Moving
from nfold.core.options.whole import whole
from nfold.errors import ProgramError, one_line
from nfold.program import Program, describe

Order = Callable[[int], list[int]]
"""epoch -> the samples that it visits, one after another."""
Batches = Callable[[], list[list[int]]]
"""Returns the samples of each batch of an epoch."""

_SHOWN = 3
_MOST_TIMES, _MOST_UNSIZED = 10, 1_000_000
"""Of what does not say how much it is: so many times all samples, or so many indices, are read at most."""


def order_of(program: Program, dataset: Any) -> Order | None:
    """Return the program's own order, checked epoch by epoch; None: it has none."""
    if program.sampler is None:
        return None

    def order(epoch: int) -> list[int]:
        return _checked(_asked(program, dataset, epoch), len(dataset), epoch)

    return order


def visited_count(program: Program, dataset: Any) -> int:
    """Return the number of samples that the first epoch visits."""
    order = order_of(program, dataset)
    return len(dataset) if order is None else len(order(0))


def batches_of(program: Program, dataset: Any) -> Batches | None:
    """Return what tells which samples the first epoch's batches hold; None: the program has no sampler.

    Of batches of unlike sizes only the largest count. The sampler is asked when that is called, and once.
    """
    order = order_of(program, dataset)
    if order is None:
        return None

    @functools.cache
    def batches() -> list[list[int]]:
        indices, size = order(0), program.batch_size
        found = [indices[begin : begin + size] for begin in range(0, len(indices), size)]
        return [batch for batch in found if len(batch) == len(found[0])]

    return batches


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
