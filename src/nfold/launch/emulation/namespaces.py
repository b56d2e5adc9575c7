"""Where the nodes of an emulated cluster live, and the commands that build their network. Pure: commands are data.

    nfold-7 (namespace)                                  the switch
      └ switch ── port0 ══ eth0   nfold-7-pi-0           a node: uplink shaped at eth0, downlink at its port
               ── port1 ══ eth0   nfold-7-pi-1

Every device, the switch too, lives in a network namespace of its own, so nothing of it meets the host's devices,
routes and firewall, and deleting the namespaces deletes all of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from nfold.errors import ClusterError

MOST_EMULATIONS = 256
"""At once on one machine: each has the subnet 10.77.NUMBER.0/24."""
MOST_NODES = 254
DEVICE = "eth0"
"""A node's only network device, apart from its loopback."""
_SWITCH = "switch"


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeNamespace:
    """Where one node lives."""

    node: str
    namespace: str
    address: str
    port: str
    """Its device at the switch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Lines for one call of `ip -batch` or `tc -batch`, which stops at the first that fails."""

    tool: str
    namespace: str | None
    """In which they act; None: the host."""
    lines: tuple[str, ...]

    @property
    def command(self) -> list[str]:
        """Return the command that reads the lines from its standard input."""
        return [self.tool, *(("-n", self.namespace) if self.namespace else ()), "-batch", "-"]


def switch_namespace(number: int) -> str:
    """Return the namespace of an emulation's switch."""
    return f"nfold-{number}"


def is_namespace_of(number: int, name: str) -> bool:
    """Return whether the namespace of that name belongs to an emulation: its switch's or a node's."""
    return name == switch_namespace(number) or name.startswith(f"{switch_namespace(number)}-")


def make_seats(number: int, nodes: Sequence[str]) -> tuple[NodeNamespace, ...]:
    """Give every node its namespace, address and port, in the order of the nodes.

    Raises:
        ClusterError: there are more nodes than addresses.
    """
    if len(nodes) > MOST_NODES:
        raise ClusterError(f"an emulated cluster has at most {MOST_NODES} nodes, and {len(nodes)} are declared")
    return tuple(
        NodeNamespace(
            node=node,
            namespace=f"{switch_namespace(number)}-{node}",
            address=f"10.77.{number}.{index + 1}",
            port=f"port{index}",
        )
        for index, node in enumerate(nodes)
    )


def hosts(seats: Sequence[NodeNamespace]) -> str:
    """Return what every node's /etc/hosts says, so that programs which look up names find the nodes."""
    return "127.0.0.1 localhost\n" + "".join(f"{seat.address} {seat.node}\n" for seat in seats)


def network(number: int, seats: Sequence[NodeNamespace]) -> list[Batch]:
    """Return what builds the network, in this order; no link is shaped yet."""
    switch = switch_namespace(number)
    return [
        Batch(tool="ip", namespace=None, lines=tuple(f"netns add {name}" for name in _namespaces(number, seats))),
        Batch(tool="ip", namespace=switch, lines=tuple(_wires(seats))),
        *(Batch(tool="ip", namespace=seat.namespace, lines=tuple(_node(seat))) for seat in seats),
    ]


def separation(number: int, seat: NodeNamespace, *, joined: bool) -> Batch:
    """Return what takes a node's port out of the switch or puts it back; its link stays up, so neither side hears."""
    line = f"link set dev {seat.port} {f'master {_SWITCH}' if joined else 'nomaster'}"
    return Batch(tool="ip", namespace=switch_namespace(number), lines=(line,))


def _namespaces(number: int, seats: Sequence[NodeNamespace]) -> list[str]:
    return [switch_namespace(number), *(seat.namespace for seat in seats)]


def _wires(seats: Sequence[NodeNamespace]) -> list[str]:
    lines = [f"link add {_SWITCH} type bridge", f"link set dev {_SWITCH} addrgenmode none up"]
    for seat in seats:
        lines.append(f"link add {seat.port} type veth peer name {DEVICE} netns {seat.namespace}")
        lines.append(f"link set dev {seat.port} master {_SWITCH} addrgenmode none up")
    return lines


def _node(seat: NodeNamespace) -> list[str]:
    return [
        "link set dev lo up",
        f"address add {seat.address}/24 dev {DEVICE}",
        f"link set dev {DEVICE} addrgenmode none up",
    ]
