"""Times a captured program: as a whole, operator by operator, and reading its data."""

import time
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from nfold.capture import BoundSegment, CellRandom
from nfold.capture.batches.joining import Batch, Collate, join, read_item
from nfold.capture.example_batches import dataset_length
from nfold.capture.program.calling import call
from nfold.capture.program.trial import try_step
from nfold.capture.visited_samples import Batches
from nfold.core.profile import ChunkTiming, OperatorProfile
from nfold.machine.limits import CoreShare
from nfold.profiling.bench import Bench
from nfold.profiling.measure import Clock, Meter, Pair, chunk_timing
from nfold.profiling.saved_bytes import operators_kept

_MOST_SAMPLES = 64
LEAST_WAIT = 0.25
"""A smaller share may as well be what other processes took of the cores meanwhile."""


def time_whole(bench: Bench, chunk_sizes: tuple[int, ...], budget_s: float) -> tuple[ChunkTiming, ...]:
    """Time forward and backward of model and loss at every chunk size.

    Args:
        bench: with the program.
        chunk_sizes: in samples.
        budget_s: for all sizes together, in equal shares; each is timed at least twice.

    Raises:
        ProgramError: the program fails by itself.
    """
    share_s = budget_s / max(1, len(chunk_sizes))
    found = []
    for size in chunk_sizes:
        batch = bench.example.batch(size)
        bench.begin_anew()
        try_step(bench.model, bench.program.loss, batch)
        pairs = bench.meter.repeat(lambda batch=batch: a_pass(bench, batch), share_s, is_warm=True)  # type: ignore[misc]
        found.append(chunk_timing(size, pairs))
    return tuple(found)


def time_operators(bench: Bench, whole: tuple[ChunkTiming, ...], budget_s: float) -> tuple[OperatorProfile, ...]:
    """Time every operator by itself, at as many of the whole's chunk sizes as the time allows, at least at one.

    They are played one after another as in a step, all forwards and then all backwards. An operator that is repeated
    finds its weights in the cache: those with many weights would seem to take a third less, or half.

    Args:
        bench: with the program.
        whole: what `time_whole` found, the smallest size first.
        budget_s: for all sizes together.

    Returns:
        one per operator, in the order of the graph.
    """
    operators, kept = bench.captured.graph.operators, operators_kept(bench)
    if len(operators) == 1:
        name = operators[0].name
        return (OperatorProfile(operator=name, timings=whole, saved_bytes_per_sample=kept[name]),)
    affordable = _affordable(whole, budget_s)
    timings: dict[str, list[ChunkTiming]] = {operator.name: [] for operator in operators}
    for size in affordable:
        sweeps = _time_each(bench, size, budget_s / len(affordable))
        for name, found in timings.items():
            found.append(chunk_timing(size, [sweep[name] for sweep in sweeps]))
    return tuple(
        OperatorProfile(operator=name, timings=tuple(found), saved_bytes_per_sample=kept[name])
        for name, found in timings.items()
    )


