"""Holds back gradients until a shard's part of a snapshot is copied. Pure.

A snapshot after S steps holds the gradients of all slices of steps before S, and of no other, on every shard:

    slice of step S-1   -->  played
    slice of step S     -->  held back
    last slice before S -->  played, the shard is copied, what was held back is played

Nobody rests for it. A worker whose gradient is held back gets values of this shard when it has been played, as ever, so
each worker has one gradient here at most. Slices of earlier steps never wait for it: they were given out before it.
"""

from dataclasses import dataclass

from nfold.errors import InternalError
from nfold.planning.asynchronous.snapshot_steps import SnapshotSteps
from nfold.planning.asynchronous.staleness import Event, Pulled, Pushed, Shard


@dataclass(frozen=True, slots=True)
class Cut:
    """Copy the shard, which is as it is to be after so many steps."""

    step: int


class HeldShard:
    """The order in which one shard plays what comes."""

    def __init__(self, rules: Shard, workers: int, steps: SnapshotSteps) -> None:
        """Args:
        rules: of the shard.
        workers: slices of a step.
        steps: after which snapshots are due.
        """
        self._rules, self._workers, self._steps = rules, workers, steps
        self._waiting: list[Event] = []
        self._cut_at = rules.steps_done
        self._given: tuple[int, int] | None = None
        """Steps of the snapshot that is on its way to buddies, and before which step they must have it."""

    @property
    def holds_back(self) -> bool:
        """Whether anything waits."""
        return bool(self._waiting)

    @property
    def waits_for_buddies(self) -> bool:
        """Whether something waits until buddies have what is on its way to them, once `next` has nothing to do."""
        if self._given is None:
            return False
        is_due = self._steps.next_after(self._cut_at) == self._rules.steps_done
        return is_due or any(self._is_from(event, self._given[1]) for event in self._waiting)

    def take(self, event: Event) -> None:
        """Take in what has come."""
        self._waiting.append(event)

    def give(self, step: int, lag: int) -> None:
        """Note that the snapshot after so many steps is on its way to buddies, which must have it `lag` steps later."""
        self._given = step, step + lag

    def given(self, step: int) -> None:
        """Note that all buddies have the snapshot after so many steps."""
        if self._given is not None and self._given[0] == step:
            self._given = None

    def next(self) -> Event | Cut | None:
        """Return what is to be done now; None: nothing, until something else comes.

        Raises:
            InternalError: gradients were played that a snapshot must not have.
        """
        due = self._steps.next_after(self._cut_at)
        if due is not None and self._rules.steps_done > due:
            raise InternalError(f"{self._rules.steps_done} steps are done on a shard, and none was copied after {due}")
        if due == self._rules.steps_done and self._given is None:
            self._cut_at = due
            return Cut(due)
        for index, event in enumerate(self._waiting):
            if not self._waits(event, due):
                return self._waiting.pop(index)
        return None

    def _waits(self, event: Event, due: int | None) -> bool:
        """Whether an event is not to be played yet.

        Until its own rank may begin a step, it may not have been told that a snapshot is due before that. And nobody
        computes what buddies are too far behind for: another shard would apply it.
        """
        if not self._steps.are_any:
            return False
        limits = [] if self._given is None else [self._given[1]]
        if isinstance(event, Pushed):
            limits += [self._rules.allowed, *([] if due is None else [due])]
        return any(self._is_from(event, limit) for limit in limits)

    def _is_from(self, event: Event, step: int) -> bool:
        """Whether an event belongs to a slice of this step or of a later one."""
        return isinstance(event, Pushed | Pulled) and event.ticket // self._workers >= step
