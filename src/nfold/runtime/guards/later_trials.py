"""Tries again while a program trains that its samples do not see each other, where nobody could prove it.

Before the first step a few samples were compared apart and together, at the first weights and at some near them. What
limits, masks and branches do with later weights, or with rare samples, shows only then. So a rank that computes the
whole model compares the samples of its chunk again: of the 1st, 2nd, 4th, 8th .. step, and of one with inputs that are
unlike all before. The former are 14 in 10,000 steps, each as long as 4 to 18 passes, or 50 ms where these are short;
the latter take at most a hundredth of the time, or 5 s where that is more. Of a cut model each rank tries its own part:
see `stage_trials.py`.
"""

import time
from collections.abc import Callable

import torch
from torch import nn

from nfold.capture.batches.joining import Batch
from nfold.capture.computing.random import undisturbed
from nfold.capture.independence.batch_cut import BatchCut
from nfold.capture.independence.divisible import why_unlike_now
from nfold.capture.program.building import build_model
from nfold.capture.side_effects.module_states import fresh_copies
from nfold.program import Program
from nfold.runtime.guards.seen_inputs import SeenInputs
from nfold.runtime.guards.some_samples import Read, all_and_some, cut_batch, is_rows
from nfold.runtime.guards.trial_occasions import Occasions


class LaterTrials:
    """The trials of one rank on chunks that it computes whole."""

    def __init__(self, program: Program, device: torch.device, clock: Callable[[], float] = time.perf_counter) -> None:
        """Args:
        program: as the user gave it.
        device: where to compute.
        clock: seconds.
        """
        self._program, self._device = program, device
        self._seen = SeenInputs()
        self._occasions = Occasions(clock)

    def look(self, model: nn.Module, batch: Batch, step: int, size: int, read: Read, *, num_elsewhere: int = 0) -> None:
        """Compare the samples of a chunk, if it is time or if they are unlike all before.

        Args:
            model: the rank's, with the weights of now.
            batch: the chunk, where to compute.
            step: which this is.
            size: samples of the chunk.
            read: the chunk's samples, for a program that joins them itself.
            num_elsewhere: samples of other chunks that it reads as well.

        Raises:
            ProgramError: they see each other.
        """
        new = self._seen.new_samples(batch, size)
        is_due = self._occasions.is_due(0, step, is_new=bool(new), is_rare=self._seen.has_rare_shape)
        if is_due and self._occasions.has_room(model.parameters(), self._device, step):
            own = read if self._program.collate is not None or not is_rows(batch) else None
            count = num_elsewhere if own else 0
            self._occasions.compare(0, step, lambda: self._compare(model, self._cuts(batch, size, new, own, count)))

    def take_notes(self) -> tuple[str, ...]:
        """Return the notes for the user since the last call."""
        return self._occasions.take_notes()

    def _cuts(self, batch: Batch, size: int, new: list[int], read: Read | None, num_elsewhere: int) -> list[BatchCut]:
        try:
            samples = all_and_some(size, new, num_elsewhere)
            return [cut_batch(batch, size, each, read, self._device) for each in samples]
        except Exception:
            if not num_elsewhere:
                raise
            return self._cuts(batch, size, new, read, 0)  # where each batch has a length of its own, others do not fit

    def _compare(self, model: nn.Module, cuts: list[BatchCut]) -> str:
        copies = fresh_copies(model, lambda: build_model(self._program, self._device))
        with undisturbed():  # ranks may be threads, and what this draws must not be missing elsewhere
            return why_unlike_now(copies, self._program.loss, *cuts)
