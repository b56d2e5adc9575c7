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
    """Of one optimizer step."""
    gradient_bytes: float


def program_rates(measured: Facts, cluster: Cluster) -> ProgramRates:
    """Return what nodes do with a program, each with as large a part of a batch as all others have.

    Args:
        measured: on this machine, of which a core is a core of speed 1.
        cluster: where a part of a core is in a node's speed.
    """
    part = max(1.0, measured.batch_size / len(cluster.nodes))
    used = {node.name: _profile(measured, node, part) for node in cluster.nodes}
    return ProgramRates(
        samples_per_s={node.name: part / _part_s(node, used[node.name], part) for node in cluster.nodes},
        update_s={node.name: used[node.name].update.median_s / node.speed for node in cluster.nodes},
        gradient_bytes=float(measured.graph.parameter_bytes),
    )


def _profile(measured: Facts, node: Node, part: float) -> Profile:
    """Return the profile with as many threads as a rank on a node would have."""
    seconds = {threads: sum(profile.whole_s(part)) for threads, profile in measured.profiles.items()}
    return within_cores(measured.profiles[useful_threads(node.cores, 1, seconds)], node.cores)


def _part_s(node: Node, profile: Profile, part: float) -> float:
    """Return the seconds of a part: reading hides behind computing where there is a core for it."""
    compute_s, read_s = sum(profile.whole_s(part)) / node.speed, profile.load_s(part, node.speed)
    if node.cores >= profile.num_threads + profile.reading_cores:
        return max(compute_s, read_s)
    return max(read_s, compute_s + read_s * (1.0 - profile.load_wait))
