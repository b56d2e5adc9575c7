"""One rank: does what the coordinator says, one order after another.

    coordinator            rank
    load            -->    ready        imports the script, builds the data, checks the model's first weights
    profile         -->    profiled     rank 0 only
    listen, connect -->    connected    the mesh of connections between ranks
    probe           -->    probed       how fast bytes move, whatever may wait on the way; `limit` says that again
    pace            -->    paced        how fast all compute at once
    build           -->    built        model, buffers and engine for the plan
    until k         -->    steps ..     plays steps up to k, which is never far ahead of what was reported; under an
                                        asynchronous plan threads of the rank do, so that the next k can be heard
    evaluate, checkpoint, model, finish
    hold            -->    holding      at once: begins no more steps; another `until` says which is the last one

Orders are read by a thread and done in sequence, so the coordinator may send the next one before the last is done.
"""

import contextlib
import os
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nfold.capture.autocast import under_autocast
from nfold.capture.building import build_model
from nfold.capture.random import LOCK
from nfold.core import codec
from nfold.core.graph import ModelGraph
from nfold.core.plan import Plan
from nfold.core.trace import RankUsage
from nfold.errors import InternalError
from nfold.planning.reading import chunks_read
from nfold.planning.splitting import split_graph
from nfold.program import Program
from nfold.runtime.channel import Channel, ChannelClosed, Message
from nfold.runtime.collecting import Collected
from nfold.runtime.evaluating import Evaluating
from nfold.runtime.failing import failed
from nfold.runtime.handing_over import collect_from, send_file, usage_of
from nfold.runtime.loaders import Staff
from nfold.runtime.loading import facts_of, find_device, load_dataset
from nfold.runtime.orders import Orders
from nfold.runtime.own_weights import OwnWeights
from nfold.runtime.rehearsal import play_schedule, rehearse
from nfold.runtime.replica import Replica
from nfold.runtime.reporter import Reporter
from nfold.runtime.resident import settle
from nfold.runtime.sampler import Kernel, Sampler
from nfold.runtime.service.replica import AsynchronousReplica
from nfold.runtime.state import Checkpoint
from nfold.runtime.tools import Tools, Wiring
from nfold.runtime.unsent import lift_limits, limit_unsent
from nfold.transport.base import Transport

KEPT_STEPS = 8
"""Steps whose tasks are reported one by one: the first ones after warm-up."""
WARM_UP_STEPS = 3


