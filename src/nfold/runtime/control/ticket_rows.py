"""What a rank did, ticket by ticket -> one row for every step, whoever computed it.

Ranks of an asynchronous run take different numbers of tickets in a step, and none in some. A rank learns from its
shard's answers that steps are done, and shares the seconds since the last time evenly among them. How long a step took
is known best where tickets are handed out, so the coordinator scales every rank's row to that rank's.
"""

import threading
from collections import Counter, defaultdict
from dataclasses import replace
from math import inf

from nfold.core.trace import StepParts

PARTS = ("input_s", "forward_s", "backward_s", "update_s", "communication_s")


class Account:
    """One rank's seconds, samples, losses and bytes. The threads that compute and serve both write to it."""

    def __init__(self, rank: int, first_step: int) -> None:
        self._rank, self._next_step = rank, first_step
        self._lock = threading.Lock()
        self._seconds = dict.fromkeys(PARTS, 0.0)
        self._updates: list[tuple[float, float]] = []
        """Of this rank's shard, which its worker has not waited beyond."""
        self._durations: dict[int, float] = {}
        self._samples: Counter[int] = Counter()
        self._sent_bytes: Counter[int] = Counter()
        self._losses: dict[int, dict[int, float]] = defaultdict(dict)

    def spent(self, part: str, seconds: float) -> None:
        """Add seconds of a part that belong to no step in particular."""
        with self._lock:
            self._seconds[part] += seconds

    def updating(self, begin_s: float) -> None:
        """Note that this rank's shard begins to apply a gradient, for which a worker of the same rank may wait."""
        with self._lock:
            self._updates.append((begin_s, inf))

    def updated(self, end_s: float) -> None:
        """Note that the shard has applied the gradient."""
        with self._lock:
            begin_s, _ = self._updates.pop()
            self._updates.append((begin_s, end_s))

    def waited(self, begin_s: float, end_s: float) -> None:
        """Note that the worker waited: for updates while its own shard made some, else for messages.

        Updates that go on while it computes cost it nothing but cores, as messages do.
        """
        with self._lock:
            during = [(max(begin_s, start), min(end_s, stop)) for start, stop in self._updates]
            update_s = sum(max(0.0, stop - start) for start, stop in during)
            self._updates = [(start, stop) for start, stop in self._updates if stop > end_s]
            self._seconds["update_s"] += update_s
            self._seconds["communication_s"] += end_s - begin_s - update_s

    def forget(self) -> None:
        """Begin to count seconds anew: those so far belong to no step."""
        with self._lock:
            self._seconds = dict.fromkeys(PARTS, 0.0)

    def sent(self, step: int, num_bytes: int) -> None:
        """Add bytes that were given to the transport for a step."""
        with self._lock:
            self._sent_bytes[step] += num_bytes

    def computed(self, step: int, samples: int, losses: dict[int, float]) -> None:
        """Add a ticket of a step: its samples, and its chunks' losses, weighted by their share of the batch."""
        with self._lock:
            self._samples[step] += samples
            self._losses[step].update(losses)

    def lasted(self, step: int, seconds: float) -> None:
        """Note the seconds of a step, as this rank's shard saw them."""
        with self._lock:
            self._durations[step] = seconds

    def close(self, steps_done: int, elapsed_s: float) -> list[tuple[StepParts, dict[int, float]]]:
        """Return a row, with the chunks' losses, for each step that was done since the last time.

        Args:
            steps_done: all steps before this one are done.
            elapsed_s: since the last rows were closed, or work began again.
        """
        with self._lock:
            steps = range(self._next_step, steps_done)
            if not steps:
                return []
            share = {part: seconds / len(steps) for part, seconds in self._seconds.items()}
            self._seconds = dict.fromkeys(PARTS, 0.0)
            self._next_step = steps_done
            return [(self._row(step, share, elapsed_s / len(steps)), self._losses.pop(step, {})) for step in steps]

    def _row(self, step: int, share: dict[str, float], elapsed_s: float) -> StepParts:
        return StepParts(
            step=step,
            rank=self._rank,
            step_s=self._durations.pop(step, elapsed_s),
            **share,
            other_s=max(0.0, elapsed_s - sum(share.values())),
            sent_bytes=self._sent_bytes.pop(step, 0),
            samples=self._samples.pop(step, 0),
        )


def aligned(parts: tuple[StepParts, ...], timekeeper: int) -> tuple[StepParts, ...]:
    """Scale the rows of a step so that each rank's has the duration that the timekeeper saw."""
    step_s = next(each.step_s for each in parts if each.rank == timekeeper)
    return tuple(_scaled(each, step_s) for each in parts)


def _scaled(parts: StepParts, step_s: float) -> StepParts:
    names = (*PARTS, "other_s")
    total_s = sum(getattr(parts, name) for name in names)
    factor = step_s / total_s if total_s > 0 else 0.0
    return replace(parts, step_s=step_s, **{name: getattr(parts, name) * factor for name in names})
