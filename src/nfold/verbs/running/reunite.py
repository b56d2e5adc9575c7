"""Finds the hosts of a run again whose command is gone, and keeps what their ranks hold as the run's checkpoint.

    agents dial in ──> their ranks do ──> `Reunion` ──> checkpoint, history ──> ranks end
                                                                                agents are left to dial once more

After that the run goes on as it does from any checkpoint, with these hosts.
"""

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nfold.core.text.units import count, seconds
from nfold.errors import PlanError, Terminated
from nfold.hosts.host_agent import unique_name
from nfold.launch.output import Output
from nfold.runtime.control import events as ev
from nfold.runtime.control.channel import ChannelClosed, Message, SocketChannel
from nfold.runtime.control.control_server import SocketControlServer
from nfold.runtime.coordinator.reunion import Kept, NotKept, Reunion, RunSoFar
from nfold.runtime.failures.silent_ranks import PATIENCE
from nfold.verbs.run_folder.files import CHECKPOINT, HELD
from nfold.verbs.run_folder.folder import RunFolder
from nfold.verbs.run_folder.held_hosts import HeldHosts
from nfold.verbs.running.going_on import epochs_of

FIRST_S, NEXT_S = 10.0, 20.0
"""Within which the first host must come back, and the next one once there is one: they dial several times a second."""
LOOK_S = 0.2
TOLD_S = 660.0
"""Within which ranks that were brought together must tell something: they wait 600 s for each other at most."""


class ComingBack:
    """Agents of a run that dial in once more."""

    def __init__(self, output: Output) -> None:
        """Args:
        output: takes what members print.
        """
        self._output = output
        self._lock, self._is_over = threading.Lock(), False
        self._agents: dict[str, tuple[SocketChannel, list[int]]] = {}
        self.expect: Callable[[int], object] = lambda member: None
        """Is told of each member that runs on one of their hosts."""

    @property
    def names(self) -> tuple[str, ...]:
        """The hosts that are back."""
        with self._lock:
            return tuple(self._agents)

    def take(self, channel: SocketChannel, who: str) -> None:
        """Take in an agent, and hear it until its connection ends. By a thread of its own."""
        del who
        with contextlib.suppress(ChannelClosed):
            hello, _ = channel.receive()
            if name := self._admit(hello, channel):
                self._hear(channel, name)
        channel.close()

    def _admit(self, hello: Message, channel: SocketChannel) -> str:
        """Take note of an agent; return what its host is called here, or nothing where nobody is taken in any more."""
        with self._lock:
            if self._is_over:
                return ""
            name = unique_name(hello["name"] or hello["facts"]["host"], self._agents)
            self._agents[name] = (channel, hello["members"])
        for member in hello["members"]:
            self.expect(member)
        return name

    def _hear(self, channel: SocketChannel, name: str) -> None:
        try:
            while True:
                message, blob = channel.receive()
                if message["is"] == "output":
                    self._output.add(message["member"], blob, name)
        finally:
            with self._lock:
                del self._agents[name]

    def end_members(self) -> None:
        """Let all members end: what they held is not needed any more."""
        with self._lock:
            for channel, members in self._agents.values():
                with contextlib.suppress(ChannelClosed):
                    for member in members:
                        channel.send({"do": "release", "member": member})

    def end(self) -> None:
        """Let agents end: there is nothing left to do."""
        with self._lock:
            for channel, _ in self._agents.values():
                with contextlib.suppress(ChannelClosed):
                    channel.send({"do": "stop", "grace_s": 0.0})

    def hang_up(self) -> None:
        """Let agents dial again, also those that come from now on."""
        with self._lock:
            self._is_over = True
            for channel, _ in self._agents.values():
                channel.close()


