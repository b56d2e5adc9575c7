"""Says after which steps the ranks of an asynchronous run take snapshots. Pure.

No message says that a snapshot is due: each rank is told how many steps lie between two of them, and from which step on
that holds, before it may begin any such step. So all agree on the steps, however far apart they are.
"""

from collections.abc import Iterator


class SnapshotSteps:
    """The steps after which snapshots are due: multiples of a number that may change. None is after the last step."""

    def __init__(self, every: int, first_step: int, last_step: int) -> None:
        """Begin.

        Args:
            every: steps between two; 0: there are none.
            first_step: steps that are done.
            last_step: steps of the run.
        """
        self._changes: tuple[tuple[int, int], ...] = ((first_step, every),)
        """Steps after which another number holds, ascending, and that number."""
        self._last_step = last_step

    @property
    def are_any(self) -> bool:
        """Whether snapshots are ever due."""
        return any(every for _, every in self._changes)

    def change(self, every: int, after: int) -> None:
        """Let another number hold for snapshots after more steps than `after`, none of which has begun anywhere."""
        kept = tuple(change for change in self._changes if change[0] < after)
        self._changes = (*kept, (after, every))

    def next_after(self, step: int) -> int | None:
        """Return the first step after which a snapshot is due that is later than `step`; None: none is."""
        return next(self._due(step), None)

    def within(self, after: int, until: int) -> tuple[int, ...]:
        """Return the steps after which snapshots are due, later than `after` and not later than `until`."""
        found = []
        for step in self._due(after):
            if step > until:
                break
            found.append(step)
        return tuple(found)

    def _due(self, step: int) -> Iterator[int]:
        changes = self._changes
        ends = (*(after for after, _ in changes[1:]), self._last_step - 1)
        for (after, every), end in zip(changes, ends, strict=True):
            if every:
                first = (max(after, step) // every + 1) * every
                yield from range(first, min(end, self._last_step - 1) + 1, every)
