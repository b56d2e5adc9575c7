"""A network behind an address translation: what is inside dials out, and nobody outside can dial it.

this machine ── gate, which masquerades ── inside
10.x.y.1       10.x.y.2     192.168.77.1   192.168.77.2
"""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
PROGRAMS = ("ip", "nft", "nsenter")
_PREFIX = "nfnat"
_RULES = 'table ip nat { chain post { type nat hook postrouting priority 100; oifname "out" masquerade; }; }'


class Nat:
    """Stands until closed; what a killed process left is removed by the next."""

    def __init__(self) -> None:
        """Make it.

        Raises:
            subprocess.CalledProcessError: the kernel refuses.
        """
        me = os.getpid()
        for name in (path.name for path in Path("/run/netns").glob(f"{_PREFIX}*")):
            owner = name.removeprefix(_PREFIX).partition("-")[0]
            if not Path("/proc", owner).exists():
                _run("ip", "netns", "del", name)
        net = f"10.{200 + me % 50}.{me // 50 % 250}"
        self.address = f"{net}.1"
        """Of this machine, as it is reached from inside."""
        self.gate_address = f"{net}.2"
        """As what is inside is seen here."""
        self._gate, self._inside, outer = f"{_PREFIX}{me}-gate", f"{_PREFIX}{me}-in", f"nfn{me % 10**7}"
        try:
            self._connect(outer, net)
        except BaseException:
            self.close()
            raise

    def within(self, *command: str) -> tuple[str, ...]:
        """Return what runs a command inside."""
        return ("nsenter", f"--net=/run/netns/{self._inside}", *command)

    def close(self) -> None:
        """Remove it; what is inside must have ended."""
        for name in (self._inside, self._gate):
            with contextlib.suppress(subprocess.CalledProcessError):
                _run("ip", "netns", "del", name)

    def _connect(self, outer: str, net: str) -> None:
        for line in (
            f"netns add {self._gate}",
            f"netns add {self._inside}",
            f"link add {outer} type veth peer name out netns {self._gate}",
            f"addr add {net}.1/24 dev {outer}",
            f"link set {outer} up",
            f"-n {self._gate} addr add {net}.2/24 dev out",
            f"-n {self._gate} link set out up",
            f"-n {self._gate} link add in type veth peer name eth0 netns {self._inside}",
            f"-n {self._gate} addr add 192.168.77.1/24 dev in",
            f"-n {self._gate} link set in up",
            f"-n {self._inside} addr add 192.168.77.2/24 dev eth0",
            f"-n {self._inside} link set eth0 up",
            f"-n {self._inside} link set lo up",
            f"-n {self._inside} route add default via 192.168.77.1",
        ):
            _run("ip", *line.split())
        gate = ("nsenter", f"--net=/run/netns/{self._gate}")
        _run(*gate, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
        _run(*gate, "nft", _RULES)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PATH": PATH})


@pytest.fixture
def nat():
    """Skipped where none can be made."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root, and {', '.join(PROGRAMS)} (Debian: iproute2, nftables, util-linux)")
    made = Nat()
    yield made
    made.close()
