"""Measures the way between two ranks, each direction for itself.

    measure  --- ping ---------------------------------->  echo        small messages: latency
    measure  <-- processor seconds so far --------------  echo
    measure  --- take --> === block, block, block .. ==>  echo        one way: rate there, on the echo's clock
    measure  <-- answers .. --- rate -------------------  echo
    measure  --- give -------------------------------->   echo        the other way: rate back, on our clock
    measure  <== block, block, block .. ================  echo
    measure  --- weigh ------------------------------->   echo        a block and back: processor seconds a byte
    measure  === block ===> echo === block ===> measure

No clocks are compared: a rate is taken where bytes arrive. `stream` says how much is sent.
"""

import queue
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from nfold.errors import ClusterError, NfoldError, TransportError
from nfold.transport.probing.stream import (
    FEW_BYTES,
    FEWEST_BLOCKS,
    MAX_BLOCK_BYTES,
    MIN_BLOCK_BYTES,
    PATIENCE,
    BlockWindow,
    RateMeter,
)
from nfold.transport.protocol import Transport

BUDGET_S = 0.35
"""For a pair. A link of less than about 5 Mbit/s takes longer, one of 1 Mbit/s 1.3 seconds."""
STREAM_SHARE = 0.3
"""Of the budget, for each direction."""
WEIGHING_SHARE = 0.14
MIN_WEIGHED_BYTES = 16 << 10
MOST_WEIGHINGS = 4
LEAST_WEIGHED_BYTES_PER_S = MIN_WEIGHED_BYTES
"""On a slower link it would take seconds, and nobody's processor is what its bytes wait for: they count as free."""
SMALLER = 4
"""Times as large the large block that is weighed is than the small one."""
PING_SHARE = 0.2
NUM_PINGS = 60
FEWEST_PINGS = 3
NUM_WARM_UPS = 2
ROUND_TRIPS = 25
"""A stream lasts at least as long, since what is on its way grows once per round trip."""
ANSWER_TIMEOUT_S = 30.0
"""A message that takes longer is given up: the peer is there but does not play."""
BLOCK_TIMEOUT_S = 10.0
"""A link that carries no block of a stream in that time is given up: what it has on its way would take minutes."""

LAST_ANSWERS, LAST_ANSWERS_OF_FEW_BYTES = 1.1, 1.5
"""Times as long as its streams a probe lasts about: what is on its way at the end is waited for. On a slow link that is
half of what has arrived."""

Clock = Callable[[], float]
Role = Literal["measure", "echo"]
_CONTROL = struct.Struct("<Bd")
"""What to do, and for how many seconds, or with how many bytes."""
_PING, _TAKE, _GIVE, _WEIGH, _STOP = range(5)
_NUMBER = struct.Struct("<d")
_MORE, _ENOUGH = b"\x01", b"\x00"


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbedPair:
    """How fast bytes move between two ranks, as the one that measures sees it."""

    latency_s: float
    """One way: half of a round trip."""
    there_bytes_per_s: float
    """Payload, from the rank that measures to its peer."""
    back_bytes_per_s: float
    cpu_s_per_byte: float
    """Processor seconds that moving one byte costs the two ends together."""
    cpu_s_per_message: float


def lasts_s(latency_s: float, bytes_per_s: float) -> float:
    """Return about how long it takes to probe a pair.

    Args:
        latency_s: of a message, one way.
        bytes_per_s: of the slower direction.
    """
    stream_s, answers = max(STREAM_SHARE * BUDGET_S, ROUND_TRIPS * 2 * latency_s), LAST_ANSWERS
    if stream_s * bytes_per_s < FEW_BYTES:
        least_s = FEWEST_BLOCKS * MIN_BLOCK_BYTES / bytes_per_s
        stream_s = max(min(PATIENCE * stream_s, FEW_BYTES / bytes_per_s), least_s)
        answers = LAST_ANSWERS_OF_FEW_BYTES
    num_bytes, rounds = _weighed(latency_s, bytes_per_s, BUDGET_S)
    weighing_s = rounds * _weighing_s(latency_s, bytes_per_s, num_bytes) + 6 * latency_s  # and three readings
    return PING_SHARE * BUDGET_S + answers * 2 * stream_s + weighing_s


