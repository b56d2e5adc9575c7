"""Where the hosts of a benchmark are: on this machine, or each in a network of its own behind a link of some rate."""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "rigs"))
from networks import Networks

LOOPBACK = "loopback"


@dataclass(frozen=True)
class Hosts:
    """Numbered from 0."""

    networks: Networks | None = None
    """None: all are on loopback."""

    @property
    def address(self) -> str:
        """Of this machine, as hosts reach it."""
        return "127.0.0.1" if self.networks is None else self.networks.address

    def address_of(self, number: int) -> str:
        """Return the address of a host."""
        return "127.0.0.1" if self.networks is None else self.networks.address_of(number)

    def inside(self, number: int) -> list[str]:
        """Return what a command begins with that runs there."""
        return [] if self.networks is None else self.networks.inside(number, f"host-{number}")


@contextlib.contextmanager
def hosts_at(network: str, most: int) -> Iterator[Hosts]:
    """Make so many hosts on `loopback`, or at links of a rate of tc, as `100mbit`."""
    if network == LOOPBACK:
        yield Hosts()
        return
    networks = Networks(most)
    try:
        networks.limit(network)
        yield Hosts(networks)
    finally:
        networks.close()
