"""Turns a cluster into the text of a cluster file, so that what was emulated can be emulated again."""

import json
from collections.abc import Iterator

from nfold.core.cluster import Cluster, Node


def format_cluster(cluster: Cluster) -> str:
    """Return a text that reads as the cluster, with declared links.

    A file knows one latency of a node, half of it at each direction of its link, and no downlink without an uplink.
    """
    return "\n".join("[[node]]\n" + "".join(f"{key} = {value}\n" for key, value in _keys(n)) for n in cluster.nodes)


def _keys(node: Node) -> Iterator[tuple[str, str]]:
    yield "name", json.dumps(node.name)
    yield "cores", repr(float(node.cores))
    if node.limits_memory:
        yield "memory", f'"{node.memory_bytes} B"'
    up, down = node.uplink, node.downlink
    if up is not None:
        yield "uplink", _rate(up.bandwidth_bytes_per_s)
        yield "downlink", _rate((down or up).bandwidth_bytes_per_s)
        yield "latency", f'"{_plain((up.latency_s + (down or up).latency_s) * 1e6)} us"'
    if node.speed != 1.0:
        yield "speed", repr(float(node.speed))
    if node.price_per_hour:
        yield "price_per_hour", repr(float(node.price_per_hour))
    yield from _data_keys(node)


def _data_keys(node: Node) -> Iterator[tuple[str, str]]:
    if node.num_samples is not None:
        yield "samples", str(node.num_samples)
    if node.sample_bytes is not None:
        yield "sample_bytes", str(node.sample_bytes)
    if node.num_pinned:
        yield "pinned", str(node.num_pinned)
    if node.storage_bytes is not None:
        yield "storage", f'"{node.storage_bytes} B"'
    if node.samples_per_s is not None:
        yield "samples_per_s", repr(float(node.samples_per_s))
    if node.site:
        yield "site", json.dumps(node.site, ensure_ascii=False)


def _rate(bytes_per_s: float) -> str:
    return f'"{_plain(bytes_per_s * 8)} bit/s"'


def _plain(value: float) -> str:
    """Return a number without an exponent, to a millionth."""
    text = f"{value:.6f}"
    return text.rstrip("0").rstrip(".")
