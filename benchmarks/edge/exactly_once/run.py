"""Kills nodes at random moments while samples move among them, lets the move go on, and looks at every sample."""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from nfold.core.residency import SampleMove
from nfold.errors import RunError
from nfold.node_data import LocalFiles
from nfold.runtime.samples.mover import Mover
from nfold.runtime.samples.pacing import Pacer
from nfold.runtime.samples.record import Record
from nfold.runtime.samples.resident_dataset import ResidentDataset, records_of
from nfold.runtime.samples.sample_store import SampleStore
from nfold.transport.implementations.tcp import Listener, TcpConnections

HERE = Path(__file__).parent
SIZES = (60, 40, 0)
"""Samples that live on each node."""
MOVES = (
    SampleMove(source=0, target=1, spans=((0, 10), (30, 45)), epoch=1),
    SampleMove(source=0, target=2, spans=((10, 30),)),
    SampleMove(source=1, target=2, spans=((60, 85),)),
    SampleMove(source=1, target=0, spans=((90, 95),), epoch=0),
)
MOST_BYTES, BYTES_PER_S = 20_000, 1e6
"""Of a sample, and that a node sends in a second."""
TOKEN, WAIT_S, GRACE_S = "exactly once", 30.0, 2.0
VICTIMS = ("a node that sends most", "a node that sends and fetches", "a node that fetches", "all nodes")
LOST = 3
"""Exit status of a node whose peer was lost."""
NEVER = threading.Event()


@dataclass(frozen=True, slots=True)
class Cluster:
    """The data of all nodes, and where each keeps what comes."""

    folder: Path
    data: tuple[Any, ...]

    def resident(self, node: int) -> ResidentDataset:
        """Return what a node has."""
        store = SampleStore(self.folder / f"store-{node}")
        return ResidentDataset(self.data[node], sum(SIZES[:node]), sum(SIZES), store)


