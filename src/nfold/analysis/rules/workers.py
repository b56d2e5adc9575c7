"""What holds all workers back alike: compute, shared cores, input, memory, or fixed costs."""

from collections.abc import Iterator
from math import ceil, floor
from statistics import fmean

from nfold.analysis.measured.measured_facts import CoreUse, MeasuredFacts
from nfold.analysis.measured.node_loads import node_resident_bytes
from nfold.analysis.rules.finding import Finding
from nfold.analysis.rules.peer_wait import typical_compute_s, typical_input_s
from nfold.core.text.units import count, percent, rate, seconds, size

_ALMOST_FULL = 0.9
_READS = 1e5
"""Bytes per second. A disk that has to seek for every sample moves more; below it, waiting is for something else."""


def compute(facts: MeasuredFacts) -> Finding:
    """Return what forward and backward take on a typical worker, and whether more ranks could share them."""
    use, lost_s = facts.cores[0], typical_compute_s(facts)
    share = lost_s / facts.step_s if facts.step_s else 0.0
    place = use.node.name if len(facts.cores) == 1 else "all nodes"
    of_step = f"{percent(share)} of each step ({seconds(lost_s)} of {seconds(facts.step_s)})"
    return Finding(
        kind="compute",
        verdict="compute",
        place=place,
        lost_s=lost_s,
        value=100 * share,
        unit="%",
        evidence=f"forward and backward are {of_step}",
        head=f"Compute: {_who_computes(facts)} {of_step}.",
        remedy=_what_helps(facts, use),
        next_command=_other_size(facts, use),
    )


def shared_cores(facts: MeasuredFacts) -> Finding | None:
    """Return the part of compute that is there because ranks share cores; None when each has its own."""
    use = max(facts.cores, key=lambda use: use.shared_share)
    if use.shared_share <= 0:
        return None
    busy = f"{count(use.num_ranks, 'rank')} with {count(use.threads, 'thread')}"
    crowd = "share" if use.threads > use.node.cores else "slow each other (caches, memory) on"
    return Finding(
        kind="shared cores",
        place=use.node.name,
        lost_s=facts.parts.compute_s * use.shared_share,
        evidence=f"part of compute: {busy} {crowd} {count(use.node.cores, 'core')}",
    )


def reading(facts: MeasuredFacts) -> Finding | None:
    """Return what waiting for data takes; None when it takes nothing.

    Of a typical worker, of two the faster: what another one waits beyond that, the others wait for.
    """
    lost_s = typical_input_s(facts)
    if lost_s <= 0:
        return None
    per_sample_s = lost_s * len(facts.busy_workers) / max(1, facts.plan.batch_size)
    evidence = f"reading takes {seconds(lost_s)} of each step, {seconds(per_sample_s)} a sample{_from_disk(facts)}"
    return Finding(
        kind="input",
        verdict="input",
        place="dataset",
        lost_s=lost_s,
        value=lost_s * 1e3,
        evidence=evidence,
        head=f"Input: {evidence}.",
        remedy=" ".join(_what_reads_faster(facts, lost_s)),
        next_command=_with_more_loaders(facts, lost_s) or "nfold train {file} -n 1 --steps 20",
    )


def _what_reads_faster(facts: MeasuredFacts, lost_s: float) -> Iterator[str]:
    loaders = more_loaders(facts, lost_s)
    if loaders:
        yield f"Read in processes beside each rank, for which there are cores: --loaders {loaders}."
    if _disk_bytes_per_s(facts) >= _READS:
        yield "Keep the data in memory, or on a faster disk."
    else:
        yield "Make the dataset's items cheaper: decode once and keep them, or store them decoded."


def more_loaders(facts: MeasuredFacts, lost_s: float) -> int:
    """Return how many loaders would read as fast as a step computes, or as many as cores are free for; 0: no more.

    A core that waits for samples is free for as long.

    Args:
        facts: of the run.
        lost_s: of each step, that a typical worker waits for its samples.
    """
    if facts.plan.asynchrony is not None or facts.plan.chunk_shares:
        return 0  # its slices are handed out one by one; or data live on nodes, and others come later
    reading, busy_s = max(1, facts.plan.loaders), max(facts.step_s - lost_s, 1e-9)
    free = min((use.node.cores - use.threads * busy_s / facts.step_s) / use.num_ranks for use in facts.cores)
    wanted = ceil(reading * facts.step_s / busy_s)
    loaders = min(wanted, floor(free + 0.5))
    return loaders if loaders > reading else 0


def _with_more_loaders(facts: MeasuredFacts, lost_s: float) -> str:
    plan, loaders = facts.plan, more_loaders(facts, lost_s)
    if not loaders:
        return ""
    servers = f" --servers {plan.servers}" if plan.servers else ""
    return f"nfold train {{file}} -n {plan.workers} --strategy {plan.strategy}{servers} --loaders {loaders}"


def _from_disk(facts: MeasuredFacts) -> str:
    """Say whether it waits for a disk or for a processor, where that was sampled."""
    if not facts.loads:
        return ""
    moved = _disk_bytes_per_s(facts)
    return f", and a rank's disk moves {rate(moved)}" if moved >= _READS else ", next to nothing of it from a disk"


