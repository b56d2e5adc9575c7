"""Computes slices of a step on a worker of an asynchronous run, from loading to their gradients."""

from nfold.runtime.asynchronous.snapshot_parts import WorkerPart
from nfold.runtime.asynchronous.ticket_spans import TicketSpans
from nfold.runtime.asynchronous.tickets import Tickets
from nfold.runtime.control.ticket_rows import Account
from nfold.runtime.data.chunk_loader import ChunkLoader
from nfold.runtime.step.cells import Cells
from nfold.runtime.step.engine import Engine
from nfold.transport.implementations.in_memory import MemoryNetwork


class Slices:
    """Computes tickets with a rank's cells."""

    def __init__(
        self,
        cells: Cells,
        engine: Engine,
        loader: ChunkLoader,
        network: MemoryNetwork,
        tickets: Tickets,
        account: Account,
        ticket_spans: TicketSpans,
        part: WorkerPart,
    ) -> None:
        self._cells, self._engine, self._loader, self._network = cells, engine, loader, network
        self._tickets, self._account, self._ticket_spans = tickets, account, ticket_spans
        self._part = part
        self.step: int | None = None
        """Of the slice that was begun last."""

    def prepare(self, ticket: int) -> None:
        """Start to load a ticket's samples, while values are on their way."""
        self._loader.fetch(self._tickets.step(ticket), self._tickets.chunks(ticket))

    def compute(self, ticket: int) -> None:
        """Compute a ticket's gradient, the mean over its samples."""
        step, sizes = self._tickets.step(ticket), self._tickets.sizes(ticket)
        self.step = step
        with self._part.computing(step):
            self._cells.begin(step, sizes)
            played = self._engine.play(step, sizes, keep_spans=self._ticket_spans.keeps(ticket))
        self._ticket_spans.computed(ticket, played.spans, played.begin_s)
        for part, kind in (("input_s", "LOAD"), ("forward_s", "F"), ("backward_s", "B")):
            self._account.spent(part, played.seconds[kind])
        weight = self._tickets.weight(ticket)
        losses = {chunk: loss * weight for chunk, loss in self._cells.losses.items()}
        self._account.computed(step, sum(sizes), losses)

    def close(self) -> None:
        """Stop loading."""
        self._loader.close()
        self._network.close()
