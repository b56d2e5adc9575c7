"""What a YARN cluster says of itself, read before anything is asked of it."""

import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nfold.errors import ClusterError

_SERVICES = "yarn.webapp.api-service.enable"
_HANDLER = "yarn.resourcemanager.placement-constraints.handler"
_SPREADING = ("scheduler", "placement-processor")
_NAMENODE_PORT = 9870
_ANY_ADDRESS = "0.0.0.0"


@dataclass(frozen=True, kw_only=True, slots=True)
class Queue:
    """One queue that takes applications."""

    name: str
    path: str
    """From the root: `root.research.short`."""
    usual_s: float | None
    """How long an application may last that asks for nothing; None: without end."""
    most_s: float | None
    """How long any may last; None: without end."""

    def is_called(self, text: str) -> bool:
        """Whether a user means it: by name, by path, or by the end of its path."""
        return f".{self.path}".endswith(f".{text}") or self.name == text

    def granted_s(self, asked_s: float | None) -> float | None:
        """Return how long an application may last that asks for some time, or for none.

        Raises:
            ClusterError: it asks for more than the queue gives.
        """
        if asked_s is not None and self.most_s is not None and asked_s > self.most_s:
            raise ClusterError(
                f"--hosts-for {asked_s:g} is more than YARN's queue {self.name} gives: {self.most_s:g} s. Ask for less"
            )
        if asked_s is not None:
            return asked_s
        return self.usual_s if self.usual_s is not None else self.most_s


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterFacts:
    """As far as nfold uses them."""

    has_services: bool
    spreads: bool
    """Containers are kept apart where a service asks for it. Elsewhere such a service would wait for ever."""
    files: str
    """The cluster's file system, in which services find what containers get, as in `hdfs://nn:8020`."""
    services_folder: str
    """Where services are kept in it; empty: in the user's home."""
    homes: str
    """The folder of home folders in it."""
    name_nodes: tuple[str, ...]
    """Web addresses, one of which serves HDFS; empty: the file system is another one."""
    queues: tuple[Queue, ...]
    num_nodes: int
    """That take containers."""

    def queue(self, wanted: str) -> Queue:
        """Return a queue by what the user calls it.

        Raises:
            ClusterError: there is none; the message lists those that there are.
        """
        for queue in self.queues:
            if queue.is_called(wanted):
                return queue
        known = ", ".join(queue.name for queue in self.queues) or "none"
        raise ClusterError(f"YARN has no queue {wanted!r} that takes applications. It has: {known}.")

    def check(self, count: int) -> None:
        """Refuse what cannot come about.

        Args:
            count: agents that are to run at once.

        Raises:
            ClusterError: YARN Services are off, or there are fewer nodes.
        """
        if not self.has_services:
            raise ClusterError(
                f"this YARN has its Services off, through which agents start. Whoever runs it sets {_SERVICES} to "
                f"true and starts the ResourceManager again; or start agents by hand: --listen"
            )
        if self.spreads and count > self.num_nodes:
            raise ClusterError(
                f"{count} agents need {count} nodes, and YARN has {self.num_nodes}. Use --nodes {self.num_nodes}"
            )


def read_facts(conf: Any, scheduler: Any, metrics: Any) -> ClusterFacts:
    """Read a ResourceManager's answers.

    Args:
        conf: to `/conf`.
        scheduler: to `/ws/v1/cluster/scheduler`.
        metrics: to `/ws/v1/cluster/metrics`.

    Raises:
        ClusterError: they are of another form.
    """
    try:
        settings = {each["key"]: str(each["value"]) for each in conf["properties"]}
        return ClusterFacts(
            has_services=settings.get(_SERVICES) == "true",
            spreads=settings.get(_HANDLER) in _SPREADING,
            files=settings.get("fs.defaultFS", "file:///"),
            services_folder=settings.get("yarn.service.base.path", ""),
            homes=settings.get("dfs.user.home.dir.prefix", "/user"),
            name_nodes=_name_nodes(settings),
            queues=tuple(_queues(scheduler["scheduler"]["schedulerInfo"], "")),
            num_nodes=int(metrics["clusterMetrics"]["activeNodes"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ClusterError(
            f"YARN's ResourceManager says of itself what nfold cannot read ({type(error).__name__}: {error}). nfold "
            f"knows the answers of Hadoop 3.1 to 3.4"
        ) from error


def _queues(info: Mapping[str, Any], above: str) -> Iterator[Queue]:
    """Yield the queues without queues below them, of a capacity scheduler, a fair or a simple one."""
    name = info.get("queueName", "default" if info.get("type") == "fifoScheduler" else "")
    path = name if name.startswith("root") else ".".join(filter(None, (above, name)))
    below = [info[each] for each in ("queues", "childQueues", "rootQueue") if info.get(each)]
    inner = [queue for each in below for queue in _listed(each)]
    for queue in inner:
        yield from _queues(queue, path)
    if name and not inner:
        yield Queue(
            name=name,
            path=path,
            usual_s=_limit(info.get("defaultApplicationLifetime")),
            most_s=_limit(info.get("maximumApplicationLifetime")),
        )


def _listed(queues: Any) -> list[Mapping[str, Any]]:
    """Return queues as a list: a single one stands alone, and lists stand under `queue`."""
    queues = queues.get("queue", queues) if isinstance(queues, Mapping) else queues
    return queues if isinstance(queues, list) else [queues]


def _limit(seconds: Any) -> float | None:
    return float(seconds) if seconds is not None and float(seconds) > 0 else None


def _name_nodes(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return where HDFS may answer on the web: of several NameNodes one is active."""
    files = urllib.parse.urlsplit(settings.get("fs.defaultFS", ""))
    if files.scheme != "hdfs" or not files.hostname:
        return ()
    key = "dfs.namenode.http-address"
    names = [each.strip() for each in settings.get(f"dfs.ha.namenodes.{files.netloc}", "").split(",") if each.strip()]
    addresses = [settings.get(f"{key}.{files.netloc}.{name}", "") for name in names] or [settings.get(key, "")]
    found = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        host = files.hostname if host in ("", _ANY_ADDRESS) else host
        found.append(f"http://{host}:{port or _NAMENODE_PORT}")
    return tuple(found)
