"""Ranks that are real processes, and die."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest

from nfold.errors import TransportError
from nfold.transport.tcp import Listener, connect_mesh
from nfold.transport.torch_distributed import StoreServer, connect_group

TCP_RANK = """
import sys
from nfold.transport.tcp import Listener, connect_mesh
listener = Listener("127.0.0.1")
transport = connect_mesh(1, 2, listener, [("127.0.0.1", int(sys.argv[1])), listener.address], "a", 30.0)
transport.send(0, 1, memoryview(b"hello"), lambda: None)
sys.stdin.read()
"""
GLOO_RANK = """
import sys
from nfold.transport.torch_distributed import connect_group
transport = connect_group(1, 2, "127.0.0.1", ("127.0.0.1", int(sys.argv[1])), "a", 30.0)
transport.send(0, 1, memoryview(b"hello"), lambda: None)
sys.stdin.read()
"""


@contextmanager
def join_tcp(start: Callable[[int], None]) -> Iterator[Any]:
    with Listener("127.0.0.1") as listener:
        start(listener.address[1])
        yield connect_mesh(0, 2, listener, [listener.address, ("127.0.0.1", 1)], "a", 30.0)


@contextmanager
def join_gloo(start: Callable[[int], None]) -> Iterator[Any]:
    server = StoreServer("127.0.0.1")
    start(server.address[1])
    try:
        yield connect_group(0, 2, "127.0.0.1", server.address, "a", 30.0)
    finally:
        server.close()  # not before the other rank has joined, too


@pytest.mark.processes
@pytest.mark.timeout(60)
@pytest.mark.parametrize(("join", "script"), [(join_tcp, TCP_RANK), (join_gloo, GLOO_RANK)], ids=["tcp", "gloo"])
def test_a_killed_process_is_lost_at_once(join: Callable[..., Any], script: str) -> None:
    children: list[subprocess.Popen[bytes]] = []

    def start(port: int) -> None:
        children.append(subprocess.Popen([sys.executable, "-c", script, str(port)], stdin=subprocess.PIPE))

    hello, lost, into = Future[None](), Future[TransportError](), bytearray(5)
    with join(start) as transport:
        transport.on_failure(lost.set_result)
        transport.receive(1, 1, memoryview(into), lambda: hello.set_result(None))
        hello.result(10)
    with children[0] as child:
        child.kill()
    assert getattr(lost.result(2), "peer", None) == 1
    transport.close()
