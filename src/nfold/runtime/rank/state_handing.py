"""What one rank does where its generation hands the training's state to the next one: holds, hands, gives and reads."""

from typing import Any

from nfold.errors import InternalError, TransportError
from nfold.runtime.asynchronous.asynchronous_replica import AsynchronousReplica
from nfold.runtime.checkpoint.checkpoint_format import Checkpoint
from nfold.runtime.checkpoint.joined_facts import UNKEPT
from nfold.runtime.control.channel import Message
from nfold.runtime.guards.own_weights import OwnWeights
from nfold.runtime.rank.process import Process
from nfold.runtime.rank.state_delivery import send_state
from nfold.runtime.snapshots.handing import Handing, hand
from nfold.runtime.snapshots.state_giving import StateGiver
from nfold.runtime.snapshots.state_memory import HeldState, Label, live_state
from nfold.runtime.snapshots.state_reading import Source, StateReading, own_sources
from nfold.runtime.step.built_model import BuiltModel, Part
from nfold.runtime.step.replica import Replica
from nfold.transport.generations.generation_transport import GenerationTransport


class StateHanding:
    """The state that one rank holds, in one generation."""

    def __init__(self, process: Process, transport: GenerationTransport) -> None:
        self._process, self._transport = process, transport
        self._reading: StateReading | None = None
        self._file_bytes = 0
        """Read of the coordinator's file."""
        self._begun: HeldState | None = None
        """What this process held of the state that its generation began with; None: that has a file."""

    def hold(self, replica: Replica | AsynchronousReplica, own_weights: OwnWeights | None, step: int) -> Message:
        """Hold what the replica has after so many steps, until it trains again; return what the coordinator is told."""
        label = (self._transport.number, step)
        state = live_state(label, self._process.member, replica.held(is_checked=True))
        self._process.memory.put(state)
        self.keep_model(replica, own_weights, label)
        return {"is": "holdings", **(state.told or {})}

    def keep_model(self, replica: Any, own_weights: OwnWeights | None, state: Label | None) -> None:
        """Keep a model for a generation in which this process plays the same part, where ranks differ in nothing else.

        Args:
            replica: that has built it.
            own_weights: that the loss finds by itself: those of the model that was built last.
            state: that the model has; None: it was never trained.
        """
        finds_any = own_weights is not None and own_weights.are_any
        if isinstance(replica, Replica) and replica.is_changed_by_updates_alone and not finds_any:
            self._process.kept_model.keep(replica.built, state)

    def keep_built(self, replica: Any, own_weights: OwnWeights | None, state: Label | None) -> None:
        """As `keep_model`, of a newcomer; where it plays another part now than it had as a shadow, hold its state."""
        self.keep_model(replica, own_weights, state)
        if state is not None and isinstance(replica, Replica) and replica.built.part is None:
            offer = replica.held(is_checked=False)
            if not offer.facts[UNKEPT]:
                self._process.followed = live_state(state, self._process.member, offer)

    def kept_model(self, part: Part | None, checkpoint: Checkpoint | None) -> BuiltModel | None:
        """Return the model that this generation goes on with, as `KeptModel.take` does; after `checkpoint`."""
        return self._process.kept_model.take(part, self._begun.label if self._begun is not None else None, checkpoint)

    def take_begun(self) -> HeldState | None:
        """Return what this process held of the state that its generation began with, and let go of it; None: a file."""
        begun, self._begun = self._begun, None
        return begun

    def hold_whole(self, replica: Replica, own_weights: OwnWeights | None, step: int) -> None:
        """Hold what the replica has, which is the state of all: the generation has ended within the step that follows.

        Nothing is held where that step may have changed the model before it was committed.

        Args:
            replica: whose model is kept, too.
            own_weights: as for `keep_model`.
            step: steps done.
        """
        if not replica.is_changed_by_updates_alone:
            return
        label = (self._transport.number, step)
        if (held := self._process.memory.get(label)) is not None and held.is_live:
            assert held.told is not None, "it is this rank's own"
            held.is_whole = not held.told["facts"][UNKEPT]  # nobody has trained since
            return
        offer = replica.held(is_checked=False)
        if not offer.facts[UNKEPT]:
            self._process.memory.put(live_state(label, self._process.member, offer, is_whole=True))
            self.keep_model(replica, own_weights, label)

    def hand(self, order: Message, _: bytes) -> None:
        """Give to those who stay, or take from those who leave."""
        label = (order["generation"], order["step"])
        arrived = hand(self._transport, self._process.memory.get(label), list(map(Handing.from_row, order["handings"])))
        self._process.memory.add(label, arrived)
        self._process.channel.send({"is": "handed"})

    def keep(self, order: Message, header: bytes) -> None:
        """Send the coordinator the file of a state that ranks hold, or give rank 0 what it lacks of that.

        Args:
            order: says who reads what from whom.
            header: of the file.
        """
        told = order["state"]
        state = self._process.memory.get((told["generation"], told["step"]))
        self._give(state, told)
        if has_file := self._transport.rank == 0:
            reading = StateReading(self._transport, state, list(map(Source.from_row, told["sources"])))
            send_state(self._process.channel, "checkpoint", header, reading.read)
            reading.end()
        self._process.channel.send({"is": "kept", "has_file": has_file})

    def checkpoint(self, order: Message, header: bytes) -> Checkpoint | None:
        """Return the state to begin with, and begin to give others what they lack of it; None: a new model.

        Args:
            order: to build.
            header: of the state; empty: there is none.
        """
        followed, self._process.followed = self._process.followed, None
        if order["state"] is None:
            self._process.memory.clear()
            return Checkpoint(header, self._read_file) if header else None
        told = order["state"]
        label = (told["generation"], told["step"])
        state = self._process.memory.get(label)
        self._give(state, told)
        sources = list(map(Source.from_row, told["sources"]))
        own = []
        if followed is not None and followed.label == label:
            own = own_sources(followed, header, self._transport.rank)
        if own:
            state = followed
        self._begun = state or HeldState(label)
        self._reading = StateReading(self._transport, state, sources, own)
        return Checkpoint(header, self._reading.read)

    def _give(self, state: HeldState | None, told: Message) -> None:
        """Begin to give others what they lack of a state."""
        if told["readers"]:
            if state is None:
                raise InternalError(f"others shall read the state after step {told['step']}, which is not held here")
            StateGiver(self._transport, state, told["readers"])

    def _read_file(self, start: int, stop: int) -> bytes:
        """Ask for bytes of the checkpoint; until they are here no other order comes, but the end of the generation."""
        self._process.channel.send({"is": "wants", "start": start, "stop": stop})
        order, data = self._process.orders.get()
        if order["do"] == "abandon":
            self._process.orders.give_back(order, data)
            raise TransportError("the generation was ended while its state came")
        if order["do"] != "take":
            raise InternalError(f"the coordinator ordered {order['do']!r} instead of sending the checkpoint")
        self._file_bytes += len(data)
        return data

    def end_reading(self) -> int:
        """Ask nobody for anything more: this rank has built; return the bytes of the state that it was given."""
        followed_bytes, self._process.followed_bytes = self._process.followed_bytes, 0
        if self._reading is None:
            return self._file_bytes
        reading, self._reading = self._reading, None
        reading.end()
        return reading.received_bytes + followed_bytes