def reunite(
    folder: RunFolder,
    held: HeldHosts,
    say: Callable[[str], None],
    *,
    total_steps: int,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[str, ...]:
    """Keep what the ranks of a run hold; return the hosts that are back.

    Args:
        folder: of the run, locked.
        held: its hosts.
        say: is given lines for the user.
        total_steps: that the run is to have: hosts are told to end where all are kept.
        clock: gives seconds.

    Raises:
        ClusterError: their port is in use.
        CheckpointError: what they hold cannot be written.
        Terminated: whoever hears SIGTERM has raised it; all hosts hold on.
        KeyboardInterrupt: Ctrl-C; the hosts that are back are told to end.
    """
    events: queue.SimpleQueue[ev.Event] = queue.SimpleQueue()
    with contextlib.ExitStack() as ending:
        output = Output(folder.log)
        ending.callback(output.close)
        back = ComingBack(output)
        server = _listen(folder, held, events, back)
        ending.callback(server.close)
        ending.callback(back.hang_up)
        so_far = _so_far(folder)
        say(f"waiting for {count(so_far.plan.world_size, 'host')} of the run to dial in again")
        try:
            result = _play(Reunion(so_far), back, server, events, clock)
            names = back.names
            _settle(result, folder, ", ".join(names), say)
        except Terminated:
            raise
        except KeyboardInterrupt as stop:
            told = _told_of_end(back.names)
            back.end()
            raise KeyboardInterrupt(told) from stop
        back.end_members()
        if _is_complete(folder, total_steps):
            back.end()
        return names


def _listen(
    folder: RunFolder, held: HeldHosts, events: "queue.SimpleQueue[ev.Event]", back: ComingBack
) -> SocketControlServer:
    """Listen where the command did that is gone."""
    server = SocketControlServer(
        held.host,
        held.port,
        held.token,
        events,
        lambda member: None,
        tell=folder.append_log,
        spools=folder.spools(),
        agents=back.take,
        advice=(
            "The hosts that hold dial there and nowhere else, so this is for the machine of the run. End the process "
            f"that has the port, or remove {folder.path / HELD} and go on from the last checkpoint: "
            f"{folder.resume_command}"
        ),
    )
    back.expect = server.expect_again
    return server


def _settle(result: Kept | NotKept, folder: RunFolder, names: str, say: Callable[[str], None]) -> None:
    """Write down what ranks held, where anybody can go on from it, and say so."""
    if isinstance(result, Kept):
        write_down(folder, result)
        say(f"{names} held, and the run goes on from step {result.step}")
    elif names:
        say(f"note: {names} dialled in, but nobody can go on from what ranks held there: {result.why}")


def _told_of_end(names: tuple[str, ...]) -> str:
    if not names:
        return "No host was back yet, so all hold until their time is over."
    return f"{', '.join(names)} told to end. Hosts that were not back yet hold until their time is over."


def _is_complete(folder: RunFolder, total_steps: int) -> bool:
    checkpoint = folder.checkpoint()
    return checkpoint is not None and checkpoint.step >= total_steps


def _play(
    reunion: Reunion,
    back: ComingBack,
    server: SocketControlServer,
    events: "queue.SimpleQueue[ev.Event]",
    clock: Callable[[], float],
) -> Kept | NotKept:
    """Hear ranks and order them about until they are kept, or cannot be."""
    since_s, num_back = clock(), 0
    told_s = clock()
    while reunion.result is None:
        if len(back.names) != num_back:
            since_s, num_back = clock(), len(back.names)
        with contextlib.suppress(queue.Empty):
            event, told_s = events.get(timeout=LOOK_S), clock()
            for order in reunion.take(event) if isinstance(event, ev.Said | ev.Left) else ():
                for member in order.members:
                    with contextlib.suppress(ChannelClosed):  # its reader reports the loss
                        server.channels[member].send(order.message)
        if not reunion.has_begun and clock() - since_s > (NEXT_S if num_back else FIRST_S):
            return NotKept(_late(reunion))
        if reunion.has_begun and (silent := _silent(server, clock())):
            return NotKept(f"member {silent[0]} has shown no sign of life for {seconds(PATIENCE.lost_s)}")
        if reunion.has_begun and clock() - told_s > TOLD_S:
            return NotKept(f"ranks have told nothing for {seconds(TOLD_S)}")
    return reunion.result


def _silent(server: SocketControlServer, now_s: float) -> list[int]:
    return [member for member, heard_s in server.heard_s().items() if now_s - heard_s > PATIENCE.lost_s]


def _late(reunion: Reunion) -> str:
    if reunion.missing:
        members = ", ".join(map(str, reunion.missing))
        return f"{count(len(reunion.missing), 'rank')} did not come back within {seconds(NEXT_S)} (member {members})"
    return "the command died while its ranks started" if reunion.has_starters else "no rank is there any more"


def _so_far(folder: RunFolder) -> RunSoFar:
    record, plan, checkpoint, history = folder.record(), folder.known().plan, folder.checkpoint(), folder.history()
    if plan is None:
        raise PlanError(f"{folder.path} holds no plan, so nothing was trained there")
    return RunSoFar(
        plan=plan,
        kept_step=checkpoint.step if checkpoint else 0,
        last_step=folder.last_step,
        epochs=epochs_of(folder, plan.batch_size),
        evaluated=frozenset(line["step"] for line in history if line["metrics"]),
        evaluates=record.evaluate,
    )


def write_down(folder: RunFolder, kept: Kept) -> None:
    """Write down where the ranks are, and the steps that nobody had written down.

    Raises:
        CheckpointError: the disk is full, or the folder is gone.
    """
    folder.cut_history(folder.last_step)  # the command may have left half of a line
    last = folder.history()[-1:]
    at_s = last[0].get("at_s", 0.0) if last else 0.0
    lines: list[dict[str, Any]] = [
        {"step": done.step + 1, "epoch": done.epoch + 1, "loss": done.loss, "metrics": {}, "at_s": at_s}
        for done in kept.steps
    ]
    folder.append_history(lines)
    folder.put_in_place(CHECKPOINT, kept.file, f"the checkpoint of step {kept.step}")
    record = folder.record()
    if not record.has_checkpoint:
        folder.save(replace(record, has_checkpoint=True))
