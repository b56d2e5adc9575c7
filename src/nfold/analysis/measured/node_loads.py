"""System samples -> what each rank and its node did with processors, memory and network, per second of training."""

from dataclasses import replace
from statistics import fmean, median

from nfold.core.report import RankLoad
from nfold.core.trace import SystemSample, Trace


def rank_loads(trace: Trace, *, share_a_machine: bool = False) -> dict[int, RankLoad]:
    """Return the load of every rank that was sampled; what another rank takes of its node is no other program's.

    Args:
        trace: of the run.
        share_a_machine: all nodes are emulated on one, whose counters each rank has read.
    """
    by_rank: dict[int, list[SystemSample]] = {}
    for sample in trace.samples:
        by_rank.setdefault(sample.rank, []).append(sample)
    loads = [_load(samples) for _, samples in sorted(by_rank.items())]
    others = (replace(load, neighbour_cores=_of_others(load, loads, share_a_machine)) for load in loads)
    return {load.rank: load for load in others}


def _of_others(own: RankLoad, loads: list[RankLoad], share_a_machine: bool) -> float:
    """Return the cores that a rank's neighbours take and no other rank of its machine."""
    beside = (load for load in loads if (share_a_machine or load.node == own.node) and load.rank != own.rank)
    return max(0.0, own.neighbour_cores - sum(load.compute_cores + load.communication_cores for load in beside))


def node_resident_bytes(trace: Trace) -> dict[str, int]:
    """Return the peak memory of all ranks of each node; pages that they may share are counted once.

    Samples and the kernel's own peak may each miss what the other sees.
    """
    peaks = {load.rank: load.peak_rss_bytes for load in rank_loads(trace).values()}
    own: dict[str, int] = {}
    shared: dict[str, int] = {}
    for usage in trace.usage:
        peak, common = max(usage.peak_rss_bytes, peaks.get(usage.rank, 0)), usage.shared_rss_bytes
        own[usage.node] = own.get(usage.node, 0) + max(0, peak - common)
        shared[usage.node] = max(shared.get(usage.node, 0), common)
    return {node: own[node] + shared[node] for node in own}


THROTTLED = 0.1
"""Of the time. Below it a limit costs less than a tenth; above it whatever the rank does is a tenth slower or more."""
MOST_FRAMING = 1.15
"""Headers of Ethernet, IP and TCP make 4 to 6 %; what makes more than 15 % is other traffic."""


def framing(trace: Trace) -> float:
    """Return bytes on the wire for each byte of payload, headers and all, as the nodes' interfaces counted them.

    Links are sold, and shaped, by what is on the wire. 1.0 where interfaces were not read, where ranks share a node
    (not all of their payload leaves it), and where other traffic or long pauses hide it.
    """
    nodes = [usage.node for usage in trace.usage]
    if len(set(nodes)) < len(nodes):
        return 1.0
    ratios = []
    for rank in {sample.rank for sample in trace.samples}:
        samples = [sample for sample in trace.samples if sample.rank == rank]
        parts = [parts for parts in trace.parts if parts.rank == rank]
        payload = fmean(each.sent_bytes for each in parts) / fmean(each.step_s for each in parts) if parts else 0.0
        on_wire = sum(sample.sent_bytes for sample in samples) / max(sum(sample.span_s for sample in samples), 1e-9)
        if payload > 0 and 1.0 <= on_wire / payload <= MOST_FRAMING:
            ratios.append(on_wire / payload)
    return median(ratios) if ratios else 1.0


def _load(samples: list[SystemSample]) -> RankLoad:
    span_s = max(sum(sample.span_s for sample in samples), 1e-9)
    return RankLoad(
        rank=samples[0].rank,
        node=samples[0].node,
        compute_cores=sum(sample.compute_cpu_s for sample in samples) / span_s,
        communication_cores=sum(sample.communication_cpu_s for sample in samples) / span_s,
        throttled_share=min(1.0, sum(sample.throttled_s for sample in samples) / span_s),
        steal_cores=sum(sample.steal_s for sample in samples) / span_s,
        neighbour_cores=sum(sample.neighbours_cpu_s for sample in samples) / span_s,
        peak_rss_bytes=max(sample.rss_bytes for sample in samples),
        disk_bytes_per_s=sum(sample.disk_bytes for sample in samples) / span_s,
        sent_bytes_per_s=sum(sample.sent_bytes for sample in samples) / span_s,
        received_bytes_per_s=sum(sample.received_bytes for sample in samples) / span_s,
    )
