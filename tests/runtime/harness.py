"""Plays programs on ranks that are threads of the test, without coordinator or processes."""

import inspect
import random
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import pytest
import torch
from pretended import cluster, profile_of
from torch import nn
from torch.utils.data import default_collate

from nfold.capture.capture import capture_program
from nfold.capture.computing.random import LOCK
from nfold.capture.program.building import build_model
from nfold.core.graph import ModelGraph
from nfold.core.placement import Placement, Reduction
from nfold.core.plan import Plan, Prediction
from nfold.core.residency import PlacedRun
from nfold.planning.choosing.search import plan
from nfold.planning.choosing.strategies import named
from nfold.planning.inputs.facts import Facts
from nfold.planning.scheduling.rank_schedules import rank_schedules
from nfold.program import Program
from nfold.runtime.checkpoint.checkpoint_format import Checkpoint
from nfold.runtime.checkpoint.state_collection import Collected, collect
from nfold.runtime.data.chunk_loader import StepSamples, sample_order
from nfold.runtime.step.replica import Replica
from nfold.transport.implementations.in_memory import MemoryNetwork

CPU = torch.device("cpu")


def graph_of(program: Program) -> ModelGraph:
    """Capture a program with the gate."""
    return capture_program(build_model(program, CPU), program, program.train_data()).graph


def make_plan(
    program: Program,
    graph: ModelGraph,
    strategy: str,
    workers: int,
    servers: int,
    chunks: int,
    shares: tuple[float, ...] = (),
    fraction_bits: int | None = None,
) -> Plan:
    """Plan with the synthetic profile."""
    facts = Facts(
        graph=graph,
        profiles={1: profile_of(graph)},
        cluster=cluster(),
        nodes=("box",) * (workers + servers),
        workers=workers,
        servers=servers,
        batch_size=program.batch_size,
        chunks=chunks,
        chunk_shares=shares,
        fraction_bits=fraction_bits,
    )
    return plan(facts, strategy, among=(named(strategy),))


def random_owners(graph: ModelGraph, chunks: int, world: int, seed: int) -> dict[str, tuple[int, ...]]:
    """Each operator's chunks on random ranks: every chunk by itself, or all of an operator's chunks together.

    Calls of one batch norm go together.
    """
    chosen = random.Random(seed)
    owners: dict[str, tuple[int, ...]] = {}
    joined: dict[str, tuple[int, ...]] = {}
    for operator in graph.operators:
        each = tuple(chosen.randrange(world) for _ in range(chunks))
        found = each if chosen.random() < 0.5 else each[:1] * chunks
        for module in operator.statistics:
            found = joined.setdefault(module, found)
        owners[operator.name] = found
    return owners


def placed_plan(
    program: Program, owners: dict[str, tuple[int, ...]], world: int, reductions: tuple[Reduction, ...]
) -> Plan:
    """A plan for a placement made by hand."""
    chunks = len(next(iter(owners.values())))
    return Plan(
        strategy="by hand",
        chunks=chunks,
        batch_size=program.batch_size,
        workers=world,
        servers=0,
        nodes=("box",) * world,
        threads=(1,) * world,
        placement=Placement(num_chunks=chunks, world_size=world, owners=owners),
        reductions=reductions,
        loads_s=(0.0,) * world,
        predicted=Prediction(step_s=1.0, sent_bytes_per_step=0, peak_memory_bytes=(0,) * world),
    )


class Played:
    """What a number of steps came to."""

    def __init__(self, world: int) -> None:
        self.losses: list[float] = []
        self.sent_bytes = [0] * world
        self.checkpoint = b""
        self.step_losses: list[list[dict[int, float]]] = [[] for _ in range(world)]

    @property
    def state(self) -> dict[str, torch.Tensor]:
        """The whole model's state dict."""
        return read_checkpoint(self.checkpoint).model()


def read_checkpoint(data: bytes) -> Checkpoint:
    """The training state that a checkpoint's bytes hold."""
    header_bytes = 8 + int.from_bytes(data[:8], "little")
    return Checkpoint(data[:header_bytes], lambda start, stop: data[start:stop])


def file_of(collected: Collected) -> bytes:
    """All bytes of a file of state."""
    return b"".join((collected.header, *(bytes(run.data) for run in collected.runs)))


