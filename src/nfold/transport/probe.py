"""Measures the way between two ranks with a few messages and says what they took.

    measure  --- length of what follows (0: nothing) ---->  echo        small ping-pong: latency
    measure  <-- processor seconds so far ----------------  echo
    measure  === payload ================================>  echo        only if there is a length: bandwidth
    measure  <================================== payload ===  echo

The lengths adapt to the link, so that a probe ends within about a second on a slow one.
"""

import queue
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from nfold.errors import TransportError
from nfold.transport.base import Transport

NUM_PINGS = 60
FEWEST_PINGS = 5
"""On a link so slow that more would not fit into the budget."""
NUM_WARM_UPS = 4
PINGS_BUDGET_S = 0.3
NUM_TRIES = 5
TRIES_BUDGET_S = 0.1
NUM_BURSTS = 7
FEWEST_BURSTS = 2
BURSTS_BUDGET_S = 0.4
MIN_BURST_BYTES = 16 << 10
MAX_BURST_BYTES = 4 << 20
ANSWER_TIMEOUT_S = 30.0
"""A message that takes longer is given up: the peer is there but does not play."""

Clock = Callable[[], float]
Role = Literal["measure", "echo"]
_CONTROL = struct.Struct("<q")
_REPORT = struct.Struct("<d")
_STOP = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbedPair:
    """The way between two ranks, as one of them measured it."""

    latency_s: float
    """One way."""
    there_bytes_per_s: float
    """From the rank that measures."""
    back_bytes_per_s: float
    cpu_s_per_byte: float
    """Processor seconds that moving one byte costs the two ends together."""
    cpu_s_per_message: float


@dataclass(slots=True)
class _Line:
    """Blocking messages over a transport: each with the next tag, the same at both ends."""

    transport: Transport
    peer: int
    base_tag: int
    num_sent: int = 0
    num_received: int = 0
    events: "queue.SimpleQueue[TransportError | None]" = field(default_factory=queue.SimpleQueue)

    def exchange(self, data: bytes | bytearray, into: bytearray) -> None:
        """Send one message and wait for one."""
        self.post(into)
        self.send(data)
        self.wait(2)

    def send(self, data: bytes | bytearray) -> None:
        """Send the next message."""
        self.transport.send(self.peer, self.base_tag + self.num_sent, memoryview(data), self._done)
        self.num_sent += 1

    def post(self, into: bytearray) -> None:
        """Ask for the next message."""
        self.transport.receive(self.peer, self.base_tag + self.num_received, memoryview(into), self._done)
        self.num_received += 1

    def wait(self, num_events: int) -> None:
        """Wait until so many sends and receives are done."""
        for _ in range(num_events):
            try:
                event = self.events.get(timeout=ANSWER_TIMEOUT_S)
            except queue.Empty:
                raise self._too_slow() from None
            if event is not None:
                raise event

    def hear_failure(self, error: TransportError) -> None:
        """Wake who waits if our peer is lost."""
        if getattr(error, "peer", self.peer) == self.peer:
            self.events.put(error)

    def _done(self) -> None:
        self.events.put(None)

    def _too_slow(self) -> TransportError:
        return TransportError(
            f"rank {self.transport.rank} waited {ANSWER_TIMEOUT_S:g} s for rank {self.peer} to answer a probe. "
            f"Check that the other rank probes this pair too."
        )


def probe_pair(
    transport: Transport, peer: int, role: Role, *, base_tag: int, clock: Clock = time.perf_counter
) -> ProbedPair | None:
    """Measure the way to a peer, which calls this at the same time with the other role.

    Sets the transport's failure callback. Processor time is that of the two whole processes, so keep them quiet.

    Args:
        transport: connected, and otherwise idle.
        peer: the other rank.
        role: `measure` returns what it found; `echo` helps and returns None.
        base_tag: this and the next few hundred tags of the pair are used, in both directions.
        clock: seconds from any origin.

    Raises:
        TransportError: the peer is lost or does not answer.
    """
    line = _Line(transport, peer, base_tag)
    transport.on_failure(line.hear_failure)
    if role == "echo":
        _echo(line)
        return None
    return _measure(line, clock)


