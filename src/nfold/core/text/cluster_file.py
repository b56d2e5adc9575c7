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
    samples = 12000            # training samples that live there; every node can read all of them unless given
    sample_bytes = 3072        # of one of them
    pinned = 4000              # of them may not leave; true: all of them; none unless given
    storage = "8 GB"           # room for samples, those that live there among them; not limited unless given
    samples_per_s = 50         # that it trains with; what the program's profile says unless given
    site = "hall 2"            # nodes of one site are near each other
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
_MOST_SAMPLES = 10**12
_KEYS = (
    *("name", "cores", "memory", "uplink", "downlink", "latency", "speed", "price_per_hour", "count"),
    *("samples", "sample_bytes", "pinned", "storage", "samples_per_s", "site"),
)


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

    def whole(self, key: str, default: int, *, least: int = 1, most: int = MOST_NODES) -> int:
        """Return a whole number."""
        value = self._values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.error(key, f"is {value!r}: it must be a whole number from {least} to {most}")
        return value

    def flag_or_number(self, key: str) -> Any:
        """Return what is there; false where it is left out."""
        return self._values.get(key, False)

    def text(self, key: str) -> str:
        """Return a text, or an empty one where it is left out."""
        value = self._values.get(key, "")
        if not isinstance(value, str):
            raise self.error(key, f"{value!r} is no text")
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
    table.refuse_others(_KEYS)
    uplink, downlink = _links(table)
    memory = table.amount("memory", quantities.num_bytes)
    data = _data(table)
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
            samples_per_s=table.positive("samples_per_s", 1.0) if "samples_per_s" in table else None,
            site=table.text("site"),
            **data,
        )


def _data(table: _Table) -> dict[str, Any]:
    """Return what a node says of the samples that live there, by the fields of Node."""
    if "samples" not in table:
        if "pinned" in table:
            raise table.error("pinned", "is given without samples: only what lives there can be pinned")
        samples = None
    else:
        samples = table.whole("samples", 0, least=0, most=_MOST_SAMPLES)
    size = table.whole("sample_bytes", 1, most=_MOST_SAMPLES) if "sample_bytes" in table else None
    storage = table.amount("storage", quantities.num_bytes)
    if samples and size and storage is not None and samples * size > storage:
        raise table.error("storage", f"is {int(storage)} bytes, and its samples take {samples * size}")
    return {
        "num_samples": samples,
        "sample_bytes": size,
        "num_pinned": _pinned(table, samples or 0),
        "storage_bytes": None if storage is None else int(storage),
    }


def _pinned(table: _Table, samples: int) -> int:
    """Read `pinned = true`, `false` or a number of samples."""
    value = table.flag_or_number("pinned")
    if value is True:
        return samples
    return table.whole("pinned", 0, least=0, most=samples) if value is not False else 0


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
