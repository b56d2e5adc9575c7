"""The ranks of a job on the nodes of an emulated cluster: where each one lives and how it meets the others."""

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nfold.core.cluster import Cluster
from nfold.core.options.host_range import HostRange
from nfold.core.text.units import count
from nfold.errors import ClusterError
from nfold.launch.emulation import EmulatedCluster, Fault, FaultClock, emulated
from nfold.launch.emulation.cgroups import at_own_speed
from nfold.machine.request_socket import answering
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.verbs.options.option_checks import Options
from nfold.verbs.options.rank_nodes import tell_shared_servers
from nfold.verbs.ranks.scaling import ASKED_FOR, GIVEN_BACK, scaled, told_to_leave

if TYPE_CHECKING:
    import queue
    from collections.abc import Sequence


class EmulatedRanks:
    """An emulated cluster with a job's ranks on it; nodes come and go as faults and other terminals say."""

    def __init__(
        self,
        box: EmulatedCluster,
        nodes: "Sequence[str]",
        faults: "Sequence[Fault]",
        say: Callable[[str], None],
        events: "queue.SimpleQueue[ev.Event]",
        hosts: HostRange | None = None,
    ) -> None:
        """Args:
        box: the cluster.
        nodes: of each rank that the job begins with.
        faults: what shall go wrong, and when, counted from when training begins.
        say: is given lines for the user, from any thread.
        events: the coordinator's.
        hosts: how many nodes may take part; None: they stay the same.
        """
        self._box, self._events, self._hosts = box, events, hosts
        self._homes = dict(enumerate(nodes))
        """Node of each member that takes part, in the order in which they came."""
        self._leaving = set[int]()
        """Members that are to leave, or are killed, and have not left."""
        self._ready = deque[str]()
        """Nodes that have come and have no member yet."""
        self._lock = threading.Lock()
        """Faults, other terminals, and the job itself change who is there."""
        self._say = say
        self._faults = FaultClock(faults, box, say, warn=self.warn)

    @property
    def control_socket(self) -> str:
        """The Unix socket on which the coordinator listens, so that no control message crosses a shaped link."""
        return str(self._box.folder / "control")

    def take(self, happening: Any) -> None:
        """Change the box as the job goes on. Ranks load at full speed; they work with the cores of their nodes.

        The thread of the faults is waited for at the end, so its caller must hold nothing that `say` needs.
        """
        if isinstance(happening, cmd.RanksStarted):
            self._box.limit_cores()
        elif isinstance(happening, cmd.TrainingBegins):
            self._faults.start()
        elif isinstance(happening, cmd.SetLinks):
            self._box.set_links(happening.bytes_per_s)
        elif isinstance(happening, cmd.Finished):
            self.stop_faults()

    def stop_faults(self) -> None:
        """Let nothing more go wrong."""
        self._faults.stop()

    def warn(self, fault: Fault) -> bool:
        """Tell the coordinator of a fault that is about to begin; by the thread of the faults.

        Returns False where a node that shall join or leave does not, which is said.
        """
        if fault.verb == "kill":
            with self._lock:
                here = tuple(member for member, node in self._homes.items() if node == fault.node)
                self._leaving.update(here)
            self._events.put(ev.KillAnnounced(here, fault.text))
        elif fault.verb in ("join", "leave") and (why := self._moved(fault)):
            self._say(f"note: --fault {fault.text!r}: {fault.node} {why}")
            return False
        return True

    def _moved(self, fault: Fault) -> str:
        """Let a node come or leave; return why it does not."""
        why = f'--fault "{fault.text}"'
        with self._lock:
            staying = [member for member in self._staying() if self._homes[member] == fault.node]
            if fault.verb == "leave":
                if fault.node in self._ready:
                    return "has joined only just now, and does not leave"
                self._call_back(staying, why)
                return "" if staying else "does not take part by now, so it does not leave"
            if staying or fault.node in self._ready:
                return "takes part already"
            self._let_come(fault.node, why)
            return ""

    def answer(self, asked: str) -> str:
        """Do what `nfold scale` asks for, as far as it may be; return what to tell. By a thread of its own."""
        assert self._hosts is not None, "only a run whose nodes come and go is asked"
        with self._lock:
            return scaled(asked, self._hosts, self)

    def num_taken(self) -> int:
        """Return how many nodes take part, or are about to."""
        return len(self._staying()) + len(self._ready)

    def grow(self, more: int) -> str:
        """Let the first nodes come that do not take part; return what to tell."""
        taken = {*self._homes.values(), *self._ready}  # who is leaving still computes on its node
        free = [node.name for node in self._box.cluster.nodes if node.name not in taken][:more]
        if len(free) < more:
            could = count(len(free), "node")
            return f"refused: {could} of the emulated cluster could come now. Ask again once others have left"
        for node in free:
            self._let_come(node, ASKED_FOR)
        return f"{', '.join(free)} to take part as soon as possible"

    def shrink(self, fewer: int) -> str:
        """Let the nodes leave that came last; return what to tell."""
        if self._ready:
            return f"refused: {', '.join(self._ready)} joined only just now. Ask again in a moment"
        leaving = self._staying()[::-1][:fewer]
        self._call_back(leaving, GIVEN_BACK)
        return told_to_leave([self._homes[member] for member in leaving])

    def _staying(self) -> list[int]:
        return [member for member in self._homes if member not in self._leaving]

    def _call_back(self, members: Iterable[int], why: str) -> None:
        for member in members:
            self._leaving.add(member)
            self._events.put(ev.ReleaseWanted(member, why))

    def _let_come(self, node: str, why: str) -> None:
        self._ready.append(node)
        self._events.put(ev.HostReady(at_own_speed(self._box.cluster).node(node), why, launched_at=time.time()))

    def place(self, member: int, command: list[str]) -> list[str]:
        """Return what runs a member's command on its node.

        Raises:
            ClusterError: it has none: no node has come for it.
        """
        with self._lock:
            if member not in self._homes:
                if not self._ready:
                    raise ClusterError(
                        f"member {member} has no node: each node of the emulated cluster that takes part has its "
                        "members, and others come when a --fault or nfold scale lets them join"
                    )
                self._homes[member] = self._ready.popleft()
            here = self._homes[member]
        box = self._box
        others = [node.name for node in box.cluster.nodes if node.name != here]
        delays = ",".join(f"{box.address(there)}={box.delay_s(there, here):g}" for there in others)
        return box.enter(here, [*command, "--host", box.address(here), "--delays", delays])

    def left(self, member: int) -> None:
        """Take note that a member was let go of: its node is free."""
        with self._lock:
            self._homes.pop(member, None)
            self._leaving.discard(member)


