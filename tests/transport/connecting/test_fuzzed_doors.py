"""The door for data, and what comes through it: whatever is said, nobody comes in unproven, and nothing grows."""

import itertools
import random
import socket
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from strangers import Words, before_tls, fuzzed, held, knock

from nfold.errors import TransportError
from nfold.transport.connecting.acceptor import Acceptor
from nfold.transport.connecting.encryption import secured
from nfold.transport.connecting.job_token import new_token
from nfold.transport.connecting.listener import Listener
from nfold.transport.connecting.token_proof import (
    CHALLENGE_BYTES,
    Hello,
    pack_challenge,
    pack_hello,
    unpack_challenge,
    unpack_hello,
)
from nfold.transport.links.framing import HEADER_BYTES, FrameHeader, Kind, pack_header
from nfold.transport.links.inbox import Inbox
from nfold.transport.links.link import Link

pytestmark = pytest.mark.timeout(60)
TOKEN = "a secret"
NONCE = bytes(range(16))
NUM_HELLOS, NUM_STREAMS, FRAMES_OF_STREAM = 40_000, 10_000, 4
MOST_EARLY_BYTES = 1000
GROWTH_BYTES = 8 << 20
"""Of memory that allocators may keep."""


def test_no_fuzzed_hello_is_believed() -> None:
    drawn = random.Random(0)
    hellos = [pack_hello(Hello(1, 0, NONCE), token, "dial", NONCE) for token in (TOKEN, "another")]
    for _ in range(NUM_HELLOS):
        data = fuzzed(drawn, drawn.choice(hellos))
        with pytest.raises(TransportError):
            unpack_hello(data, TOKEN, "dial", NONCE)


class Nowhere:
    """Carries nothing."""

    def start(self) -> None: ...
    def wake(self) -> None: ...
    def shutdown(self) -> None: ...

    def try_write(self, parts: Sequence[memoryview]) -> int:
        return sum(map(len, parts))


def read(stream: bytes) -> int:
    """Give a link a stream to its end; return how many frames it found, however that ended."""
    carrier: Any = Nowhere()
    found, wanted = 0, Link(1, lambda link: carrier, Inbox(MOST_EARLY_BYTES), lambda peer, why: None).incoming()
    try:
        for target in wanted:
            if len(target) > len(stream):
                return found
            found += len(target) == HEADER_BYTES
            target[:], stream = stream[: len(target)], stream[len(target) :]
    except TransportError:
        pass
    return found


def test_fuzzed_frames_are_read_or_refused() -> None:
    drawn, found = random.Random(0), 0
    for _ in range(NUM_STREAMS):
        frames = [drawn.randbytes(drawn.choice((0, 1, 40))) for _ in range(FRAMES_OF_STREAM - 1)]
        data = [pack_header(FrameHeader(Kind.DATA, tag, len(frame))) + frame for tag, frame in enumerate(frames)]
        found += read(fuzzed(drawn, b"".join(data) + pack_header(FrameHeader(drawn.choice(list(Kind))))))
    assert NUM_STREAMS < found <= NUM_STREAMS * FRAMES_OF_STREAM, "some were cut short, and not all"


def hello(token: str, role: str = "dial") -> Words:
    return lambda challenge: pack_hello(Hello(1, 0, NONCE), token, role, unpack_challenge(challenge))


def strangers(drawn: random.Random, token: str) -> list[Words]:
    replayed = hello(token)(pack_challenge(NONCE))
    return [
        hello("another"),
        hello(token, role="report"),
        lambda challenge: replayed,
        lambda challenge: fuzzed(drawn, hello(token)(challenge)),
        lambda challenge: hello(token)(challenge)[:40],
        lambda challenge: drawn.randbytes(200),
        lambda challenge: b"",
    ]


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_thousand_strangers_are_sent_away_and_leave_nothing(encrypted: bool) -> None:
    token, drawn, welcomed = new_token(encrypted=encrypted), random.Random(0), []
    with Listener("127.0.0.1") as listener:
        before = held()
        acceptor = Acceptor(0, {1}, token, lambda peer, connection: welcomed.append((peer, connection)))
        door = threading.Thread(target=acceptor.run, args=(listener, threading.Event()))
        door.start()
        kinds = before_tls(drawn, strangers(drawn, token)) if encrypted else strangers(drawn, token)
        for number, words in zip(range(1000), itertools.cycle(kinds), strict=False):
            knock(listener.address, words, 0 if encrypted else CHALLENGE_BYTES)
            if number == 200:
                settled = held()
        grown = held().resident_bytes - settled.resident_bytes
        assert not welcomed
        with secured(socket.create_connection(listener.address), token, accepts=False) as member:
            challenge = member.recv(CHALLENGE_BYTES)
            member.sendall(hello(token)(challenge))
            door.join(10)
    assert [peer for peer, _ in welcomed] == [1]
    welcomed.pop()[1].close()
    after = held()
    assert (after.descriptors, after.threads) == (before.descriptors - 1, before.threads), "the listener is closed"
    assert grown < GROWTH_BYTES
