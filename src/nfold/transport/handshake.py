"""The first bytes of a connection: who dials whom, proven with the job's token.

    dialer   --- magic, version, from, to, HMAC(token, "dial", ...) ---->   acceptor
    dialer   <-- magic, version, from, to, HMAC(token, "answer", ...) ---   acceptor

The token itself never travels. An eavesdropper could replay a hello: without TLS the network must be trusted.
"""

import hashlib
import hmac
import struct
from dataclasses import dataclass

from nfold.errors import TransportError

MAGIC = b"nfold\r\n\0"
VERSION = 1
_WHO = struct.Struct("<8sIII")
_DIGEST_BYTES = hashlib.sha256().digest_size
HELLO_BYTES = _WHO.size + _DIGEST_BYTES


@dataclass(frozen=True, slots=True)
class Hello:
    """Who speaks to whom."""

    source: int
    target: int


def pack_hello(hello: Hello, token: str, role: str) -> bytes:
    """Return the bytes with which a side proves who it is."""
    who = _WHO.pack(MAGIC, VERSION, hello.source, hello.target)
    return who + _digest(who, token, role)


def unpack_hello(data: bytes | bytearray, token: str, role: str) -> Hello:
    """Read and check a hello.

    Raises:
        TransportError: it is not one, of another version, or made with another token.
    """
    who, digest = bytes(data[: _WHO.size]), bytes(data[_WHO.size :])
    magic, version, source, target = _WHO.unpack(who)
    if magic != MAGIC or version != VERSION:
        raise TransportError(f"it does not speak version {VERSION} of nfold's protocol")
    if not hmac.compare_digest(digest, _digest(who, token, role)):
        raise TransportError("it has another token")
    return Hello(source, target)


def job_name(token: str) -> str:
    """Return a name that all who know the token share, and that does not tell it."""
    return hmac.digest(token.encode(), b"job", "sha256").hex()


def _digest(who: bytes, token: str, role: str) -> bytes:
    return hmac.digest(token.encode(), role.encode() + b"\0" + who, "sha256")
