"""The coordinator's door, and what comes through it: whatever is said, nobody comes in unproven, and nothing grows."""

import itertools
import json
import queue
import random
import socket
import struct
import threading

import pytest
from heard_wire import HeardWire
from strangers import before_tls, fuzzed, held, knock

from nfold.runtime.control import channel as protocol
from nfold.runtime.control.channel import ChannelClosed, SocketChannel, connect
from nfold.runtime.control.control_server import SocketControlServer, listen
from nfold.runtime.control.events import Left, Said
from nfold.transport.connecting.acceptor import MAX_UNPROVEN
from nfold.transport.connecting.job_token import new_token
from nfold.transport.connecting.token_proof import (
    CHALLENGE_BYTES,
    COORDINATOR,
    Hello,
    pack_challenge,
    pack_hello,
    unpack_challenge,
)

pytestmark = pytest.mark.timeout(60)
HEADER = struct.Struct("!4sIQ")
NONCE = bytes(range(16))
NUM_STREAMS, MESSAGES_OF_STREAM = 10_000, 2
GROWTH_BYTES = 8 << 20
"""Of memory that allocators may keep."""


class Replayed:
    """In the place of a socket: gives what it was given, and then the end."""

    family = socket.AF_UNIX

    def __init__(self, data):
        self._rest = data

    def recv_into(self, target):
        piece, self._rest = self._rest[: len(target)], self._rest[len(target) :]
        target[: len(piece)] = piece
        return len(piece)


def packed(message, blob=b""):
    text = json.dumps(message).encode()
    return HEADER.pack(b"nfC1", len(text), len(blob)) + text + blob


def test_fuzzed_messages_of_a_member_are_heard_or_end_its_connection(monkeypatch):
    """Whatever they are, whoever listens goes on until the end and says so."""
    for limit in ("_MAX_JSON_BYTES", "_MAX_BLOB_BYTES"):
        monkeypatch.setattr(protocol, limit, 1 << 12)
    drawn, heard = random.Random(0), 0
    for _ in range(NUM_STREAMS):
        stream = packed({"is": "ready", "of": [1, {"a": None}]}) + packed({"is": "piece", "of": "model"}, b"bytes")
        events = queue.SimpleQueue()
        listen(0, SocketChannel(Replayed(fuzzed(drawn, stream))), events, lambda member: None)
        while isinstance(event := events.get_nowait(), Said):
            heard += 1
        assert isinstance(event, Left)
        assert events.empty()
    assert 0 < heard < NUM_STREAMS


@pytest.mark.parametrize(
    "message",
    [b"[" * 100_000, b"{}", b'{"is": 1}', b'{"is": "piece"}', b'{"is": "piece", "of": "../../model"}'],
    ids=["deep", "nothing", "a number", "of no file", "of a file elsewhere"],
)
def test_what_no_member_says_ends_its_connection(message):
    events = queue.SimpleQueue()
    channel = SocketChannel(Replayed(HEADER.pack(b"nfC1", len(message), 0) + message))
    listen(0, channel, events, lambda member: "was killed")
    assert events.get_nowait() == Left(0, "was killed")


def opened(token):
    """A control server that waits for member 0, and its events."""
    events = queue.SimpleQueue()
    server = SocketControlServer("127.0.0.1", 0, token, events, lambda member: "left", tell=lambda line: None)
    server.expect()
    return server, events


def hello(token, role="report"):
    return lambda challenge: pack_hello(Hello(0, COORDINATOR, NONCE), token, role, unpack_challenge(challenge))


