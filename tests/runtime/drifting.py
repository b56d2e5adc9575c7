"""Plays asynchronous plans on ranks that are threads of the test, without coordinator or processes."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from harness import CPU, file_of, make_plan, read_checkpoint

from nfold.capture.computing.random import LOCK
from nfold.core.graph import ModelGraph
from nfold.core.plan import Asynchrony, Plan
from nfold.core.trace import StepParts
from nfold.planning.scheduling.rank_schedules import rank_schedules
from nfold.program import Program
from nfold.runtime.asynchronous.asynchronous_replica import AsynchronousReplica
from nfold.runtime.checkpoint.state_collection import collect
from nfold.runtime.step.replica import StepResult
from nfold.transport.implementations.in_memory import MemoryNetwork


def drifting_plan(
    program: Program,
    graph: ModelGraph,
    workers: int,
    servers: int = 0,
    *,
    chunks: int,
    bound: int | None = None,
    aware: bool = False,
) -> Plan:
    """An asynchronous plan with any bound."""
    made = make_plan(program, graph, "ps-async", workers, servers, chunks)
    return replace(made, asynchrony=Asynchrony(bound=bound, staleness_aware=aware))


@dataclass
class Drifted:
    """What a number of steps came to."""

    world: int
    checkpoints: list[bytes] = field(default_factory=list)
    """Taken at each stop."""
    rows: list[list[StepParts]] = field(default_factory=list)
    """By rank."""
    results: list[list[StepResult]] = field(default_factory=list)
    """By rank: what was told of each step."""
    losses: dict[int, dict[int, float]] = field(default_factory=dict)
    """By step and chunk."""
    staleness: dict[str, int] = field(default_factory=dict)
    models: list[dict[str, torch.Tensor]] = field(default_factory=list)
    """What each rank's module holds at the end."""
    sent_bytes: list[int] = field(default_factory=list)
    """By rank, counted at its transport when the first stop was reached."""

    @property
    def state(self) -> dict[str, torch.Tensor]:
        """The whole model's state dict at the end."""
        return self.state_at(-1)

    def state_at(self, stop: int) -> dict[str, torch.Tensor]:
        """The whole model's state dict at a stop."""
        return read_checkpoint(self.checkpoints[stop]).model()


def drift(
    program: Program,
    graph: ModelGraph,
    plan: Plan,
    stops: list[int],
    *,
    checkpoint: bytes = b"",
    before: Callable[[int, MemoryNetwork], None] | None = None,
    traced_steps: range = range(0),
) -> Drifted:
    """Train up to each stop, and gather the state there; no rank waits for another but for that.

    Args:
        program: what is trained.
        graph: its model.
        plan: asynchronous.
        stops: steps at which all come to rest.
        checkpoint: where to go on.
        before: called by each rank before it begins.
        traced_steps: whose spans are noted.
    """
    network, schedules = MemoryNetwork(plan.world_size), rank_schedules(plan, graph)
    drifted = Drifted(plan.world_size, rows=[[] for _ in range(plan.world_size)])
    drifted.results = [[] for _ in range(plan.world_size)]
    drifted.models, drifted.sent_bytes = [{}] * plan.world_size, [0] * plan.world_size
    errors: list[BaseException] = []
    dataset = program.train_data()
    built = threading.Barrier(plan.world_size)

    def run(rank: int) -> None:
        transport = network.transport(rank)

        def report(result) -> None:
            drifted.rows[rank].append(result.parts)
            drifted.results[rank].append(result)
            drifted.losses.setdefault(result.parts.step, {}).update(result.losses)

        def fail(error: BaseException) -> None:
            errors.append(error)
            network.fail(rank)

        replica = None
        try:
            with LOCK:
                replica = AsynchronousReplica(
                    rank, program, dataset, graph, plan, schedules[rank], transport,
                    device=CPU, report=report, flush=lambda: None, fail=fail,
                    traced_steps=traced_steps, checkpoint=read_checkpoint(checkpoint) if checkpoint else None,
                )  # fmt: skip
            built.wait(60)
            if before is not None:
                before(rank, network)
            for number, stop in enumerate(stops):
                replica.allow(stop)
                replica.pause()
                drifted.sent_bytes[rank] = drifted.sent_bytes[rank] or transport.sent_bytes
                offered = replica.offer(with_optimizer=True)
                join = partial(replica.join, step=stop)
                collected = collect(transport, plan.world_size, number, offered, join)
                if collected is not None:
                    drifted.checkpoints.append(file_of(collected))
            replica.end()
            drifted.models[rank] = {name: value.clone() for name, value in replica.model.state_dict().items()}
            drifted.staleness.update(replica.staleness)
        except BaseException as error:
            errors.append(error)
            network.fail(rank)
            built.abort()
        finally:
            if replica is not None:
                replica.close()

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(plan.world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), f"a rank hangs; errors so far: {errors}"
    network.close()
    if errors:
        raise errors[0]
    return drifted
