"""What ranks and nodes did, from samples."""

from typing import Any

import pytest

from nfold.analysis.measured.node_loads import rank_loads
from nfold.core.trace import SystemSample, Trace


def sample(rank: int, node: str, **fields: Any) -> SystemSample:
    """Two seconds."""
    zeros = dict.fromkeys(
        ("compute_cpu_s", "communication_cpu_s", "throttled_s", "steal_s", "neighbours_cpu_s", "at_s"), 0.0
    )
    counts = dict.fromkeys(("rss_bytes", "sent_bytes", "received_bytes", "disk_bytes"), 0)
    return SystemSample(rank=rank, node=node, span_s=2.0, **{**zeros, **counts, **fields})


def test_another_rank_of_the_node_is_no_other_program() -> None:
    samples = (
        sample(0, "a", compute_cpu_s=1.0, communication_cpu_s=0.2, neighbours_cpu_s=1.0),
        sample(1, "a", compute_cpu_s=0.8, neighbours_cpu_s=1.2),
        sample(2, "b", compute_cpu_s=1.0, neighbours_cpu_s=1.4),
    )
    loads = rank_loads(Trace(parts=(), steps=(), usage=(), samples=samples))
    assert [load.neighbour_cores for load in loads.values()] == pytest.approx([0.1, 0.0, 0.7])


def test_where_nodes_share_a_machine_no_rank_is_another_program() -> None:
    samples = (
        sample(0, "a", compute_cpu_s=1.0, neighbours_cpu_s=1.4),
        sample(1, "b", compute_cpu_s=1.2, neighbours_cpu_s=1.2),
    )
    loads = rank_loads(Trace(parts=(), steps=(), usage=(), samples=samples), share_a_machine=True)
    assert [load.neighbour_cores for load in loads.values()] == pytest.approx([0.1, 0.1])
