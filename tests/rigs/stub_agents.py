"""A program in place of an agent, and what it dials: managers are tested without ranks, in a fraction of a second."""

import json
import socket
import sys
from pathlib import Path

from nfold.hosts.manager import Call

WITHIN_S = 90.0
"""For what comes in a second, or with YARN in ten; only who fails waits."""
TOKEN = "secret-of-the-job"

_AGENT = """#!{python} -SE
import json, os, signal, socket, sys, threading

words = sys.argv[1:]
given = dict(zip(words, words[1:]))
where = given["--token-file"]
token = (sys.stdin if where == "-" else open(where)).readline().strip()
host, port = given["--connect"].split(",")[0].rsplit(":", 1)
line = socket.create_connection((host, int(port)), 10)
line.settimeout(None)


def leave(*_):
    line.sendall(b"TERM\\n")
    os._exit(0)


signal.signal(signal.SIGTERM, leave)
if "--while-input" in words:
    threading.Thread(target=lambda: leave(sys.stdin.read()), daemon=True).start()
hello = dict(words=words, place=int(given["--place"]), name=given.get("--name"), token=token, pid=os.getpid())
hello["environment"] = dict(os.environ)
line.sendall(json.dumps(hello).encode() + b"\\n")
order = line.makefile().readline().strip()
print("stub agent ends:", order or "its line is gone", flush=True)
sys.exit(int(order or 0))
"""


class StubAgents:
    """Listens, and hears stubs by place."""

    def __init__(self, folder: Path, address: str = "127.0.0.1") -> None:
        """Args:
        folder: for the program.
        address: of this machine, at which stubs reach it.
        """
        self._server = socket.create_server((address, 0))
        self._server.settimeout(WITHIN_S)
        self._program = folder / "stub-agent"
        self._program.write_text(_AGENT.format(python=sys.executable))
        self._program.chmod(0o755)
        self._lines: dict[int, socket.socket] = {}
        self._files = {}
        self.hellos: dict[int, dict] = {}

    @property
    def call(self) -> Call:
        """What a manager is given."""
        return Call(addresses=(self._server.getsockname(),), token=TOKEN, interpreter=str(self._program))

    def hear(self, count: int) -> None:
        """Wait for so many more."""
        for _ in range(count):
            line, _ = self._server.accept()
            line.settimeout(WITHIN_S)
            file = line.makefile()
            hello = json.loads(file.readline())
            place = hello["place"]
            self.hellos[place], self._lines[place], self._files[place] = hello, line, file

    def next_word(self, place: int) -> str:
        """Wait for what a stub says next: TERM, or nothing when it has ended without a word."""
        return self._files[place].readline().strip()

    def tell(self, place: int, code: int = 0) -> None:
        """Have a stub end with an exit code."""
        self._lines[place].sendall(f"{code}\n".encode())

    def close(self) -> None:
        """End all stubs."""
        self._server.close()
        for place, line in self._lines.items():
            self._files[place].close()
            line.close()

    def __enter__(self) -> "StubAgents":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
