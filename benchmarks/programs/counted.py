"""Captured graphs as questions to the planner, with work counted in operations instead of measured.

So what is planned for them is the same on every machine.
"""

from itertools import cycle, islice
from pathlib import Path

from nfold.core.cluster import Channel, Cluster, Node
from nfold.core.graph import ModelGraph
from nfold.core.profile import ChunkTiming, OperatorProfile, Profile, Timing
from nfold.planning.inputs.facts import Facts

GRAPHS = Path(__file__).parents[1] / "traffic" / "graphs"
OPERATIONS_PER_S = 1e10


def question(
    graph: ModelGraph, batch_size: int, workers: int, chunks: int | None, speeds: tuple[float, ...] = (1.0,)
) -> Facts:
    """Return nodes with links of 100 Mbit/s, of these speeds again and again, and work by operations."""
    link = Channel(latency_s=1e-4, bandwidth_bytes_per_s=12.5e6, origin="declared")
    nodes = tuple(
        Node(name=f"n{index}", cores=1.0, speed=speed, memory_bytes=1 << 40, local=link, uplink=link, downlink=link)
        for index, speed in enumerate(islice(cycle(speeds), workers))
    )
    return Facts(
        graph=graph,
        profiles={1: profile(graph)},
        cluster=Cluster(nodes=nodes),
        nodes=tuple(node.name for node in nodes),
        workers=workers,
        servers=0,
        batch_size=batch_size,
        chunks=chunks,
    )


def profile(graph: ModelGraph) -> Profile:
    """Return seconds in proportion to operations: backward twice forward, once where no gradient goes further back."""
    flows = {tensor.name: tensor.requires_grad for tensor in graph.tensors}
    seconds = {}
    for operator in graph.operators:
        forward = operator.flops_per_sample / OPERATIONS_PER_S
        seconds[operator.name] = (forward, forward * (1 + any(flows[name] for name in operator.inputs)))
    whole = tuple(sum(pair[side] for pair in seconds.values()) for side in (0, 1))
    return Profile(
        device_kind="counted",
        num_threads=1,
        operators=tuple(
            OperatorProfile(operator=name, timings=_timings(*pair), saved_bytes_per_sample=0.0)
            for name, pair in seconds.items()
        ),
        whole=_timings(whole[0], whole[1]),
        update=_timing(0.0),
        load_s_per_sample=0.0,
        parameter_bytes=graph.parameter_bytes,
        optimizer_bytes=0,
        activation_bytes_per_sample=0.0,
        base_bytes=0,
        peak_bytes=0,
    )


def _timing(seconds: float) -> Timing:
    return Timing(median_s=seconds, spread_s=0.0, repeats=1)


def _timings(forward_s: float, backward_s: float) -> tuple[ChunkTiming, ...]:
    return tuple(
        ChunkTiming(chunk_size=size, forward=_timing(size * forward_s), backward=_timing(size * backward_s))
        for size in (1, 128)
    )
