"""Which samples a ticket stands for: the chunks of a step that a synchronous plan would give to one worker."""

from collections.abc import Callable

Sizes = tuple[int, ...]


class Tickets:
    """Maps tickets to steps and chunks; the same on every rank."""

    def __init__(self, owners: tuple[int, ...], workers: int, sizes: Callable[[int], Sizes]) -> None:
        """Begin.

        Args:
            owners: of each chunk, the slice that it belongs to.
            workers: slices of a step.
            sizes: samples of each chunk of a step.
        """
        self._owners, self._workers, self._sizes = owners, workers, sizes

    def step(self, ticket: int) -> int:
        """Return the step that a ticket belongs to."""
        return ticket // self._workers

    def chunks(self, ticket: int) -> tuple[int, ...]:
        """Return the chunks of a ticket that hold samples."""
        return tuple(chunk for chunk, size in enumerate(self.sizes(ticket)) if size)

    def sizes(self, ticket: int) -> Sizes:
        """Return the samples of each chunk of the step, as if only the ticket's chunks had any."""
        mine = ticket % self._workers
        sizes = self._sizes(self.step(ticket))
        return tuple(size if owner == mine else 0 for owner, size in zip(self._owners, sizes, strict=True))

    def samples(self, ticket: int) -> int:
        """Return how many samples a ticket has."""
        return sum(self.sizes(ticket))

    def weight(self, ticket: int) -> float:
        """Return the number of samples of a ticket divided by that of its step."""
        return self.samples(ticket) / sum(self._sizes(self.step(ticket)))
