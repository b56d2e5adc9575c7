"""Moves bytes between members that are threads of one process: for tests and for `--debug`.

Each member has one delivery thread that runs a queue of small jobs and calls every `done`, so nothing is ever called
inside `send` or `receive`.
"""

import queue
import threading
from collections.abc import Callable

from nfold.errors import TransportError
from nfold.transport.generations.connections import Connections
from nfold.transport.generations.generation_transport import GenerationTransport
from nfold.transport.links.byte_counts import ByteCounts
from nfold.transport.links.inbox import Inbox
from nfold.transport.protocol import Done
from nfold.transport.tags import MOST_GENERATIONS, without_generation

JOIN_S = 1.0
Job = Callable[[], None]


class MemoryNetwork:
    """Connects members of one process, all with all."""

    def __init__(self, num_members: int) -> None:
        self._members: dict[int, MemoryConnections] = {}
        self._first: list[GenerationTransport] = []
        self._lock = threading.Lock()
        for member in range(num_members):
            self.join(member)

    @property
    def num_members(self) -> int:
        """How many are connected."""
        return len(self._members)

    def connections(self, member: int) -> "MemoryConnections":
        """Return the connections of one member."""
        return self._members[member]

    def join(self, member: int) -> "MemoryConnections":
        """Return the connections of one more member, to all and from all."""
        joiner = MemoryConnections(member)
        with self._lock:
            for other in self._members.values():
                other.add(joiner)
                joiner.add(other)
            self._members[member] = joiner
        return joiner

    def transport(self, member: int) -> GenerationTransport:
        """Return a member's transport of the first generation, in which all have the rank of their number."""
        with self._lock:
            if not self._first:
                self._first = [each.begin(0, range(len(self._members))) for each in self._members.values()]
        return self._first[member]

    def fail(self, member: int) -> None:
        """Cut a member off: it and all others see each other as lost."""
        cut_off = self._members[member]
        for other in list(self._members.values()):
            if other is not cut_off:
                other.hear_loss(member, "it was cut off")
                cut_off.hear_loss(other.member, "it was cut off")

    def close(self) -> None:
        """Close all members."""
        for each in self._members.values():
            each.close()


class MemoryConnections(Connections["MemoryWay"]):
    """One member's side of a `MemoryNetwork`."""

    def __init__(self, member: int) -> None:
        super().__init__(member)
        self._is_closed = False
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"nfold-memory-{member}", daemon=True)
        self._thread.start()

    def add(self, peer: "MemoryConnections") -> None:
        """Let a way lead to another member of this process."""
        self._add(peer.member, MemoryWay(self, peer, self._lose))

    def leave(self, peer: int) -> None:
        """Close the way to a member. No generation under way may have a rank there."""
        way = self._drop(peer)
        way.forget_before(MOST_GENERATIONS)
        self._jobs.put(way.end)

    def close(self) -> None:
        """Say goodbye and end the delivery thread."""
        self._end(lambda other: other.hear_goodbye(self.member))

    def abort(self) -> None:
        """Leave at once: all peers see this member as lost."""
        self._end(lambda other: other.hear_loss(self.member, "it gave up"))

    @property
    def is_closed(self) -> bool:
        """Whether this member has left."""
        return self._is_closed

    def soon(self, job: Job) -> None:
        """Let the delivery thread do something."""
        self._jobs.put(job)

    def hear_message(self, peer: int, tag: int, payload: bytes) -> None:
        """Take a message from a peer's thread."""
        self._for_way(peer, lambda way: way.arrive(tag, payload))

    def hear_goodbye(self, peer: int) -> None:
        """Take note, behind all its messages, that a peer has left."""
        self._for_way(peer, lambda way: way.depart())

    def hear_loss(self, peer: int, why: str) -> None:
        """Take note that a peer is lost."""
        self._for_way(peer, lambda way: way.lose(why))

    def _for_way(self, peer: int, act: "Callable[[MemoryWay], None]") -> None:
        way = self._ways.get(peer)
        if way is not None:
            self._jobs.put(lambda: act(way))

    def _end(self, say: "Callable[[MemoryConnections], None]") -> None:
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._silence()
        for way in list(self._ways.values()):
            self._jobs.put(lambda way=way: say(way.there))  # type: ignore[misc]  # each its own
        self._jobs.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join(JOIN_S)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


class MemoryWay(ByteCounts):
    """The `Way` to another member of this process. All but what a `Way` promises happens in the delivery thread."""

    def __init__(self, here: MemoryConnections, there: MemoryConnections, on_lost: Callable[[int, str], None]) -> None:
        self.there = there
        self._here, self._on_lost = here, on_lost
        self._inbox = Inbox()
        self._lock, self._taking = threading.Lock(), threading.Lock()
        super().__init__()
        self._is_gone = self._is_lost = False

    def send(self, tag: int, data: memoryview, done: Done) -> None:
        """Copy bytes to the peer.

        Raises:
            TransportError: this member has left.
        """
        self._check(tag)
        copy = bytes(data)
        with self._lock:
            self._count_sent(tag, len(copy))
        self._here.soon(lambda: self._deliver(tag, copy, done))

    def receive(self, tag: int, into: memoryview, done: Done) -> None:
        """Receive exactly as many bytes as `into` holds.

        Raises:
            TransportError: this member has left.
        """
        self._check(tag)
        self._here.soon(lambda: self._guard(lambda: self._inbox.post(tag, into, done)))

    def limit_unsent(self, num_bytes: int | None) -> None:
        """Take no notice: no kernel is in between."""

    def silent_s(self) -> float:
        """Return 0: memory always carries."""
        return 0.0

    def forget_before(self, generation: int) -> None:
        """Throw away all messages of earlier generations; none of them arrives once this returns."""
        self._inbox.forget_before(generation)
        with self._taking:  # whoever brought one has ended
            pass

    # In the delivery thread

    def arrive(self, tag: int, payload: bytes) -> None:
        """Take a message in; it is handed over once a receive asks for it."""
        self._guard(lambda: self._take(tag, payload))

    def depart(self) -> None:
        """Take note that the peer has left."""
        self._is_gone = True
        if num_waiting := self._inbox.depart():
            self.lose(f"it said goodbye while {num_waiting} receives waited for it")

    def lose(self, why: str) -> None:
        """Take note that the peer is lost; only the first time counts."""
        if not self._is_lost:
            self._is_lost = True
            self._on_lost(self.there.member, why)

    def end(self) -> None:
        """Carry nothing more, and tell nobody."""
        self._is_lost = True

    def _take(self, tag: int, payload: bytes) -> None:
        with self._taking:
            arrival = self._inbox.begin(tag, len(payload))
            arrival.buffer[:] = payload
        self._count_received(tag, len(payload))
        self._inbox.finish(arrival)

    def _deliver(self, tag: int, payload: bytes, done: Done) -> None:
        if self._is_gone:
            named = f"{len(payload)} bytes with tag {without_generation(tag)}"
            self.lose(f"it said goodbye before {named} could be sent to it")
        if not self._is_lost:
            self.there.hear_message(self._here.member, tag, payload)
            self._guard(done)

    def _guard(self, job: Job) -> None:
        """Do something for a peer that is not lost; if that fails, the peer is."""
        if self._is_lost:
            return
        try:
            job()
        except TransportError as error:
            self.lose(str(error))
        except Exception as error:  # a callback that raised, or misuse: never a silent end of this thread
            self.lose(f"{type(error).__name__}: {error}")

    def _check(self, tag: int) -> None:
        if self._here.is_closed:
            raise TransportError(f"tag {without_generation(tag)} cannot be sent or received: the connection is closed")
