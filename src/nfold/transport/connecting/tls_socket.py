"""A connected socket whose bytes are encrypted with TLS 1.3, for callers that wait and for those that never do.

    plain bytes --> OpenSSL --> _going --> flush --> the wire --> fetch --> _came --> OpenSSL --> plain bytes

OpenSSL works on memory only, since it lets one thread in at a time: one that waited inside of it to receive would hold
up another that sends. Both ends show the job's certificate and prove that they have its key; whoever shows another one
is refused, whatever it is signed with. That a connection ends without TLS's own goodbye is no matter: what is said
over it has a last word of its own.
"""

import contextlib
import functools
import os
import socket
import ssl
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from nfold.errors import TransportError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

RECORD_BYTES = 16 << 10
"""Encrypted as one."""
MOST_HELD_BYTES = RECORD_BYTES + 512
"""Of a record whose end has not come yet, TLS's own bytes included."""
MOST_SEALED_BYTES = 2 * RECORD_BYTES
"""Encrypted at once: they go out before anything that becomes more urgent."""
FETCHED_BYTES = 64 << 10
_ANY_TIME = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME, which Python does not name. Clocks of machines differ, and the certificate is known."""


class TlsSocket(socket.socket):
    """Takes over a socket. The handshake is part of the first bytes that are sent or received.

    It sends and receives with the methods below only. One thread may send while another receives.
    """

    def __init__(self, plain: socket.socket, key: str, certificate: str, *, accepts: bool) -> None:
        """Args:
        plain: connected; it is detached.
        key: the job's, as PEM.
        certificate: the job's, as PEM.
        accepts: whether the other end dialled us.
        """
        timeout_s = plain.gettimeout()
        super().__init__(fileno=plain.detach())
        self.settimeout(timeout_s)
        self._certificate = ssl.PEM_cert_to_DER_cert(certificate)
        self._came, self._going = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = _context(key, certificate, accepts=accepts)
        self._tls = context.wrap_bio(self._came, self._going, server_side=accepts)
        self._lock = threading.Lock()
        self._unsent = memoryview(b"")
        self._fetched = memoryview(bytearray(FETCHED_BYTES))
        self._is_proven = False

    # As of any socket

    def sendall(self, data: "ReadableBuffer", *_: Any) -> None:
        """Send all, and wait until it has gone; for one thread at a time."""
        self._shake_hands()
        for record in _records([data]):
            with self._lock:
                self._tls.write(record)
                sealed = self._going.read()
            super().sendall(sealed)

    def send(self, data: "ReadableBuffer", *_: Any) -> int:
        """Send what goes without waiting."""
        return self.sendmsg([data])

    def sendmsg(self, buffers: "Iterable[ReadableBuffer]", *_: Any) -> int:
        """Send what goes without waiting. What is encrypted counts; `flush` sends what the kernel has not taken of it.

        Raises:
            BlockingIOError: nothing goes now.
        """
        self._shake_hands()
        taken = 0
        with self._lock:
            for record in _records(buffers):
                if (not taken or self._going.pending >= MOST_SEALED_BYTES) and not self._flush():
                    break
                taken += self._tls.write(record)
            self._flush()
        if not taken:
            raise BlockingIOError("what was encrypted before has not gone yet")
        return taken

    def recv(self, bufsize: int, *_: Any) -> bytes:
        """Receive at most so many bytes, one or more; none: the connection was closed."""
        target = bytearray(bufsize)
        return bytes(target[: self.recv_into(target)])

    def recv_into(self, buffer: "WriteableBuffer", *_: Any, **__: Any) -> int:
        """Receive into memory; 0: the connection was closed."""
        self._shake_hands()
        target = memoryview(buffer).cast("B")
        while not (count := self.open(target)):
            if not self.fetch():
                return 0
        return count

    # For who waits for many sockets

    @property
    def has_unsent(self) -> bool:
        """Whether something is encrypted that the kernel has not taken."""
        return bool(self._unsent or self._going.pending)

    def flush(self) -> bool:
        """Send what is encrypted, and return whether all of it has gone."""
        with self._lock:
            return self._flush()

    def drop_unsent(self) -> None:
        """Forget what is encrypted: the connection is broken."""
        with self._lock:
            self._unsent = memoryview(b"")
            self._going.read()

    def fetch(self) -> int:
        """Take in encrypted bytes from the wire; return how many; 0: the connection was closed."""
        count = super().recv_into(self._fetched)
        with self._lock:
            self._came.write(self._fetched[:count])
        return count

    def open(self, target: memoryview) -> int:
        """Decrypt into memory, and return how many bytes that gave; 0: the next record is not all here."""
        with self._lock:
            if not (self._came.pending or self._tls.pending()):
                return 0  # OpenSSL would say the same with an exception, which takes four times as long
            try:
                return self._tls.read(len(target), target)  # type: ignore[return-value]  # given memory, it counts
            except ssl.SSLWantReadError:
                return 0

    def _flush(self) -> bool:
        """Do the same; the lock is held."""
        while self.has_unsent:
            self._unsent = self._unsent or memoryview(self._going.read())
            try:
                self._unsent = self._unsent[super().send(self._unsent) :]
            except BlockingIOError:
                return False
        return True

    def _shake_hands(self) -> None:
        """Go on with the handshake until it is done.

        Raises:
            BlockingIOError: the other end must say something first, and this socket does not wait.
            TransportError: the other end does not show the job's certificate.
            ConnectionResetError: it hung up.
        """
        while not self._is_proven:
            self._is_proven = self._shake()
            if not (self._is_proven or self.fetch()):
                raise ConnectionResetError("it hung up before the connection was encrypted")

    def _shake(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            with contextlib.suppress(OSError):  # it has hung up already
                self._flush()
            raise TransportError(_told(error)) from error
        self._flush()
        if self._tls.getpeercert(binary_form=True) != self._certificate:
            raise TransportError("it shows another certificate than this job's")
        return True


def _records(buffers: "Iterable[ReadableBuffer]") -> Iterator[memoryview]:
    """Cut what is to be sent, or join it where one record holds all."""
    parts = [memoryview(buffer).cast("B") for buffer in buffers]
    if len(parts) > 1 and sum(map(len, parts)) <= RECORD_BYTES:
        parts = [memoryview(b"".join(parts))]
    for part in parts:
        for start in range(0, len(part), RECORD_BYTES):
            yield part[start : start + RECORD_BYTES]


def _told(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "it shows another certificate than this job's"
    return f"it does not speak TLS as this job's processes do ({error.reason})"


@functools.lru_cache(maxsize=4)
def _context(key: str, certificate: str, *, accepts: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if accepts else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= _ANY_TIME
    context.load_verify_locations(cadata=certificate)
    if accepts:
        context.num_tickets = 0  # nobody resumes
    file = os.memfd_create("nfold-key")  # OpenSSL takes keys from files only, and this one is on no disk
    try:
        os.write(file, f"{key}{certificate}".encode())
        context.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)
    return context