def play(
    program: Program,
    graph: ModelGraph,
    plan: Plan,
    steps: int,
    *,
    checkpoint: bytes = b"",
    each_step: Callable[[int, int], None] | None = None,
    placed: Sequence[PlacedRun] = (),
    data: Callable[[int], Any] | None = None,
    patience_s: float = 60.0,
) -> Played:
    """Play steps on threads over the in-memory transport and gather the state; a rank that takes longer hangs.

    With `placed`, ranks train on samples of their own: those of `data(rank)`, or of the program's data set.
    """
    network, schedules = MemoryNetwork(plan.world_size), rank_schedules(plan, graph)
    played = Played(plan.world_size)
    errors: list[BaseException] = []
    dataset = program.train_data()
    start = read_checkpoint(checkpoint).step if checkpoint else 0
    built = threading.Barrier(plan.world_size)

    replicas: list[Replica] = []

    def run(rank: int) -> None:
        transport = network.transport(rank)
        try:
            with LOCK:
                replica = Replica(
                    rank, program, dataset, graph, plan, schedules[rank], transport, device=CPU, last_step=steps,
                    checkpoint=read_checkpoint(checkpoint) if checkpoint else None, placed=placed,
                    resident=data(rank) if data else None,
                )  # fmt: skip
            replicas.append(replica)
            built.wait(60)
            for step in range(start, steps):
                if each_step is not None:
                    each_step(rank, step)
                result = replica.step(step, keep_spans=True)
                played.step_losses[rank].append(result.losses)
                if step == start:
                    played.sent_bytes[rank] = result.parts.sent_bytes
            offered = replica.offer(with_optimizer=True)
            found = collect(transport, plan.world_size, 1, offered, lambda said: replica.join(said, steps))
            if found is not None:
                played.checkpoint = file_of(found)
        except BaseException as error:
            errors.append(error)
            network.fail(rank)
            built.abort()

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(plan.world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience_s)
        assert not thread.is_alive(), f"a rank hangs; errors so far: {errors}"
    for replica in replicas:
        replica.close()
    network.close()
    if errors:
        raise errors[0]
    for step_losses in zip(*played.step_losses, strict=True):
        merged = {chunk: loss for losses in step_losses for chunk, loss in losses.items()}
        played.losses.append(sum(merged[chunk] for chunk in sorted(merged)))
    return played


def plain_loop(
    program: Program,
    steps: int,
    chunks: int,
    *,
    last_first: bool = False,
    least: int = 2,
    samples: StepSamples | None = None,
) -> nn.Module:
    """The reference: one device, plain PyTorch, gradients accumulated over the same chunks; or added from the last on,
    which is as right and shows what rounding alone comes to. With `samples`, over those."""
    from nfold.core.chunks import chunk_sizes

    dataset = program.train_data()
    model = build_model(program, CPU)
    takes_names = "named_parameters" in inspect.signature(program.optimizer).parameters
    optimizer = program.optimizer(list(model.named_parameters() if takes_names else model.parameters()))
    scheduler = program.scheduler(optimizer) if program.scheduler else None
    per_epoch = -(-len(dataset) // program.batch_size)
    for step in range(steps):
        epoch, position = divmod(step, per_epoch)
        order = sample_order(len(dataset), epoch, program.seed)
        batch = order[position * program.batch_size :][: program.batch_size]
        sizes = samples.sizes(step) if samples else chunk_sizes(len(batch), chunks, least)
        if samples:
            batch = [index for chunk in range(len(sizes)) for index in samples.indices(step, chunk)]
        optimizer.zero_grad(set_to_none=True)
        begin, gradients = 0, []
        for size in sizes:
            if not size:
                continue
            items = [dataset[index] for index in batch[begin : begin + size]]
            inputs, targets = (program.collate or default_collate)(items)
            begin += size
            (program.loss(model(inputs), targets) * (size / len(batch))).backward()
            if last_first:
                gradients.append([each.grad for each in model.parameters()])
                model.zero_grad(set_to_none=True)
        for chunk in reversed(gradients):
            for parameter, gradient in zip(model.parameters(), chunk, strict=True):
                if gradient is not None:
                    parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
        if program.clip_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), program.clip_norm)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return model


def difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """Largest relative difference of any tensor, by norm; one that is zero but for rounding counts as 1e-6."""
    assert set(one) == set(other)
    worst = 0.0
    for name, tensor in one.items():
        a, b = tensor.double(), other[name].double()
        assert torch.isfinite(a).all(), f"{name} holds what is no number"
        worst = max(worst, float((a - b).norm() / max(float(b.norm()), 1e-6)))
    return worst


def with_more(kept: Collection[Any], every: Iterable[Any]) -> list[Any]:
    """Return parameters of which all but some are played in exhaustive runs only."""

    def later(each: Any) -> Any:
        return pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=pytest.mark.exhaustive)

    return [each if each in kept else later(each) for each in every]
