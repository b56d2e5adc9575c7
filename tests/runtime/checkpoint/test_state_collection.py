"""The whole state comes to rank 0 in pieces, and none is copied before it is asked for."""

import pytest
import torch
from safetensors.torch import load
from together import on_all

from nfold.errors import PeerLost
from nfold.runtime.checkpoint import state_collection
from nfold.runtime.checkpoint.checkpoint_format import Offer, StatePart
from nfold.runtime.checkpoint.state_collection import collect
from nfold.transport.implementations.in_memory import MemoryNetwork

pytestmark = pytest.mark.timeout(30)


def whole(collected):
    return b"".join((collected.header, *(bytes(run.data) for run in collected.runs)))


WIDE = torch.arange(1000.0).reshape(10, 100)
TURNED = torch.arange(12, dtype=torch.int64).reshape(3, 4).t()


def offers():
    """Rows of one tensor on two ranks, a transposed one on the third, and a number on the first."""
    return [
        Offer([StatePart("count", (), 0, torch.tensor(3.0))], [StatePart("kept", (2,), 0, torch.ones(2))], {"rank": 0}),
        Offer([StatePart("wide", (10, 100), 0, WIDE[:4])], [], {"rank": 1}),
        Offer([StatePart("turned", (4, 3), 0, TURNED), StatePart("wide", (10, 100), 400, WIDE[4:])], [], {"rank": 2}),
    ]


@pytest.mark.parametrize("run_bytes", [8, 24, 1 << 20])
def test_tensors_in_parts_become_one_file(monkeypatch, run_bytes):
    monkeypatch.setattr(state_collection, "RUN_BYTES", run_bytes)
    network, said = MemoryNetwork(3), []

    def body(rank):
        for number in (1, 2):
            found = collect(network.transport(rank), 3, number, offers()[rank], lambda facts: said.extend(facts))
            data = whole(found) if found else None
        return data

    data, *others = on_all(network, body)
    network.close()
    assert others == [None, None]
    assert said == [{"rank": 0}, {"rank": 1}, {"rank": 2}] * 2
    found = load(data)
    assert torch.equal(found["wide"], WIDE)
    assert torch.equal(found["turned"], TURNED)
    assert (found["count"].item(), found["kept"].tolist()) == (3.0, [1.0, 1.0])


@pytest.mark.parametrize(("run_bytes", "most_ahead"), [(40, 10), (400, 5)])
def test_rank_0_holds_a_few_bytes_and_no_more(monkeypatch, run_bytes, most_ahead):
    monkeypatch.setattr(state_collection, "RUN_BYTES", run_bytes)
    monkeypatch.setattr(state_collection, "AHEAD_BYTES", 3000)
    monkeypatch.setattr(state_collection, "PIECE_BYTES", 3000 // most_ahead - run_bytes)
    network, asked = MemoryNetwork(2), []
    real = state_collection._Questions.ask

    def counted(self, rank, index, start, stop, num_bytes):
        asked.append((start, stop))
        return real(self, rank, index, start, stop, num_bytes)

    monkeypatch.setattr(state_collection._Questions, "ask", counted)
    wide = Offer([StatePart("wide", (10, 100), 0, WIDE)], [], {})
    nothing = Offer([], [], {})

    def body(rank):
        found = collect(network.transport(rank), 2, 1, wide if rank else nothing, lambda facts: None)
        if found is None:
            return None
        ahead = []
        for taken, _ in enumerate(found.runs):
            ahead.append(len(asked) - taken)
        return max(ahead)

    most, _ = on_all(network, body)
    network.close()
    assert len(asked) == 4000 // run_bytes
    assert most == most_ahead + 1


def test_a_rank_that_is_lost_ends_it_on_both_sides():
    network = MemoryNetwork(3)

    def body(rank):
        found = collect(network.transport(rank), 3, 1, offers()[rank], lambda facts: None)
        if found is not None:
            network.fail(2)
            return list(found.runs)
        return None

    first, second, _ = on_all(network, body)
    network.close()
    assert isinstance(first, PeerLost)
    assert isinstance(second, PeerLost), "it would wait for questions for ever"
