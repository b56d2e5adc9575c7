"""Keeps snapshots of what one rank holds while it trains, and gives its buddy what nobody else has.

A snapshot is of the same step on all ranks, and a buddy has it before its sender takes the next one. The last two are
kept: when some ranks have taken one and others not yet, the one before is whole. Where buddies may be behind, the last
three are: when some have taken one, others may still be giving the one before.
"""

from collections import deque
from typing import Any

from nfold.runtime.checkpoint.joined_facts import UNKEPT
from nfold.runtime.control.channel import Message
from nfold.runtime.rank.process import Process
from nfold.runtime.snapshots.shipments import Receiver, Sender, Shipment
from nfold.runtime.snapshots.state_memory import HeldState, adopted_state, copied_state
from nfold.runtime.step.replica import Replica
from nfold.transport.generations.generation_transport import GenerationTransport


class SnapshotsOfRank:
    """The snapshots of one rank in one generation."""

    def __init__(self, process: Process, transport: GenerationTransport) -> None:
        self._process, self._transport = process, transport
        self._every, self._lag = 0, 0
        """Steps between snapshots, and until a buddy must have one; 0: none are taken, or it waits for the buddy."""
        self._senders: list[Sender] = []
        self._sent_at: int | None = None
        """Steps of the last snapshot that was sent and not waited for."""
        self._taken: deque[int] = deque()
        """Steps of the snapshots that are kept."""
        self._rows: list[Any] | None = None

    def begin(
        self, every: int, replica: Replica, step: int, held: HeldState | None, *, commits: bool
    ) -> Message | None:
        """Keep what the generation begins with; return what the coordinator is told of it, None if nothing is kept.

        Args:
            every: steps between snapshots; 0: none are kept.
            replica: just built.
            step: steps done.
            held: what this process holds of the state that the generation began with; None: that has a file.
            commits: whether each rank has the state of all, before or after each step: then snapshots of generations
                before are kept until there are new ones, and nobody who waits for the first step makes one.
        """
        self._every = every
        if commits:
            self._taken = deque(each for each in self._process.memory.copied_steps() if each <= step)
            return None
        self._taken = deque([step])
        if not every or held is None:
            return None
        offer, label = replica.held(is_checked=False), (self._transport.number, step)
        state = adopted_state(label, self._process.member, offer, held)
        self._process.memory.put(state)
        return self._told(state, 0.0)

    @property
    def are_kept(self) -> bool:
        """Whether there are any."""
        return self._every > 0

    def protect(self, order: Message) -> None:
        """Take snapshots in other steps from now on, and give buddies what the order says."""
        self.rest()
        self._every, self._lag = order["every"], order["lag"]
        for shipment in map(Shipment.from_row, order["shipments"]):
            if shipment.target == self._transport.rank:
                Receiver(self._transport, shipment, self._process.memory)
            if shipment.source == self._transport.rank and self._has(shipment):
                self._senders.append(Sender(self._transport, shipment, order["bytes_per_s"]))

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
        self._await_buddies()  # so that none is ever more than a snapshot behind
        process, begin_s = self._process, self._process.clock()
        offer = replica.held(is_checked=False)
        if offer.facts[UNKEPT]:
            self._every = 0
            return
        while len(self._taken) >= (3 if self._lag else 2):
            self._taken.popleft()
        reused = process.memory.drop_before(self._taken[0]) if self._taken else ()
        label = (self._transport.number, step)
        state = copied_state(label, process.member, offer, reused, replica.written)
        process.memory.put(state)
        self._taken.append(step)
        told = self._told(state, process.clock() - begin_s)
        process.reporter.flush()  # a step that others go back to has been reported by all
        process.channel.send({"is": "snapshot", "step": step, **told})
        self._send(state)

    def rest(self) -> None:
        """Let buddies have what is on its way, and give them nothing more."""
        senders, self._senders, self._sent_at = self._senders, [], None
        for sender in senders:
            sender.end()

    def close(self) -> None:
        """Give nothing more, whatever is on its way."""
        for sender in self._senders:
            sender.close()

    def _await_buddies(self) -> None:
        self._sent_at = None
        for sender in self._senders:
            sender.wait()

    def _send(self, state: HeldState) -> None:
        for sender in self._senders:
            sender.send(state)
        self._sent_at = state.label[1] if self._senders else None

    def _told(self, state: HeldState, seconds: float) -> Message:
        """Return what the coordinator is told; rows only where they are others than before."""
        assert state.told is not None, "it is this rank's own"
        rows, facts = state.told["rows"], state.told["facts"]
        changed = None if rows == self._rows else rows
        if changed is not None:
            self.rest()  # the coordinator says what there is to give now
        self._rows = rows
        return {"rows": changed, "facts": facts, "seconds": seconds}
