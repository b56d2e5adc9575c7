"""Moves samples between the ranks of a generation: before training, and beside it."""

import contextlib
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nfold.core import codec
from nfold.core.residency import SampleMove
from nfold.planning.residency.model.spans import union
from nfold.runtime.control.channel import Message
from nfold.runtime.rank.process import Process
from nfold.runtime.rank.residence import keep_brought, samples_in
from nfold.runtime.samples.gradients_first import Gate, GatedTransport
from nfold.runtime.samples.mover import Moved, Mover
from nfold.runtime.samples.pacing import Pacer
from nfold.transport.generations.generation_transport import GenerationTransport

if TYPE_CHECKING:
    from nfold.transport.protocol import Transport


class SampleMoving:
    """What one rank moves in one generation."""

    def __init__(self, process: Process, transport: GenerationTransport) -> None:
        self._process, self._transport = process, transport
        self.step_transport: Transport = transport
        """For messages of steps, which samples make way for."""
        self._mover: Mover | None = None
        self._reporting: threading.Thread | None = None
        self._num_orders = 0

    def before_training(self, order: Message) -> Message:
        """Move samples, and return what the coordinator is told once all of this rank's are through."""
        process, examples = self._process, tuple((first, end) for first, end in order["examples"])
        process.examples = examples or process.examples
        moved = self._begin(order, _moves_of(order)).wait()
        self._mover = None
        if examples:  # for a first look at the program, on a node that had no samples
            process.datasets["train"] = samples_in(process.resident, examples)
        return {"is": "moved", **_told(moved)}

    def begin_beside(self, order: Message) -> None:
        """Begin to move what an order to build says, and report it when it is through. What fails ends the rank."""
        self.step_transport = self._transport
        if moves := _moves_of(order):
            gate = Gate(order["quiet_s"], order["settle_s"])
            self.step_transport = GatedTransport(self._transport, gate)
            pacer = Pacer(order["move_bytes_per_s"], ahead_bytes=order["ahead_bytes"], gate=gate)
            mover = self._begin(order, moves, pacer, order["link_bytes_per_s"])
            self._reporting = threading.Thread(target=self._report, args=(mover,), name="nfold-moved", daemon=True)
            self._reporting.start()

    def rest(self) -> None:
        """Move no more: all ranks have been told to come to rest."""
        if self._mover is not None:
            self._mover.stop()
            self._mover.limit(None)  # no gradients are in the way any more
            self._mover.wait()
            self._mover = None
        self._await_report()

    def close(self) -> None:
        """End at once, whatever is on its way."""
        if self._mover is not None:
            self._mover.close()
            self._mover = None
        self._await_report()

    def _await_report(self) -> None:
        """Let what has moved be told before that this rank has come to rest, or is one of another generation."""
        if self._reporting is not None:
            self._reporting.join()
            self._reporting = None

    def _begin(
        self,
        order: Message,
        moves: Sequence[SampleMove],
        pacer: Pacer | None = None,
        link_bytes_per_s: float | None = None,
    ) -> Mover:
        keep_brought(self._process.resident.store, order)  # before the first of them comes
        if order["needed"] is not None:
            needed = ((first, end) for first, end in order["needed"])
            self._process.resident.store.drop_others(union([*needed, *self._process.examples]))
        self._mover = Mover(
            self._transport,
            order["members"],
            self._num_orders,
            moves,
            self._process.resident,
            pacer=pacer,
            link_bytes_per_s=link_bytes_per_s,
            on_failure=self._process.orders.fail,
        )
        self._num_orders += 1
        return self._mover

    def _report(self, mover: Mover) -> None:
        with contextlib.suppress(Exception):  # who trains, and `get`, are told why it failed
            moved = mover.wait()
            if moved.num_received:
                self._process.channel.send({"is": "moved", **_told(moved)})


def _moves_of(order: Message) -> list[SampleMove]:
    return [codec.decode(SampleMove, each) for each in order["moves"]]


def _told(moved: Moved) -> Message:
    return {"bytes": moved.received_bytes, "seconds": moved.seconds}
