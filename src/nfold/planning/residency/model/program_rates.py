"""What a measured program asks of nodes that are only described: samples per second, updates, bytes of its gradient."""

from dataclasses import dataclass

from nfold.core.cluster import Cluster, Node
from nfold.core.profile import Profile
from nfold.planning.costs.read_ahead import within_cores
from nfold.planning.inputs.facts import Facts, useful_threads


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgramRates:
    """By the names of nodes."""

    samples_per_s: dict[str, float]
    update_s: dict[str, float]
    """Of one optimizer step, and of what else a step costs a processor, however few its samples are."""
    gradient_bytes: float


def program_rates(measured: Facts, cluster: Cluster) -> ProgramRates:
    """Return what nodes do with a program: each step takes a time of its own, and each sample a little.

    Args:
        measured: on this machine, of which a core is a core of speed 1.
        cluster: where a part of a core is in a node's speed.
    """
    part = max(1.0, measured.batch_size / len(cluster.nodes))
    used = {node.name: _profile(measured, node, part) for node in cluster.nodes}
    fixed_s = {name: _fixed_s(profile, measured.batch_size) for name, profile in used.items()}
    seconds = {
        node.name: _part_s(node, used[node.name], measured.batch_size, fixed_s[node.name]) for node in cluster.nodes
    }
    return ProgramRates(
        samples_per_s={name: measured.batch_size / batch_s for name, batch_s in seconds.items()},
        update_s={node.name: _update_s(node, used[node.name], fixed_s[node.name]) for node in cluster.nodes},
        gradient_bytes=float(measured.graph.parameter_bytes),
    )


def _fixed_s(profile: Profile, batch_size: int) -> float:
    """Return what a chunk takes however few its samples are: on a line through the smallest and a whole batch."""
    smallest = profile.whole[0].chunk_size
    if smallest >= batch_size:
        return 0.0
    few_s, all_s = sum(profile.whole_s(smallest)), sum(profile.whole_s(batch_size))
    return max(0.0, few_s - smallest * (all_s - few_s) / (batch_size - smallest))


def _update_s(node: Node, profile: Profile, fixed_s: float) -> float:
    return (profile.update.median_s + fixed_s) / node.speed + node.step_cpu_s * node.slowdown(1)


def _profile(measured: Facts, node: Node, part: float) -> Profile:
    """Return the profile with as many threads as a rank on a node would have."""
    seconds = {threads: sum(profile.whole_s(part)) for threads, profile in measured.profiles.items()}
    return within_cores(measured.profiles[useful_threads(node.cores, 1, seconds)], node.cores)


def _part_s(node: Node, profile: Profile, part: float, fixed_s: float) -> float:
    """Return the seconds of a part's samples: reading hides behind computing where there is a core for it."""
    compute_s = (sum(profile.whole_s(part)) - fixed_s) / node.speed
    read_s = profile.load_s(part, node.speed)
    if node.cores >= profile.num_threads + profile.reading_cores:
        return max(compute_s, read_s)
    return max(read_s, compute_s + read_s * (1.0 - profile.load_wait))