class Worker:
    """Carries out one rank's orders."""

    def __init__(
        self,
        rank: int,
        channel: Channel,
        orders: Orders,
        load: Callable[[], Program],
        wiring: Wiring,
        tools: Tools,
        *,
        script: Path | None,
        staff: Staff,
        owns_process: bool,
        most_threads: Callable[[], int] = torch.get_num_threads,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.rank = rank
        self._channel, self._orders, self._load_program = channel, orders, load
        self._wiring, self._tools = wiring, tools
        self._script, self._staff = script, staff
        self._owns_process, self._most_threads, self._clock = owns_process, most_threads, clock
        self._program: Program | None = None
        self._datasets: dict[str, Any] = {}
        self._transport: Transport | None = None
        self._replica: Replica | AsynchronousReplica | None = None
        self._own_weights: OwnWeights | None = None
        self._next_step = self._kept_from = self._last_step = 0
        self._built_s = self._built_cpu_s = 0.0
        self._fetched: nn.Module | Exception | None = None
        """The whole model of the last checkpoint, for an evaluation right after it, or why there is none."""
        self._reporter = Reporter(channel, clock)
        self._measures = True
        self._address = ""
        self._doing = "starting"
        self._device = torch.device("cpu")

    def run(self) -> int:
        """Do orders until the last one; return the exit code."""
        try:
            self._channel.send({"is": "hello", "host": socket.gethostname(), "pid": os.getpid()})
            while True:
                order, blob = self._orders.get()
                self._doing = order["do"]
                self._obey(order, blob)
                if order["do"] == "finish":
                    return 0
        except ChannelClosed:
            return 1
        except (Exception, SystemExit) as error:
            self._report_failure(error)
            if self._transport is not None:
                self._transport.abort()
            return 1
        finally:
            self._close()

    def _obey(self, order: Message, blob: bytes) -> None:
        match order["do"]:
            case "load":
                self._do_load(order)
            case "profile":
                self._do_profile(order)
            case "listen":
                self._do_listen()
            case "connect":
                self._do_connect(order)
            case "probe":
                self._do_probe(order)
            case "pace":
                self._do_pace(order)
            case "build":
                self._do_build(order, blob)
            case "until":
                self._do_until(order)
            case "trace":
                self._do_trace()
            case "limit":
                limit_unsent(self._the_transport, self._the_replica.plan.nodes, order["unsent_bytes"])
            case "evaluate":
                self._do_evaluate(order)
            case "checkpoint":
                self._do_checkpoint(order)
            case "model":
                self._do_model(order)
            case "average":
                self._do_average(order)
            case "finish":
                self._do_finish(order)
            case "drop":
                self._do_drop()
            case unknown:
                raise InternalError(f"the coordinator gave the order {unknown!r}, which no rank knows")

    # Setting up

    def _do_load(self, order: Message) -> None:
        self._measures = order["measure"]
        self._device = find_device(order["device"], order["local_rank"])
        written = self._load_program()
        most_threads = self._most_threads()  # by now the script has said, if it wants fewer than OMP_NUM_THREADS
        if self._owns_process:
            torch.set_num_threads(min(most_threads, order["threads"]))
        program = under_autocast(written)
        own = {} if self._owns_process else {"loaders": 0}  # where ranks are threads, a debugger shall see the reading
        self._program = replace(program, **(order["overrides"] | own))
        self._datasets = {"train": load_dataset(program.train_data, "train_data", self._program.seed)}
        if program.test_data is not None:
            self._datasets["test"] = load_dataset(program.test_data, "test_data", self._program.seed)
            if order["evaluate"] and self.rank == 0:
                rehearse(self._program, self._datasets["train"], self._datasets["test"], self._device)
        told = facts_of(self._program, self._datasets, is_alone=order["is_alone"])
        self._staff.wanted(self._program.loaders, self._program.seed, told["items"])
        schedule = play_schedule(self._program, self._datasets["train"], order["steps"]) if self.rank == 0 else {}
        self._channel.send(
            {"is": "ready", **told, "autocast": written.autocast, "most_threads": most_threads, **schedule}
        )

    def _do_profile(self, order: Message) -> None:
        graph, profiles = self._tools.profile(self._the_program, tuple(order["chunk_sizes"]), order["threads"])
        if self._owns_process:
            torch.set_num_threads(order["own_threads"])
        self._channel.send(
            {
                "is": "profiled",
                "graph": codec.encode(graph),
                "profiles": {count: codec.encode(profile) for count, profile in profiles.items()},
                "node": codec.encode(self._tools.node()),
            }
        )

    def _do_listen(self) -> None:
        self._channel.send({"is": "listening", "address": self._wiring.listen()})

    def _do_connect(self, order: Message) -> None:
        self._transport = self._wiring.connect(self.rank, order["addresses"])
        self._address = order["addresses"][self.rank][0]
        self._channel.send({"is": "connected"})

    def _do_probe(self, order: Message) -> None:
        self._pause()
        lift_limits(self._the_transport)  # until the next order to limit: what is found shall not hang on the plan
        wishes = {"measures": order["measures"], "patience_s": order["patience_s"]}
        found = self._tools.probe(self._the_transport, order["peer"], **wishes)
        self._channel.send({"is": "probed", "found": codec.encode(found) if found else None})

    def _do_pace(self, order: Message) -> None:
        pace = self._tools.pace(
            self._the_program,
            self._datasets["train"],
            order["chunk_size"],
            order["threads"],
            longest_pass_s=order["longest_pass_s"],
        )
        self._channel.send({"is": "paced", "pace": codec.encode(pace)})

    def _do_build(self, order: Message, header: bytes) -> None:
        checkpoint = Checkpoint(header, self._read_state) if header else None
        self._next_step = checkpoint.step if checkpoint else 0
        self._kept_from = self._next_step + WARM_UP_STEPS
        self._last_step = order["total_steps"]
        plan = codec.decode(Plan, order["plan"])
        torch.set_num_threads(plan.threads[self.rank])
        if self._owns_process:
            settle()
        limit_unsent(self._the_transport, plan.nodes, order["unsent_bytes"])
        graph = codec.decode(ModelGraph, order["graph"])
        with LOCK:  # capture changes torch for the whole process while it traces: no other thread may build then
            self._replica = self._build(order, plan, graph, checkpoint)
            self._own_weights = OwnWeights(self._the_program, self._replica.model, self._datasets["train"], graph)
        if self._owns_process:
            settle()
        self._built_s, self._built_cpu_s = self._clock(), time.process_time()
        self._channel.send({"is": "built", "kept": self._replica.kept, "notes": list(self._replica.take_notes())})

    def _build(
        self, order: Message, plan: Plan, graph: ModelGraph, checkpoint: Checkpoint | None
    ) -> Replica | AsynchronousReplica:
        seconds = order["operator_seconds"]
        reads = chunks_read(split_graph(graph, plan.splits), plan.placement, self.rank)
        place = (self.rank, self._the_program, self._datasets["train"], graph, plan)
        shared: dict[str, Any] = {
            "operator_seconds": seconds and {name: (pair[0], pair[1]) for name, pair in seconds.items()},
            "device": self._device,
            "checkpoint": checkpoint,
            "reader": self._staff.hired("train_data") if reads else None,
            "clock": self._clock,
        }
        if plan.asynchrony is None:
            return Replica(*place, self._the_transport, last_step=self._last_step, measures=self._measures, **shared)
        report, flush = self._reporter.step, self._reporter.flush
        traced, fail = self._kept, self._orders.fail
        return AsynchronousReplica(
            *place, self._the_transport, report=report, flush=flush, fail=fail, traced_steps=traced, **shared
        )

    def _read_state(self, start: int, stop: int) -> bytes:
        """Ask for bytes of the checkpoint; until they are here no other order comes."""
        self._channel.send({"is": "wants", "start": start, "stop": stop})
        order, data = self._orders.get()
        if order["do"] != "take":
            raise InternalError(f"the coordinator ordered {order['do']!r} instead of sending the checkpoint")
        return data

    # Training

    def _do_until(self, order: Message) -> None:
        replica = self._the_replica
        if self._own_weights is not None:
            self._own_weights.check()
        self._doing = "training"
        if self._measures and not self._reporter.is_sampling and (self._owns_process or self.rank == 0):
            kernel = Kernel(self._address, self._clock, self._staff.processes)
            self._reporter.begin(Sampler(self.rank, replica.plan.nodes[self.rank], kernel.read))
        if isinstance(replica, AsynchronousReplica):
            replica.allow(order["step"])
            self._next_step = order["step"]
            return
        while self._next_step < order["step"] and self._orders.allowance.begin(self._next_step):
            result = replica.step(self._next_step, keep_spans=self._next_step in self._kept)
            self._next_step += 1
            self._reporter.step(result)
        if self._next_step >= self._last_step:
            self._reporter.end()
        if self._orders.empty():
            self._reporter.flush()
            replica.pause()

    def _do_trace(self) -> None:
        self._kept_from = self._next_step
        if isinstance(self._replica, AsynchronousReplica):
            self._replica.trace(self._kept)

    def _do_evaluate(self, order: Message) -> None:
        replica, averaged_tag = self._the_replica, order["averaged_tag"]
        self._pause()
        here = Evaluating(
            self._the_program, replica, self._datasets["test"], self._device, self._staff.reader("test_data")
        )
        if replica.is_complete:
            averages = replica.averages if isinstance(replica, Replica) and averaged_tag is not None else None
            sums = here.everywhere(averages)
        else:
            collect = partial(self._collect, with_optimizer=False)
            sums = here.on_rank_0(
                lambda: self._take_fetched() if order["is_fetched"] else here.filled(collect(order["tag"])),
                None if averaged_tag is None else lambda: here.filled(collect(averaged_tag, is_averaged=True)),
            )
        self._channel.send({"is": "evaluated", "sums": sums})

    def _take_fetched(self) -> nn.Module | None:
        fetched, self._fetched = self._fetched, None
        if isinstance(fetched, Exception):
            raise fetched
        return fetched

    def _do_checkpoint(self, order: Message) -> None:
        self._pause()
        takes = order["evaluates"] and not self._the_replica.is_complete
        build = partial(build_model, self._the_program, self._device) if takes else None
        collected = self._collect(order["tag"], with_optimizer=True)
        has_file, self._fetched = send_file(self._channel, "checkpoint", collected, build)
        unkept = collected.unkept if collected else ""
        self._channel.send({"is": "checkpoint", "step": self._next_step, "has_file": has_file, "unkept": unkept})

    def _do_model(self, order: Message) -> None:
        self._pause()
        wanted = {"is_averaged": order["is_averaged"], "told": order["facts"]}
        collected = self._collect(order["tag"], with_optimizer=False, **wanted)
        has_file, _ = send_file(self._channel, "model", collected)
        self._channel.send({"is": "model", "has_file": has_file})

    def _do_average(self, order: Message) -> None:
        self._pause()
        collected = self._collect(order["tag"], with_optimizer=False, is_averaged=True)
        has_file, _ = send_file(self._channel, "average", collected)
        self._channel.send({"is": "average", "has_file": has_file})

    def _do_finish(self, order: Message) -> None:
        self._part()
        usage, has_file = None, False
        if self._replica is not None:
            usage = codec.encode(self._usage(self._replica.plan))
            has_file, _ = send_file(self._channel, "model", self._collect(order["tag"], with_optimizer=False))
        self._channel.send({"is": "finished", "usage": usage, "staleness": self._staleness, "has_file": has_file})

    def _do_drop(self) -> None:
        """Forget the plan and what was trained under it; another plan may follow."""
        self._part()
        usage = codec.encode(self._usage(self._the_replica.plan))
        self._the_replica.close()
        self._replica = None
        lift_limits(self._the_transport)
        self._channel.send({"is": "dropped", "usage": usage})

    def _pause(self) -> None:
        self._reporter.flush()
        if self._replica is not None:
            doing = self._doing
            if isinstance(self._replica, AsynchronousReplica):
                self._doing = "training"  # its threads are still at it
            self._replica.pause()
            self._doing = doing

    def _part(self) -> None:
        """Come to rest for good."""
        self._pause()
        if isinstance(self._replica, AsynchronousReplica):
            self._replica.end()
        self._reporter.end()

    @property
    def _kept(self) -> range:
        """Steps that are reported task by task."""
        return range(self._kept_from, self._kept_from + KEPT_STEPS)

    @property
    def _staleness(self) -> dict[str, int]:
        return self._replica.staleness if isinstance(self._replica, AsynchronousReplica) else {}

    @property
    def _step_under_way(self) -> int:
        return self._replica.step_under_way if isinstance(self._replica, AsynchronousReplica) else self._next_step

    @property
    def _reached(self) -> int:
        """Steps that this rank knows to be done."""
        return self._replica.steps_done if isinstance(self._replica, AsynchronousReplica) else self._next_step

    def _collect(self, tag: int, **wanted: Any) -> Collected | None:
        return collect_from(self._the_replica, self._the_transport, tag, step=self._next_step, **wanted)

    def _usage(self, plan: Plan) -> RankUsage:
        return usage_of(
            self.rank,
            plan,
            owns_process=self._owns_process,
            loaders_bytes=self._staff.peak_bytes,
            cpu_s=time.process_time() - self._built_cpu_s,
            wall_s=self._clock() - self._built_s,
        )

    # Failing and ending

    def _report_failure(self, error: BaseException) -> None:
        step = self._step_under_way if self._doing == "training" else None
        with contextlib.suppress(ChannelClosed):  # the coordinator is gone too: nobody is left to tell
            self._reporter.flush()
            self._channel.send(failed(error, self._script, doing=self._doing, step=step, reached=self._reached))

    def _close(self) -> None:
        self._orders.leave()
        self._reporter.stop()
        self._staff.close()
        if self._replica is not None:
            self._replica.close()
        if self._transport is not None:
            self._transport.close()
        self._channel.close()

    @property
    def _the_program(self) -> Program:
        assert self._program is not None, "load comes first"
        return self._program

    @property
    def _the_transport(self) -> Transport:
        assert self._transport is not None, "connect comes first"
        return self._transport

    @property
    def _the_replica(self) -> Replica | AsynchronousReplica:
        assert self._replica is not None, "build comes first"
        return self._replica
