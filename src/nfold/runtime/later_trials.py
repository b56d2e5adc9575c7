"""Tries again while a program trains that its samples do not see each other, where nobody could prove it.

Before the first step a few samples were compared apart and together, at the first weights and at some near them. What
limits, masks and branches do with later weights, or with rare samples, shows only then. So a rank that computes the
whole model compares the samples of its chunk again: of the 1st, 2nd, 4th, 8th .. step, and of one with inputs that are
unlike all before. The former are 14 in 10,000 steps, each as long as 4 to 18 passes, or 50 ms where these are short;
the latter take at most a hundredth of the time, or 5 s where that is more.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nfold.capture.building import build_model
from nfold.capture.divisible import PARTS, Cut, cut_rows, why_unlike_now
from nfold.capture.joining import Batch
from nfold.capture.random import LOCK, RandomState
from nfold.capture.states import fresh_copies
from nfold.capture.tree import map_tensors, num_bytes, tensors_of
from nfold.errors import ProgramError
from nfold.launch.limits import unused_memory
from nfold.launch.memory import available_bytes
from nfold.program import Program
from nfold.runtime.seen_inputs import SeenInputs

Read = Callable[[Sequence[int], Sequence[int]], tuple[Batch, list[Batch]]]
"""Reads some samples of a chunk, and joins them together and in parts of so many."""
_MEMORY = Path("/proc/meminfo")
_SIZE = sum(PARTS)
_MOST_TIME, _LEAST_S = 0.01, 5.0
"""Of the run, for samples that are unlike others, and what they may take in any case: many come at its beginning."""
_TIMES_WEIGHTS = 7
"""Memory that a comparison takes: a copy, the same in double precision, and gradients of the whole and of parts."""


class LaterTrials:
    """What one rank has tried of the chunks that it computed."""

    def __init__(self, program: Program, device: torch.device, clock: Callable[[], float] = time.perf_counter) -> None:
        """Args:
        program: as the user gave it.
        device: where to compute.
        clock: seconds.
        """
        self._program, self._device, self._clock = program, device, clock
        self._seen = SeenInputs()
        self._last_step: int | None = None
        self._num_steps = 0
        self._begin_s, self._spent_s = clock(), 0.0
        self._right: int | None = None
        """The last step at which nothing was found."""

    def look(self, model: nn.Module, batch: Batch, step: int, size: int, read: Read) -> None:
        """Compare the samples of a chunk, if it is time or if they are unlike all before.

        Args:
            model: the rank's, with the weights of now.
            batch: the chunk, where to compute.
            step: which this is.
            size: samples of the chunk.
            read: the chunk's samples, for a program that joins them itself.

        Raises:
            ProgramError: they see each other.
        """
        begin_s = self._clock()
        new = self._seen.new_samples(batch[0], size)
        is_due = self._is_due(step) or (new and self._spent_s <= max(_LEAST_S, _MOST_TIME * (begin_s - self._begin_s)))
        if not is_due or not _has_room(model, self._device):
            return
        found = self._compare(model, batch, size, new, read)
        self._spent_s += self._clock() - begin_s
        if found:
            raise ProgramError(f"{found}. {self._told(step)}. Begin again with -n 1 --strategy single --chunks 1.")
        self._right = step

    def _is_due(self, step: int) -> bool:
        """Tell whether this is the first chunk of the 1st, 2nd, 4th .. step here."""
        if step == self._last_step:
            return False
        self._last_step = step
        self._num_steps += 1
        return self._num_steps & (self._num_steps - 1) == 0

    def _compare(self, model: nn.Module, batch: Batch, size: int, new: list[int], read: Read) -> str:
        own = read if self._program.collate is not None or not _is_rows(batch) else None
        cuts = [self._cut(batch, size, samples, own) for samples in (list(range(size)), _some(size, new))]
        with LOCK:  # ranks may be threads, and what this draws must not be missing elsewhere
            before = RandomState()
            try:
                return why_unlike_now(lambda: self._copied(model), self._program.loss, *cuts)
            except Exception:
                return ""  # there is no memory for it, or no copy: that is no reason to end a run
            finally:
                before.restore()

    def _cut(self, batch: Batch, size: int, samples: list[int], read: Read | None) -> Cut:
        """Return samples together and apart; where there are few, each of them several times."""
        count = max(_SIZE, len(samples))
        samples = [samples[place * len(samples) // count] for place in range(count)]
        first, second = (part * count // _SIZE for part in PARTS[:2])
        sizes = (first, second, count - first - second)
        if read is None:
            index = torch.tensor(samples, device=self._device)
            taken = map_tensors(lambda each: each.index_select(0, index) if _counts(each, size) else each, batch)
            return cut_rows(taken, sizes)
        together, apart = read(samples, sizes)
        whole, *joined = map(self._moved, [together, *apart])
        is_padded = any(_shapes(part) != _shapes(whole) for part in joined)
        return Cut(whole=whole, parts=joined, sizes=sizes, is_padded=is_padded)

    def _moved(self, batch: Batch) -> Batch:
        inputs, targets = (map_tensors(lambda tensor: tensor.to(self._device), each) for each in batch)
        return inputs, targets

    def _copied(self, model: nn.Module) -> nn.Module:
        return fresh_copies(model, lambda: build_model(self._program, self._device))()

    def _told(self, step: int) -> str:
        earlier = "" if self._right is None else f"; at step {self._right + 1} it was still right"
        return f"Found at step {step + 1}, by comparing the samples of a chunk apart and together{earlier}"


def _some(size: int, new: list[int]) -> list[int]:
    """Return as many samples as were compared before the first step: new ones, and others."""
    known = set(new[: _SIZE // 2])
    others = [sample for sample in range(size) if sample not in known]
    count = min(len(others), _SIZE - len(known))
    return sorted({*known, *(others[place * len(others) // count] for place in range(count))})


def _is_rows(value: Any) -> bool:
    """Tell whether there are tensors only: a list of texts has no rows to take."""
    if isinstance(value, (list, tuple, dict)):
        return all(map(_is_rows, value.values() if isinstance(value, dict) else value))
    return isinstance(value, torch.Tensor)


def _shapes(batch: Batch) -> list[torch.Size]:
    return [tensor.shape[1:] for tensor in tensors_of(batch)]


def _counts(tensor: torch.Tensor, size: int) -> bool:
    return tensor.ndim > 0 and tensor.shape[0] == size


def _has_room(model: nn.Module, device: torch.device) -> bool:
    """Tell whether there is memory for a comparison; where there is none the next one may have it."""
    left = [torch.cuda.mem_get_info(device)[0]] if device.type == "cuda" else [unused_memory()]
    if device.type != "cuda" and _MEMORY.exists():
        left.append(available_bytes(_MEMORY.read_text(encoding="utf-8")))
    needed = _TIMES_WEIGHTS * num_bytes(list(model.parameters()))
    return all(each > needed for each in left if each is not None)