@dataclass(slots=True)
class _Line:
    """Blocking messages over a transport: each with the next tag, the same at both ends."""

    transport: Transport
    peer: int
    base_tag: int
    clock: Clock
    patience_s: float | None = None
    """How long to wait for any message; None: `ANSWER_TIMEOUT_S`, and `BLOCK_TIMEOUT_S` for a block of a stream."""
    num_sent: int = 0
    num_posted: int = 0
    num_unsent: int = 0
    block: memoryview = field(default_factory=lambda: memoryview(bytearray(b"\0") * MAX_BLOCK_BYTES))
    """Of memory that has been touched: the first touch costs more than moving it."""
    sent: "queue.SimpleQueue[TransportError | float]" = field(default_factory=queue.SimpleQueue)
    arrived: "queue.SimpleQueue[TransportError | float]" = field(default_factory=queue.SimpleQueue)

    def send(self, data: bytes | memoryview) -> None:
        """Send the next message."""
        self.num_unsent += 1
        tag = self.base_tag + self.num_sent
        self.transport.send(self.peer, tag, memoryview(data), lambda: self.sent.put(self.clock()))
        self.num_sent += 1

    def post(self, into: bytearray | memoryview) -> None:
        """Ask for the next message."""
        tag = self.base_tag + self.num_posted
        self.transport.receive(self.peer, tag, memoryview(into), lambda: self.arrived.put(self.clock()))
        self.num_posted += 1

    def wait(self) -> float:
        """Wait for the oldest message that was asked for, and return when it came."""
        return self._next(self.arrived, self._answer_s, self._no_answer)

    def wait_for_block(self, num_bytes: int) -> float:
        """Do the same in a stream, which a link may be too slow for."""
        return self._next(self.arrived, self._block_s, lambda: self._too_slow(num_bytes))

    def read(self, num_bytes: int) -> bytes:
        """Ask for a message and wait for it."""
        into = bytearray(num_bytes)
        self.post(into)
        self.wait()
        return bytes(into)

    def flush(self) -> None:
        """Wait until all that was sent has gone."""
        while self.num_unsent:
            self._next(self.sent, self._answer_s, self._no_answer)
            self.num_unsent -= 1

    def hear_failure(self, error: TransportError) -> None:
        """Wake who waits if our peer is lost."""
        if getattr(error, "peer", self.peer) == self.peer:
            self.sent.put(error)
            self.arrived.put(error)

    @property
    def _answer_s(self) -> float:
        return ANSWER_TIMEOUT_S if self.patience_s is None else self.patience_s

    @property
    def _block_s(self) -> float:
        return BLOCK_TIMEOUT_S if self.patience_s is None else self.patience_s

    def _next(
        self, events: "queue.SimpleQueue[TransportError | float]", limit_s: float, late: Callable[[], NfoldError]
    ) -> float:
        try:
            event = events.get(timeout=limit_s)
        except queue.Empty:
            raise late() from None
        if isinstance(event, TransportError):
            raise event
        return event

    def _no_answer(self) -> NfoldError:
        return TransportError(
            f"rank {self.transport.rank} waited {self._answer_s:g} s for rank {self.peer} to answer a probe. "
            f"Check that the other rank probes this pair too."
        )

    def _too_slow(self, num_bytes: int) -> NfoldError:
        kbit = num_bytes * 8 / self._block_s / 1e3
        return ClusterError(
            f"{num_bytes} bytes from rank {self.peer} took longer than {self._block_s:g} s: the link from there "
            f"carries less than {kbit:.1f} kbit/s, too little to train over. "
            f"Leave that node out, or give it a faster link."
        )


def probe_pair(
    transport: Transport,
    peer: int,
    role: Role,
    *,
    base_tag: int,
    budget_s: float = BUDGET_S,
    patience_s: float | None = None,
    clock: Clock = time.perf_counter,
) -> ProbedPair | None:
    """Measure the way to a peer, which calls this at the same time with the other role.

    Sets the transport's failure callback. Processor time is that of the two whole processes, so keep them quiet.

    Args:
        transport: connected, and otherwise idle.
        peer: the other rank.
        role: `measure` returns what was found; `echo` helps and returns None.
        base_tag: this and the next few thousand tags of the pair are used, in both directions.
        budget_s: about how long it may take; the echo goes by that of the rank that measures.
        patience_s: how long to wait for a message before it is given up; None: as long as suits a link that nobody
            has trained over yet.
        clock: seconds from any origin.

    Raises:
        TransportError: the peer is lost or does not answer.
        ClusterError: a link is too slow to be measured.
    """
    line = _Line(transport, peer, base_tag, clock, patience_s)
    transport.on_failure(line.hear_failure)
    if role == "echo":
        _echo(line)
        return None
    return _measure(line, budget_s)


def _echo(line: _Line) -> None:
    what, seconds = _CONTROL.unpack(line.read(_CONTROL.size))
    while what != _STOP:
        line.send(_NUMBER.pack(time.process_time()))
        if what == _TAKE:
            line.send(_NUMBER.pack(_take(line, seconds).bytes_per_s()))
        elif what == _GIVE:
            _give(line)
        elif what == _WEIGH:
            _return(line, int(seconds))
        line.flush()
        what, seconds = _CONTROL.unpack(line.read(_CONTROL.size))


