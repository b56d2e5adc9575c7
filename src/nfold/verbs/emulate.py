"""emulate: any command, once on every node of an emulated cluster, as a launcher would start it there."""

import os
import queue
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from nfold.core.cluster import Cluster
from nfold.core.text.cluster_file import read_cluster
from nfold.errors import ClusterError
from nfold.launch.child import describe_exit
from nfold.launch.emulation import EmulatedCluster, FaultClock, emulated, parse_fault
from nfold.launch.emulation.attendance import refuse_attendance
from nfold.launch.emulation.namespaces import DEVICE
from nfold.launch.emulation.node_command import NodeCommand
from nfold.launch.stopping import hearing
from nfold.machine.memory_check import check_cluster_memory
from nfold.verbs.ranks.starting import BYTES_PER_RANK

MASTER_PORT = 29500
"""Every node has all ports of its own, so this one is always free."""
GRACE_S = 2.0
"""How long commands have to end after they were told to, before they are killed."""

Write = Callable[[str, str, bool], None]
"""Is given a line, the node that wrote it (`nfold`: we ourselves), and whether it is an error's."""


@dataclass(frozen=True, slots=True)
class _Exited:
    """A command has ended and all that it wrote was handed on."""

    node: str
    code: int


@dataclass(frozen=True, slots=True)
class _Stopped:
    """Somebody wants all of it to end."""


Events = queue.SimpleQueue[_Exited | _Stopped]


def emulate(
    cluster: str | Path | Cluster,
    command: Sequence[str],
    *,
    fault: Sequence[str] = (),
    bytes_per_command: int = BYTES_PER_RANK,
    write: Write,
) -> int:
    """Run a command once per node and return its exit code: 0, or that of the first node that failed.

    What commands leave in the background may serve the other nodes until the last command has ended.

    Args:
        cluster: a cluster, or its file.
        command: is found in PATH.
        fault: what shall go wrong and when, counted from the start.
        bytes_per_command: memory that the command needs on a node; unless given, what a process with torch in it takes.
        write: is given every line that a node writes.

    Raises:
        ClusterError: the cluster cannot be read or emulated, it has too little memory, or a fault makes no sense.
        PlanError: a fault lets a node come or go.
        KeyboardInterrupt: Ctrl-C; nothing is left running.
    """
    declared = cluster if isinstance(cluster, Cluster) else read_cluster(cluster)
    if not command:
        raise ClusterError("no command was given. Write it after --, as in: nfold emulate cluster.toml -- python a.py")
    faults = [parse_fault(text, declared) for text in fault]
    refuse_attendance(faults, len(declared.nodes))
    names = [node.name for node in declared.nodes]
    events: Events = queue.SimpleQueue()

    def say(text: str) -> None:
        write(text, "nfold", True)

    _check_memory(declared, bytes_per_command, names)
    with ExitStack() as ending:
        ending.enter_context(hearing(lambda: events.put(_Stopped())))
        programs: list[NodeCommand] = []
        ending.callback(_join, programs)
        box = ending.enter_context(emulated(declared))
        if not events.empty():
            raise KeyboardInterrupt("No command was started.")
        box.limit_cores()
        for note in box.notes:
            say(f"note: {note}")
        clock = FaultClock(faults, box, say)
        ending.callback(clock.stop)
        for rank, name in enumerate(names):
            environment = {**os.environ, **variables(box, declared, rank)}
            programs.append(NodeCommand(name, box.enter(name, command), environment, _NodeOutput(name, write, events)))
        clock.start()
        return _wait(box, names, events, say)


def _check_memory(cluster: Cluster, bytes_per_command: int, nodes: Sequence[str]) -> None:
    try:
        check_cluster_memory(cluster, bytes_per_command, nodes)
    except ClusterError as error:
        raise ClusterError(
            f"{error} If the command needs less than {bytes_per_command / 1e6:.0f} MB, say so with "
            "--memory-per-command."
        ) from None


def variables(box: EmulatedCluster, cluster: Cluster, rank: int) -> dict[str, str]:
    """Return what launchers of distributed programs put into the environment of a rank."""
    node = cluster.nodes[rank]
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(len(cluster.nodes)),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": str(rank),
        "MASTER_ADDR": box.address(cluster.nodes[0].name),
        "MASTER_PORT": str(MASTER_PORT),
        "GLOO_SOCKET_IFNAME": DEVICE,
        "NCCL_SOCKET_IFNAME": DEVICE,
        "TP_SOCKET_IFNAME": DEVICE,
        "NFOLD_NODE": node.name,
        # A quota hides no cores: without this, a program would start as many threads as the whole machine has cores.
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, int(node.cores)))),
        "PYTHONUNBUFFERED": "1",
    }


class _NodeOutput:
    """Hears the command of one node."""

    def __init__(self, node: str, write: Write, events: Events) -> None:
        self._node, self._write, self._events = node, write, events

    def wrote(self, line: str, is_error: bool) -> None:
        """Hand a line on."""
        try:
            self._write(line, self._node, is_error)
        except OSError:
            self._events.put(_Stopped())  # nobody reads us any more

    def ended(self, code: int) -> None:
        """Tell who waits."""
        self._events.put(_Exited(self._node, code))


def _join(programs: Sequence[NodeCommand]) -> None:
    for program in programs:
        program.join()


def _wait(box: EmulatedCluster, nodes: Sequence[str], events: Events, say: Callable[[str], None]) -> int:
    """Wait until all commands have ended and return the first bad exit code, or 0."""
    first, running = 0, set(nodes)
    while running:
        event = events.get()
        if isinstance(event, _Stopped):
            _end(box, events, running)
            raise KeyboardInterrupt("All commands were ended.")
        running.discard(event.node)
        if event.code != 0:
            left = f"; {len(running)} still run" if running else ""
            say(f"the command on {event.node} {describe_exit(event.code)}{left}")
            first = first or _shell_code(event.code)
    return first


def _end(box: EmulatedCluster, events: Events, running: set[str]) -> None:
    """Ask the commands to end; what has not after the grace is killed with the box."""
    for node in running:
        box.terminate(node)
    deadline_s = time.monotonic() + GRACE_S
    while running and (left_s := deadline_s - time.monotonic()) > 0:
        try:
            event = events.get(timeout=left_s)
        except queue.Empty:
            return
        if isinstance(event, _Stopped):
            return  # once more: somebody is in a hurry
        running.discard(event.node)


def _shell_code(code: int) -> int:
    """Return an exit code as a shell would: 128 and the signal's number for what was killed."""
    return code if code >= 0 else 128 - code
