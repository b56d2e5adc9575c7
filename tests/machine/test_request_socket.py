"""A process is asked by another one of the same user."""

import os

from nfold.machine.request_socket import answering, request


def test_who_answers_is_the_process_that_was_meant():
    with answering(os.getpid(), "now", lambda text: f"heard {text}"):
        assert request(os.getpid(), "now", "+1") == "heard +1"
        assert request(os.getpid(), "now", "-1") == "heard -1"
        assert request(os.getpid(), "before", "+1") is None
    assert request(os.getpid(), "now", "+1") is None
