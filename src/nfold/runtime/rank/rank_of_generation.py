"""One rank of one generation: builds its part of a plan, trains, evaluates, and hands over what it has learnt."""

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from nfold.capture.computing.random import LOCK
from nfold.capture.program.building import build_model
from nfold.core import codec
from nfold.core.graph import ModelGraph
from nfold.core.plan import Plan
from nfold.core.residency import PlacedRun
from nfold.core.schedule import RankSchedule
from nfold.errors import InternalError
from nfold.machine.resident_memory import forget_peak, settle
from nfold.machine.system_sampler import Kernel, SystemSampler
from nfold.planning.asynchronous.snapshot_steps import SnapshotSteps
from nfold.planning.costs.read_ahead import chunks_read
from nfold.planning.operator_parts.splitting import split_graph
from nfold.runtime.asynchronous.asynchronous_replica import AsynchronousReplica
from nfold.runtime.checkpoint.checkpoint_format import Checkpoint
from nfold.runtime.checkpoint.state_collection import Collected
from nfold.runtime.control.channel import Message
from nfold.runtime.guards.own_weights import OwnWeights
from nfold.runtime.measuring.unsent_bytes import lift_limits, limit_unsent
from nfold.runtime.rank.evaluator import Evaluating
from nfold.runtime.rank.process import Process
from nfold.runtime.rank.sample_moving import SampleMoving
from nfold.runtime.rank.snapshots_of_rank import SnapshotsOfRank
from nfold.runtime.rank.state_delivery import collect_from, send_file, usage_of
from nfold.runtime.rank.state_handing import StateHanding
from nfold.runtime.snapshots.state_memory import Label
from nfold.runtime.step.built_model import BuiltModel, Part
from nfold.runtime.step.replica import Replica
from nfold.transport.generations.generation_transport import GenerationTransport

if TYPE_CHECKING:
    from collections.abc import Callable

KEPT_STEPS = 8
"""Steps whose tasks are reported one by one: the first ones after warm-up."""
WARM_UP_STEPS = 3


