"""The order in which a program's own sampler visits the samples: the same on every rank, and checked before use.

Epochs differ in order and not in length: the steps of a run, its schedule and where it goes on follow from that.
"""

import zlib
from array import array
from collections.abc import Sequence
from typing import Any

from nfold.capture.visited_samples import Order, order_of
from nfold.core.residency import PlacedRun
from nfold.errors import ProgramError
from nfold.planning.residency.placed_chunks import NO_SAMPLER
from nfold.program import Program
from nfold.runtime.data.chunk_loader import ChunkSamples, StepSamples
from nfold.runtime.data.resident_samples import ResidentSamples


def sampler_of(
    program: Program,
    dataset: Any,
    batch_size: int,
    num_chunks: int,
    least_chunk: int,
    placed: Sequence[PlacedRun] = (),
) -> StepSamples:
    """Return the map from steps and chunks to the samples of a program's data set.

    Args:
        program: its own sampler is asked for each epoch, if it has one.
        dataset: its training data.
        batch_size: samples of a step.
        num_chunks: of a step.
        least_chunk: fewest samples of a chunk; see `ModelGraph`.
        placed: who trains on which samples, where each rank does on its own; empty: all ranks read all.

    Raises:
        ProgramError: the program has a sampler, and samples are visited where they live.
    """
    if placed:
        check_no_sampler(program)
        return ResidentSamples(placed, batch_size, program.seed)
    order = order_of(program, dataset)
    count = len(dataset) if order is None else len(order(0))
    own = _of_one_length(order, count) if order else None
    return ChunkSamples(count, batch_size, num_chunks, program.seed, own, least_chunk=least_chunk)


def check_no_sampler(program: Program) -> None:
    """Refuse a program that says itself which samples an epoch visits, where that follows from where they live.

    Raises:
        ProgramError: with what to do.
    """
    if program.sampler is not None:
        raise ProgramError(NO_SAMPLER)


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


def _summed(indices: list[int]) -> tuple[int, int]:
    return len(indices), zlib.crc32(array("q", indices).tobytes())
