"""Turns a cluster file into a `Cluster` of declared values.

    [[node]]
    name = "pi-0"
    cores = 0.5                # processor share; 1 unless given
    memory = "1 GiB"           # not limited unless given
    uplink = "100 Mbit/s"      # each direction at its own rate; not limited unless given
    downlink = "50 Mbit/s"     # the uplink's unless given
    latency = "2 ms"           # one way between two nodes of this latency; nothing is added unless given
    speed = 1.0                # of a core, relative to the machine that is profiled; 1 unless given
    price_per_hour = 0.05      # 0 unless given
    count = 3                  # three such nodes: pi-0, pi-1, pi-2; with name = "pi" they are called the same

Half of a latency belongs to each end: between nodes of 2 ms and 6 ms a message takes 4 ms. Everything is checked: a
key that is not listed here, a number without its unit or a rate of 0 is an error that names the file, the node and
the key.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nfold.core.cluster import UNLIMITED_BYTES, Channel, Cluster, Node
from nfold.core.text import quantities
from nfold.errors import ClusterError

LOCAL = Channel(latency_s=5e-5, bandwidth_bytes_per_s=1e9, origin="declared")
"""Between two ranks of one node: what TCP over loopback does on a small machine."""
MOST_NODES = 10_000
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_MOST_CHARACTERS = 63
_TAKEN = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")
_NUMBERED = re.compile(r"(.*-)(\d+)")


def read_cluster(path: str | Path) -> Cluster:
    """Read a cluster file.

    Raises:
        ClusterError: it is not there, or says something that makes no sense; the message names file, node and key.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ClusterError(f"cannot read the cluster file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ClusterError(f"cannot read the cluster file {path}: it is no text in UTF-8") from error
    return parse_cluster(text, str(path))


def parse_cluster(text: str, where: str) -> Cluster:
    """Turn the text of a cluster file into a cluster.

    Args:
        text: TOML.
        where: the file's name, for messages.

    Raises:
        ClusterError: as `read_cluster`.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ClusterError(f"{where} is not TOML: {error}") from error
    tables = document.pop("node", [])
    if document:
        raise ClusterError(f"{where}: unknown key {next(iter(document))!r}. The file is a list of [[node]] tables.")
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise ClusterError(f"{where} declares no node. Write a [[node]] table for each, with at least a name.")
    nodes = [node for index, table in enumerate(tables) for node in _nodes(_Table(table, index, where))]
    _check_all(nodes, where)
    return Cluster(nodes=tuple(nodes))


def _check_all(nodes: list[Node], where: str) -> None:
    seen: set[str] = set()
    for node in nodes:
        if node.name in seen:
            raise ClusterError(f"{where}: two nodes are called {node.name!r}. Give each [[node]] a name of its own.")
        seen.add(node.name)


class _Table:
    """One [[node]] table: hands out its keys, each checked, with the node's name in every complaint."""

    def __init__(self, values: Mapping[str, Any], index: int, where: str) -> None:
        self._values, self._where = values, where
        name = values.get("name")
        self._node = f"node {name!r}" if isinstance(name, str) else f"[[node]] number {index + 1}"

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def error(self, key: str, what: str) -> ClusterError:
        """Return what is wrong with a key."""
        return ClusterError(f"{self._where}: {self._node}: {key}: {what}")

    def refuse_others(self, known: tuple[str, ...]) -> None:
        """Raise if there is a key that nobody reads."""
        for key in self._values:
            if key not in known:
                raise self.error(key, f"there is no such key. Known: {', '.join(known)}")

    def number(self, key: str, default: float) -> float:
        """Return a number of at least 0."""
        value = self._values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(key, f"{value!r} is no number")
        if not 0 <= value < float("inf"):
            raise self.error(key, f"is {value}: it must be at least 0")
        return float(value)

    def positive(self, key: str, default: float) -> float:
        """Return a number above 0."""
        value = self.number(key, default)
        if value == 0:
            raise self.error(key, "is 0: it must be greater than 0")
        return value

    def whole(self, key: str, default: int) -> int:
        """Return a whole number of at least 1."""
        value = self._values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_NODES:
            raise self.error(key, f"is {value!r}: it must be a whole number from 1 to {MOST_NODES}")
        return value

    def amount(self, key: str, read: Callable[[str], float]) -> float | None:
        """Return an amount with a unit, or None where it is left out."""
        value = self._values.get(key)
        if value is None:
            return None
        try:
            return read(value if isinstance(value, str) else str(value))
        except ClusterError as error:
            raise self.error(key, str(error)) from None

    def name(self) -> str:
        """Return the name."""
        if "name" not in self._values:
            raise self.error("name", "is missing: every node needs one")
        name = self._values["name"]
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise self.error(
                "name", f"is {name!r}: use letters, digits, '.', '_' and '-', at most 63, the first and last no sign"
            )
        if name in _TAKEN:
            raise self.error("name", f"is {name!r}, by which every machine means itself. Use another one.")
        return name


def _nodes(table: _Table) -> Iterator[Node]:
    table.refuse_others(
        ("name", "cores", "memory", "uplink", "downlink", "latency", "speed", "price_per_hour", "count")
    )
    uplink, downlink = _links(table)
    memory = table.amount("memory", quantities.num_bytes)
    for name in _names(table):
        yield Node(
            name=name,
            cores=table.positive("cores", 1.0),
            memory_bytes=UNLIMITED_BYTES if memory is None else int(memory),
            speed=table.positive("speed", 1.0),
            price_per_hour=table.number("price_per_hour", 0.0),
            local=LOCAL,
            uplink=uplink,
            downlink=downlink,
        )


def _names(table: _Table) -> Iterator[str]:
    """Number the nodes of a table that stands for several."""
    name = table.name()
    if "count" not in table:
        yield name
        return
    numbered = _NUMBERED.fullmatch(name)
    stem, first = (numbered[1], int(numbered[2])) if numbered else (f"{name}-", 0)
    count = table.whole("count", 1)
    last = f"{stem}{first + count - 1}"
    if len(last) > _MOST_CHARACTERS:
        raise table.error("name", f"is too long: {last!r} would have {len(last)} characters of {_MOST_CHARACTERS}")
    yield from (f"{stem}{first + index}" for index in range(count))


def _links(table: _Table) -> tuple[Channel | None, Channel | None]:
    """Return both directions of a node's link, each with its half of the node's latency."""
    up = table.amount("uplink", quantities.bytes_per_s)
    down = table.amount("downlink", quantities.bytes_per_s)
    latency_s = table.amount("latency", quantities.seconds)
    if up is None:
        for key in ("downlink", "latency"):
            if key in table:
                raise table.error(key, "is given without an uplink: a link needs the rate of its uplink first")
        return None, None

    def channel(rate: float) -> Channel:
        return Channel(latency_s=(latency_s or 0.0) / 2, bandwidth_bytes_per_s=rate, origin="declared")

    return channel(up), channel(up if down is None else down)
