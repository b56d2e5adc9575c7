"""emulate: any command, once on every node of an emulated cluster, as a launcher would start it there."""

import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from nfold.core.cluster import Cluster
from nfold.core.cluster_file import read_cluster
from nfold.errors import ClusterError
from nfold.launch.base import STOP_SIGNALS
from nfold.launch.emulation import Box, FaultClock, emulated, parse_fault
from nfold.launch.emulation.layout import DEVICE
from nfold.launch.local import describe_exit

MASTER_PORT = 29500
"""Every node has all ports of its own, so this one is always free."""
BYTES_PER_COMMAND = 8_000_000
"""The least that a program takes: what the command will need nobody knows."""
GRACE_S = 2.0
"""How long commands have to end after they were told to, before they are killed."""

Write = Callable[[str, str, bool], None]
"""Is given a line, the node that wrote it (`nfold`: we ourselves), and whether it is an error's."""


@dataclass(frozen=True, slots=True)
class _Exited:
    """A command has ended and all that it wrote has been read."""

    node: str
    code: int


@dataclass(frozen=True, slots=True)
class _Stopped:
    """Somebody wants all of it to end."""


Events = queue.SimpleQueue[_Exited | _Stopped]


def emulate(cluster: str | Path | Cluster, command: Sequence[str], *, fault: Sequence[str] = (), write: Write) -> int:
    """Run a command once per node and return its exit code: 0, or that of the first node that failed.

    Args:
        cluster: a cluster, or its file.
        command: is found in PATH.
        fault: what shall go wrong and when, counted from the start.
        write: is given every line that a node writes.

    Raises:
        ClusterError: the cluster cannot be read or emulated, or a fault makes no sense.
        KeyboardInterrupt: Ctrl-C; nothing is left running.
    """
    declared = cluster if isinstance(cluster, Cluster) else read_cluster(cluster)
    if not command:
        raise ClusterError("no command was given. Write it after --, as in: nfold emulate cluster.toml -- python a.py")
    faults = [parse_fault(text, declared) for text in fault]
    names = [node.name for node in declared.nodes]
    events: Events = queue.SimpleQueue()

    def say(text: str) -> None:
        write(text, "nfold", True)

    with ExitStack() as ending:
        ending.enter_context(_hearing(events))
        programs: list[_Program] = []
        ending.callback(_join, programs)
        box = ending.enter_context(emulated(declared, bytes_per_process=BYTES_PER_COMMAND, processes=names))
        box.limit_cores()
        for note in box.notes:
            say(f"note: {note}")
        clock = FaultClock(faults, box, say)
        ending.callback(clock.stop)
        programs.extend(_Program(box, declared, rank, command, write, events) for rank in range(len(names)))
        clock.start()
        return _wait(box, programs, events, say)


def variables(box: Box, cluster: Cluster, rank: int) -> dict[str, str]:
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


class _Program:
    """The command on one node: its process, and the threads that read what it writes."""

    def __init__(
        self,
        box: Box,
        cluster: Cluster,
        rank: int,
        command: Sequence[str],
        write: Write,
        events: Events,
    ) -> None:
        self.node = cluster.nodes[rank].name
        self._write, self._events = write, events
        self.process = subprocess.Popen(
            box.enter(self.node, command),
            env={**os.environ, **variables(box, cluster, rank)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._follower = threading.Thread(target=self._follow, name=f"nfold-{self.node}", daemon=True)
        self._follower.start()

    def join(self) -> None:
        """Wait until the process is gone and all that it wrote has been read."""
        self._follower.join()

    def _follow(self) -> None:
        errors = threading.Thread(target=self._read, args=(True,), name=f"nfold-{self.node}-errors", daemon=True)
        errors.start()
        self._read(False)
        errors.join()
        self._events.put(_Exited(self.node, self.process.wait()))

    def _read(self, is_error: bool) -> None:
        stream = self.process.stderr if is_error else self.process.stdout
        assert stream is not None, "both are pipes"
        with stream:
            for line in stream:
                try:
                    self._write(line.decode(errors="replace").rstrip("\r\n"), self.node, is_error)
                except OSError:
                    self._events.put(_Stopped())  # nobody reads us any more


def _join(programs: Sequence[_Program]) -> None:
    for program in programs:
        program.join()


def _wait(box: Box, programs: Sequence[_Program], events: Events, say: Callable[[str], None]) -> int:
    """Wait until all commands have ended and return the first bad exit code, or 0."""
    first, running = 0, {program.node for program in programs}
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


def _end(box: Box, events: Events, running: set[str]) -> None:
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


@contextmanager
def _hearing(events: Events) -> Iterator[None]:
    """Turn the signals that ask for an end into an event, so that nothing is left half-made."""

    def hear(number: int, frame: FrameType | None) -> None:
        del number, frame
        events.put(_Stopped())

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {which: signal.signal(which, hear) for which in STOP_SIGNALS}
    try:
        yield
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)


def _shell_code(code: int) -> int:
    """Return an exit code as a shell would: 128 and the signal's number for what was killed."""
    return code if code >= 0 else 128 - code
