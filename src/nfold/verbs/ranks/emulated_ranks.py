"""The ranks of a job on the nodes of an emulated cluster: where each one lives and how it meets the others."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nfold.errors import ClusterError
from nfold.launch.emulation import EmulatedCluster, Fault, FaultClock, emulated
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.verbs.options.option_checks import Options
from nfold.verbs.options.rank_nodes import tell_shared_servers

if TYPE_CHECKING:
    import queue


@dataclass(frozen=True, slots=True)
class EmulatedRanks:
    """An emulated cluster with a job's ranks on it."""

    box: EmulatedCluster
    nodes: tuple[str, ...]
    """Of each rank."""
    faults: FaultClock

    @property
    def control_socket(self) -> str:
        """The Unix socket on which the coordinator listens, so that no control message crosses a shaped link."""
        return str(self.box.folder / "control")

    def take(self, happening: Any) -> None:
        """Change the box as the job goes on. Ranks load at full speed; they work with the cores of their nodes.

        The thread of the faults is waited for at the end, so its caller must hold nothing that `say` needs.
        """
        if isinstance(happening, cmd.RanksStarted):
            self.box.limit_cores()
        elif isinstance(happening, cmd.TrainingBegins):
            self.faults.start()
        elif isinstance(happening, cmd.SetLinks):
            self.box.set_links(happening.bytes_per_s)
        elif isinstance(happening, cmd.Finished):
            self.faults.stop()

    def place(self, member: int, command: list[str]) -> list[str]:
        """Return what runs a member's command on its node.

        Raises:
            ClusterError: it has none: which nodes take part is said at the start.
        """
        if member >= len(self.nodes):
            raise ClusterError(
                f"member {member} has no node: the job began with {len(self.nodes)} on the emulated cluster, and only "
                "where all ranks run on this machine itself can more of them join"
            )
        here = self.nodes[member]
        delays = ",".join(f"{self.box.delay_s(there, here):g}" for there in self.nodes)
        return self.box.enter(here, [*command, "--host", self.box.address(here), "--delays", delays])


@contextlib.contextmanager
def emulated_ranks(
    options: Options, say: Callable[[str], None], events: "queue.SimpleQueue[ev.Event]"
) -> Iterator[EmulatedRanks | None]:
    """Build the emulated cluster that options ask for, if they do, and remove it in the end.

    Args:
        options: of the job.
        say: is given lines for the user, from any thread.
        events: the coordinator's; it is told whom a fault kills.

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

        def warn(fault: Fault) -> None:
            if fault.verb == "kill":
                doomed = tuple(rank for rank, node in enumerate(options.rank_nodes) if node == fault.node)
                events.put(ev.KillAnnounced(doomed, fault.text))

        ranks = EmulatedRanks(box, options.rank_nodes, FaultClock(options.faults, box, say, warn=warn))
        try:
            yield ranks
        finally:
            ranks.faults.stop()