def _disk_bytes_per_s(facts: MeasuredFacts) -> float:
    return max((load.disk_bytes_per_s for load in facts.loads.values() if load.rank < facts.plan.workers), default=0.0)


def fixed_costs(facts: MeasuredFacts) -> list[Finding]:
    """Return update and other costs; together the verdict `small batch` when they outweigh the compute."""
    update_s, other_s = facts.parts.update_s, max(0.0, facts.parts.other_s)
    if update_s + other_s > facts.parts.compute_s:
        return [_small_batch(facts, update_s + other_s)]
    update = Finding(
        kind="update", place="optimizer", lost_s=update_s, evidence=f"the optimizer step takes {seconds(update_s)}"
    )
    other = Finding(
        kind="other", place="runtime", lost_s=other_s, evidence=f"{seconds(other_s)} of each step fit no other part"
    )
    return [finding for finding in (update, other) if finding.lost_s > 0]


def memory(facts: MeasuredFacts) -> Finding | None:
    """Return a finding where a node is nearly out of memory, of the fullest one. It costs no time as yet."""
    there = {node.name for node in facts.cluster.nodes}  # who has gone since is of no use to anybody
    used = {name: peak for name, peak in node_resident_bytes(facts.trace).items() if name in there}
    limits = {name: facts.cluster.node(name).memory_bytes for name in used}
    name = max(used, key=lambda name: used[name] / max(1, limits[name]), default=None)
    if name is None or used[name] <= _ALMOST_FULL * limits[name]:
        return None
    share, ranks = used[name] / max(1, limits[name]), facts.plan.nodes.count(name)
    peak = "peaks" if ranks == 1 else "peak"
    evidence = f"{count(ranks, 'rank')} {peak} at {size(used[name])}, {percent(share)} of {name}'s {size(limits[name])}"
    return Finding(
        kind="memory",
        verdict="memory",
        place=name,
        lost_s=0.0,
        value=100 * share,
        unit="%",
        evidence=evidence,
        head=f"Memory: {evidence}. A little more and the machine swaps or kills a rank.",
        remedy=_more_room(name, ranks),
        node=name,
        next_command=f"nfold plan {{file}} -n {facts.plan.workers}",
    )


def _more_room(name: str, ranks: int) -> str:
    """What to do where nothing that was simulated saves enough."""
    fewer = f"Use fewer ranks on {name}, or give" if ranks > 1 else "Give"
    return f"{fewer} {'it' if ranks > 1 else name} more memory."


def _small_batch(facts: MeasuredFacts, lost_s: float) -> Finding:
    workers, compute_s = facts.plan.workers, facts.parts.compute_s
    each = _samples_each(facts)
    evidence = (
        f"each step computes {seconds(compute_s)} and spends {seconds(lost_s)} on the update and other fixed costs"
    )
    return Finding(
        kind="small batch",
        verdict="small batch",
        place="every worker",
        lost_s=lost_s,
        value=each,
        unit="samples",
        evidence=evidence,
        head=f"Small batch: with {each:g} samples per worker {evidence}.",
        remedy="A larger batch_size would spread them over more samples.",
        next_command=f"nfold compare {{file}} -n 1,{workers}" if workers > 1 else _other_size(facts, facts.cores[0]),
    )


def _samples_each(facts: MeasuredFacts) -> float:
    """How many samples of a batch a worker computes something of: all, where each of them passes all workers."""
    return fmean(map(facts.plan.samples_of, facts.plan.placement.working))


def _who_computes(facts: MeasuredFacts) -> str:
    """`4 ranks share 2 cores, which do`, `1 rank has 0.4 cores, which do`, or `2 cores do`."""
    use = facts.cores[0]
    if use.threads > use.node.cores:
        held = f"{count(use.node.cores, 'core')} of {use.node.name}, which do"
        return f"1 rank has {held}" if use.num_ranks == 1 else f"{use.num_ranks} ranks share {held}"
    threads = sum(use.threads for use in facts.cores)
    return f"{count(threads, 'core')} {'does' if threads == 1 else 'do'}"


def _what_helps(facts: MeasuredFacts, use: CoreUse) -> str:
    idle = min(other.idle_cores for other in facts.cores)
    if idle >= 1:
        return f"{count(int(idle), 'core')} of {use.node.name} would be free for more ranks."
    if use.threads > use.num_ranks:
        return "Every core is in use; a rank for each may use them better than threads do."
    machines = "this machine" if len(facts.cores) == 1 else "these machines"
    another = "a second machine" if len(facts.cores) == 1 else "another machine"
    return f"More ranks on {machines} will not help; {another} would."


def _other_size(facts: MeasuredFacts, use: CoreUse) -> str:
    """The comparison with a size that the run's own numbers suggest; with one worker, where nothing suggests any.

    Empty for one worker that has no other node nor core to grow to.
    """
    workers = facts.plan.workers
    if workers == 1 and len(facts.cluster.nodes) > 1:
        other = len(facts.cluster.nodes)
    elif use.idle_cores >= 1:
        other = workers + int(use.idle_cores)
    elif use.threads > use.num_ranks:
        other = int(use.node.cores)
    else:
        other = 1
    return f"nfold compare {{file}} -n {min(workers, other)},{max(workers, other)}" if other != workers else ""
