"""A child that takes the place in MPI of the process that MPI has started. The parent never enters MPI itself.

    started by MPI         child
    tell / hear     <──>                enters MPI, and tells all, or hears, what the first process says
    begin            ──>                becomes a member of the job, in MPI, where ranks talk over it
    close            ──>                leaves MPI, together with all others

So the parent may fork, sees how a rank ends, and lives on when one breaks down. MPI finds the child by the variables
and open files that it inherits, as it finds a program behind any script.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nfold.errors import ClusterError
from nfold.launch.child import OwnChild, describe_exit
from nfold.launch.local_launcher import TOKEN_VARIABLE, Started

_MODULE = "nfold.verbs.ranks.mpi_rank"
_FILES = ("PMI_FD", "PMI2_FD")
"""Variables that name a file which whoever started us has left open for the library of MPI."""
_MOST_BYTES = 1 << 17
LEAVE_S = 30.0
"""How long all processes together may take to leave MPI, once none has anything else to do."""


def files_of_mpi(environment: Mapping[str, str]) -> list[int]:
    """Return the descriptors that a process has to inherit to take a place in MPI."""
    return [int(environment[name]) for name in _FILES if environment.get(name, "").isdecimal()]


class MpiProcess:
    """The child; its parent is a process that MPI has started, or a child of one."""

    def __init__(self, size: int, environment: Mapping[str, str] = os.environ) -> None:
        """Start it. By the main thread: the kernel ends it with the thread that started it.

        Args:
            size: how many processes MPI has started.
            environment: of this process.
        """
        self._line, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        command = [sys.executable, "-P", "-m", _MODULE, str(os.getpid()), str(theirs.fileno()), str(size)]
        with theirs:
            self._process = subprocess.Popen(
                command,
                env={**environment, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), *files_of_mpi(environment)],
                start_new_session=True,
            )
        self._has_begun = False

    def tell(self, text: str) -> None:
        """Tell all processes, as the first one; returns once all have entered MPI.

        Raises:
            ClusterError: this process cannot enter MPI.
        """
        with contextlib.suppress(BrokenPipeError):  # it has ended, and may have said why
            self._line.send(json.dumps(text).encode())
        self.hear()

    def hear(self) -> str:
        """Return what the first process tells.

        Raises:
            ClusterError: this process cannot enter MPI.
        """
        if not (said := self._said()):
            how = describe_exit(self._process.wait())
            raise ClusterError(f"the process that should enter MPI {how}. What MPI says of it stands above.")
        told: dict[str, str] = json.loads(said)
        if "error" in told:
            raise ClusterError(told["error"])
        return told["text"]

    def _said(self) -> bytes:
        """Return what it said; nothing where it has ended."""
        try:
            return self._line.recv(_MOST_BYTES)
        except ConnectionResetError:  # it ended before it read what it was told; what it has said comes after that
            return self._line.recv(_MOST_BYTES)

    def begin(
        self, command: Sequence[str], environment: Mapping[str, str], folder: Path | None, output: Any
    ) -> Started:
        """Let it become a member of the job; return its process, which a launcher ends.

        Args:
            command: that would start the member as a process of its own.
            environment: of the member. Only the token is passed on: the rest is that of this process.
            folder: in which it works.
            output: descriptor of what it prints into.

        Raises:
            OSError: it is a member already.
        """
        if self._has_begun:
            raise ProcessLookupError(0, "over MPI each process that MPI has started is one rank, and this one was")
        self._has_begun = True
        order = {
            "words": [*command[command.index("-m") + 2 :]],
            "token": environment[TOKEN_VARIABLE],
            "folder": str(folder or ""),
        }
        socket.send_fds(self._line, [json.dumps(order).encode()], [output])
        return OwnChild(self._process)

    @property
    def has_left(self) -> bool:
        """Return whether it has left MPI in order."""
        return self._process.poll() == 0

    def close(self) -> None:
        """Let it leave MPI unless it has become a member; returns once it has. Safe to call again."""
        self._line.close()
        if self._has_begun:
            return
        try:
            self._process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> "MpiProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
