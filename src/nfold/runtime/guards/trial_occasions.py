"""Says when the samples of a chunk are tried again, if there is room, and ends the run where they see each other."""

from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from nfold.capture.batches.tree import num_bytes
from nfold.capture.side_effects.module_states import is_freed
from nfold.errors import ProgramError, one_line
from nfold.machine.limits import unused_memory
from nfold.machine.memory_check import available_bytes
from nfold.program import describe

_MEMORY = Path("/proc/meminfo")
_MOST_TIME, _LEAST_S = 0.01, 5.0
"""Of the run, for samples that are unlike others, and what they may take in any case: many come at its beginning."""
_TIMES_WEIGHTS = 7
"""Memory that a comparison takes: a copy, the same in double precision, and gradients of the whole and of parts."""


class Occasions:
    """When one rank compares samples of what it computes: the whole model, or each of its runs of operators."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Args:
        clock: seconds.
        """
        self._clock = clock
        self._last_step: dict[int, int] = {}
        self._num_steps: dict[int, int] = {}
        self._begin_s, self._spent_s = clock(), 0.0
        self._right: dict[int, int] = {}
        """The last step at which nothing was found."""
        self._notes: list[str] = []
        self._has_failed = False

    def is_due(self, part: int, step: int, *, is_new: bool, is_rare: bool = False) -> bool:
        """Tell whether to try: the first chunk of the 1st, 2nd, 4th .. step here, or new inputs while there is time.

        Args:
            part: which run of operators; 0 for the whole model.
            step: which this is.
            is_new: whether inputs are unlike all before.
            is_rare: whether they are to be tried whatever the time is.
        """
        allowed_s = max(_LEAST_S, _MOST_TIME * (self._clock() - self._begin_s))
        return self._is_power(part, step) or is_rare or (is_new and self._spent_s <= allowed_s)

    def _is_power(self, part: int, step: int) -> bool:
        if step == self._last_step.get(part):
            return False
        self._last_step[part] = step
        self._num_steps[part] = self._num_steps.get(part, 0) + 1
        return self._num_steps[part] & (self._num_steps[part] - 1) == 0

    def compare(self, part: int, step: int, trial: Callable[[], str]) -> None:
        """Compare. Where it cannot be done, that is told once: see `take_notes`.

        Args:
            part: as above.
            step: as above.
            trial: says how samples differ apart and together; empty if they do not.

        Raises:
            ProgramError: they see each other.
        """
        begin_s = self._clock()
        try:
            found = trial()
        except Exception as error:  # no memory, no copy, parts that are too small: no reason to end a run
            self._fail(step, error)
            return
        finally:
            self._spent_s += self._clock() - begin_s
        if found:
            raise ProgramError(
                f"{found}. {self._told(part, step)}. Begin again with -n 1 --strategy single --chunks 1."
            )
        self._right[part] = step

    def has_room(self, weights: Iterable[torch.Tensor], device: torch.device, step: int) -> bool:
        """Whether memory has room to compare what computes with these weights; later there may be room."""
        left = [torch.cuda.mem_get_info(device)[0]] if device.type == "cuda" else [unused_memory()]
        if device.type != "cuda" and _MEMORY.exists():
            left.append(available_bytes(_MEMORY.read_text(encoding="utf-8")))
        needed = _TIMES_WEIGHTS * num_bytes([each for each in weights if not is_freed(each)])
        free = min((each for each in left if each is not None), default=needed + 1)
        if free <= needed:
            self._fail(step, MemoryError(f"it takes {needed / 1e6:.0f} MB, and there are not as many free"))
        return free > needed

    def note(self, text: str) -> None:
        """Add a note for the user."""
        self._notes.append(text)

    def take_notes(self) -> tuple[str, ...]:
        """Return the notes for the user since the last call."""
        notes, self._notes = self._notes, []
        return tuple(notes)

    def _fail(self, step: int, error: Exception) -> None:
        if not self._has_failed:
            self._has_failed = True
            self.note(
                f"from step {step + 1} on it could not always be tried again that samples do not see each other: "
                f"{one_line(describe(error))}"
            )

    def _told(self, part: int, step: int) -> str:
        right = self._right.get(part)
        earlier = "" if right is None else f"; at step {right + 1} it was still right"
        return f"Found at step {step + 1}, by comparing the samples of a chunk apart and together{earlier}"
