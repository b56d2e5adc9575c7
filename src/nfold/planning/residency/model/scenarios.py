"""Clusters that nobody has: data, speeds, links and sizes of samples as unequal as one likes, the same for a seed."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from nfold.core.cluster import UNLIMITED_BYTES, Channel, Cluster, Node
from nfold.core.text.cluster_file import LOCAL
from nfold.errors import PlanError
from nfold.planning.residency.model.boxes import Array

_MBIT = 1e6 / 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """How a cluster is drawn."""

    name: str
    skew: float | None = 1.0
    """Concentration of the Dirichlet distribution that shares out the samples: small is unequal; None: all alike."""
    speeds: tuple[float, ...] | Literal["uniform"] = (1, 2, 4, 8)
    """Of nodes, each as likely; or evenly from 1 to 2."""
    base_rate: float = 50.0
    """Samples that a node of speed 1 trains on in a second."""
    sample_bytes: int = 3000
    links_mbit: tuple[float, float] = (1.0, 100.0)
    """Slowest and fastest; the logarithm is drawn evenly."""
    samples_per_node: int = 1000

    def __post_init__(self) -> None:
        low, high = self.links_mbit
        if not (0 < low <= high and self.base_rate > 0 and self.sample_bytes > 0 and self.samples_per_node > 0):
            raise PlanError(f"scenario {self.name}: rates and sizes must be more than 0, slowest links first")


SCENARIOS = (
    Scenario(name="mild", skew=5.0, speeds="uniform"),
    Scenario(name="thesis-like"),
    Scenario(name="equal speed", speeds=(1,)),
    Scenario(name="equal data", skew=None),
    Scenario(name="strong skew", skew=0.3),
    Scenario(name="slow links", links_mbit=(1.0, 5.0)),
    Scenario(name="images on slow nodes", sample_bytes=110_000, base_rate=1.0),
    Scenario(name="moving is dear", sample_bytes=110_000, base_rate=20.0, links_mbit=(1.0, 5.0)),
)


def drawn(scenario: Scenario, num_nodes: int, seed: int) -> Cluster:
    """Return a cluster of a scenario, the same for the same seed.

    Raises:
        PlanError: it would have no node.
    """
    if num_nodes < 1:
        raise PlanError(f"scenario {scenario.name}: a cluster of {num_nodes} nodes has none")
    random = np.random.default_rng([seed, num_nodes])
    samples = _shares(scenario, num_nodes, random)
    rates = scenario.base_rate * _speeds(scenario, num_nodes, random)
    low, high = scenario.links_mbit
    links = _MBIT * low * (high / low) ** random.random(num_nodes)
    nodes = (
        _node(index, int(held), scenario.sample_bytes, float(rate), float(link))
        for index, (held, rate, link) in enumerate(zip(samples, rates, links, strict=True))
    )
    return Cluster(nodes=tuple(nodes))


def _shares(scenario: Scenario, num_nodes: int, random: np.random.Generator) -> Array:
    """Return whole samples of each node; the largest holder takes what rounding leaves."""
    total = scenario.samples_per_node * num_nodes
    if scenario.skew is None:
        return np.full(num_nodes, float(scenario.samples_per_node))
    samples = np.floor(random.dirichlet(np.full(num_nodes, scenario.skew)) * total)
    samples[samples.argmax()] += total - samples.sum()
    return samples


def _speeds(scenario: Scenario, num_nodes: int, random: np.random.Generator) -> Array:
    if scenario.speeds == "uniform":
        return random.uniform(1.0, 2.0, num_nodes)
    return random.choice(np.array(scenario.speeds, dtype=float), num_nodes)


def _node(index: int, samples: int, sample_bytes: int, rate: float, bytes_per_s: float) -> Node:
    link = Channel(latency_s=0.0, bandwidth_bytes_per_s=bytes_per_s, origin="declared")
    return Node(
        name=f"n{index}",
        cores=1.0,
        memory_bytes=UNLIMITED_BYTES,
        local=LOCAL,
        uplink=link,
        downlink=link,
        num_samples=samples,
        sample_bytes=sample_bytes,
        samples_per_s=rate,
    )
