"""One rank of an asynchronous plan: a worker, a shard's server, or both, built of what a synchronous rank is made of.

The worker computes a ticket with the cells and the engine of every other plan, from a schedule of its own in which it
owns all chunks; those that are not the ticket's have no samples, so they are skipped.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from nfold.capture.batches.shapes import batch_shapes
from nfold.capture.computing.batch_norm import StatisticsRecorder
from nfold.capture.example_batches import program_batches
from nfold.capture.program.building import build_model
from nfold.core.graph import ModelGraph
from nfold.core.plan import Plan
from nfold.core.schedule import RankSchedule, StatisticsGroup
from nfold.planning.asynchronous.asynchronous_strategies import serving_ranks
from nfold.planning.asynchronous.snapshot_steps import SnapshotSteps
from nfold.planning.asynchronous.staleness import Shard
from nfold.planning.reductions.statistics_groups import statistics_groups
from nfold.program import Program
from nfold.runtime.asynchronous.client import Client, Local, RemoteServer, ServerEnd
from nfold.runtime.asynchronous.rank_state import KeepSnapshot, RankState
from nfold.runtime.asynchronous.server import RemoteWorker, Server, WorkerEnd
from nfold.runtime.asynchronous.shards import Slots, rows, slices
from nfold.runtime.asynchronous.slice_computing import Slices
from nfold.runtime.asynchronous.snapshot_parts import WorkerPart
from nfold.runtime.asynchronous.store import Norms, Store, values_of
from nfold.runtime.asynchronous.ticket_spans import TicketSpans
from nfold.runtime.asynchronous.tickets import Tickets
from nfold.runtime.asynchronous.worker_and_shard_messages import Tags
from nfold.runtime.checkpoint.checkpoint_format import Checkpoint, Offer
from nfold.runtime.checkpoint.joined_facts import join_facts
from nfold.runtime.control.ticket_rows import Account
from nfold.runtime.data.chunk_loader import ChunkLoader
from nfold.runtime.data.loaders import LoadersReader
from nfold.runtime.data.ordering import sampler_of
from nfold.runtime.data.sample_reader import SampleReader
from nfold.runtime.failures.stalls import TaskWatch
from nfold.runtime.guards.later_trials import LaterTrials
from nfold.runtime.parameters.buffers import Buffers
from nfold.runtime.parameters.held_pieces import sparse_gradients
from nfold.runtime.parameters.optimizer_updates import Kept, build_updaters, kept_by
from nfold.runtime.parameters.weights import Weights
from nfold.runtime.snapshots.shipments import Giving
from nfold.runtime.step.cells import Cells
from nfold.runtime.step.engine import Engine
from nfold.runtime.step.kept_program import KeptProgram
from nfold.runtime.step.replica import Clock, StepResult
from nfold.runtime.step.taken_state import take_model, take_states
from nfold.runtime.step.traced_model import modules_of, traced
from nfold.transport.implementations.in_memory import MemoryNetwork
from nfold.transport.protocol import Transport


class AsynchronousReplica:
    """One rank of one generation. It works in threads of its own, from `allow` until `pause`."""

    def __init__(
        self,
        rank: int,
        program: Program,
        dataset: Any,
        graph: ModelGraph,
        plan: Plan,
        own: RankSchedule,
        transport: Transport,
        *,
        device: torch.device,
        report: Callable[[StepResult], None],
        flush: Callable[[], None],
        fail: Callable[[BaseException], None],
        traced_steps: range = range(0),
        steps: SnapshotSteps | None = None,
        keep: KeepSnapshot | None = None,
        checkpoint: Checkpoint | None = None,
        reader: LoadersReader | None = None,
        kept: KeptProgram | None = None,
        tasks: TaskWatch | None = None,
        clock: Clock = time.perf_counter,
    ) -> None:
        """Build the rank and begin to listen.

        Args:
            rank: which.
            program: of the user.
            dataset: its training data.
            graph: its model.
            plan: has an asynchrony.
            own: what this rank plays for each of its slices.
            transport: to all ranks.
            device: where to compute.
            report: takes a row for every step, from one thread at a time.
            flush: sends what was reported.
            fail: called once, from any thread, with what ended the work.
            traced_steps: whose rows come with spans.
            steps: after which snapshots are due; None: there are none.
            keep: keeps a snapshot of this rank, from the thread that serves, or without a shard from the worker's.
            checkpoint: where to go on.
            reader: reads the dataset in other processes; None: a thread of this one does.
            kept: what this process has made of the program for earlier generations.
            tasks: is told what the worker does now; None: nobody looks.
            clock: seconds.
        """
        self.rank, self.plan, self.device = rank, plan, device
        is_tried = bool(graph.unproved) and plan.chunks > 1
        self._kept_program = kept or KeptProgram()
        self.program = self._kept_program.checked(program, graph, plan.chunks)
        self._trials = LaterTrials(program, device) if is_tried else None
        self._graph, self._transport, self._clock, self._tasks = graph, transport, clock, tasks
        self._report, self._flush, self._fail = report, flush, fail
        self._failing, self._failed = threading.Lock(), False
        self._first_step = self._allowed = checkpoint.step if checkpoint else 0
        self.model = build_model(program, device)
        if checkpoint is not None:
            take_model(self.model, checkpoint)
        self._weights = Weights(self.model, graph)
        self._groups = statistics_groups(graph, plan.placement)
        self._servers = serving_ranks(plan.reductions)
        self.sampler = sampler_of(program, dataset, plan.batch_size, plan.chunks, graph.least_chunk)
        self._tickets = Tickets(_slice_of_chunks(plan), plan.workers, self.sampler.sizes)
        self._account = Account(rank, self._first_step)
        self._ticket_spans = TicketSpans(rank, traced_steps, self._tickets, clock)
        self.state = RankState(rank, graph, plan, self._groups, self._weights, steps, keep, self._first_step, clock)
        store = self.state.store = self._build_store(checkpoint) if rank in self._servers else None
        works = rank < plan.workers
        held, groups = (plan.reductions, self._groups) if works else ((), ())
        sparse = sparse_gradients(graph)
        self._buffers = Buffers(rank, held, groups, plan.chunks, self._weights.parameters, device, sparse)
        local = self._build_local() if works else None
        self._server = self._build_server(store, local) if store else None
        self._computing: Slices | None = None
        self._client: Client | None = None
        if local is not None and self.state.part is not None:
            reads = reader or SampleReader(dataset, program.seed, program.collate)
            self._computing = self._build_computing(dataset, own, reads, self.state.part)
            self._client = self._build_client(local, self._computing)

    # What a rank tells and is told

    def allow(self, steps: int) -> None:
        """Let this rank work on steps before this one; return at once."""
        self._allowed = steps
        self._transport.on_failure(self.abandon)
        if self._server is not None:
            self._server.allow(steps)
        if self._client is not None:
            self._client.allow(steps)

    def trace(self, steps: range) -> None:
        """Record these steps task by task, too; none of them may be allowed yet."""
        self._ticket_spans.trace(steps)

    def pause(self) -> None:
        """Wait until all gradients of allowed steps are applied here and the worker holds the values of all shards.

        Raises:
            NfoldError: something failed meanwhile.
        """
        if self._client is not None:
            self._client.wait()
        if self._server is None:
            self.state.keep_until(min(self.steps_done, self._allowed))  # others had told of more before it was allowed
        else:
            self._server.wait_until(self._allowed)
            if self._server.store.norms is not None:
                self._server.store.norms.give_back()
        self._flush()

    @property
    def steps_done(self) -> int:
        """The number of steps that this rank knows to be done on all ranks."""
        if self._client is not None:
            return self._client.steps_done
        return self._server.steps_done if self._server is not None else self._first_step

    @property
    def step_under_way(self) -> int:
        """The step that this rank's worker computes, to name in an error; other ranks may be at other steps."""
        step = self._computing.step if self._computing is not None else None
        return self.steps_done if step is None else step

    @property
    def staleness(self) -> dict[str, int]:
        """Gradients by staleness, on the rank that hands out tickets; empty on others, so that each is counted once."""
        return self._server.histogram if self._server is not None and self.rank == self._servers[0] else {}

    @property
    def kept(self) -> Kept:
        """The hyper-parameters that a checkpoint set, where the program now says something else."""
        return kept_by(self._server.store.updaters.values()) if self._server is not None else {}

    @property
    def is_complete(self) -> bool:
        """Whether every worker holds the whole current model: but for batch statistics, which one shard keeps."""
        return not self._groups

    def offer(self, *, with_optimizer: bool) -> Offer:
        """Return what only this rank holds of the whole model, and of the optimizer's state if that is wanted."""
        return self.state.offer(with_optimizer=with_optimizer)

    def held(self, *, is_checked: bool) -> Offer:
        """Return what counts of this rank's state while it rests, as `RankState.held`."""
        return self.state.held(self._allowed, is_checked=is_checked)

    def _take_snapshot(self, step: int, held_s: float, given: Callable[[], None]) -> Giving | None:
        """Report the steps of a snapshot that is due, and keep it; see `TakeSnapshot`."""
        begin_s = self._clock() - held_s
        if self._client is not None:
            self._client.note_steps(step)
        return self.state.keep(step, begin_s, given)

    def join(self, said: list[dict[str, Any]], step: int) -> dict[str, Any]:
        """Return what a checkpoint says beside tensors, from what all ranks say."""
        return join_facts(said, step, self.plan.chunks)

    def end(self) -> None:
        """Part from the other ranks while nothing is under way, so that no message is waited for any more."""
        if self._client is not None:
            self._client.end()
        if self._server is not None:
            self._server.wait_for_byes()

    def close(self) -> None:
        """End all threads, whatever they are doing; that they do not get to their end is no failure."""
        with self._failing:
            self._failed = True
        if self._client is not None:
            self._client.abandon(RuntimeError("this rank is closed"))
            self._client.join()
        if self._server is not None:
            self._server.close()
        if self._computing is not None:
            self._computing.close()

    # Building

    def _build_store(self, checkpoint: Checkpoint | None) -> Store:
        """Give the shard memory of its own: the worker of this rank computes with older values."""
        served = tuple(replace(reduction, members=()) for reduction in self.plan.reductions)
        parameters = self._weights.parameters
        buffers = Buffers(self.rank, served, (), self.plan.chunks, parameters, self.device)
        updaters = build_updaters(self.program, self._graph, served, self.rank, buffers, parameters)
        if checkpoint is not None:
            take_states(updaters.values(), checkpoint, self._weights)
        keeps = self._groups and self.rank == self._servers[0]
        norms = Norms(self.model, self._graph, self._groups) if keeps else None
        served_pieces = values_of(served, self.rank, buffers, parameters)
        return Store(slices(self.plan.reductions, self.rank), buffers, updaters, norms, served_pieces)

    def _build_local(self) -> Local:
        parts = slices(self.plan.reductions, self.rank)
        flat = self._buffers.flat
        return Local(
            [flat(part.of("value")) for part in parts],
            [flat(part.of("gradient")) for part in parts],
            lambda ticket: [flat(row.of("statistics")) for row in self._rows(self.rank, ticket)],
            self.rank,
            self._ticket_spans,
        )

    def _rows(self, server: int, ticket: int) -> tuple[Any, ...]:
        return rows(self._groups_of(server), self._tickets.chunks(ticket))

    def _groups_of(self, server: int) -> tuple[StatisticsGroup, ...]:
        """The groups whose rows travel to a shard: all of them to the first."""
        return self._groups if server == self._servers[0] else ()

    def _tags(self) -> Tags:
        """The same for every pair: two ranks that serve each other must not mean two things by one tag."""
        most = max(len(slices(self.plan.reductions, server)) for server in self._servers)
        return Tags(most + len(self._groups))

    def _build_server(self, store: Store, local: Local | None) -> Server:
        asynchrony = self.plan.asynchrony
        assert asynchrony is not None, "an asynchronous replica is built for an asynchronous plan"
        ends: dict[int, WorkerEnd] = {} if local is None else {self.rank: local}
        parts, groups = slices(self.plan.reductions, self.rank), self._groups_of(self.rank)
        for worker in range(self.plan.workers):
            if worker not in ends:
                tags = self._tags()
                ends[worker] = RemoteWorker(
                    worker, self._transport, tags, parts, groups, self._tickets, self._ticket_spans
                )
        rules = Shard(
            self.plan.workers,
            bound=asynchrony.bound,
            staleness_aware=asynchrony.staleness_aware,
            first_step=self._first_step,
        )
        return Server(
            rules,
            store,
            ends,
            self._account,
            self._ticket_spans,
            self._tickets,
            self.state.steps,
            snapshot=self._take_snapshot,
            is_dedicated=local is None,
            tell=self._tell,
            idle=self._flush,
            fail=self.abandon,
            clock=self._clock,
        )

    def _build_computing(
        self, dataset: Any, own: RankSchedule, reader: SampleReader | LoadersReader, part: WorkerPart
    ) -> Slices:
        plan, graph = self.plan, self._graph
        loader = ChunkLoader(reader, self.sampler, (), 0)
        modules = modules_of(graph, self._groups)
        captured = traced(self.program, self.model, graph, dataset, own, self.device, kept=self._kept_program)
        cells = Cells(
            program=self.program,
            model=self.model,
            parameters=self._weights.parameters,
            captured=captured,
            graph=graph,
            schedule=own,
            reductions=plan.reductions,
            groups=self._groups,
            buffers=self._buffers,
            updaters={},
            clipping=None,
            sampler=self.sampler,
            loader=loader,
            recorder=StatisticsRecorder(self.model, modules) if modules else None,
            device=self.device,
            shapes=batch_shapes(program_batches(self.program, dataset)) if captured else None,
            trials=self._trials,
        )
        network = MemoryNetwork(1)
        engine = Engine(own, network.transport(0), cells, cells.stores, self._clock, tasks=self._tasks)
        return Slices(cells, engine, loader, network, self._tickets, self._account, self._ticket_spans, part)

    def _build_client(self, local: Local, computing: Slices) -> Client:
        return Client(
            self.rank,
            [self._server_end(server, local) for server in self._servers],
            computing,
            self._account,
            self._tickets,
            first_step=self._first_step,
            tell=self._tell,
            flush=self._flush,
            fail=self.abandon,
            clock=self._clock,
        )

    def _server_end(self, server: int, local: Local) -> ServerEnd:
        if server == self.rank:
            return local
        parts = slices(self.plan.reductions, server)
        return RemoteServer(
            self.rank,
            server,
            self._transport,
            self._tags(),
            Slots(self._buffers, "value", parts),
            Slots(self._buffers, "gradient", parts),
            lambda ticket: Slots(self._buffers, "statistics", self._rows(server, ticket)),
            self._ticket_spans,
        )

    # Telling

    def take_notes(self) -> tuple[str, ...]:
        """Return what a user should know since the last call."""
        return self._trials.take_notes() if self._trials is not None else ()

    def _tell(self, steps_done: int, elapsed_s: float) -> None:
        begin_s = self._clock() - elapsed_s
        for parts, losses in self._account.close(steps_done, elapsed_s):
            spans = self._ticket_spans.take(parts.step, begin_s)
            self._report(StepResult(parts, losses, spans, begin_s, notes=self.take_notes()))
        if self._server is None:
            self.state.keep_until(min(steps_done, self._allowed))  # of later ones it may not know yet which are due

    def abandon(self, error: BaseException) -> None:
        """Stop all work here at the first failure, and say so once; from any thread."""
        with self._failing:
            first, self._failed = not self._failed, True
        if not first:
            return
        if self._client is not None:
            self._client.abandon(error)
        if self._server is not None:
            self._server.abandon(error)
        self._fail(error)


def _slice_of_chunks(plan: Plan) -> tuple[int, ...]:
    """Return the slice of each chunk: the worker that would own it if nobody ran ahead."""
    return next(iter(plan.placement.owners.values()))
