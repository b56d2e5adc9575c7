"""Forks processes for another one, whose children they are from then on: the side of the copy that they are made from.

    its creator    ── socket ─>  server      what to do, and a descriptor
                                 forks       a process in between, which forks the one that is wanted, and ends
    adopts the one that is wanted
                   <── number ──

The kernel gives processes without a parent to their next ancestor that adopts. So the creator can wait for them, they
are killed with it, and whatever becomes of the server is nothing to them.
"""

import contextlib
import os
import select
import socket
import sys
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

from nfold.launch.orphans import end_with_parent

MOST_BYTES = 1 << 16
"""Of what a process is told to do."""
_STANDARD_ERROR = 2
Do = Callable[[str, int], object]
"""What a process does with its text and its descriptor; it ends when this returns."""


def serve(connection: socket.socket, do: Do, parent: int, *, apart: bool = False) -> None:
    """Fork a process for each message, until the other end closes.

    Args:
        connection: of messages with bounds; each is a text with a descriptor, and is answered with a number.
        do: what they do, once they are children of the parent.
        parent: number of the process that adopts.
        apart: they are in no group of this process, which may be killed as soon as they are told of.
    """
    while True:
        text, descriptors, _, _ = socket.recv_fds(connection, MOST_BYTES, 1)
        if not text:
            return
        try:
            answer = str(_fork_for(parent, partial(do, text.decode(), descriptors[0]), apart=apart))
        except OSError as error:
            answer = f"this process ({os.getpid()}) cannot be forked: {error.strerror}"
        finally:
            os.close(descriptors[0])
        connection.send(answer.encode())


def let_go(*kept: int) -> None:
    """Close what this process has open from others. Their numbers stay taken, since objects may yet close them."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > _STANDARD_ERROR and number not in (*kept, nothing):
            os.dup2(nothing, number, inheritable=False)


def name(word: str) -> None:
    """Show this process under a name in `ps` and `top`; at most 15 letters."""
    Path("/proc/self/comm").write_text(word, encoding="utf-8")


def fork(do: Callable[[], object]) -> int:
    """Fork a process that does something and ends; return its number.

    Raises:
        OSError: the system refuses.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # or both would print what waits
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on: of threads, see ForkServer
        number = os.fork()
    return number or _do_and_end(do)


def _fork_for(parent: int, do: Callable[[], object], *, apart: bool) -> int:
    """Fork a process whose parent is another one, an ancestor that adopts; return its number."""
    reads, writes = os.pipe()
    try:
        between = fork(partial(_fork_and_end, writes, parent, do, apart))
        os.close(writes)
        number = int(os.read(reads, 32) or b"0")
        os.waitpid(between, 0)  # it has been adopted when this returns
    finally:
        os.close(reads)
    if number <= 0:
        raise OSError(-number, os.strerror(-number))
    return number


def _fork_and_end(writes: int, parent: int, do: Callable[[], object], apart: bool) -> None:
    """Be the process in between."""
    if apart:
        os.setsid()
    own = os.pidfd_open(os.getpid())
    try:
        number = fork(partial(_do_when_adopted, own, parent, do))
    except OSError as error:
        number = -(error.errno or 0)
    os.write(writes, str(number).encode())


def _do_when_adopted(between: int, parent: int, do: Callable[[], object]) -> None:
    poll = select.poll()
    poll.register(between, select.POLLIN)
    poll.poll()
    end_with_parent(parent)
    do()


def _do_and_end(do: Callable[[], object]) -> NoReturn:
    code = 1
    try:
        do()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):  # nobody reads any more
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)  # threads of the user's libraries must not keep it alive
