"""Brings every rank's bytes to rank 0 over the transport."""

from nfold.runtime.checkpoint.exchange import Exchange
from nfold.transport.protocol import Transport
from nfold.transport.tags import Use, tag_of


def gather(transport: Transport, world_size: int, number: int, part: bytes) -> list[bytes] | None:
    """Collect one part of each rank on rank 0, all at once: for what is short.

    Args:
        transport: between the ranks.
        world_size: ranks that take part.
        number: counts the gathers of a job, so that their tags differ.
        part: this rank's bytes.

    Returns:
        All parts by rank on rank 0, None elsewhere.

    Raises:
        TransportError: a peer is lost, or nothing moved for too long.
    """
    tag = tag_of(Use.GATHER, 2 * number)
    exchange = Exchange(transport)
    if transport.rank != 0:
        exchange.send(0, tag, len(part).to_bytes(8, "little"))
        exchange.send(0, tag + 1, part)
        exchange.wait()
        return None
    sizes = [bytearray(8) for _ in range(world_size)]
    for rank in range(1, world_size):
        exchange.receive(rank, tag, sizes[rank])
    exchange.wait()
    arriving = [bytearray(int.from_bytes(size, "little")) for size in sizes]
    for rank in range(1, world_size):
        exchange.receive(rank, tag + 1, arriving[rank])
    exchange.wait()
    return [part, *(bytes(each) for each in arriving[1:])]