def strangers(drawn, token):
    replayed = hello(token)(pack_challenge(NONCE))
    enormous = HEADER.pack(b"nfC1", 1 << 30, 1 << 40)
    return [
        hello("another"),
        hello(token, role="dial"),
        lambda challenge: replayed,
        lambda challenge: fuzzed(drawn, hello(token)(challenge)),
        lambda challenge: hello("another")(challenge) + enormous,
        lambda challenge: hello(token)(challenge)[:40],
        lambda challenge: drawn.randbytes(200),
        lambda challenge: b"",
    ]


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_thousand_strangers_are_sent_away_and_leave_nothing(encrypted):
    token, drawn = new_token(encrypted=encrypted), random.Random(0)
    before = held()
    server, events = opened(token)
    kinds = before_tls(drawn, strangers(drawn, token)) if encrypted else strangers(drawn, token)
    for number, words in zip(range(1000), itertools.cycle(kinds), strict=False):
        knock((server.host, server.port), words, 0 if encrypted else CHALLENGE_BYTES)
        if number == 200:
            settled = held()
    grown = held().resident_bytes - settled.resident_bytes
    assert server.refused == 1000
    member = connect(server.host, server.port, token, 0)
    member.send({"is": "hello"})
    assert events.get(timeout=10) == Said(0, {"is": "hello"})
    member.close()
    assert events.get(timeout=10) == Left(0, "left")
    server.close()
    ended(before.threads)
    assert held().descriptors == before.descriptors
    assert grown < GROWTH_BYTES


def ended(names):
    """Wait for the threads that are not among those."""
    for thread in threading.enumerate():
        if thread.name.startswith("nfold-"):
            thread.join(10)
    assert held().threads == names


def test_who_says_nothing_takes_no_more_than_its_share_of_threads():
    server, events = opened("a secret")
    silent = [socket.create_connection((server.host, server.port)) for _ in range(MAX_UNPROVEN + 50)]
    for each in silent[:50]:
        assert each.recv(CHALLENGE_BYTES, socket.MSG_WAITALL)
        assert each.recv(1) == b"", "it has waited longest"
    greeting = [thread for thread in threading.enumerate() if thread.name == "nfold-greeting"]
    assert len(greeting) <= MAX_UNPROVEN
    member = connect(server.host, server.port, "a secret", 0)
    member.send({"is": "hello"})
    assert events.get(timeout=10) == Said(0, {"is": "hello"})
    server.close()
    for each in silent:
        each.close()
    member.close()


@pytest.mark.parametrize("encrypted", [True, False])
def test_who_listens_in_reads_nothing_where_it_is_encrypted(encrypted):
    token, tensor = new_token(encrypted=encrypted), random.Random(0).randbytes(300_000)
    server, events = opened(token)
    with HeardWire((server.host, server.port)) as wire:
        member = connect(*wire.address, token, 0)
        member.send({"is": "hello", "words": "of a member"}, tensor)
        assert events.get(timeout=10) == Said(0, {"is": "hello", "words": "of a member"})
        server.channels[0].send({"do": "take"}, tensor)
        assert member.receive() == ({"do": "take"}, tensor)
        heard = wire.heard()
        member.close()
        server.close()
    assert len(heard) > 2 * len(tensor)
    assert all((tensor[begin : begin + 16] in heard) != encrypted for begin in range(0, len(tensor) - 16, 10_000))
    assert (b"of a member" in heard) != encrypted
    secret = token.removeprefix("tls:").split(":")
    assert not any(part[:32].encode() in heard or part[-32:].encode() in heard for part in secret)


def test_a_coordinator_of_another_job_is_not_believed():
    server, _ = opened(new_token(encrypted=True))
    with pytest.raises(ChannelClosed, match=r"was not let in.* it shows another certificate than this job's"):
        connect(server.host, server.port, new_token(encrypted=True), 0)
    server.close()


def test_the_certificate_alone_lets_nobody_in():
    token = new_token(encrypted=True)
    server, _ = opened(token)
    _, digits, secret = token.split(":")
    with pytest.raises(ChannelClosed, match=r"was not let in.* it hung up, probably because it has another token"):
        connect(server.host, server.port, f"tls:{digits[::-1]}:{secret}", 0)
    assert server.refused == 1
    server.close()
