"""Turns a program into its graph and what it costs on this machine."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from nfold.capture import Captured, capture_program, program_batches
from nfold.capture.computing.random import LOCK, RandomState
from nfold.capture.program.building import build_model
from nfold.capture.side_effects.module_states import fresh_copies
from nfold.capture.visited_samples import batches_of
from nfold.core.graph import ModelGraph
from nfold.core.profile import Profile
from nfold.errors import ProgramError
from nfold.machine.heap import give_back
from nfold.machine.limits import available_cores, available_memory, unused_memory
from nfold.planning.inputs.chunk_counts import check_samples
from nfold.profiling.bench import Bench
from nfold.profiling.compute import a_pass, time_loading, time_operators, time_whole
from nfold.profiling.few_threads import few_threads
from nfold.profiling.measure import Clock, Meter
from nfold.profiling.measured_memory import own_bytes, resident_bytes
from nfold.profiling.saved_bytes import whole_kept
from nfold.profiling.tracer_memory import tracer_bytes
from nfold.profiling.updating import measure_update
from nfold.program import Program, describe

_SHARES = {"whole": 0.5, "operators": 0.35, "update": 0.05, "load": 0.1}
"""Of the time to spend on measuring."""
_WEIGHTS_KEPT = 3
"""Times the weights: for themselves while a copy is tried, and for their gradients."""


def profile_program(
    program: Program,
    *,
    chunk_sizes: tuple[int, ...],
    thread_counts: Sequence[int],
    budget_s: float = 2.0,
    clock: Clock = time.perf_counter,
    device: torch.device | None = None,
) -> tuple[ModelGraph, dict[int, Profile]]:
    """Capture a program and measure it. It leaves no trace: build the model to train afterwards.

    Args:
        program: the user's.
        chunk_sizes: to measure at.
        thread_counts: of one rank, at least one; there is a profile for each.
        budget_s: for each profile's measurements on a whole core, and longer on less of one, since as much is computed;
            each thing is measured at least once, however slow it is.
        clock: gives seconds.
        device: where to compute; the CPU if not given.

    Raises:
        ProgramError: (also a ValueError) the program fails by itself, or on so few samples.
    """
    device = device or torch.device("cpu")
    loader_bytes = own_bytes()
    sizes = tuple(sorted(set(chunk_sizes)))
    with undisturbed(thread_counts[0]):
        dataset = build_dataset(program)
        traced = tracer_bytes()
        meter = Meter(clock=clock, device=device)
        captured = _captured(program, dataset, meter)
        check_samples(captured.graph, sizes[-1])
        least = captured.graph.only_samples or captured.graph.least_chunk
        sizes = tuple(sorted({max(size, min(sizes[-1], least)) for size in sizes}))
        profiles: dict[int, Profile] = {}
        for count in thread_counts:
            torch.set_num_threads(count)
            if profiles:  # measuring has changed the weights
                captured = Captured(captured.graph, captured.layout, build_model(program, device))
            profiles[count] = _measure(program, captured, dataset, meter, sizes, budget_s)
    graph = captured.graph
    del captured, dataset
    count, num_bytes = program.loaders, program.loaders * loader_bytes
    found = _with_base(profiles, traced).items()
    return graph, {threads: replace(each, loaders=count, loaders_bytes=num_bytes) for threads, each in found}


def _captured(program: Program, dataset: Any, meter: Meter) -> Captured:
    model = build_model(program, meter.device)
    fresh = fresh_copies(model, lambda: build_model(program, meter.device), lazy=True)
    example = program_batches(program, dataset, meter.device)
    with few_threads(fresh, program.loss, example, meter):
        return capture_program(model, program, dataset)


def _with_base(profiles: dict[int, Profile], traced: int) -> dict[int, Profile]:
    """Add what the process holds without any model.

    It has computed by then: the libraries' code is in memory, and the kernels' own buffers are there to stay.
    """
    give_back()
    resident = resident_bytes()
    return {
        count: replace(
            profile,
            base_bytes=resident - traced,
            tracer_bytes=traced,
            peak_bytes=max(profile.peak_bytes, resident),
        )
        for count, profile in profiles.items()
    }


def build_dataset(program: Program) -> Any:
    """Call the user's data function.

    Raises:
        ProgramError: it raised.
    """
    try:
        return program.train_data()
    except Exception as error:
        raise ProgramError(f"Program(train_data=...) raised {describe(error)}") from error


def _measure(
    program: Program,
    captured: Captured,
    dataset: Any,
    meter: Meter,
    chunk_sizes: tuple[int, ...],
    budget_s: float,
) -> Profile:
    give_back()
    share = available_cores()
    computing, budget_s = meter.for_cores(share.cores), budget_s / min(1.0, share.cores)
    peaks = [resident_bytes()]
    bench = Bench(
        program=program,
        captured=captured,
        example=replace(program_batches(program, dataset, meter.device), only=captured.graph.only_samples),
        meter=computing,
        after_forward=lambda: peaks.append(resident_bytes()),
    )
    kept = whole_kept(bench)
    left = (available_memory() - peaks[0], unused_memory())
    room = min(each for each in left if each is not None)
    room -= _WEIGHTS_KEPT * sum(each.nbytes for each in bench.model.parameters())
    whole = time_whole(bench, fitting(chunk_sizes, kept, room), budget_s * _SHARES["whole"])
    operators = time_operators(bench, whole, budget_s * _SHARES["operators"])
    trained = [(name, each) for name, each in bench.model.named_parameters() if each.grad is not None]
    bench.begin_anew()
    smallest, unwatched = bench.example.batch(chunk_sizes[0]), replace(bench, after_forward=lambda: None)
    update, call_s, state_bytes = measure_update(
        program,
        trained,
        computing,
        budget_s * _SHARES["update"],
        scope=captured.graph.update_scope,
        a_pass=lambda: a_pass(unwatched, smallest),
        pass_s=whole[0].forward.median_s + whole[0].backward.median_s,
    )
    load_s_per_sample, load_wait = time_loading(
        meter,
        dataset,
        budget_s * _SHARES["load"],
        share,
        collate=program.collate,
        batches=batches_of(program, dataset),
    )
    return Profile(
        device_kind=device_kind(meter.device),
        num_threads=torch.get_num_threads(),
        operators=operators,
        whole=whole,
        update=update,
        load_s_per_sample=load_s_per_sample,
        parameter_bytes=sum(parameter.nbytes for parameter in bench.model.parameters()),
        optimizer_bytes=state_bytes,
        activation_bytes_per_sample=kept,
        base_bytes=peaks[0],
        peak_bytes=max(*peaks, resident_bytes()),
        update_call_s=call_s,
        load_wait=load_wait,
    )


def fitting(chunk_sizes: tuple[int, ...], kept_per_sample: float, room_bytes: float) -> tuple[int, ...]:
    """Return the chunk sizes, ascending, whose activations have room; the smallest in any case.

    A batch that is cut in training may have no room whole, and what is not measured is in proportion to what is.

    Args:
        chunk_sizes: in samples, ascending.
        kept_per_sample: bytes that one sample keeps from forward to backward.
        room_bytes: for those of a chunk.
    """
    return tuple(size for size in chunk_sizes if size == chunk_sizes[0] or size * kept_per_sample <= room_bytes)


def device_kind(device: torch.device) -> str:
    """Return `cpu`, or an accelerator's own name."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


@contextlib.contextmanager
def undisturbed(num_threads: int) -> Iterator[None]:
    """Compute with a rank's number of threads, and put the process's generators, threads and modes back after."""
    threads = torch.get_num_threads()
    with LOCK, torch.enable_grad():
        before = RandomState()
        torch.set_num_threads(num_threads)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            before.restore()
