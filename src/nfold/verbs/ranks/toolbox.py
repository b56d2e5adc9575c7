"""Joins the layers that do not know each other, on the side of a rank: profiling and transports for the runtime."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from nfold.core.cluster import Channel
from nfold.core.measured import Measured
from nfold.core.profile import Pace
from nfold.profiling import bit_s, bookkeeping_s, measure_pace, profile_program, this_node
from nfold.profiling.recall import Asked, Recall
from nfold.program import Program
from nfold.runtime.measuring.probing_rounds import BITS_OF_STEP
from nfold.runtime.rank.process import Process
from nfold.transport.implementations.in_memory import MemoryConnections, MemoryNetwork
from nfold.transport.implementations.tcp import Address, Listener, TcpConnections
from nfold.transport.probing.probe import ProbedPair, Role, probe_pair
from nfold.transport.protocol import Transport
from nfold.transport.tags import Use, tag_of

CONNECT_TIMEOUT_S = 60.0
PROFILE_S = 1.0
"""Spent on timing, for each number of threads."""
PACE_S = 0.6
"""Spent on computing side by side."""
PACE_IN_TURN_S = 0.05
"""The same where ranks are threads, which compute one after another: longer would show nothing more."""
UNMEASURED = Channel(
    latency_s=5e-5, bandwidth_bytes_per_s=1e9, origin="declared", cpu_s_per_byte=2e-10, cpu_s_per_message=5e-5
)
"""What is usual, until it is probed: one rank sends nothing, but its report weighs what more of them would win."""


class Toolbox:
    """Gives ranks what they may not import: profiling, capture and probing."""

    def __init__(self, *, pace_s: float = PACE_S, recall: Recall | None = None) -> None:
        """Args:
        pace_s: spent on computing side by side.
        recall: finds what earlier runs measured; None: for a program that nobody has watched being loaded.
        """
        self._pace_s, self._recall = pace_s, recall

    def watching(self) -> AbstractContextManager[None]:
        """Note which files are read while the program is loaded."""
        return nullcontext() if self._recall is None else self._recall.recorder.watching()

    def measure(
        self, process: Process, chunk_sizes: Sequence[int], thread_counts: Sequence[int], *, anew: bool
    ) -> tuple[Measured, str]:
        """Capture the program and time it, or use what an earlier run measured.

        Args:
            process: has loaded the program and its data.
            chunk_sizes: samples of the chunks to time.
            thread_counts: to time them with.
            anew: measure in any case.

        Returns:
            What was measured, and a note for the user if it is of an earlier run.
        """
        asked = Asked(
            program=process.the_program,
            dataset=process.datasets["train"],
            chunk_sizes=tuple(chunk_sizes),
            thread_counts=tuple(thread_counts),
            told=process.told,
            device=process.device,
            anew=anew,
        )
        return (_measured(asked), "") if self._recall is None else self._recall.measured(asked, _measured)

    def pace(self, program: Program, dataset: Any, chunk_size: int, num_threads: int, *, longest_pass_s: float) -> Pace:
        """Time forward and backward of a chunk while other ranks compute too.

        Args:
            program: loaded.
            dataset: its training data.
            chunk_size: samples of the chunk.
            num_threads: to compute with.
            longest_pass_s: expected seconds of the slowest rank, so that all measure for as long.
        """
        return measure_pace(
            program,
            dataset,
            chunk_size=chunk_size,
            num_threads=num_threads,
            budget_s=self._pace_s,
            longest_pass_s=longest_pass_s,
        )

    def gauge(self) -> float:
        """Time a fixed piece of bookkeeping."""
        return bit_s()

    def probe(self, transport: Transport, peer: int, *, measures: bool, patience_s: float | None) -> ProbedPair | None:
        """Measure the link to a peer; one side measures, the other one answers and returns None."""
        role: Role = "measure" if measures else "echo"
        return probe_pair(transport, peer, role, base_tag=tag_of(Use.PROBE, 0), patience_s=patience_s)


def _measured(asked: Asked) -> Measured:
    graph, profiles = profile_program(
        asked.program, chunk_sizes=asked.chunk_sizes, thread_counts=asked.thread_counts, budget_s=PROFILE_S
    )
    node = replace(this_node(UNMEASURED), step_cpu_s=BITS_OF_STEP * bookkeeping_s())
    return Measured(graph=graph, profiles=profiles, node=node)


class TcpWiring:
    """A mesh of TCP connections, encrypted where the token holds a certificate."""

    def __init__(self, member: int, host: str, token: str, delays_s: Mapping[str, float] | None = None) -> None:
        """Args:
        member: this process.
        host: the address at which others reach it.
        token: the job's secret.
        delays_s: how much later to deliver what members sent, by their address; those without: at once.
        """
        self._member, self._host, self._token, self._delays_s = member, host, token, delays_s or {}
        self._delays_by_member_s: dict[int, float] = {}
        self._listener: Listener | None = None
        self._connections: TcpConnections | None = None

    def listen(self) -> Address:
        """Open a port for the other members."""
        self._listener = Listener(self._host)
        self._connections = TcpConnections(self._member, self._token, delays_s=self._delays_by_member_s)
        return self._listener.address

    @property
    def connections(self) -> TcpConnections:
        """The connections to other members, once this one listens."""
        assert self._connections is not None, "listen comes first"
        return self._connections

    def connect(self, addresses: Mapping[int, Address], stop: threading.Event) -> None:
        """Connect to those members that there is no connection to yet, until another thread sets `stop`."""
        assert self._listener is not None, "listen comes first"
        self._delays_by_member_s |= {member: self._delays_s.get(host, 0.0) for member, (host, _) in addresses.items()}
        self.connections.meet(self._listener, addresses, CONNECT_TIMEOUT_S, stop)


class MemoryWiring:
    """Connects members that are threads of one process, over queues."""

    def __init__(self, member: int, network: MemoryNetwork) -> None:
        self._member, self._network = member, network

    def listen(self) -> Address:
        """Return an address that nobody needs: there is nothing to open."""
        return "", 0

    @property
    def connections(self) -> MemoryConnections:
        """The connections to all other members, which are there from the beginning."""
        return self._network.connections(self._member)

    def connect(self, addresses: Mapping[int, Address], stop: threading.Event) -> None:
        """Do nothing: all members are connected already."""
