"""Every rank's bytes on rank 0."""

import pytest
from together import on_all

from nfold.errors import PeerLost, TransportError
from nfold.runtime.checkpoint import exchange
from nfold.runtime.checkpoint.gather import gather
from nfold.transport.implementations.in_memory import MemoryNetwork

pytestmark = pytest.mark.timeout(30)


@pytest.mark.parametrize("world", [1, 2, 4])
def test_rank_0_gets_all_parts_by_rank(world):
    network = MemoryNetwork(world)
    parts = [bytes([rank]) * (1000 * rank) for rank in range(world)]
    for number in (1, 2):
        found = on_all(network, lambda rank, n=number: gather(network.transport(rank), world, n, parts[rank]))
        assert found == [parts, *[None] * (world - 1)], "parts may be empty, and a second gather is another one"
    network.close()


def test_fewer_may_take_part_than_there_are():
    network = MemoryNetwork(3)
    found = on_all(network, lambda rank: rank < 2 and gather(network.transport(rank), 2, 1, b"part"))
    assert found == [[b"part", b"part"], None, False]
    network.close()


def test_a_lost_rank_ends_a_gather():
    network = MemoryNetwork(3)

    def body(rank):
        if rank == 2:
            network.fail(2)
            return None
        return gather(network.transport(rank), 3, 1, b"part")

    assert isinstance(on_all(network, body)[0], PeerLost)
    network.close()


def test_a_gather_does_not_wait_for_ever(monkeypatch):
    monkeypatch.setattr(exchange, "WAIT_S", 0.01)
    network = MemoryNetwork(2)
    with pytest.raises(TransportError, match="1 messages of a gather did not arrive within 0 s"):
        gather(network.transport(0), 2, 1, b"part")
    network.close()
