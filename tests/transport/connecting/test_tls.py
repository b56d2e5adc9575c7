"""Connections that are encrypted: nobody who listens in or sits between reads anything, or is believed."""

import contextlib
import random
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from heard_wire import HeardWire

from nfold.errors import TransportError
from nfold.transport.connecting.encryption import secured
from nfold.transport.connecting.job_token import key_and_certificate, new_token
from nfold.transport.connecting.tls_socket import TlsSocket
from nfold.transport.connecting.token_proof import HELLO_BYTES
from nfold.transport.implementations.tcp import Listener, TcpConnections

pytestmark = pytest.mark.timeout(30)
TENSOR = random.Random(0).randbytes(300_000)
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture(scope="module")
def token() -> str:
    return new_token(encrypted=True)


def tcp_pair() -> Pair:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname(), timeout=10)
        other, _ = listener.accept()
    other.settimeout(10)
    return one, other


@pytest.fixture
def ends(token: str) -> Iterator[Pair]:
    """Both ends of an encrypted connection over which nothing has been said."""
    one, other = tcp_pair()
    secure = secured(one, token, accepts=False), secured(other, token, accepts=True)
    yield secure
    for end in secure:
        end.close()


def exchange(members: list[TcpConnections]) -> None:
    """Let each member send the tensor to the other, and close."""
    transports = [member.begin(0, (0, 1)) for member in members]
    arrived = [threading.Event() for _ in members]
    into = [bytearray(len(TENSOR)) for _ in members]
    for rank, transport in enumerate(transports):
        transport.receive(1 - rank, 1, memoryview(into[rank]), arrived[rank].set)
        transport.send(1 - rank, 1, memoryview(TENSOR), lambda: None)
    assert all(event.wait(10) for event in arrived)
    assert into == [TENSOR] * 2
    assert [transport.sent_bytes for transport in transports] == [len(TENSOR)] * 2, "of payload"
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(TcpConnections.close, members))


@pytest.mark.parametrize("encrypted", [True, False])
def test_who_listens_in_reads_nothing_where_it_is_encrypted(encrypted: bool) -> None:
    token = new_token(encrypted=encrypted)
    with Listener("127.0.0.1") as first, Listener("127.0.0.1") as second, HeardWire(first.address) as wire:
        members = [TcpConnections(member, token) for member in (0, 1)]
        addresses = [{1: second.address}, {0: wire.address}]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(TcpConnections.meet, members, (first, second), addresses, (10.0, 10.0)))
        exchange(members)
        heard = wire.heard()
    assert len(heard) > 2 * len(TENSOR)
    assert all((TENSOR[begin : begin + 16] in heard) != encrypted for begin in range(0, len(TENSOR) - 16, 10_000))
    assert (b"nfold" in heard) != encrypted
    secret = token.removeprefix("tls:").split(":")
    assert not any(part[:32].encode() in heard or part[-32:].encode() in heard for part in secret)