@contextlib.contextmanager
def emulated_ranks(
    options: Options, say: Callable[[str], None], events: "queue.SimpleQueue[ev.Event]", folder: Path | None = None
) -> Iterator[EmulatedRanks | None]:
    """Build the emulated cluster that options ask for, if they do, and remove it in the end.

    Args:
        options: of the job.
        say: is given lines for the user, from any thread.
        events: the coordinator's; it is told whom a fault kills, and which nodes come and go.
        folder: of the run, by which other terminals name it; None: they cannot.

    Raises:
        ClusterError: this machine cannot emulate it.
    """
    cluster = options.emulated
    if cluster is None:
        yield None
        return
    with emulated(cluster) as box:
        shared = tell_shared_servers(options.rank_nodes, options.workers)
        for note in (*box.notes, shared, _tell_absent(options, cluster)):
            if note:
                say(f"note: {note}")
        ranks = EmulatedRanks(box, options.rank_nodes, options.faults, say, events, options.hosts)
        with contextlib.ExitStack() as ending:
            ending.callback(ranks.stop_faults)
            if options.hosts is not None and folder is not None:
                ending.enter_context(answering(os.getpid(), os.path.realpath(folder), ranks.answer))
            yield ranks


def _tell_absent(options: Options, cluster: Cluster) -> str:
    """Say which samples are not there when a run begins; empty: all are."""
    absent = [node for node in cluster.nodes if node.num_samples and node.name not in options.rank_nodes]
    if options.place is None or not absent:
        return ""
    held = ", ".join(f"{node.name} ({count(node.num_samples or 0, 'sample')})" for node in absent)
    then = "With --steps, a node does not join whose samples the run does not count yet"
    if options.steps is None:
        then = (
            "What the run does not count yet counts once its node has joined, by a fault or by nfold scale; beside a "
            "scheduler, or averages that count epochs, such a node does not join"
        )
    return f"not there at first: {held}. {then}"
