"""The ranks of a job on the nodes of an emulated cluster: where each one lives and how it meets the others."""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from nfold.errors import ClusterError
from nfold.launch.emulation import EmulatedCluster, Fault, FaultClock, emulated
from nfold.launch.emulation.cgroups import at_own_speed
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.verbs.options.option_checks import Options
from nfold.verbs.options.rank_nodes import tell_shared_servers

if TYPE_CHECKING:
    import queue
    from collections.abc import Sequence


class EmulatedRanks:
    """An emulated cluster with a job's ranks on it; nodes come and go as faults say."""

    def __init__(
        self,
        box: EmulatedCluster,
        nodes: "Sequence[str]",
        faults: "Sequence[Fault]",
        say: Callable[[str], None],
        events: "queue.SimpleQueue[ev.Event]",
    ) -> None:
        """Args:
        box: the cluster.
        nodes: of each rank that the job begins with.
        faults: what shall go wrong, and when, counted from when training begins.
        say: is given lines for the user, from any thread.
        events: the coordinator's.
        """
        self._box, self._events = box, events
        self._homes = dict(enumerate(nodes))
        """Node of each member; those that have left among them."""
        self._ready = deque[str]()
        """Nodes that have come and have no member yet."""
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

    def warn(self, fault: Fault) -> None:
        """Tell the coordinator of a fault that is about to begin; by the thread of the faults."""
        why = f'--fault "{fault.text}"'
        here = tuple(member for member, node in tuple(self._homes.items()) if node == fault.node)
        if fault.verb == "kill":
            self._events.put(ev.KillAnnounced(here, fault.text))
        elif fault.verb == "leave" and here:
            self._events.put(ev.ReleaseWanted(here[-1], why))
        elif fault.verb == "leave":
            self._say(f"note: --fault {fault.text!r}: {fault.node} has joined only just now, and does not leave")
        elif fault.verb == "join":
            self._ready.append(fault.node)
            node = at_own_speed(self._box.cluster).node(fault.node)
            self._events.put(ev.HostReady(node, why, launched_at=time.time()))

    def place(self, member: int, command: list[str]) -> list[str]:
        """Return what runs a member's command on its node.

        Raises:
            ClusterError: it has none: no node has come for it.
        """
        if member not in self._homes:
            if not self._ready:
                raise ClusterError(
                    f"member {member} has no node: each node of the emulated cluster that takes part has its members, "
                    "and others come when a --fault lets them join"
                )
            self._homes[member] = self._ready.popleft()
        box, here = self._box, self._homes[member]
        others = [node.name for node in box.cluster.nodes if node.name != here]
        delays = ",".join(f"{box.address(there)}={box.delay_s(there, here):g}" for there in others)
        return box.enter(here, [*command, "--host", box.address(here), "--delays", delays])


@contextlib.contextmanager
def emulated_ranks(
    options: Options, say: Callable[[str], None], events: "queue.SimpleQueue[ev.Event]"
) -> Iterator[EmulatedRanks | None]:
    """Build the emulated cluster that options ask for, if they do, and remove it in the end.

    Args:
        options: of the job.
        say: is given lines for the user, from any thread.
        events: the coordinator's; it is told whom a fault kills, and which nodes come and go.

    Raises:
        ClusterError: this machine cannot emulate it.
    """
    cluster = options.emulated
    if cluster is None:
        yield None
        return
    with emulated(cluster) as box:
        shared = tell_shared_servers(options.rank_nodes, options.workers)
        for note in (*box.notes, *([shared] if shared else ())):
            say(f"note: {note}")
        ranks = EmulatedRanks(box, options.rank_nodes, options.faults, say, events)
        try:
            yield ranks
        finally:
            ranks.stop_faults()
