"""Members that are real processes, and die."""

import subprocess
import sys
from concurrent.futures import Future

import pytest

from nfold.errors import TransportError
from nfold.transport.implementations.tcp import Listener, TcpConnections

SCRIPT = """
import sys
from nfold.transport.implementations.tcp import Listener, TcpConnections
connections = TcpConnections(1, "a")
connections.meet(Listener("127.0.0.1"), {0: ("127.0.0.1", int(sys.argv[1]))}, 30.0)
connections.begin(0, (0, 1)).send(0, 1, memoryview(b"hello"), lambda: None)
sys.stdin.read()
"""


@pytest.mark.processes
@pytest.mark.timeout(60)
def test_a_killed_process_is_lost_at_once() -> None:
    hello, lost, into = Future[None](), Future[TransportError](), bytearray(5)
    connections = TcpConnections(0, "a")
    with Listener("127.0.0.1") as listener:
        child = subprocess.Popen([sys.executable, "-c", SCRIPT, str(listener.address[1])], stdin=subprocess.PIPE)
        connections.meet(listener, {1: ("127.0.0.1", 1)}, 30.0)
        transport = connections.begin(0, (0, 1))
        transport.on_failure(lost.set_result)
        transport.receive(1, 1, memoryview(into), lambda: hello.set_result(None))
        hello.result(10)
    with child:
        child.kill()
    assert getattr(lost.result(2), "peer", None) == 1
    connections.close()