def _measure(line: _Line, budget_s: float) -> ProbedPair:
    for _ in range(NUM_WARM_UPS):
        _ask(line, _PING)
    cpu_before_s = _cpu_s(line)
    pings = _pings(line, PING_SHARE * budget_s)
    cpu_between_s = _cpu_s(line)
    stream_s = max(STREAM_SHARE * budget_s, ROUND_TRIPS * median(pings))
    _ask(line, _TAKE, stream_s)
    _give(line)
    (there_bytes_per_s,) = _NUMBER.unpack(line.read(_NUMBER.size))
    _ask(line, _GIVE)
    taken = _take(line, stream_s)
    cpu_s_per_message = max(0.0, (cpu_between_s - cpu_before_s) / (2 * (len(pings) + 1)))
    latency_s, back_bytes_per_s = median(pings) / 2, taken.bytes_per_s()
    weighed = _weighed(latency_s, min(there_bytes_per_s, back_bytes_per_s), budget_s)
    cpu_s_per_byte = _weigh(line, *weighed)
    line.send(_CONTROL.pack(_STOP, 0.0))
    line.flush()
    return ProbedPair(
        latency_s=latency_s,
        there_bytes_per_s=there_bytes_per_s,
        back_bytes_per_s=back_bytes_per_s,
        cpu_s_per_byte=cpu_s_per_byte,
        cpu_s_per_message=cpu_s_per_message,
    )


def _weighed(latency_s: float, bytes_per_s: float, budget_s: float) -> tuple[int, int]:
    """Return how many bytes are weighed at most and how often."""
    num_bytes = int(WEIGHING_SHARE * budget_s * bytes_per_s / (2 * (1 + 1 / SMALLER)))
    num_bytes = min(MAX_BLOCK_BYTES, max(MIN_WEIGHED_BYTES, num_bytes))
    rounds = int(WEIGHING_SHARE * budget_s / _weighing_s(latency_s, bytes_per_s, num_bytes))
    return num_bytes, max(1, min(MOST_WEIGHINGS, rounds)) if bytes_per_s >= LEAST_WEIGHED_BYTES_PER_S else 0


def _weighing_s(latency_s: float, bytes_per_s: float, num_bytes: int) -> float:
    """Return about how long it takes once: a question and a block, there and back, for the small and the large one."""
    return 2 * ((1 + 1 / SMALLER) * num_bytes / bytes_per_s + 4 * latency_s)


def _weigh(line: _Line, num_bytes: int, rounds: int) -> float:
    """Return the processor seconds of both ends for a byte: what a large block costs more than a smaller one.

    Both come after a wait, when nothing of a message's code is in the caches; on a slow link that costs many times as
    much as moving the few bytes that it carries in the meantime.
    """
    if not rounds:
        return 0.0
    fewer_bytes = num_bytes // SMALLER
    begin_s = _cpu_s(line)
    _exchange(line, fewer_bytes, rounds)
    between_s = _cpu_s(line)
    _exchange(line, num_bytes, rounds)
    more_s = (_cpu_s(line) - between_s) - (between_s - begin_s)
    return max(0.0, more_s) / (2 * rounds * (num_bytes - fewer_bytes))


def _exchange(line: _Line, num_bytes: int, rounds: int) -> None:
    """Send a block there and back some times."""
    for _ in range(rounds):
        _ask(line, _WEIGH, num_bytes)
        line.send(line.block[:num_bytes])
        line.post(line.block[:num_bytes])
        line.wait()
        line.flush()


def _return(line: _Line, num_bytes: int) -> None:
    line.post(line.block[:num_bytes])
    line.wait()
    line.send(line.block[:num_bytes])


def _pings(line: _Line, budget_s: float) -> list[float]:
    """Return the seconds of round trips, as many as the budget allows."""
    seconds: list[float] = []
    while len(seconds) < FEWEST_PINGS or (len(seconds) < NUM_PINGS and sum(seconds) < budget_s):
        begin_s = line.clock()
        _ask(line, _PING)
        seconds.append(line.clock() - begin_s)
    return seconds


def _ask(line: _Line, what: int, seconds: float = 0.0) -> float:
    """Ask the other side for something, and return its processor seconds so far."""
    line.send(_CONTROL.pack(what, seconds))
    answer = _NUMBER.unpack(line.read(_NUMBER.size))[0]
    line.flush()
    return float(answer)


def _cpu_s(line: _Line) -> float:
    """Return the processor seconds of both ends so far."""
    return _ask(line, _PING) + time.process_time()


def _give(line: _Line) -> None:
    """Send blocks until the other side has enough."""
    flow, answer = BlockWindow(), _MORE
    while answer == _MORE:
        for size in flow.permit():
            line.send(line.block[:size])
        answer = line.read(1)
        flow.arrive()
    line.flush()


def _take(line: _Line, budget_s: float) -> RateMeter:
    """Take blocks until there are enough, then those that are still on their way: they tell as much as the others."""
    flow, meter = BlockWindow(), RateMeter(budget_s)
    answer = _MORE
    while answer == _MORE or flow.num_on_way:
        if answer == _MORE:
            for size in flow.permit():
                line.post(line.block[:size])
        at_s = line.wait_for_block(flow.sizes[flow.num_arrived])
        flow.arrive()
        meter.arrived(at_s, flow.arrived_bytes)
        if answer == _MORE:
            answer = _ENOUGH if meter.is_enough() else _MORE
            line.send(answer)
    line.flush()
    return meter
