"""Asks a process of the same user something, by a socket that has a name and no file: an answer, or nobody hears.

The name is the process's number and what it is asked about. Both ends check whose the other is.
"""

import contextlib
import os
import socket
import struct
import threading
import zlib
from collections.abc import Callable, Iterator

from nfold.errors import NfoldError, RunError, one_line

PATIENCE_S = 30.0
MOST_BYTES = 1 << 16
REFUSED = "refused: "
"""How an answer begins that says why nothing was done."""


def request(pid: int, about: str, text: str) -> str | None:
    """Return what a process answers; None: it hears no requests.

    Args:
        pid: of the process.
        about: what it answers for, as it says itself.
        text: that it is asked.

    Raises:
        RunError: it gives no answer.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(PATIENCE_S)
        try:
            connection.connect(_name(pid, about))
            if not _is_own(connection):
                return None
            connection.send(text.encode())
            answer = connection.recv(MOST_BYTES).decode(errors="replace")
        except ConnectionRefusedError:
            return None
        except TimeoutError:
            raise RunError(
                f"process {pid} has not answered within {PATIENCE_S:g} s: it is stopped (kill -CONT {pid} lets it go "
                "on) or busy. It may still do what was asked, so look before you ask again: nfold ps"
            ) from None
        except OSError as error:
            raise RunError(
                f"process {pid} gave no answer ({error.strerror}). See whether it goes on: nfold ps"
            ) from None
        if not answer:
            raise RunError(f"process {pid} hung up without an answer. See whether it goes on: nfold ps")
        return answer


@contextlib.contextmanager
def answering(pid: int, about: str, answer: Callable[[str], str]) -> Iterator[None]:
    """Answer requests to this process until the end of a block, one after another, by a thread of its own."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(_name(pid, about))
        listener.listen()
        thread = threading.Thread(target=_answer_all, args=(listener, answer), name="nfold-requests", daemon=True)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE_S)


def _answer_all(listener: socket.socket, answer: Callable[[str], str]) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return  # closed
        with connection, contextlib.suppress(OSError):  # who asked has gone
            connection.settimeout(PATIENCE_S)
            if _is_own(connection) and (text := connection.recv(MOST_BYTES).decode(errors="replace")):
                connection.send(_answered(text, answer).encode(errors="replace")[:MOST_BYTES])


def _answered(text: str, answer: Callable[[str], str]) -> str:
    """Return the answer to a request, or why there is none: whoever asks next is to be heard too."""
    try:
        return answer(text)
    except Exception as error:
        return f"{REFUSED}{one_line(str(error) if isinstance(error, NfoldError) else repr(error))}"


def _is_own(connection: socket.socket) -> bool:
    """Whether the other end belongs to this user, or to root."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", credentials)[1] in (0, os.getuid())


def _name(pid: int, about: str) -> str:
    return f"\0nfold-{pid}-{zlib.crc32(about.encode()):08x}"
