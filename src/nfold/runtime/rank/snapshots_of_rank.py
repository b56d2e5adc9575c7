"""Keeps snapshots of what one rank holds while it trains, and gives its buddy what nobody else has.

A snapshot is of the same step on all ranks, and a buddy has it before its sender takes the next one. The last two are
kept: when some ranks have taken one and others not yet, the one before is whole. Where buddies may be behind, the last
three are: when some have taken one, others may still be giving the one before.

Under an asynchronous plan the thread that serves takes them, and waits for no buddy: it holds back gradients instead.
Three are kept then: a worker without a shard may tell late that it has taken one.
"""

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from nfold.runtime.asynchronous.server import Countdown
from nfold.runtime.checkpoint.checkpoint_format import Offer
from nfold.runtime.checkpoint.joined_facts import UNKEPT
from nfold.runtime.control.channel import Message
from nfold.runtime.rank.process import Process
from nfold.runtime.snapshots.shipments import Giving, Receiver, Sender, Shipment
from nfold.runtime.snapshots.state_memory import HeldState, adopted_state, copied_state
from nfold.runtime.step.replica import Replica
from nfold.transport.generations.generation_transport import GenerationTransport

_MOST_GIVEN = 3
"""Snapshots of others that a rank without a part of the state holds."""


class SnapshotsOfRank:
    """The snapshots of one rank in one generation."""

    def __init__(self, process: Process, transport: GenerationTransport) -> None:
        self._process, self._transport = process, transport
        self._every, self._lag = 0, 0
        """Steps between snapshots, and until a buddy must have one; 0: none are taken, or it waits for the buddy."""
        self._lock = threading.Lock()
        """Of what follows: one thread may take a snapshot while another one changes who is given it."""
        self._senders: list[Sender] = []
        self._parted: list[Sender] = []
        """Those that are given nothing more."""
        self._receivers: list[Receiver] = []
        self._rows: list[Any] | None = None
        self._sent_at: int | None = None
        """Steps of the last snapshot that was sent and not waited for."""
        self._taken: deque[int] = deque()
        """Steps of the snapshots that are kept."""

    def begin(
        self, every: int, take: Callable[[], Offer], step: int, held: HeldState | None, *, undoes: bool
    ) -> Message | None:
        """Keep what the generation begins with; return what the coordinator is told of it, None if nothing is kept.

        Args:
            every: steps between snapshots; 0: none are kept.
            take: returns what the rank has, which was just built.
            step: steps done.
            held: what this process holds of the state that the generation began with; None: that has a file.
            undoes: whether a step that fails changes nothing, and each rank has the state of all: then snapshots of
                generations before are kept until there are new ones, and nobody who waits for the first step makes one.
        """
        self._every = every
        if undoes:
            self._taken = deque(each for each in self._process.memory.copied_steps() if each <= step)
            return None
        self._taken = deque([step])
        if not every or held is None:
            return None
        label = (self._transport.number, step)
        state = adopted_state(label, self._process.member, take(), held)
        self._process.memory.put(state)
        return self._told(state, 0.0)

    @property
    def are_kept(self) -> bool:
        """Whether there are any."""
        return self._every > 0

    def protect(self, order: Message, failed: Callable[[BaseException], None] | None) -> None:
        """Take snapshots in other steps from now on, and give buddies what the order says.

        Args:
            order: of the coordinator.
            failed: called with why a buddy is given nothing more; None: this rank waits for it, and raises that.
        """
        shipments, rate = list(map(Shipment.from_row, order["shipments"])), order["bytes_per_s"]
        for shipment in shipments:
            if shipment.target == self._transport.rank:
                self._receivers.append(Receiver(self._transport, shipment, self._process.memory))
        own = [shipment for shipment in shipments if shipment.source == self._transport.rank]
        with self._lock:
            self._every, self._lag = order["every"] if self._every else 0, order["lag"]
            before, self._sent_at = self._senders, None
            new = [(Sender(self._transport, each, rate, failed), self._has(each)) for each in own]
            self._senders = [sender for sender, has in new if has]
            before += [sender for sender, has in new if not has]
            self._parted += before
        self._end(before)

    def _has(self, shipment: Shipment) -> bool:
        """Whether this rank holds what it is to give; what it holds may be other since, and is ordered anew then."""
        rows = self._rows or []
        return all(
            index < len(rows) and (name, tuple(shape), start) == (rows[index][0], tuple(rows[index][2]), rows[index][3])
            for index, name, _, shape, start, _ in shipment.pieces
        )

    def before_step(self, step: int) -> None:
        """Wait for buddies that must have the last snapshot before this step.

        Raises:
            TransportError: one is lost.
        """
        if self._sent_at is not None and step >= self._sent_at + self._lag:
            self._await_buddies()

    def after_step(self, replica: Replica, step: int) -> None:
        """Take a snapshot after so many steps, if one is due, and tell the coordinator."""
        if not self._every or step % self._every:
            return
        if replica.rank not in replica.plan.keepers:  # it has what others gave, and is ahead of them
            self._process.memory.drop_all_but(_MOST_GIVEN)
            return
        self._await_buddies()  # so that none is ever more than a snapshot behind
        begin_s = self._process.clock()
        offer = replica.held(is_checked=False)
        state = self._keep(offer, replica.written, step, begin_s, 3 if self._lag else 2)
        if state is not None:
            self._send(state, _nothing)
            self._sent_at = step if self._senders else None

    def keep(
        self, step: int, offer: Offer, begin_s: float, given: Callable[[], None], written: frozenset[str]
    ) -> Giving | None:
        """Take a snapshot of an asynchronous rank, and tell the coordinator; from the thread that took it.

        Args:
            step: steps done.
            offer: what the rank has.
            begin_s: since when taking it has held back gradients.
            given: called once all buddies have it.
            written: weights that no rank trains, and that the program itself changes.

        Returns:
            how it is given to buddies; None: nobody is given any.
        """
        state = self._keep(offer, written, step, begin_s, 3) if self._every else None
        senders = self._send(state, given) if state is not None else []
        return Giving(self._lag, partial(_hurry, senders)) if senders else None

    def _keep(
        self, offer: Offer, written: frozenset[str], step: int, begin_s: float, most_kept: int
    ) -> HeldState | None:
        process = self._process
        if offer.facts[UNKEPT]:
            self._every = 0
            return None
        while len(self._taken) >= most_kept:
            self._taken.popleft()
        reused = process.memory.drop_before(self._taken[0]) if self._taken else ()
        label = (self._transport.number, step)
        state = copied_state(label, process.member, offer, reused, written)
        process.memory.put(state)
        self._taken.append(step)
        told = self._told(state, process.clock() - begin_s)
        process.reporter.flush()  # a step that others go back to has been reported by all
        process.channel.send({"is": "snapshot", "step": step, **told})
        return state

    def rest(self) -> None:
        """Let buddies have what is on its way, and give them nothing more.

        Raises:
            TransportError: one is lost.
        """
        self._end(self._take_senders())

    def part(self) -> None:
        """As `rest`, and wait until others give this rank nothing more: then it may leave.

        Raises:
            TransportError: one is lost.
        """
        self.rest()
        for sender in self._parted:
            sender.wait()
        for receiver in self._receivers:
            receiver.wait()

    def close(self) -> None:
        """Give nothing more, whatever is on its way."""
        self._take_senders()
        for sender in self._parted:
            sender.close()

    def _take_senders(self) -> list[Sender]:
        """Give nobody what is taken from now on; return who was given it."""
        with self._lock:
            before, self._senders, self._sent_at = self._senders, [], None
            self._parted += before
        return before

    def _end(self, senders: list[Sender]) -> None:
        for sender in senders:
            sender.no_more()
        for sender in senders:
            sender.wait()

    def _await_buddies(self) -> None:
        self._sent_at = None
        for sender in self._senders:
            sender.wait()

    def _send(self, state: HeldState, given: Callable[[], None]) -> list[Sender]:
        """Begin to give buddies their parts of a snapshot; return who does."""
        with self._lock:
            one_has = Countdown(len(self._senders), given).one_done
            for sender in self._senders:
                sender.send(state, one_has)
            return list(self._senders)

    def _told(self, state: HeldState, seconds: float) -> Message:
        """Return what the coordinator is told; rows only where they are others than before."""
        assert state.told is not None, "it is this rank's own"
        rows, facts = state.told["rows"], state.told["facts"]
        with self._lock:
            changed = None if rows == self._rows else rows
            self._rows = rows
        if changed is not None:  # the coordinator says what there is to give now
            for sender in self._take_senders():
                sender.no_more()
        return {"rows": changed, "facts": facts, "seconds": seconds}


def _hurry(senders: list[Sender]) -> None:
    for sender in senders:
        sender.hurry()


def _nothing() -> None:
    """Who takes a snapshot between two steps waits for buddies itself."""
