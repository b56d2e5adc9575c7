"""Goes on looking whether the loss is a mean over samples while a program trains: a few batches cannot show it all.

Targets that a loss leaves out (ignore_index, masks), or weighs by their class, may come late in the data. So chunks are
taken apart again, before their gradients are used: the 1st, 2nd, 4th, 8th .. that a rank computes, and those with
targets that it has not seen. Of the latter only the new samples and as many others, so that one of thousands shows.
Where it is one as long as a number made of outputs is as large for each sample, each chunk is held to that.
"""

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from nfold.capture.batches.tree import map_tensors, may_list_samples
from nfold.capture.independence.sample_axes import SampleAxis
from nfold.capture.independence.sample_mean import why_unlike_parts
from nfold.capture.program.program_graph import Loss
from nfold.capture.proof.conditions import OUTPUTS, parts_needed
from nfold.core.condition import Condition
from nfold.core.graph import ModelGraph
from nfold.errors import ProgramError
from nfold.program import Program
from nfold.runtime.guards.sample_views import (
    joined,
    num_samples,
    readings,
    take_outputs,
    take_targets,
    uneven_parts,
)
from nfold.runtime.guards.seen_targets import SeenTargets
from nfold.runtime.guards.uneven_samples import refuse_uneven


def with_checked_loss(program: Program, graph: ModelGraph, chunks: int) -> Program:
    """Return the program; with a checked loss where batches are cut and it is not proved to be a mean over samples."""
    conditions = tuple(each for each in graph.conditions if OUTPUTS in parts_needed(each.program))
    if chunks < 2 or not (graph.unproved or conditions):
        return program
    return replace(program, loss=CheckedLoss(program.loss, conditions, is_proved=not graph.unproved))


class CheckedLoss:
    """The user's loss, for a program whose batches are cut into chunks."""

    def __init__(self, loss: Loss, conditions: tuple[Condition, ...] = (), *, is_proved: bool = False) -> None:
        """Args:
        loss: the user's.
        conditions: of its proof, on outputs.
        is_proved: it is a mean while they hold.
        """
        self._loss, self._conditions, self._is_proved = loss, conditions, is_proved
        self._num_calls = 0
        self._size = 0
        """Samples of the chunk to check; 0: what computes is no chunk of the program."""
        self._seen = SeenTargets()
        self._first: Any = None
        """Targets of the first sample."""
        self._are_listed = True
        """Whether targets have had a row for each sample so far: boxes or words may be as many by chance."""
        self.__name__ = getattr(loss, "__name__", type(loss).__name__)

    def __call__(self, outputs: Any, targets: Any) -> torch.Tensor:
        """Compute the loss.

        Raises:
            ProgramError: it is no mean over these samples.
        """
        if self._size and self._conditions:
            refuse_uneven(self._conditions, ((), targets, map_tensors(torch.detach, outputs)), self._size)
        # Where targets count words and not samples, these can only be taken apart by who reads them: see later_trials.
        self._are_listed &= not self._size or num_samples(targets) == self._size
        is_tried = self._size and not self._is_proved and self._are_listed
        is_tried = is_tried and not may_list_samples(outputs, self._size)
        samples = self._suspects(targets, self._size) if is_tried else []
        if samples:
            self._check(map_tensors(torch.detach, outputs), targets, samples)
        return self._loss(outputs, targets)

    @contextlib.contextmanager
    def checked(self, size: int) -> Iterator[None]:
        """Check the losses of a chunk of `size` samples that are computed within a block."""
        self._size = size
        try:
            yield
        finally:
            self._size = 0

    def _suspects(self, targets: Any, size: int) -> list[int]:
        """Return the samples to look at: none of most chunks."""
        self._num_calls += 1
        new = self._seen.new_samples(targets, size)
        if self._num_calls & (self._num_calls - 1) == 0:
            return list(range(size))
        known = set(new)
        return [*new, *itertools.islice((each for each in range(size) if each not in known), len(new))]

    def _check(self, outputs: Any, targets: Any, samples: list[int]) -> None:
        size = num_samples(targets)
        found = None
        if self._first is None:
            self._first = take_targets(targets, [0])
        elif (both := joined(targets, self._first)) is not None:
            # A chunk whose samples are all alike shows nothing by itself.
            found = self._verdict(outputs, both, [*samples, size], size)
        if found is None:
            found = self._verdict(outputs, targets, samples, size)
        if found:
            raise ProgramError(f"{found}. Begin again with -n 1 --strategy single --chunks 1.")

    def _verdict(self, outputs: Any, targets: Any, samples: list[int], size: int) -> str | None:
        """Say how a whole differs from its parts, however outputs are read; None if they cannot be taken apart."""
        found = None
        parts = uneven_parts(targets, samples)
        for meaning in readings(outputs, size) if len(parts) > 1 else ():
            try:
                found = why_unlike_parts(self._loss, partial(_take, outputs, targets, meaning, size), parts)
            except Exception:
                continue  # the outputs are not to be read so, or it needs their gradients: capture tried it with those
            if not found:
                break
        return found


def _take(
    outputs: Any, targets: Any, meaning: tuple[SampleAxis, ...], size: int, samples: list[int]
) -> tuple[Any, Any]:
    """Copy some samples; the first one's output goes with the target that was added as well."""
    return take_outputs(outputs, meaning, [each % size for each in samples]), take_targets(targets, samples)