def cluster_in(folder: Path, kind: str, draw: random.Random) -> Cluster:
    """Make data of unlike sizes: files with names in folders, or items."""
    if kind == "items":
        sizes = [[draw.randrange(1, MOST_BYTES // 8) for _ in range(count)] for count in SIZES]
        return Cluster(folder, tuple([(torch.randn(size), size) for size in each] for each in sizes))
    found = []
    for node, count in enumerate(SIZES):
        names = [f"class-{number % 3}/{number}.bin" for number in range(count)]
        for name in names:
            path = folder / f"data-{node}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(draw.randbytes(draw.randrange(MOST_BYTES)))
        found.append(LocalFiles(folder / f"data-{node}", names, Path.read_bytes))
    return Cluster(folder, tuple(found))


def move(cluster: Cluster, node: int, listeners: list[Listener]) -> int:
    """Do what one node does in a move; return its exit status."""
    addresses = {number: listener.address for number, listener in enumerate(listeners)}
    connections = TcpConnections(node, TOKEN)
    try:
        connections.meet(listeners[node], addresses, WAIT_S)
        transport = connections.begin(0, range(len(SIZES)))
        mover = Mover(transport, range(len(SIZES)), 0, MOVES, cluster.resident(node), pacer=Pacer(BYTES_PER_S))
        moved = mover.wait()
    except RunError:
        connections.abort()
        return LOST
    (cluster.folder / f"moved-{node}.json").write_text(json.dumps([moved.num_received, moved.received_bytes]))
    connections.close()
    return 0


def fork(act: Callable[[], int]) -> int:
    """Let a process of its own do something, and return its number. Nothing of this one runs in it."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        status = act()
    finally:
        os._exit(status)


def start(cluster: Cluster) -> list[int]:
    """Start the processes of all nodes."""
    listeners = [Listener("127.0.0.1") for _ in SIZES]
    pids = [fork(lambda node=node: move(cluster, node, listeners)) for node in range(len(SIZES))]  # type: ignore[misc]
    for listener in listeners:
        listener.close()
    return pids


def finish(pids: list[int], grace_s: float) -> list[int]:
    """Wait for processes, kill those that take longer, and return how each ended."""
    left, ended, deadline_s = set(pids), dict[int, int](), time.monotonic() + grace_s
    while left:
        for pid in list(left):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                left.discard(pid)
                ended[pid] = os.waitstatus_to_exitcode(status)
        if left and time.monotonic() > deadline_s:
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            deadline_s = float("inf")
        NEVER.wait(0.002)
    return [ended[pid] for pid in pids]


def kill(pids: list[int], victim: int, after_s: float) -> bool:
    """Kill a node, or all, after a while; return whether it was still at it."""
    NEVER.wait(after_s)
    for pid in pids if victim == len(SIZES) else [pids[victim]]:
        os.kill(pid, signal.SIGKILL)  # not waited for yet, so the number is still its own
    return any(status in (LOST, -signal.SIGKILL) for status in finish(pids, GRACE_S))


def counted(cluster: Cluster, node: int) -> int:
    """Return how many samples a store has now."""
    store = SampleStore(cluster.folder / f"store-{node}")
    store.close()
    return sum(end - first for first, end in store.numbers())


def wrong_samples(cluster: Cluster) -> list[str]:
    """Return what is wrong with the samples that have come; nothing, if each is there once and is what it was."""
    wrong = []
    for node in range(len(SIZES)):
        with_data = cluster.resident(node)
        expected = {number: owner_record(cluster, number) for number in due(node)}
        held = {number for first, end in with_data.store.numbers() for number in range(first, end)}
        wrong += [f"node {node} lacks {number}" for number in expected.keys() - held]
        wrong += [f"node {node} has {number}, too" for number in held - expected.keys()]
        for number in held & expected.keys():
            record = with_data.records([number])[0]
            if record != expected[number] or zlib.crc32(record.data) != zlib.crc32(expected[number].data):
                wrong.append(f"node {node} has another {number}")
        with_data.store.close()
    return wrong


def due(node: int) -> list[int]:
    """Return the samples that shall come to a node."""
    spans = [span for move in MOVES if move.target == node for span in move.spans]
    return [number for first, end in spans for number in range(first, end)]


def owner_record(cluster: Cluster, number: int) -> Record:
    """Return a sample as the node has it on which it lives."""
    node = next(node for node in range(len(SIZES)) if number < sum(SIZES[: node + 1]))
    data, index = cluster.data[node], number - sum(SIZES[:node])
    return records_of(data, [index])[0]


def play(kind: str, victim: int, longest_s: float, draw: random.Random) -> dict[str, Any]:
    """Kill once, let all go on, and look."""
    with tempfile.TemporaryDirectory() as where:
        cluster = cluster_in(Path(where), kind, draw)
        was_at_it = kill(start(cluster), victim, draw.uniform(0, longest_s))
        before = [counted(cluster, node) for node in range(len(SIZES))]
        ended = finish(start(cluster), WAIT_S)
        wrong = wrong_samples(cluster) if not any(ended) else [f"the nodes ended with {ended}"]
        came = [json.loads((Path(where) / f"moved-{node}.json").read_text())[0] for node in range(len(SIZES))]
        for node, (early, late) in enumerate(zip(before, came, strict=True)):
            if early + late != len(due(node)):
                wrong.append(f"node {node} had {early} of {len(due(node))} samples, and fetched {late}")
    return {"kind": kind, "victim": VICTIMS[victim], "was_moving": was_at_it, "had": before, "wrong": wrong}


def main() -> None:
    """Play all kills, print a line for each, and fail if a sample is lost, doubled or changed."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--times", type=int, default=100, help="kills")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only-check", action="store_true", help="write no result.json")
    given = options.parse_args()
    draw, rows = random.Random(given.seed), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as where:
        cluster, began_s = cluster_in(Path(where), "items", draw), time.monotonic()
        ended, longest_s = finish(start(cluster), WAIT_S), time.monotonic() - began_s
        if any(ended) or wrong_samples(cluster):
            sys.exit(f"without any kill it goes wrong: the nodes ended with {ended}")
    for number in range(given.times):
        row = play(("files", "items")[number % 2], number // 2 % len(VICTIMS), longest_s, draw)
        rows.append(row)
        told = "; ".join(row["wrong"]) or "each sample once, as it was"
        print(f"{row['kind']:6} {row['victim']:30} had {row['had']!s:14} {told}", flush=True)
    bad = [row for row in rows if row["wrong"]]
    if not given.only_check:
        write_result({"kills": len(rows), "while_moving": sum(row["was_moving"] for row in rows), "rows": rows})
    if bad:
        sys.exit(f"{len(bad)} of {len(rows)} kills lost, doubled or changed samples")


def write_result(result: dict[str, Any]) -> None:
    """Write result.json with its environment."""
    sys.path.insert(0, str(HERE.parents[1]))
    from environment import write  # a script's siblings are found only after this

    write(result, __file__)


if __name__ == "__main__":
    main()
