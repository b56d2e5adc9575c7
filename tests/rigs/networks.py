"""Hosts that are made on this machine: each has a card of its own on one bridge, which this machine is on, too.

Nothing is left behind: networks that a killed process left are removed by the next.
"""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

_PREFIX = "nfrig"


class Networks:
    """Namespaces until closed."""

    def __init__(self, num_hosts: int) -> None:
        """Make them.

        Args:
            num_hosts: are numbered from 0.
        """
        _remove_stale()
        self._me, self._num_hosts = os.getpid(), num_hosts
        self._subnet = f"10.{100 + self._me % 100}.{self._me // 100 % 250}"
        self.address = f"{self._subnet}.254"
        """Of this machine."""
        try:
            self._connect()
        except BaseException:
            self.close()
            raise

    def address_of(self, number: int) -> str:
        """Return where a host is."""
        return f"{self._subnet}.{number + 1}"

    def inside(self, number: int, host: str) -> list[str]:
        """Return what a command begins with that runs on a host, ends with its parent, and is told that name."""
        # Not `ip netns exec`: it mounts /sys anew, without the control groups that slurmd looks for.
        network = ["nsenter", f"--net=/run/netns/{_namespace(self._me, number)}"]
        named = ["unshare", "--uts", "sh", "-c", f'hostname {host} && exec "$@"', "sh"]
        return ["setpriv", "--pdeathsig", "KILL", *network, *named]

    def limit(self, rate: str) -> None:
        """Let each card carry no more than a rate of `tc`, as 100mbit, in each direction."""
        bucket = f"root tbf rate {rate} burst 64kb latency 100ms"
        for number in range(self._num_hosts):
            _ip_or_tc(f"tc qdisc replace dev {_bridge(self._me)}v{number} {bucket}")
            _ip_or_tc(f"tc -n {_namespace(self._me, number)} qdisc replace dev eth0 {bucket}")

    def cut(self, number: int) -> None:
        """Let nothing pass between a host and all others."""
        _ip_or_tc(f"ip link set {_bridge(self._me)}v{number} down")

    def mend(self, number: int) -> None:
        """Undo `cut`."""
        _ip_or_tc(f"ip link set {_bridge(self._me)}v{number} up")

    def close(self) -> None:
        """End all that runs on the hosts, and remove them."""
        _remove(self._me, self._num_hosts)

    def _connect(self) -> None:
        bridge = _bridge(self._me)
        lines = [f"link add {bridge} type bridge", f"addr add {self.address}/24 dev {bridge}", f"link set {bridge} up"]
        for number in range(self._num_hosts):
            name, outer = _namespace(self._me, number), f"{bridge}v{number}"
            lines += [
                f"netns add {name}",
                f"link add {outer} type veth peer name eth0 netns {name}",
                f"link set {outer} master {bridge} up",
                f"-n {name} addr add {self.address_of(number)}/24 dev eth0",
                f"-n {name} link set eth0 up",
                f"-n {name} link set lo up",
            ]
        for line in lines:
            _ip_or_tc(f"ip {line}")


def _ip_or_tc(line: str) -> None:
    subprocess.run(line.split(), check=True)


def _bridge(owner: int) -> str:
    return f"nfs{owner % 10**7}"


def _namespace(owner: int, number: int) -> str:
    return f"{_PREFIX}{owner}-{number}"


def _remove_stale() -> None:
    for line in subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout.splitlines():
        name = line.split()[0]
        owner = name.removeprefix(_PREFIX).partition("-")[0]
        if name.startswith(_PREFIX) and not Path("/proc", owner).exists():
            _remove(int(owner), int(name.rpartition("-")[2]) + 1)


def _remove(owner: int, num_hosts: int) -> None:
    """Remove networks, and what still runs in them: jobs outlive their daemons."""
    for number in range(num_hosts):
        name = _namespace(owner, number)
        there = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
        for pid in there.stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        # A namespace and its card go when the kernel finds time for it: the next rig may want the name before that.
        subprocess.run(["ip", "link", "del", f"{_bridge(owner)}v{number}"], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    subprocess.run(["ip", "link", "del", _bridge(owner)], capture_output=True, check=False)
