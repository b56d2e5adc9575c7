"""What a rank needs from layers that the runtime does not know; `verbs` joins them."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from nfold.core.measured import Measured
from nfold.core.profile import Pace
from nfold.program import Program
from nfold.transport.connecting.listener import Address
from nfold.transport.generations.connections import Connections
from nfold.transport.probing.probe import ProbedPair
from nfold.transport.protocol import Transport

if TYPE_CHECKING:  # it imports torch, and the tools are named before a rank may
    from nfold.runtime.rank.process import Process


class Wiring(Protocol):
    """Connects a member to others; one implementation per transport."""

    def listen(self) -> Address:
        """Return the address at which other members reach this one, as long as it lives."""
        ...

    @property
    def connections(self) -> Connections[Any]:
        """The connections to other members, once this one listens."""
        ...

    def connect(self, addresses: Mapping[int, Address], stop: threading.Event) -> None:
        """Connect to those members that no way leads to yet, until another thread sets `stop`.

        Raises:
            TransportError: not all could be met.
        """
        ...


class Tools(Protocol):
    """What a rank needs of layers that the runtime must not import."""

    def watching(self) -> AbstractContextManager[None]:
        """Note which files are read while the program is loaded."""
        ...

    def measure(
        self, process: "Process", chunk_sizes: Sequence[int], thread_counts: Sequence[int], *, anew: bool
    ) -> tuple[Measured, str]:
        """Capture the program, and time it on this machine with each number of threads.

        Args:
            process: that has loaded the program.
            chunk_sizes: to time it at.
            thread_counts: of a rank.
            anew: use nothing that an earlier run measured.

        Returns:
            what was measured, and what to say of it if an earlier run did so.
        """
        ...

    def pace(self, program: Program, dataset: Any, chunk_size: int, num_threads: int, *, longest_pass_s: float) -> Pace:
        """Time a chunk's forward and backward while other ranks compute too."""
        ...

    def gauge(self) -> float:
        """Return the seconds of a fixed piece of bookkeeping: how fast the node is for a rank that has no work."""
        ...

    def probe(self, transport: Transport, peer: int, *, measures: bool, patience_s: float | None) -> ProbedPair | None:
        """Measure the link to a peer; one side measures, the other one answers and returns None."""
        ...
