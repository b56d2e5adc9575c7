"""Random questions of where data should live."""

import numpy as np

from nfold.core.cluster import Channel, Cluster, Node
from nfold.core.residency import Holding, Residency
from nfold.core.text.cluster_file import LOCAL
from nfold.planning.residency.model.boxes import Boxes
from nfold.planning.residency.model.problem import Demand, Problem
from nfold.planning.residency.model.traffic import Links, Traffic


def random_boxes(seed, most_nodes=12):
    """Boxes of some nodes, which may pin, lack storage, or be excluded."""
    random = np.random.default_rng(seed)
    n = int(random.integers(2, most_nodes + 1))
    held = np.floor(random.dirichlet(np.full(n, random.choice([0.3, 1.0, 5.0]))) * 1000 * n)
    rate = 50.0 * random.choice([1, 2, 4, 8], n) * random.uniform(0.8, 1.2, n)
    least, most = np.zeros(n), np.full(n, np.inf)
    if random.random() < 0.4:
        least = np.floor(held * random.uniform(0, 1, n) * (random.random(n) < 0.3))
    if random.random() < 0.4:
        most = np.where(random.random(n) < 0.4, held + np.floor(random.uniform(0, 500, n)), np.inf)
        most[int(random.integers(n))] = np.inf
    if random.random() < 0.3:
        shut = (random.random(n) < 0.3) & (least == 0) & np.isfinite(most)
        rate = np.where(shut, 0.0, rate)
    bytes_per_s = lambda: 125_000.0 * random.choice([1.0, 10.0, 100.0]) ** random.random(n)  # noqa: E731
    size = random.choice([3_000.0, 110_000.0])
    up = bytes_per_s() / size
    down = up if random.random() < 0.5 else bytes_per_s() / size
    return Boxes(held=held, least=least, most=most, rate=rate, up=up, down=down)


def random_problem(seed, most_nodes=7, kind="ring"):
    """A question whose gradients travel, too."""
    random = np.random.default_rng(seed + 10_000)
    boxes = random_boxes(seed, most_nodes)
    count, sample_bytes = len(boxes.held), 3000.0
    holdings = [
        Holding(
            node=f"n{i}",
            num_samples=int(boxes.held[i]),
            num_pinned=int(boxes.least[i]),
            most_samples=None if np.isinf(boxes.most[i]) else int(boxes.most[i]),
        )
        for i in range(count)
    ]
    demand = Demand(
        epochs=int(random.choice([1, 5, 20])),
        batch_size=int(random.choice([32, 256])),
        traffic=Traffic(kind=kind, gradient_bytes=float(random.choice([0.0, 2e4, 2e5, 1e6]))),
    )
    links = Links(
        up=boxes.up * sample_bytes,
        down=boxes.down * sample_bytes,
        latency_s=random.uniform(0, 1e-3, count),
        message_s=random.uniform(0, 1e-3, count),
        byte_s=random.uniform(0, 1e-7, count),
    )
    return Problem(
        residency=Residency(holdings=tuple(holdings), sample_bytes=sample_bytes),
        sites=("",) * count,
        boxes=boxes,
        links=links,
        update_s=random.uniform(0, 1e-3, count),
        come_s=np.zeros(count),
        demand=demand,
    )


def boxes(held, rate, up, down=None, least=None, most=None):
    """Boxes by hand."""
    count = len(held)
    rows = {
        "held": held,
        "rate": rate,
        "up": up,
        "down": up if down is None else down,
        "least": [0] * count if least is None else least,
        "most": [np.inf] * count if most is None else most,
    }
    return Boxes(**{name: np.array(row, dtype=float) for name, row in rows.items()})


def cluster(*nodes):
    """Nodes by hand: name, samples, samples per second, Mbit/s, and other fields."""
    return Cluster(nodes=tuple(_node(*node) for node in nodes))


def _node(name, samples, samples_per_s, mbit, fields=None):
    link = Channel(latency_s=0.0, bandwidth_bytes_per_s=mbit * 125_000.0, origin="declared")
    known = {"num_samples": samples, "sample_bytes": 1000, "samples_per_s": samples_per_s, **(fields or {})}
    return Node(name=name, cores=1.0, memory_bytes=1 << 30, local=LOCAL, uplink=link, downlink=link, **known)


def demand(epochs=10, batch_size=100, gradient_bytes=0.0, kind="ring", most_batch=None, activation_bytes=0.0):
    """What a program asks."""
    traffic = Traffic(kind=kind, gradient_bytes=gradient_bytes, activation_bytes=activation_bytes)
    return Demand(epochs=epochs, batch_size=batch_size, traffic=traffic, most_batch=most_batch)
