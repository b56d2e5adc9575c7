"""What a rank needs from layers that the runtime does not know; `verbs` joins them."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from nfold.core.cluster import Node
from nfold.core.graph import ModelGraph
from nfold.core.profile import Pace, Profile
from nfold.program import Program
from nfold.transport.base import Transport
from nfold.transport.connections import Connections
from nfold.transport.listener import Address
from nfold.transport.probe import ProbedPair


class Wiring(Protocol):
    """Connects a member to others; one implementation per transport."""

    def listen(self) -> Address:
        """Return the address at which other members reach this one, as long as it lives."""
        ...

    def connect(self, addresses: Mapping[int, Address]) -> Connections[Any]:
        """Connect to those members that no way leads to yet, and return the ways to all."""
        ...


class Tools(Protocol):
    """What a rank needs from layers that the runtime does not know."""

    def profile(
        self, program: Program, chunk_sizes: tuple[int, ...], thread_counts: Sequence[int]
    ) -> tuple[ModelGraph, dict[int, Profile]]:
        """Capture the program, and time it on this machine with each number of threads."""
        ...

    def node(self) -> Node:
        """Describe this machine."""
        ...

    def pace(self, program: Program, dataset: Any, chunk_size: int, num_threads: int, *, longest_pass_s: float) -> Pace:
        """Time a chunk's forward and backward while other ranks compute too."""
        ...

    def probe(self, transport: Transport, peer: int, *, measures: bool, patience_s: float | None) -> ProbedPair | None:
        """Measure the way to a peer; one side measures, the other answers."""
        ...
