"""Who knocks at a door without being expected, and what the process holds that might grow with that."""

import contextlib
import os
import random
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nfold.transport.connecting.token_proof import pack_challenge

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
Words = Callable[[bytes], bytes]
"""What a stranger says to a challenge."""


def fuzzed(drawn: random.Random, data: bytes) -> bytes:
    """Return other bytes of the same number: with a bit, a byte or a part changed, or with another end or beginning."""
    changed = bytearray(data)
    at = drawn.randrange(len(data))
    length = drawn.choice((1, 2, 4, 8, len(data)))
    part = changed[at : at + length]
    kind = drawn.randrange(4)
    if kind == 0:
        changed[at] ^= 1 << drawn.randrange(8)
    elif kind == 1:
        changed[at : at + length] = drawn.randbytes(len(part))
    elif kind == 2:
        changed[at : at + length] = drawn.choice((b"\0", b"\xff")) * len(part)
    else:
        changed = changed[at:] + changed[:at]
    return bytes(changed) if changed != data else fuzzed(drawn, data)


def knock(address: tuple[str, int], words: Words, challenge_bytes: int) -> None:
    """Dial, hear the challenge if one comes, say the words, and hear the door close."""
    # It may be closed before all was said.
    with socket.create_connection(address, timeout=20) as connection, contextlib.suppress(OSError):
        connection.sendall(words(connection.recv(challenge_bytes, socket.MSG_WAITALL) if challenge_bytes else b""))
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 10):
            pass  # a challenge, or an alert of TLS


def tls_opening() -> bytes:
    """Return what a client of TLS says first."""
    context, opening = ssl.create_default_context(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), opening, server_hostname="a.example").do_handshake()
    return opening.read()


def before_tls(drawn: random.Random, kinds: Sequence[Words]) -> list[Words]:
    """Return who says the same at a door that encrypts, where no challenge is heard, and who begins with TLS."""
    opening, challenge = tls_opening(), pack_challenge(bytes(16))
    said: list[Words] = [lambda _, words=words: words(challenge) for words in kinds]
    return [*said, lambda _: opening, lambda _: fuzzed(drawn, opening)]


@dataclass(frozen=True)
class Held:
    """What a process holds."""

    descriptors: int
    threads: Sequence[str]
    resident_bytes: int


def held() -> Held:
    """Return what this process holds now."""
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES
    names = sorted(thread.name for thread in threading.enumerate())
    return Held(len(os.listdir("/proc/self/fd")), names, resident)
