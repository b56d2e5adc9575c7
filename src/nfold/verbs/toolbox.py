"""Joins the layers that do not know each other, on the side of a rank: profiling and transports for the runtime."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from nfold.core.cluster import Channel, Node
from nfold.core.graph import ModelGraph
from nfold.core.profile import Pace, Profile
from nfold.errors import PlanError
from nfold.profiling import bookkeeping_s, measure_pace, profile_program, this_node
from nfold.program import Program
from nfold.runtime.measuring import BITS_OF_STEP
from nfold.runtime.tools import Wiring
from nfold.transport.base import Transport
from nfold.transport.memory import MemoryNetwork
from nfold.transport.mesh import Listener
from nfold.transport.probe import ProbedPair, Role, probe_pair
from nfold.transport.tcp import connect_mesh

CONNECT_TIMEOUT_S = 60.0
PROFILE_S = 1.0
"""Spent on timing, for each number of threads."""
PACE_S = 0.6
"""Spent on computing side by side."""
PACE_IN_TURN_S = 0.05
"""The same where ranks are threads, which compute one after another: longer would show nothing more."""
PROBE_TAG = (1 << 30) + (1 << 28)
"""Above the tags of steps and gathers."""
UNMEASURED = Channel(
    latency_s=5e-5, bandwidth_bytes_per_s=1e9, origin="declared", cpu_s_per_byte=2e-10, cpu_s_per_message=5e-5
)
"""What is usual, until it is probed: one rank sends nothing, but its report weighs what more of them would win."""


class Toolbox:
    """Profiles, describes and probes."""

    def __init__(self, *, pace_s: float = PACE_S) -> None:
        self._pace_s = pace_s

    def profile(
        self, program: Program, chunk_sizes: tuple[int, ...], thread_counts: Sequence[int]
    ) -> tuple[ModelGraph, dict[int, Profile]]:
        """Capture the program, and time it on this machine with each number of threads."""
        return profile_program(program, chunk_sizes=chunk_sizes, thread_counts=thread_counts, budget_s=PROFILE_S)

    def node(self) -> Node:
        """Describe this machine."""
        return replace(this_node(UNMEASURED), step_cpu_s=BITS_OF_STEP * bookkeeping_s())

    def pace(self, program: Program, dataset: Any, chunk_size: int, num_threads: int, *, longest_pass_s: float) -> Pace:
        """Time a chunk's forward and backward while other ranks compute too."""
        return measure_pace(
            program,
            dataset,
            chunk_size=chunk_size,
            num_threads=num_threads,
            budget_s=self._pace_s,
            longest_pass_s=longest_pass_s,
        )

    def probe(self, transport: Transport, peer: int, *, measures: bool, patience_s: float | None) -> ProbedPair | None:
        """Measure the way to a peer, or answer one that measures."""
        role: Role = "measure" if measures else "echo"
        return probe_pair(transport, peer, role, base_tag=PROBE_TAG, patience_s=patience_s)


class TcpWiring:
    """A mesh of plain TCP connections."""

    def __init__(self, host: str, token: str, delays_s: Sequence[float] = ()) -> None:
        self._host, self._token, self._delays_s = host, token, delays_s
        self._listener: Listener | None = None

    def listen(self) -> list[Any]:
        """Open a port for the other ranks."""
        self._listener = Listener(self._host)
        return list(self._listener.address)

    def connect(self, rank: int, addresses: list[list[Any]]) -> Transport:
        """Connect to every other rank."""
        assert self._listener is not None, "listen comes first"
        peers = [(str(host), int(port)) for host, port in addresses]
        try:
            return connect_mesh(rank, len(peers), self._listener, peers, self._token, CONNECT_TIMEOUT_S, self._delays_s)
        finally:
            self._listener.close()


class GlooWiring:
    """torch.distributed's point-to-point messages; rank 0 hosts the store."""

    def __init__(self, rank: int, host: str, token: str, delays_s: Sequence[float] = ()) -> None:
        self._rank, self._host, self._token, self._delays_s = rank, host, token, delays_s
        self._store: Any = None

    def listen(self) -> list[Any]:
        """Open the store on rank 0."""
        from nfold.transport.torch_distributed import StoreServer

        if self._rank != 0:
            return [self._host, 0]
        self._store = StoreServer(self._host)
        return list(self._store.address)

    def connect(self, rank: int, addresses: list[list[Any]]) -> Transport:
        """Meet the other ranks at the store."""
        from nfold.transport.torch_distributed import connect_group

        store = (str(addresses[0][0]), int(addresses[0][1]))
        return connect_group(
            rank, len(addresses), self._host, store, self._token, CONNECT_TIMEOUT_S, delays_s=self._delays_s
        )


class MemoryWiring:
    """Ranks are threads of one process."""

    def __init__(self, network: Callable[[], MemoryNetwork]) -> None:
        self._network = network

    def listen(self) -> list[Any]:
        """Nothing to open."""
        return ["", 0]

    def connect(self, rank: int, addresses: list[list[Any]]) -> Transport:
        """Take this rank's end of the network."""
        del addresses
        return self._network().transport(rank)


def wiring(name: str, rank: int, host: str, token: str, delays_s: Sequence[float] = ()) -> Wiring:
    """Return the wiring of a transport by its name.

    Args:
        name: of the transport.
        rank: of this process.
        host: the address at which others reach it.
        token: the job's secret.
        delays_s: how much later to deliver what each rank sent, by rank; empty: at once.

    Raises:
        PlanError: there is no such transport.
    """
    if name == "tcp":
        return TcpWiring(host, token, delays_s)
    if name == "gloo":
        return GlooWiring(rank, host, token, delays_s)
    raise PlanError(f"unknown transport {name!r}")