def _echo(line: _Line) -> None:
    control = bytearray(_CONTROL.size)
    line.post(control)
    line.wait(1)
    while (length := _CONTROL.unpack(control)[0]) != _STOP:
        payload = bytearray(length)
        if length:
            line.post(payload)
        line.send(_REPORT.pack(time.process_time()))
        line.wait(2 if length else 1)
        if length:
            line.send(payload)
            line.wait(1)
        line.post(control)
        line.wait(1)


def _measure(line: _Line, clock: Clock) -> ProbedPair:
    for _ in range(NUM_WARM_UPS):
        _ping(line)
    cpu_before = _cpu_s(line)
    pings = _repeat(lambda: _ping(line), clock, NUM_PINGS, FEWEST_PINGS, PINGS_BUDGET_S)
    cpu_between = _cpu_s(line)
    latency_s = median(pings) / 2
    num_bytes = _burst_bytes(line, clock, latency_s)
    cpu_ready = _cpu_s(line)
    bursts = _repeat(lambda: _burst(line, num_bytes, clock), clock, NUM_BURSTS, FEWEST_BURSTS, BURSTS_BUDGET_S)
    cpu_after = _cpu_s(line)
    line.send(_CONTROL.pack(_STOP))
    line.wait(1)
    cpu_s_per_message = max(0.0, (cpu_between - cpu_before) / (2 * (len(pings) + 1)))
    cpu_s_of_bursts = cpu_after - cpu_ready - 2 * (len(bursts) + 1) * cpu_s_per_message
    rate = _bandwidth(num_bytes, median(bursts) / 2, latency_s)
    return ProbedPair(
        latency_s=latency_s,
        there_bytes_per_s=rate,
        back_bytes_per_s=rate,
        cpu_s_per_byte=max(0.0, cpu_s_of_bursts) / (2 * len(bursts) * num_bytes),
        cpu_s_per_message=cpu_s_per_message,
    )


def _repeat(once: Callable[[], float | None], clock: Clock, most: int, fewest: int, budget_s: float) -> list[float]:
    """Do something often, but not for longer than the budget allows; return the seconds of each time."""
    seconds: list[float] = []
    start_s = clock()
    while len(seconds) < most and (len(seconds) < fewest or clock() - start_s < budget_s):
        before_s = clock()
        own_s = once()
        seconds.append(clock() - before_s if own_s is None else own_s)
    return seconds


def _ping(line: _Line) -> None:
    _request(line, 0)


def _request(line: _Line, length: int) -> float:
    """Announce a length, and return the processor seconds that the other side reports."""
    report = bytearray(_REPORT.size)
    line.exchange(_CONTROL.pack(length), report)
    return float(_REPORT.unpack(report)[0])


def _cpu_s(line: _Line) -> float:
    """Return the processor seconds of both ends so far."""
    return _request(line, 0) + time.process_time()


def _burst(line: _Line, num_bytes: int, clock: Clock) -> float:
    """Send a payload there and back, and return the seconds that took."""
    payload, returned = bytearray(num_bytes), bytearray(num_bytes)
    _request(line, num_bytes)
    before_s = clock()
    line.exchange(payload, returned)
    return clock() - before_s


def _burst_bytes(line: _Line, clock: Clock, latency_s: float) -> int:
    """Choose a payload that fits into the budget, from the best of some short tries."""
    tries = _repeat(lambda: _burst(line, MIN_BURST_BYTES, clock), clock, NUM_TRIES, 1, TRIES_BUDGET_S)
    affordable = _bandwidth(MIN_BURST_BYTES, min(tries) / 2, latency_s) * BURSTS_BUDGET_S / (2 * NUM_BURSTS)
    return int(min(MAX_BURST_BYTES, max(MIN_BURST_BYTES, affordable)))


def _bandwidth(num_bytes: int, one_way_s: float, latency_s: float) -> float:
    """Return the rate after the latency, which noise must not make larger than most of the time."""
    return num_bytes / max(one_way_s - latency_s, one_way_s / 4, 1e-9)
