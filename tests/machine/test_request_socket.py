"""A process is asked by another one of the same user."""

import os
import socket
import threading

import pytest

from nfold.errors import RunError
from nfold.machine import request_socket
from nfold.machine.request_socket import answering, request


def test_who_answers_is_the_process_that_was_meant():
    with answering(os.getpid(), "now", lambda text: f"heard {text}"):
        assert request(os.getpid(), "now", "+1") == "heard +1"
        assert request(os.getpid(), "now", "-1") == "heard -1"
        assert request(os.getpid(), "before", "+1") is None
    assert request(os.getpid(), "now", "+1") is None


def test_who_asks_after_one_that_cannot_be_answered_is_answered():
    with answering(os.getpid(), "now", lambda text: str(int(text))):
        assert request(os.getpid(), "now", "six").startswith('refused: ValueError("invalid literal')
        assert request(os.getpid(), "now", "6") == "6"


@pytest.mark.parametrize(
    ("hangs_up", "told"),
    [
        (False, r"^process \d+ has not answered within 0\.05 s: it is stopped .*before you ask again: nfold ps$"),
        (True, r"^process \d+ (hung up without an|gave no) answer.* See whether it goes on: nfold ps$"),
    ],
)
def test_who_does_not_answer_is_told_of(monkeypatch, hangs_up, told):
    monkeypatch.setattr(request_socket, "PATIENCE_S", 0.05)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(request_socket._name(os.getpid(), "deaf"))
        listener.listen()
        hanging_up = threading.Thread(target=lambda: listener.accept()[0].close())
        if hangs_up:
            hanging_up.start()
        with pytest.raises(RunError, match=told):
            request(os.getpid(), "deaf", "+1")
        if hangs_up:
            hanging_up.join()
