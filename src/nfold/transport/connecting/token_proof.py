"""The first bytes of a connection: who dials whom, proven with the job's token.

    dialer   <-- magic, version, nonce A --------------------------------------------   acceptor
    dialer   --- magic, version, from, to, nonce B, HMAC(token, "dial", .., A) ------>   acceptor
    dialer   <-- magic, version, from, to, nonce A, HMAC(token, "answer", .., B) -----   acceptor

The token itself never travels, and each proof covers a fresh number of the other side, so what an eavesdropper has
heard is of no use in another connection. Where the token holds a certificate, all of this is said over TLS
(`tls_socket.py`): each end has shown that certificate, so nobody sits between the two and passes proofs on. Else what
is said afterwards is not protected, and the network must be trusted.
The proof is HMAC-SHA-256 (RFC 2104).
"""

import hashlib
import hmac
import secrets
import struct
from dataclasses import dataclass

from nfold.errors import TransportError

MAGIC = b"nfold\r\n\0"
VERSION = 2
NONCE_BYTES = 16
_OPENING = struct.Struct("<8sI")
_WHO = struct.Struct(f"<8sIII{NONCE_BYTES}s")
_DIGEST_BYTES = hashlib.sha256().digest_size
CHALLENGE_BYTES = _OPENING.size + NONCE_BYTES
HELLO_BYTES = _WHO.size + _DIGEST_BYTES
COORDINATOR = 0xFFFFFFFF
"""Whom a member dials that is no member."""
AGENT = 0xFFFFFFFE
"""Who dials the coordinator for a host, and is no member either."""


@dataclass(frozen=True, slots=True)
class Hello:
    """Who speaks to whom: two members, or COORDINATOR."""

    source: int
    target: int
    nonce: bytes
    """What the other side's proof must cover."""


def new_nonce() -> bytes:
    """Return random bytes, NONCE_BYTES of them: too many to be drawn twice."""
    return secrets.token_bytes(NONCE_BYTES)


def pack_challenge(nonce: bytes) -> bytes:
    """Return what an acceptor says first, CHALLENGE_BYTES long."""
    return _OPENING.pack(MAGIC, VERSION) + nonce


def unpack_challenge(data: bytes) -> bytes:
    """Return the nonce of a challenge, which is CHALLENGE_BYTES long.

    Raises:
        TransportError: it is not one, or of another version.
    """
    _check_opening(*_OPENING.unpack_from(data))
    return data[_OPENING.size :]


def pack_hello(hello: Hello, token: str, role: str, heard: bytes) -> bytes:
    """Return the bytes with which a side proves who it is, now: HELLO_BYTES of them.

    Args:
        hello: what it says.
        token: the job's secret.
        role: `dial` or `answer`.
        heard: the other side's nonce.
    """
    who = _WHO.pack(MAGIC, VERSION, hello.source, hello.target, hello.nonce)
    return who + _digest(who, token, role, heard)


def unpack_hello(data: bytes | bytearray, token: str, role: str, said: bytes) -> Hello:
    """Read and check a hello.

    Args:
        data: what came, HELLO_BYTES long.
        token: the job's secret.
        role: of the side that it comes from, as for `pack_hello`.
        said: our nonce.

    Raises:
        TransportError: it is not one, of another version, or made with another token or for another connection.
    """
    who, digest = bytes(data[: _WHO.size]), bytes(data[_WHO.size :])
    magic, version, source, target, nonce = _WHO.unpack(who)
    _check_opening(magic, version)
    if not hmac.compare_digest(digest, _digest(who, token, role, said)):
        raise TransportError("it has another token")
    return Hello(source, target, nonce)


def _check_opening(magic: bytes, version: int) -> None:
    if magic != MAGIC or version != VERSION:
        raise TransportError(f"it does not speak version {VERSION} of nfold's protocol")


def _digest(who: bytes, token: str, role: str, nonce: bytes) -> bytes:
    return hmac.digest(token.encode(), role.encode() + b"\0" + who + nonce, "sha256")
