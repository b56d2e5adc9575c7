"""Trace -> where a step's time goes, over the workers and the steps after warm-up.

The wait for a slower peer is told from the transfer without any common clock: in each step the transfer is the least
exposed communication over the workers that communicate (the one that came last waited for nobody), and what another
worker spent beyond that it spent waiting for a peer.
"""

from collections.abc import Sequence
from statistics import fmean, mode

from nfold.core.report import Quantiles, TimeParts
from nfold.core.trace import StepParts, Trace
from nfold.errors import InternalError

WorkerStep = tuple[StepParts, ...]
"""The parts of one step on every worker, in rank order."""


def worker_steps(trace: Trace, skip: int) -> tuple[WorkerStep, ...]:
    """Return the measured steps without the first `skip` of the run, without dedicated servers and idle workers.

    A worker that the plan gives nothing to do plays its empty steps in no time, and would halve their mean. A run
    shorter than the warm-up keeps its last step: a rough figure is better than none.

    Raises:
        InternalError: nothing was measured.
    """
    servers = {usage.rank for usage in trace.usage if usage.role == "server"}
    return busy_steps([parts for parts in trace.parts if parts.rank not in servers], skip)


def busy_steps(of_workers: Sequence[StepParts], skip: int) -> tuple[WorkerStep, ...]:
    """Return what `worker_steps` does, of rows of workers alone.

    Raises:
        InternalError: there are none.
    """
    busy = {parts.rank for parts in of_workers if _is_busy(parts)}
    steps: dict[int, list[StepParts]] = {}
    for parts in of_workers:
        if parts.rank in busy or not busy:
            steps.setdefault(parts.step, []).append(parts)
    if not steps:
        raise InternalError("the trace holds no step of any worker, so there is nothing to report")
    begins = min(min(steps) + skip, max(steps))  # of a long run not every step was kept
    kept = [step for step in sorted(steps) if step >= begins]
    return tuple(tuple(sorted(steps[step], key=lambda parts: parts.rank)) for step in kept)


def time_parts(trace: Trace, skip: int) -> TimeParts:
    """Return mean seconds of a step; the parts add up to the workers' mean step.

    Raises:
        InternalError: nothing was measured.
    """
    return mean_parts(worker_steps(trace, skip), is_asynchronous=trace.is_asynchronous)


def mean_parts(steps: Sequence[WorkerStep], *, is_asynchronous: bool = False) -> TimeParts:
    """Return mean seconds over steps and workers; there must be at least one step."""
    every = [parts for step in steps for parts in step]
    waits = [wait for step in steps for wait in peer_waits(step, is_asynchronous=is_asynchronous)]
    communication_s = fmean(parts.communication_s for parts in every)
    return TimeParts(
        compute_s=fmean(parts.compute_s for parts in every),
        exposed_communication_s=communication_s - fmean(waits),
        peer_wait_s=fmean(waits),
        input_s=fmean(parts.input_s for parts in every),
        update_s=fmean(parts.update_s for parts in every),
        other_s=fmean(parts.other_s for parts in every),
    )


def peer_waits(step: WorkerStep, *, is_asynchronous: bool = False) -> tuple[float, ...]:
    """Return the seconds that each worker waited for a slower peer in one step.

    In an asynchronous run workers wait for servers, each as long as its own tickets take: nothing follows from the
    least of them.
    """
    if is_asynchronous:
        return (0.0,) * len(step)
    transfer_s = min((parts.communication_s for parts in step if _communicates(parts)), default=0.0)
    return tuple(max(0.0, parts.communication_s - transfer_s) if _communicates(parts) else 0.0 for parts in step)


def step_quantiles(trace: Trace, skip: int) -> Quantiles:
    """Return the median and the 95th percentile of step times.

    Raises:
        InternalError: nothing was measured.
    """
    durations = [step_duration(step) for step in worker_steps(trace, skip)]
    return Quantiles(p50=quantile(durations, 0.5), p95=quantile(durations, 0.95))


def step_duration(step: WorkerStep) -> float:
    """Return how long a step took: the mean over its workers, without those who have nothing to do.

    Workers wait for each other, so over several steps all take equally long; but where one finishes late, the next
    finishes its following step early. The slowest of each step would count that back and forth as time.
    """
    return fmean([parts.step_s for parts in step if _is_busy(parts)] or [parts.step_s for parts in step])


def samples_per_s(trace: Trace, skip: int) -> float:
    """Return the throughput of all workers together.

    Raises:
        InternalError: nothing was measured.
    """
    steps = worker_steps(trace, skip)
    return sum(parts.samples for step in steps for parts in step) / sum(step_duration(step) for step in steps)


def sent_bytes_per_step(trace: Trace, batch_size: int) -> int:
    """Return the payload that a full step sends, servers included: what most full steps agree on."""
    sent: dict[int, int] = {}
    for parts in _of_full_steps(trace, batch_size):
        sent[parts.step] = sent.get(parts.step, 0) + parts.sent_bytes
    return mode(sent.values())


def busiest_sent_bytes(trace: Trace, batch_size: int) -> int:
    """Return the payload that the rank which sends most, a server perhaps, sends in a full step."""
    sent: dict[int, list[int]] = {}
    for parts in _of_full_steps(trace, batch_size):
        sent.setdefault(parts.rank, []).append(parts.sent_bytes)
    return max(mode(each) for each in sent.values())


def _of_full_steps(trace: Trace, batch_size: int) -> list[StepParts]:
    """Return the rows of steps with a whole batch; all rows where there is no such step."""
    samples: dict[int, int] = {}
    for parts in trace.parts:
        samples[parts.step] = samples.get(parts.step, 0) + parts.samples
    return [parts for parts in trace.parts if samples[parts.step] == batch_size] or list(trace.parts)


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile of values in any order, linear between the two nearest; `share` is 0.5 for the median."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def _is_busy(parts: StepParts) -> bool:
    return parts.compute_s > 0 or _communicates(parts)


def _communicates(parts: StepParts) -> bool:
    return parts.sent_bytes > 0 or parts.communication_s > 0
