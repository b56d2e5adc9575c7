"""One member of the job: a process that does what the coordinator says, one order after another.

    coordinator            member
    load            -->    ready        imports the script, builds the data, checks the model's first weights
    reside          -->    resides      where data live on nodes: learns the numbers of its samples
    profile         -->    profiled     the fastest only
    listen          -->    listening    at an address of its own
    connect         -->    connected    to the members of a generation; from here on it is a rank among them
    probe           -->    probed       how fast bytes move, whatever may wait on the way; `limit` says that again
    pace            -->    paced        how fast all compute at once
    gauge           -->    gauged       how fast a fixed piece of bookkeeping is done, beside the others' steps
    move            -->    moved        sends samples to others, and keeps those that they send, before training
    build           -->    built        model, buffers and engine for the plan
    meet, probe     -->    beside       both in a thread beside the steps, for a newcomer
    warm            -->    warmed       a newcomer builds once without the state, while the others train
    lend            -->    lent         gives a shadow a part of the state, and the sums of each step after it
    follow          -->    followed     a newcomer that has built is that shadow: it plays those steps too
    until k         -->    steps ..     plays steps up to k, which is never far ahead of what was reported; under an
                                        asynchronous plan threads of the rank do, so that the next k can be heard
    evaluate, checkpoint, model, average
    deliver         -->    delivered    comes to rest and gives the final model, and stays for the case that one is lost
    holdings        -->    holdings     keeps what it has of the state for the next generation, and tells what that is
    protect                             takes snapshots every so many steps, and gives buddies what only it has
                    <--    snapshot     has taken one
    recall          -->    recalled     which states are held in memory, after a loss
    hand            -->    handed       gives, or takes, what only a rank that leaves had of it
    keep            -->    kept         rank 0 sends the file of the state that all hold, without a plan
    hold            -->    holding      at once: begins no more steps; another `until` says which is the last one
    abandon         -->    abandoned    at once: ends the generation where it is
    finish          -->    finished     leaves the job: nothing is asked of it any more
    give            -->    gives        at once: a sample that another one `lacks`, to whom `given` brings it

Orders are read by a thread and done in sequence, so the coordinator may send the next one before the last is done. When
another member is lost, the generation is over: that is told, and what was ordered of it is passed by until the next
`connect` begins another one.
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from nfold.capture.program.autocast import under_autocast
from nfold.core import codec
from nfold.errors import ProgramError, TransportError
from nfold.machine.heap import keep_for_good
from nfold.planning.choosing.exactness import CHUNKS_OF_NODES
from nfold.program import Program
from nfold.runtime.control.channel import ChannelClosed, ControlChannel, Message
from nfold.runtime.control.orders import Orders
from nfold.runtime.control.own_failure import failed
from nfold.runtime.data.loaded_program import facts_of, find_device, load_dataset
from nfold.runtime.data.loaders import LoaderPool
from nfold.runtime.measuring.unsent_bytes import lift_limits
from nfold.runtime.rank.agreed_gradients import agreed_gradients
from nfold.runtime.rank.beside_steps import BesideSteps, Shadowing, to_build
from nfold.runtime.rank.cut_trial import why_cut_inexact
from nfold.runtime.rank.process import Process
from nfold.runtime.rank.rank_of_generation import Rank
from nfold.runtime.rank.rank_tools import Tools, Wiring
from nfold.runtime.rank.rehearsal import play_schedule, rehearse
from nfold.runtime.rank.reporter import Reporter
from nfold.runtime.rank.residence import load_train, resident_of
from nfold.runtime.rank.samples_again import take_part
from nfold.runtime.samples.own_inventory import inventory_of
from nfold.runtime.samples.sample_costs import sample_costs
from nfold.runtime.step.stall_report import stall_told
from nfold.transport.generations.no_way import alone

if TYPE_CHECKING:
    from nfold.transport.generations.connections import Connections

_OF_THE_PROCESS = frozenset(
    {"load", "reside", "profile", "listen", "connect", "pace", "warm", "follow", "finish", "abandon", "recall"}
)
"""Orders that a process obeys whether it is a rank or not."""


class Worker:
    """Carries out the orders of one member."""

    def __init__(
        self,
        member: int,
        channel: ControlChannel,
        orders: Orders,
        load: Callable[[], Program],
        wiring: Wiring,
        tools: Tools,
        *,
        script: Path | None,
        loader_pool: LoaderPool,
        owns_process: bool,
        most_threads: Callable[[], int] = torch.get_num_threads,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._process = Process(
            member=member,
            channel=channel,
            orders=orders,
            reporter=Reporter(channel, clock),
            loader_pool=loader_pool,
            script=script,
            owns_process=owns_process,
            clock=clock,
        )
        self._channel, self._load_program = channel, load
        self._wiring, self._tools, self._most_threads = wiring, tools, most_threads
        self._connections: Connections[Any] | None = None
        self._rank: Rank | None = None
        self._members: list[int] = []
        """Of the generation under way."""
        self._abandoned = threading.Event()
        self._doing = "starting"
        self._beside, self._shadowing = BesideSteps(channel, wiring, tools), Shadowing(self._process, wiring)
        orders.on_abandon(self._hear_abandon)
        orders.on_loss(self._held)
        for do in self._beside.kinds:
            orders.on_beside(do, self._beside.take)

    def run(self) -> int:
        """Carry out orders up to the last one; return the exit code."""
        try:
            self._channel.send({"is": "hello", **_who()})
            while not self._do_next():
                pass
        except ChannelClosed:
            return 1
        except (Exception, SystemExit) as error:
            self._report_failure(error)
            if self._connections is not None:
                self._connections.abort()
            return 1
        else:
            return 0
        finally:
            self._close()

    def stall(self) -> Message | None:
        """Return what this rank has done for far too long; None: nothing. For another thread."""
        return stall_told(self._process.tasks, self._process.clock())

    def _do_next(self) -> bool:
        """Do one order; return whether it was the last one. A lost peer ends the generation, and not this process."""
        try:
            order, blob = self._process.orders.get()
            self._doing = order["do"]
            if self._doing in _OF_THE_PROCESS:
                self._obey(order, blob)
            elif self._rank is not None:
                self._obey_as_rank(self._rank, order, blob)
            if self._rank is not None and self._process.orders.empty():
                self._rank.idle()
        except TransportError as error:
            if not self._abandoned.is_set():
                self._report_failure(error)
            self._leave_generation()
            return False
        return self._doing == "finish"

    def _obey(self, order: Message, blob: bytes) -> None:
        match order["do"]:
            case "load":
                self._do_load(order)
            case "reside":
                self._do_reside(order)
            case "profile":
                self._do_profile(order)
            case "listen":
                self._do_listen()
            case "connect":
                self._do_connect(order)
            case "pace":
                self._do_pace(order)
            case "warm":
                self._do_warm(order)
            case "follow":
                self._shadowing.follow(order, blob)
            case "finish":
                self._channel.send({"is": "finished"})
            case "abandon":
                self._leave_generation()
                self._abandoned.clear()
                self._channel.send({"is": "abandoned"})
            case "recall":
                self._do_recall()

    def _do_recall(self) -> None:
        """Tell which states are held here."""
        states = [
            {
                "generation": state.label[0],
                "step": state.label[1],
                "told": state.told,
                "is_whole": state.is_whole,
                "others": [piece for piece in tuple(state.pieces) if piece[0] != self._process.member],
            }
            for state in self._process.memory.all()
        ]
        self._channel.send({"is": "recalled", "states": states})

    def _obey_as_rank(self, rank: Rank, order: Message, blob: bytes) -> None:
        if order["do"] == "probe":
            self._do_probe(rank, order)
        elif order["do"] == "lend":
            self._shadowing.lend(rank, order)
        elif order["do"] == "gauge":
            self._channel.send({"is": "gauged", "bit_s": self._tools.gauge()})
        else:
            rank.obey(order, blob)

    # Getting ready

    def _do_load(self, order: Message) -> None:
        with self._tools.watching():
            found = self._load(order)
        self._channel.send({"is": "ready", **found})

    def _load(self, order: Message) -> Message:
        process = self._process
        process.measures = order["measure"]
        process.device = find_device(order["device"], order["local_rank"])
        written = self._load_program()
        most_threads = self._most_threads()  # by now the script has said, if it wants fewer than OMP_NUM_THREADS
        if process.owns_process:
            torch.set_num_threads(min(most_threads, order["threads"]))
        program = under_autocast(written)
        process.program = replace(program, **order["overrides"])
        if not process.owns_process:  # where ranks are threads, a debugger shall see the reading
            process.program = replace(process.program, loaders=0)
        train, source = load_train(process.program, order)
        loaders = process.program.loaders
        if source is not None:  # others come later; processes that read would never have them
            process.program = replace(process.program, loaders=0, train_data=lambda: process.datasets["train"])
        process.node, process.datasets = order["node"], {"train": train}
        is_first = process.member == 0
        not_means: list[str] = []
        if program.test_data is not None:
            test = process.datasets["test"] = load_dataset(program.test_data, "test_data", process.program.seed)
            if order["evaluate"] and is_first:
                not_means = rehearse(process.program, train, test, process.device)
        told = process.told = facts_of(process.program, process.datasets)
        if order["exact"]:
            if source is not None:
                raise ProgramError(f"--exact: {CHUNKS_OF_NODES}. Leave out --exact, or give all ranks the same data.")
            told["gradients"] = agreed_gradients(process.program, train, process.device)
        process.loader_pool.wanted(process.program.loaders, process.program.seed, told["items"])
        if source is not None:
            told |= {"inventory": codec.encode(inventory_of(source, train)), "loaders": loaders}
        plays = source is None  # where data live on nodes, all have told theirs first
        schedule = play_schedule(process.program, len(train), order["steps"]) if plays else {}
        return {**told, "autocast": written.autocast, "most_threads": most_threads, "not_means": not_means, **schedule}

    def _do_reside(self, order: Message) -> None:
        process = self._process
        process.resident = resident_of(process.datasets["train"], process.node, order)
        take_part(process)
        is_first = process.member == 0
        schedule = play_schedule(process.the_program, order["total"], order["steps"]) if is_first else {}
        costs = sample_costs(process.datasets["train"]) if order["measure"] else None
        told = {"schedule": schedule, "costs": None if costs is None else codec.encode(costs)}
        self._channel.send({"is": "resides", **told})

    def _do_profile(self, order: Message) -> None:
        found, told = self._tools.measure(
            self._process, order["chunk_sizes"], order["threads"], anew=order["measure_again"]
        )
        if self._process.owns_process:
            torch.set_num_threads(order["own_threads"])
        if order["exact"]:
            tried = self._process.the_program, found.graph, self._process.datasets["train"]
            found = replace(found, graph=replace(found.graph, inexact_cut=why_cut_inexact(*tried)))
        if self._process.owns_process:
            keep_for_good()  # what captures, and is never garbage
        self._channel.send({"is": "profiled", "measured": codec.encode(found), "note": told})

    def _do_listen(self) -> None:
        address = self._wiring.listen()
        self._connections = self._wiring.connections
        self._channel.send({"is": "listening", "address": address})

    def _do_connect(self, order: Message) -> None:
        """Take part in a generation: make the connections to its members that are missing, end those to who is gone."""
        self._shadowing.settle(order["members"])
        self._end_generation()
        self._beside.end()
        addresses = {member: (str(host), int(port)) for member, host, port in order["addresses"]}
        assert self._connections is not None, "listen comes first"
        self._wiring.connect(addresses, self._abandoned)
        for member in self._connections.peers.intersection(order["gone"]):
            self._connections.leave(member)
        transport = self._connections.begin(order["generation"], order["members"])
        if self._abandoned.is_set():  # it was ended before it began: whoever waited for a peer now would do so for ever
            raise TransportError("the generation was ended before it began")
        self._members = order["members"]
        self._rank = Rank(self._process, transport, addresses[self._process.member][0])
        self._channel.send({"is": "connected"})

    def _do_probe(self, rank: Rank, order: Message) -> None:
        rank.pause()
        lift_limits(rank.transport)  # until the next order to limit: what is found shall not hang on the plan
        wishes = {"measures": order["measures"], "patience_s": order["patience_s"]}
        found = self._tools.probe(rank.transport, order["peer"], **wishes)
        self._channel.send({"is": "probed", "found": codec.encode(found) if found else None})

    def _do_pace(self, order: Message) -> None:
        pace = self._tools.pace(
            self._process.the_program,
            self._process.datasets["train"],
            order["chunk_size"],
            order["threads"],
            longest_pass_s=order["longest_pass_s"],
        )
        self._channel.send({"is": "paced", "pace": codec.encode(pace)})

    def _do_warm(self, order: Message) -> None:
        """Build a rank of the next generation, which takes its state once the others have stopped, or follows them."""
        self._shadowing.end()
        for each in to_build(order, owns_process=self._process.owns_process):
            rank = Rank(self._process, alone(each["rank"], each["world_size"]), "")
            with contextlib.ExitStack() as unless_it_follows:
                unless_it_follows.callback(rank.close)
                rank.build(each, b"")
                if each["follows"]:
                    self._shadowing.await_order(rank)
                    unless_it_follows.pop_all()
                else:
                    rank.keep(None)
        self._channel.send({"is": "warmed", "number": order["number"]})

    # Ending

    def _held(self) -> Message | None:
        """Say what another coordinator can go on with, when this one is gone; from any thread."""
        rank, orders = self._rank, self._process.orders
        if rank is None or not rank.holds_state:
            return None
        return {
            **_who(),
            "generation": rank.transport.number,
            "members": self._members,
            "stop": max(rank.reached, orders.allowance.stop),
            **orders.log.told,
            "has_test": "test" in self._process.datasets,
        }

    def _hear_abandon(self) -> None:
        """End what waits for other members, from the thread that hears orders."""
        self._abandoned.set()
        self._shadowing.abandon()
        if self._process.resident is not None:
            self._process.resident.store.let_go()
        if self._connections is not None:
            self._connections.abandon()

    def _leave_generation(self) -> None:
        """End the generation under way, which others may go on from."""
        self._shadowing.end()
        if self._rank is not None:
            self._process.reporter.flush()
            self._rank.leave_state()
        self._end_generation()

    def _end_generation(self) -> None:
        if self._rank is not None:
            self._rank.close()
            self._rank = None
            self._process.orders.forget_generation()

    def _report_failure(self, error: BaseException) -> None:
        rank, process = self._rank, self._process
        is_training = rank is not None and rank.is_training
        doing, step = "training" if is_training else self._doing, rank.step_under_way if rank and is_training else None
        reached = rank.reached if rank is not None else 0
        with contextlib.suppress(ChannelClosed):  # the coordinator is gone too: nobody is left to tell
            process.reporter.flush()
            self._channel.send(failed(error, process.script, doing=doing, step=step, reached=reached))

    def _close(self) -> None:
        self._process.orders.leave()
        self._process.reporter.stop()
        self._process.loader_pool.close()
        self._shadowing.end()
        self._end_generation()
        if self._process.resident is not None:
            self._process.resident.store.close()
        if self._connections is not None:
            self._connections.close()
        self._channel.close()


def _who() -> Message:
    return {"host": socket.gethostname(), "pid": os.getpid()}
