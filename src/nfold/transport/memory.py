"""Moves bytes between ranks that are threads of one process: for tests and for `--debug`.

Each rank has one delivery thread that runs a queue of small jobs and calls every `done`, so nothing is ever called
inside `send` or `receive`.
"""

import queue
import threading
from collections.abc import Callable

from nfold.errors import InternalError, TransportError
from nfold.transport.base import Done, OnFailure
from nfold.transport.framing import flat
from nfold.transport.inbox import Inbox
from nfold.transport.losses import Losses

JOIN_S = 1.0


class MemoryNetwork:
    """Connects the ranks of one process."""

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self._transports = tuple(MemoryTransport(rank, self) for rank in range(world_size))

    def transport(self, rank: int) -> "MemoryTransport":
        """Return the transport of one rank."""
        return self._transports[rank]

    def fail(self, rank: int) -> None:
        """Cut a rank off: it and all others see each other as lost."""
        for other in self._transports:
            if other.rank != rank:
                other.hear_loss(rank, "it was cut off")
                self._transports[rank].hear_loss(other.rank, "it was cut off")

    def close(self) -> None:
        """Close all ranks."""
        for transport in self._transports:
            transport.close()


class MemoryTransport:
    """One rank's side of a `MemoryNetwork`."""

    def __init__(self, rank: int, network: MemoryNetwork) -> None:
        self.rank = rank
        self.world_size = network.world_size
        self.sent_bytes = 0
        self.received_bytes = 0
        self._network = network
        self._losses = Losses(rank)
        self._inboxes = {peer: Inbox() for peer in range(network.world_size) if peer != rank}
        self._gone: set[int] = set()
        self._lost: set[int] = set()
        self._closed = False
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"nfold-memory-{rank}", daemon=True)
        self._thread.start()

    def send(self, peer: int, tag: int, data: memoryview, done: Done) -> None:
        """Copy bytes to a peer."""
        self._check(peer, tag)
        copy = bytes(flat(data))
        with self._lock:
            self.sent_bytes += len(copy)
        self._jobs.put(lambda: self._deliver(peer, tag, copy, done))

    def receive(self, peer: int, tag: int, into: memoryview, done: Done) -> None:
        """Receive exactly as many bytes as `into` holds."""
        self._check(peer, tag)
        self._jobs.put(lambda: self._guard(peer, lambda: self._inboxes[peer].post(tag, flat(into), done)))

    def on_failure(self, callback: OnFailure) -> None:
        """Set who is told that a peer is lost; told at once if one already is."""
        self._losses.tell(callback)

    def limit_unsent(self, peer: int, num_bytes: int | None) -> None:
        """Take no notice: nothing waits outside of our hands."""

    def silent_s(self) -> dict[int, float]:
        """Return 0 for all: memory always carries."""
        return dict.fromkeys(self._inboxes, 0.0)

    def close(self) -> None:
        """Say goodbye and end the delivery thread."""
        self._leave(lambda other: other.hear_goodbye(self.rank))

    def abort(self) -> None:
        """Leave at once: all peers see this rank as lost."""
        self._leave(lambda other: other.hear_loss(self.rank, "it gave up"))

    def hear_message(self, peer: int, tag: int, payload: bytes) -> None:
        """Take a message from a peer's thread."""
        self._jobs.put(lambda: self._guard(peer, lambda: self._arrive(peer, tag, payload)))

    def hear_goodbye(self, peer: int) -> None:
        """Take note, behind all its messages, that a peer has left."""
        self._jobs.put(lambda: self._depart(peer))

    def hear_loss(self, peer: int, why: str) -> None:
        """Take note that a peer is lost."""
        self._jobs.put(lambda: self._lose(peer, why))

    def _leave(self, say: Callable[["MemoryTransport"], None]) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._losses.silence()
        self._jobs.put(lambda: self._tell_all(say))
        self._jobs.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join(JOIN_S)

    def _tell_all(self, say: Callable[["MemoryTransport"], None]) -> None:
        for peer in self._inboxes:
            say(self._network.transport(peer))

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def _deliver(self, peer: int, tag: int, payload: bytes, done: Done) -> None:
        if peer in self._gone:
            self._lose(peer, f"it said goodbye before {len(payload)} bytes with tag {tag} could be sent to it")
        if peer not in self._lost:
            self._network.transport(peer).hear_message(self.rank, tag, payload)
            self._guard(peer, done)

    def _arrive(self, peer: int, tag: int, payload: bytes) -> None:
        arrival = self._inboxes[peer].begin(tag, len(payload))
        arrival.buffer[:] = payload
        self.received_bytes += len(payload)
        self._inboxes[peer].finish(arrival)

    def _depart(self, peer: int) -> None:
        self._gone.add(peer)
        if num_waiting := self._inboxes[peer].depart():
            self._lose(peer, f"it said goodbye while {num_waiting} receives waited for it")

    def _guard(self, peer: int, job: Callable[[], None]) -> None:
        """Run a job for a peer that is not lost; if it fails, the peer is."""
        if peer in self._lost:
            return
        try:
            job()
        except TransportError as error:
            self._lose(peer, str(error))
        except Exception as error:  # a callback that raised, or misuse: never a silent end of this thread
            self._lose(peer, f"{type(error).__name__}: {error}")

    def _lose(self, peer: int, why: str) -> None:
        if peer not in self._lost:
            self._lost.add(peer)
            self._losses.report(peer, why)

    def _check(self, peer: int, tag: int) -> None:
        if peer not in self._inboxes:
            raise InternalError(f"rank {self.rank} of {self.world_size} has no connection to rank {peer}")
        if self._closed:
            raise TransportError(f"tag {tag} to or from rank {peer} is refused: this transport is closed")
