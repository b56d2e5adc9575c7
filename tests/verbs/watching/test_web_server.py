"""A server that nobody can hold up, and of which nothing is left."""

import socket
import threading

import pytest

from nfold.errors import PlanError
from nfold.verbs.watching import web_server
from nfold.verbs.watching.web_server import Answer, answering

pytestmark = pytest.mark.timeout(30)
LARGE = "x" * (64 << 20)
"""More than both ends of a connection keep."""


def ask(port, request=b"GET /a?b HTTP/1.0\r\n\r\n"):
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    connection.sendall(request)
    return connection


def read(connection):
    with connection, connection.makefile("rb") as answer:
        return answer.read()


def threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("nfold-web")]


def test_a_request_gets_its_answer():
    with answering("127.0.0.1", 0, "--x", lambda path: Answer(text=f"asked for {path}", headers={"X": "y"})) as port:
        head, _, body = read(ask(port)).partition(b"\r\n\r\n")
    assert body == b"asked for /a?b"
    assert head.startswith(b"HTTP/1.0 200 ")
    assert b"\r\nX: y" in head
    assert b"Python" not in head


def test_a_failure_is_an_answer_that_says_no_more():
    with answering("127.0.0.1", 0, "--x", {}.__getitem__) as port:
        head, _, body = read(ask(port)).partition(b"\r\n\r\n")
    assert (head.split()[1], body) == (b"500", b"")


@pytest.mark.parametrize("request_", [b"POST / HTTP/1.0\r\n\r\n", b"GET " + b"a" * 65_533])
def test_what_is_no_question_is_told_nothing(request_):
    with answering("127.0.0.1", 0, "--x", lambda _: pytest.fail("asked")) as port:
        head, _, body = read(ask(port, request_)).partition(b"\r\n\r\n")
    assert body == b""
    assert head.split()[1] in (b"501", b"414")


def test_who_asks_nothing_or_never_reads_holds_up_nobody_and_is_gone_at_the_end():
    answers = {"/a?b": Answer(text=LARGE), "/": Answer(text="small")}
    with answering("127.0.0.1", 0, "--x", answers.__getitem__) as port:
        silent, deaf = ask(port, b""), ask(port)
        assert deaf.recv(1), "it is being written to"
        assert read(ask(port, b"GET / HTTP/1.0\r\n\r\n")).endswith(b"small")
        assert len(threads()) > 2
    assert threads() == []
    assert read(silent) == b""
    deaf.close()


def test_one_too_many_takes_the_place_of_the_oldest(monkeypatch):
    monkeypatch.setattr(web_server, "MOST_AT_ONCE", 3)
    with answering("127.0.0.1", 0, "--x", lambda _: Answer(text="here")) as port:
        silent = [ask(port, b"") for _ in range(3)]
        assert read(ask(port)).endswith(b"here")
        assert read(silent[0]) == b""
        silent[2].sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert read(silent[2]).endswith(b"here")
        silent[1].close()


def test_who_stays_silent_is_let_go(monkeypatch):
    monkeypatch.setattr(web_server._Handler, "timeout", 0.05)
    with answering("127.0.0.1", 0, "--x", lambda _: Answer()) as port:
        assert read(ask(port, b"")) == b""


def test_a_port_that_is_taken_is_told():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        told = f"--x 0: cannot listen on 127.0.0.1, port {port}: Address already in use. Use another one, or port 0"
        with pytest.raises(PlanError, match=told), answering("127.0.0.1", port, "--x 0", lambda _: Answer()):
            pass
    assert threads() == []


def test_a_port_is_free_again_at_once():
    with answering("127.0.0.1", 0, "--x", lambda _: Answer()) as port:
        read(ask(port))
    with answering("127.0.0.1", port, "--x", lambda _: Answer()):
        pass