def time_loading(
    meter: Meter,
    dataset: Any,
    budget_s: float,
    share: CoreShare,
    processor: Clock = time.process_time,
    *,
    collate: Collate | None = None,
    batches: Batches | None = None,
) -> tuple[float, float]:
    """Return the seconds that reading and joining one sample takes, and the share of them that it only waits.

    Args:
        meter: of seconds by the clock.
        dataset: to read.
        budget_s: that it may take.
        share: of the cores, that this process has: with less than one a processor's second takes longer, and it may
            begin with a wait for the next grant.
        processor: counts this process's processor seconds.
        collate: the program's.
        batches: those of the program's sampler; None: it has none.
    """

    def read_joined(indices: list[int]) -> Batch:
        return join([read_item(dataset, index) for index in indices], indices, "train_data", collate)

    num_samples, read = min(dataset_length(dataset), _MOST_SAMPLES), 0
    parts = _parts(batches() if batches else [list(range(num_samples))], max(1, num_samples // 4))
    read_joined(parts[0][:1])
    begin_s, begun_s = meter.now(), processor()
    for part in parts:
        read_joined(part)
        read += len(part)
        if meter.now() - begin_s > budget_s or read >= num_samples:
            break
    elapsed_s, worked_s = meter.now() - begin_s, (processor() - begun_s) / min(1.0, share.cores)
    until_granted_s = share.period_s if share.cores < 1 else 0.0
    waited = 1.0 - (worked_s + until_granted_s) / elapsed_s if elapsed_s > 0 else 0.0
    return elapsed_s / read, round(waited, 2) if waited >= LEAST_WAIT else 0.0


def _parts(batches: list[list[int]], size: int) -> list[list[int]]:
    """Return what is read at once: no part of two batches, which need not fit together."""
    return [batch[begin : begin + size] for batch in batches for begin in range(0, len(batch), size)]


def a_pass(bench: Bench, batch: tuple[Any, Any]) -> Pair:
    """Compute a batch forward and backward, and return the seconds of both."""
    bench.begin_anew()
    begin_s = bench.meter.now()
    loss = bench.program.loss(call(bench.model, batch[0]), batch[1])
    forward_s = bench.meter.now()
    bench.after_forward()
    resume_s = bench.meter.now()
    torch.autograd.backward(loss)
    return forward_s - begin_s, bench.meter.now() - resume_s


def _affordable(whole: tuple[ChunkTiming, ...], budget_s: float) -> tuple[int, ...]:
    """Choose chunk sizes, smallest first, for which one warm-up and two measurements fit; the first in any case."""
    chosen: list[int] = []
    used_s = 0.0
    for found in whole:
        used_s += 3 * (found.forward.median_s + found.backward.median_s)
        if not chosen or used_s <= budget_s:
            chosen.append(found.chunk_size)
    return tuple(chosen)


def _time_each(bench: Bench, size: int, budget_s: float) -> list[dict[str, Pair]]:
    """Play the program operator by operator, again and again; return the seconds of each in every sweep."""
    captured, random = bench.captured, CellRandom(bench.program.seed)
    random.enter(0, 0)
    segments = {
        operator.name: captured.segment((operator.name,), operator.inputs, operator.outputs, random)
        for operator in captured.graph.operators
    }
    batch = bench.example.batch(size)
    return bench.meter.repeat(lambda: _sweep(bench, segments, batch), budget_s)


def _sweep(bench: Bench, segments: dict[str, BoundSegment], batch: tuple[Any, Any]) -> dict[str, Pair]:
    bench.begin_anew()
    needs = {tensor.name: tensor.requires_grad for tensor in bench.captured.graph.tensors}
    values = dict(zip(("input", "target"), batch, strict=True))
    forwards_s: dict[str, float] = {}
    ends: dict[str, list[_End]] = {}
    last_reader = {each: name for name, segment in segments.items() for each in segment.inputs}
    for name, segment in segments.items():
        inputs = [values[each].detach().requires_grad_() if needs[each] else values[each] for each in segment.inputs]
        begin_s = bench.meter.now()
        made = segment(*inputs)
        forwards_s[name] = bench.meter.now() - begin_s
        ends[name] = [_End.of(value) for value in made if value.requires_grad]
        values |= {output: value.detach() for output, value in zip(segment.outputs, made, strict=True)}
        for each in segment.inputs:  # as in a step, only what a backward needs stays
            if last_reader[each] == name:
                values.pop(each, None)  # an operator may read it twice
        del inputs, made
    found: dict[str, Pair] = {}
    while ends:
        name, last = ends.popitem()
        edges = [end.edge for end in last]
        gradients = [torch.ones_like(end.like, device=end.device) for end in last]
        begin_s = bench.meter.now()
        if last:
            torch.autograd.backward(edges, gradients)
        found[name] = forwards_s[name], bench.meter.now() - begin_s
    return found


class _End(NamedTuple):
    """Where a backward begins, without the value that was made there."""

    edge: GradientEdge
    like: torch.Tensor
    """The value's shape, type and order in memory, without the memory."""
    device: torch.device

    @classmethod
    def of(cls, value: torch.Tensor) -> "_End":
        return cls(get_gradient_edge(value), torch.empty_like(value.detach(), device="meta"), value.device)
