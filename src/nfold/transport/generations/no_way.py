"""A way that leads nowhere, for a rank that is built to see whether it can be and sends nothing."""

from nfold.transport.generations.generation_transport import GenerationTransport
from nfold.transport.protocol import Done


class NoWay:
    """Takes what is sent and brings nothing."""

    def send(self, tag: int, data: memoryview, done: Done) -> None:
        """Do nothing."""

    def receive(self, tag: int, into: memoryview, done: Done) -> None:
        """Do nothing."""

    def limit_unsent(self, num_bytes: int | None) -> None:
        """Do nothing."""

    def silent_s(self) -> float:
        """Return 0: nobody is there to be silent."""
        return 0.0

    def sent_bytes(self, generation: int) -> int:
        """Return 0."""
        return 0

    def received_bytes(self, generation: int) -> int:
        """Return 0."""
        return 0

    def forget_before(self, generation: int) -> None:
        """Do nothing."""


def alone(rank: int, world_size: int) -> GenerationTransport:
    """Return the transport of a rank whose peers are not there."""
    return GenerationTransport(0, rank, {peer: NoWay() for peer in range(world_size) if peer != rank})