class Rank:
    """One rank, from its connections to the end of the generation."""

    def __init__(self, process: Process, transport: GenerationTransport, address: str) -> None:
        """Args:
        process: that is this rank.
        transport: to the other ranks.
        address: at which others reach it, so that its network card is known.
        """
        self.number = transport.rank
        self.transport = transport
        self.is_training = self._commits = False
        self._process, self._address = process, address
        self._sample_moving = SampleMoving(process, transport)
        self._state_handing = StateHanding(process, transport)
        self._snapshots = SnapshotsOfRank(process, transport)
        self._replica: Replica | AsynchronousReplica | None = None
        self._own_weights: OwnWeights | None = None
        self._next_step = self._kept_from = self._last_step = 0
        self._built_s = self._built_cpu_s = 0.0
        self._fetched: nn.Module | Exception | None = None
        """The whole model of the last checkpoint, for an evaluation right after it, or why there is none."""
        self._orders: dict[str, Callable[[Message, bytes], None]] = {
            "move": self._do_move,
            "build": self._do_build,
            "until": self._do_until,
            "trace": self._do_trace,
            "limit": self._do_limit,
            "evaluate": self._do_evaluate,
            "checkpoint": self._do_checkpoint,
            "model": self._do_model,
            "average": self._do_average,
            "deliver": self._do_deliver,
            "drop": self._do_drop,
            "holdings": self._do_holdings,
            "hand": self._state_handing.hand,
            "keep": self._state_handing.keep,
            "protect": self._do_protect,
        }

    def obey(self, order: Message, blob: bytes) -> None:
        """Carry out an order.

        Raises:
            InternalError: it is no order for a rank.
        """
        self.is_training = False
        if order["do"] not in self._orders:
            raise InternalError(f"the coordinator gave the order {order['do']!r}, which no rank knows")
        self._orders[order["do"]](order, blob)

    @property
    def step_under_way(self) -> int:
        """The step that an error now belongs to."""
        return self._replica.step_under_way if isinstance(self._replica, AsynchronousReplica) else self._next_step

    @property
    def reached(self) -> int:
        """The number of steps that this rank knows to be done; for any thread."""
        replica = self._replica
        return replica.steps_done if isinstance(replica, AsynchronousReplica) else self._next_step

    @property
    def holds_state(self) -> bool:
        """Whether it can wait for another coordinator: once it has played what all are allowed, it is at that step."""
        resident = self._process.resident
        return self._replica is not None and (resident is None or not resident.store.is_asking)

    @property
    def may_be_followed(self) -> bool:
        """Whether nothing but updates ever changes its part of the model."""
        replica, own = self._replica, self._own_weights
        if not isinstance(replica, Replica) or (own is not None and own.are_any):
            return False
        return not replica.may_change_itself

    def pause(self) -> None:
        """Stop between two steps, and report all steps that were played."""
        self._process.reporter.flush()
        if self._replica is not None:
            was_training = self.is_training
            self.is_training |= isinstance(self._replica, AsynchronousReplica)  # its threads are still at it
            self._replica.pause()
            self.is_training = was_training

    def idle(self) -> None:
        """Report all steps that were played: no order waits, so that others may wait for these steps."""
        if isinstance(self._replica, Replica):
            self.pause()

    def leave_state(self) -> None:
        """Hold what was learnt up to the last step that all may count, though the generation ends here."""
        replica = self._replica
        if self._commits and isinstance(replica, Replica) and self.number in replica.plan.placement.working:
            self._state_handing.hold_whole(replica, self._own_weights, self._next_step)

    def keep(self, state: Label | None) -> None:
        """Keep the model with the state that others have too; None: it was built and never trained."""
        self._state_handing.keep_built(self._replica, self._own_weights, state)

    def close(self) -> None:
        """Free the model and the buffers, whatever is under way; a model that the process keeps stays."""
        self._snapshots.close()
        self._sample_moving.close()
        if self._process.resident is not None:
            self._process.resident.store.let_go()
        if self._replica is not None:
            self._replica.close()
            self._replica = None
        self._process.reporter.forget()  # now that no thread reports any more

    # Moving samples

    def _do_move(self, order: Message, _: bytes) -> None:
        self._process.channel.send(self._sample_moving.before_training(order))

    # Building

    def _do_build(self, order: Message, header: bytes) -> None:
        self._process.channel.send(self.build(order, header))

    def build(self, order: Message, header: bytes) -> Message:
        """Build what an order says; return what the coordinator is told of it."""
        process, begin_s = self._process, self._process.clock()
        checkpoint = self._state_handing.checkpoint(order, header)
        self._next_step = checkpoint.step if checkpoint else 0
        process.orders.begin_generation(self._next_step)
        self._kept_from = self._next_step + WARM_UP_STEPS
        self._last_step, self._commits = order["total_steps"], order["commits"]
        plan = codec.decode(Plan, order["plan"])
        torch.set_num_threads(plan.threads[self.number])
        process.tasks.begin_plan(plan.predicted.step_s)
        limit_unsent(self.transport, plan.nodes, order["unsent_bytes"])
        graph = process.kept.graph(order["graph"])
        own = RankSchedule.from_document(order["schedule"])
        part = Part.of(self.number, process.the_program, graph, plan, own)
        self._sample_moving.begin_beside(order)
        with LOCK:  # capture changes torch for the whole process while it traces: no other thread may build then
            is_anew = (built := self._state_handing.kept_model(part, checkpoint)) is None
            if is_anew and process.owns_process:
                settle()
            placed = tuple(codec.decode(PlacedRun, each) for each in order["placed"])
            self._replica = self._build(plan, own, graph, checkpoint, built, placed, order["protect"])
            self._own_weights = OwnWeights(process.the_program, self._replica.model, process.datasets["train"], graph)
        num_bytes = self._state_handing.end_reading()
        if is_anew:
            process.memory.let_live_last()
        take, begun_with = partial(self._replica.held, is_checked=False), self._state_handing.take_begun()
        may_change = is_anew and isinstance(self._replica, Replica) and self._replica.may_change_itself
        undoes = self._commits and not may_change
        begun = self._snapshots.begin(order["protect"], take, self._next_step, begun_with, undoes=undoes)
        if process.owns_process:
            (settle if is_anew else forget_peak)()
        self._built_s, self._built_cpu_s = process.clock(), time.process_time()
        told = {"kept": self._replica.kept, "notes": [*self._replica.take_notes()], "snapshot": begun}
        given: Message = {"state_bytes": num_bytes} if num_bytes else {}
        if is_anew and isinstance(self._replica, Replica):
            given["model_s"] = self._replica.model_s
        return {"is": "built", **given, **told, "seconds": self._built_s - begin_s}

    def _build(
        self,
        plan: Plan,
        own: RankSchedule,
        graph: ModelGraph,
        checkpoint: Checkpoint | None,
        built: BuiltModel | None,
        placed: tuple[PlacedRun, ...],
        protect: int,
    ) -> Replica | AsynchronousReplica:
        process = self._process
        reads = bool(chunks_read(split_graph(graph, plan.splits), plan.placement, self.number))
        is_shared = process.resident is None  # processes that read have what the program gives, and no more
        transport = self._sample_moving.step_transport
        place = (self.number, process.the_program, process.datasets["train"], graph, plan, own, transport)
        shared: dict[str, Any] = {
            "device": process.device,
            "checkpoint": checkpoint,
            "reader": process.loader_pool.hired("train_data") if reads and is_shared else None,
            "kept": process.kept,
            "tasks": process.tasks,
            "clock": process.clock,
        }
        if plan.asynchrony is None:
            return Replica(
                *place,
                built=built,
                last_step=self._last_step,
                measures=process.measures,
                placed=placed,
                resident=process.resident,
                commits=self._commits or plan.may_be_followed,
                tell_losses=process.reporter.losses if self._commits else None,
                **shared,
            )
        steps = SnapshotSteps(protect, self._next_step, self._last_step)
        shared |= {"report": process.reporter.step, "flush": process.reporter.flush, "fail": process.orders.fail}
        shared |= {"traced_steps": self._kept, "steps": steps, "keep": self._snapshots.keep}
        return AsynchronousReplica(*place, **shared)

    # Training

    def _do_until(self, order: Message, _: bytes) -> None:
        replica, reporter = self.replica, self._process.reporter
        if self._own_weights is not None:
            self._own_weights.check()
        self._forget_states()
        self.is_training = True
        self._sample(replica.plan)
        if isinstance(replica, AsynchronousReplica):
            replica.allow(order["step"])
            self._next_step = order["step"]
            return
        while self._next_step < order["step"] and self._process.orders.allowance.begin(self._next_step):
            self._snapshots.before_step(self._next_step)
            result = replica.step(self._next_step, keep_spans=self._next_step in self._kept)
            self._next_step += 1
            reporter.step(result)
            if self._next_step < self._last_step:
                self._snapshots.after_step(replica, self._next_step)
        self.is_training = False
        if self._next_step >= self._last_step:
            reporter.end()

    def _forget_states(self) -> None:
        """Let go of states that nobody goes back to: all ranks have built, or train on."""
        self._process.kept_model.forget()
        if self._snapshots.are_kept:
            self._process.memory.drop_live()
        else:
            self._process.memory.clear()

    def _do_protect(self, order: Message, _: bytes) -> None:
        replica, failed = self._replica, None
        if isinstance(replica, AsynchronousReplica):
            replica.state.steps.change(order["every"], self._next_step)
            failed = replica.abandon
        self._snapshots.protect(order, failed)

    def _sample(self, plan: Plan) -> None:
        """Begin to look at process and machine, if nobody does yet."""
        process = self._process
        if process.measures and not process.reporter.is_sampling and (process.owns_process or self.number == 0):
            kernel = Kernel(self._address, process.clock, process.loader_pool.processes)
            process.reporter.begin(SystemSampler(self.number, plan.nodes[self.number], kernel.read))

    def _do_trace(self, _: Message, __: bytes) -> None:
        self._kept_from = self._next_step
        if isinstance(self._replica, AsynchronousReplica):
            self._replica.trace(self._kept)

    def _do_limit(self, order: Message, _: bytes) -> None:
        limit_unsent(self.transport, self.replica.plan.nodes, order["unsent_bytes"])

    def _do_evaluate(self, order: Message, _: bytes) -> None:
        process, replica, averaged_tag = self._process, self.replica, order["averaged_tag"]
        self.pause()
        reader = process.loader_pool.reader("test_data")
        here = Evaluating(process.the_program, replica, process.datasets["test"], process.device, reader)
        if replica.is_complete:
            averages = replica.averages if isinstance(replica, Replica) and averaged_tag is not None else None
            sums = here.everywhere(averages)
        else:
            collect = partial(self._collect, with_optimizer=False)
            sums = here.on_rank_0(
                lambda: self._take_fetched() if order["is_fetched"] else here.filled(collect(order["tag"])),
                None if averaged_tag is None else lambda: here.filled(collect(averaged_tag, is_averaged=True)),
            )
        process.channel.send({"is": "evaluated", "sums": sums})

    # Handing over

    def _take_fetched(self) -> nn.Module | None:
        fetched, self._fetched = self._fetched, None
        if isinstance(fetched, Exception):
            raise fetched
        return fetched

    def _do_checkpoint(self, order: Message, _: bytes) -> None:
        self.pause()
        process = self._process
        takes = order["evaluates"] and not self.replica.is_complete
        build = partial(build_model, process.the_program, process.device) if takes else None
        collected = self._collect(order["tag"], with_optimizer=True)
        has_file, self._fetched = send_file(process.channel, "checkpoint", collected, build)
        unkept = collected.unkept if collected else ""
        process.channel.send({"is": "checkpoint", "step": self._next_step, "has_file": has_file, "unkept": unkept})

    def _do_model(self, order: Message, _: bytes) -> None:
        self.pause()
        self._hand_over("model", order["tag"], is_averaged=order["is_averaged"], told=order["facts"])

    def _do_average(self, order: Message, _: bytes) -> None:
        self.pause()
        self._hand_over("average", order["tag"], is_averaged=True)

    def _hand_over(self, what: str, tag: int, **wanted: Any) -> None:
        has_file, _fetched = send_file(self._process.channel, what, self._collect(tag, with_optimizer=False, **wanted))
        self._process.channel.send({"is": what, "has_file": has_file})

    def _do_deliver(self, order: Message, _: bytes) -> None:
        self._part()
        staleness = self.replica.staleness if isinstance(self.replica, AsynchronousReplica) else {}
        told = {"usage": codec.encode(self._usage(self.replica.plan)), "staleness": staleness}
        collected = self._collect(order["tag"], with_optimizer=False)
        has_file, _fetched = send_file(self._process.channel, "model", collected)
        self._process.channel.send({"is": "delivered", **told, "has_file": has_file})

    def _do_holdings(self, _: Message, __: bytes) -> None:
        self.pause()
        self._snapshots.rest()
        self._process.channel.send(self._state_handing.hold(self.replica, self._own_weights, self._next_step))

    def _do_drop(self, _: Message, __: bytes) -> None:
        """Forget the plan and what was trained under it; another plan may follow."""
        self._part()
        usage = codec.encode(self._usage(self.replica.plan))
        self.close()
        lift_limits(self.transport)
        self._process.channel.send({"is": "dropped", "usage": usage})

    def _part(self) -> None:
        """Come to rest for good."""
        self.pause()
        self._snapshots.part()
        self._sample_moving.rest()
        if isinstance(self._replica, AsynchronousReplica):
            self._replica.end()
        self._process.reporter.end()

    def _collect(self, tag: int, **wanted: Any) -> Collected | None:
        return collect_from(self.replica, self.transport, tag, step=self._next_step, **wanted)

    def _usage(self, plan: Plan) -> Any:
        return usage_of(
            self.number,
            plan,
            owns_process=self._process.owns_process,
            loaders_bytes=self._process.loader_pool.peak_bytes,
            cpu_s=time.process_time() - self._built_cpu_s,
            wall_s=self._process.clock() - self._built_s,
        )

    @property
    def _kept(self) -> range:
        """Steps that are reported task by task."""
        return range(self._kept_from, self._kept_from + KEPT_STEPS)

    @property
    def replica(self) -> Replica | AsynchronousReplica:
        """What it trains."""
        assert self._replica is not None, "build comes first"
        return self._replica