def test_both_directions_are_full_at_once(ends: Pair) -> None:
    """Nobody who waits to send holds up who receives."""
    large = random.Random(1).randbytes(8 << 20)
    read = [bytearray(), bytearray()]

    def receive(side: int) -> None:
        while len(read[side]) < len(large):
            read[side] += ends[side].recv(1 << 16)

    ends[1].settimeout(None)
    first = threading.Thread(target=ends[0].sendall, args=(b"!",))
    first.start()
    assert ends[1].recv(1) == b"!"
    first.join()
    threads = [threading.Thread(target=end.sendall, args=(large,), daemon=True) for end in ends]
    threads += [threading.Thread(target=receive, args=(side,), daemon=True) for side in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert read == [large, large]


@pytest.mark.parametrize("liar", ["dialler", "acceptor"])
def test_a_certificate_of_another_job_is_refused(token: str, liar: str) -> None:
    """So nobody can sit between two members: it would have to show the job's certificate to both."""
    one, other = tcp_pair()
    another = new_token(encrypted=True)
    dialler = secured(one, another if liar == "dialler" else token, accepts=False)
    acceptor = secured(other, another if liar == "acceptor" else token, accepts=True)
    with ThreadPoolExecutor(1) as pool, dialler, acceptor:
        refused = pool.submit(acceptor.recv, 1)
        with pytest.raises(TransportError, match="it shows another certificate than this job's"):
            dialler.recv(1)
        with pytest.raises(TransportError, match="does not speak TLS as this job's processes do"):
            refused.result(10)


def test_a_dialler_without_a_certificate_is_refused(token: str) -> None:
    one, other = tcp_pair()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with ThreadPoolExecutor(1) as pool, secured(other, token, accepts=True) as acceptor:
        refused = pool.submit(acceptor.recv, 1)
        with context.wrap_socket(one) as stranger, pytest.raises(ssl.SSLError):
            stranger.recv(1)
        with pytest.raises(TransportError, match="does not speak TLS as this job's processes do"):
            refused.result(10)


def test_an_older_tls_is_refused(token: str) -> None:
    one, other = tcp_pair()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with ThreadPoolExecutor(1) as pool, secured(other, token, accepts=True) as acceptor:
        refused = pool.submit(acceptor.recv, 1)
        with pytest.raises(ssl.SSLError):
            context.wrap_socket(one)
        with pytest.raises(TransportError, match="does not speak TLS as this job's processes do"):
            refused.result(10)


@pytest.mark.parametrize("words", [bytes(HELLO_BYTES), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + bytes(99)])
def test_who_does_not_encrypt_is_refused(token: str, words: bytes) -> None:
    one, other = tcp_pair()
    with one, secured(other, token, accepts=True) as acceptor:
        one.sendall(words)
        one.shutdown(socket.SHUT_WR)
        with pytest.raises((TransportError, ConnectionResetError)):
            acceptor.recv(1)


def test_what_was_heard_once_opens_no_door(token: str) -> None:
    with Listener("127.0.0.1") as listener, HeardWire(listener.address) as wire:
        listener.socket.setblocking(True)
        dialler = secured(socket.create_connection(wire.address, timeout=10), token, accepts=False)
        with ThreadPoolExecutor(1) as pool, dialler:
            said = pool.submit(dialler.sendall, b"a proof")
            with secured(listener.socket.accept()[0], token, accepts=True) as acceptor:
                assert acceptor.recv(7) == b"a proof"
            said.result(10)
        one, other = tcp_pair()
        with one, secured(other, token, accepts=True) as acceptor:
            one.sendall(wire.heard())
            with pytest.raises(TransportError, match="does not speak TLS"):
                acceptor.recv(1)


def test_bytes_that_were_changed_on_the_way_end_the_connection(ends: Pair) -> None:
    dialler, acceptor = ends
    first = threading.Thread(target=dialler.sendall, args=(b"!",))
    first.start()
    assert acceptor.recv(1) == b"!"
    first.join()
    socket.socket.sendall(dialler, b"\x17\x03\x03\x00\x20" + bytes(32))
    with pytest.raises(ssl.SSLError):
        acceptor.recv(1)


def test_who_does_not_wait_hears_what_has_not_gone(ends: Pair) -> None:
    dialler, acceptor = ends
    first = threading.Thread(target=dialler.sendall, args=(b"!",))
    first.start()
    assert acceptor.recv(1) == b"!"
    first.join()
    dialler.setblocking(False)
    large, taken = memoryview(bytes(64 << 20)), 0
    with contextlib.suppress(BlockingIOError):
        while taken < len(large):
            taken += dialler.sendmsg([large[taken:]])
    assert 0 < taken < len(large)
    read = 0
    while read < taken:
        read += len(acceptor.recv(1 << 20))
        dialler.flush()  # type: ignore[attr-defined]
    assert read == taken, "what is encrypted counts as sent"


def test_clocks_do_not_matter(token: str) -> None:
    """A machine whose clock is years off meets the others."""
    pair = key_and_certificate(token)
    assert pair is not None
    key, certificate = pair
    begins, ends = re.finditer(rb"\x17\x0d(\d\d)\d{10}Z", encoded := ssl.PEM_cert_to_DER_cert(certificate))
    assert begins[1] < ends[1]
    expired = ssl.DER_cert_to_PEM_cert(encoded[: ends.start(1)] + b"20" + encoded[ends.end(1) :])
    one, other = tcp_pair()
    with (
        TlsSocket(one, key, expired, accepts=False) as dialler,
        TlsSocket(other, key, expired, accepts=True) as acceptor,
        ThreadPoolExecutor(1) as pool,
    ):
        said = pool.submit(dialler.sendall, b"!")
        assert acceptor.recv(1) == b"!"
        said.result(10)
