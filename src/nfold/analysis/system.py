"""System samples -> what each rank and its node did with their processors and memory, per second of training."""

from dataclasses import dataclass

from nfold.core.trace import SystemSample, Trace


@dataclass(frozen=True, kw_only=True, slots=True)
class RankLoad:
    """Means over a run; processor seconds per second, so 1.0 is one core."""

    rank: int
    node: str
    compute_cores: float
    communication_cores: float
    throttled_share: float
    """Of the time: ready to run, but the share of the processor was used up."""
    steal_cores: float
    """Taken from the node by its hypervisor."""
    neighbour_cores: float
    """Taken on the node by other programs."""
    peak_rss_bytes: int


def rank_loads(trace: Trace) -> dict[int, RankLoad]:
    """Return the load of every rank that was sampled."""
    by_rank: dict[int, list[SystemSample]] = {}
    for sample in trace.samples:
        by_rank.setdefault(sample.rank, []).append(sample)
    return {rank: _load(samples) for rank, samples in sorted(by_rank.items())}


def _load(samples: list[SystemSample]) -> RankLoad:
    span_s = max(sum(sample.span_s for sample in samples), 1e-9)
    return RankLoad(
        rank=samples[0].rank,
        node=samples[0].node,
        compute_cores=sum(sample.compute_cpu_s for sample in samples) / span_s,
        communication_cores=sum(sample.communication_cpu_s for sample in samples) / span_s,
        throttled_share=sum(sample.throttled_s for sample in samples) / span_s,
        steal_cores=sum(sample.steal_s for sample in samples) / span_s,
        neighbour_cores=sum(sample.neighbours_cpu_s for sample in samples) / span_s,
        peak_rss_bytes=max(sample.rss_bytes for sample in samples),
    )
