"""Servers of OpenSSH on loopback, and an ssh that finds them as host-0, host-1 .."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

SSHD = "/usr/sbin/sshd"
FIRST_PORT = 22_170


@contextlib.contextmanager
def servers(folder: Path, count: int = 2) -> Iterator[str]:
    """Run them until the end of a block; yield the command that reaches them."""
    if not Path(SSHD).exists() or shutil.which("ssh") is None or os.getuid() != 0:
        pytest.skip("needs root, and openssh-server and openssh-client")
    Path("/run/sshd").mkdir(exist_ok=True)
    for key in ("user", "host"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True)
    running = [_sshd(folder, number) for number in range(count)]
    try:
        for server in running:
            assert server.stderr is not None
            for line in server.stderr:  # until it listens
                if "Server listening" in line:
                    break
        yield f"ssh -F {_ssh_config(folder, count)}"
    finally:
        for server in running:
            server.send_signal(signal.SIGTERM)
            server.communicate()


def _sshd(folder: Path, number: int) -> "subprocess.Popen[str]":
    port, address = _place(number)
    text = (
        f"Port {port}\nListenAddress {address}\nHostKey {folder / 'host'}\nAuthorizedKeysFile {folder / 'user.pub'}\n"
        "AcceptEnv *\nPidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n"
        "PasswordAuthentication no\nLogLevel INFO\n"
    )
    (folder / f"sshd{number}").write_text(text)
    command = [SSHD, "-D", "-e", "-f", str(folder / f"sshd{number}")]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def _ssh_config(folder: Path, count: int) -> Path:
    lines = []
    for number in range(count):
        port, address = _place(number)
        lines += [f"Host host-{number}", f"  HostName {address}", f"  Port {port}", f"  IdentityFile {folder / 'user'}"]
        lines += ["  StrictHostKeyChecking no", "  UserKnownHostsFile /dev/null", "  LogLevel ERROR", "  SendEnv *"]
    (folder / "ssh_config").write_text("\n".join(lines) + "\n")
    return folder / "ssh_config"


def _place(number: int) -> tuple[int, str]:
    """Port and address of a server: tests that run side by side have ports of their own."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return FIRST_PORT + 2 * worker + number, f"127.0.0.{number + 2}"
