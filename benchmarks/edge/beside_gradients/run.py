"""Times exchanges of gradients over a slow link while samples move over it, and without that. Needs root."""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch

from nfold.core.residency import SampleMove
from nfold.planning.residency.model.pieces import LINK_SHARE, piece_bytes_on
from nfold.runtime.checkpoint.exchange import Exchange
from nfold.runtime.samples.gradients_first import Gate, GatedTransport
from nfold.runtime.samples.mover import Mover
from nfold.runtime.samples.pacing import Pacer
from nfold.runtime.samples.resident_dataset import ResidentDataset
from nfold.runtime.samples.sample_store import SampleStore
from nfold.transport.implementations.tcp import Listener, TcpConnections
from nfold.transport.protocol import Transport
from nfold.transport.tags import Use, tag_of

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
for folder in (HERE.parents[1], ROOT / "tests" / "rigs"):
    sys.path.insert(0, str(folder))
from environment import write  # noqa: E402  a script's siblings are found only after this
from networks import Networks  # noqa: E402

PORT, TOKEN, WAIT_S = 29_500, "beside gradients", 30.0
GRADIENT_BYTES, COMPUTE_S = 200_000, 0.2
SAMPLES, FLOATS = 4_000, 768
"""That live on the first node, and the numbers of each: 12 MB in all, more than a case moves."""
UNSENT_S = 0.01
"""The kernel holds what the link carries in that time, as in a run."""
ALL_THE_TIME, AT_WHAT_IS_LEFT, BETWEEN = "all the link", "what gradients leave", "between gradients"
CASES = ("nothing moves", ALL_THE_TIME, AT_WHAT_IS_LEFT, BETWEEN)
"""Samples as fast as they go; always, at the rate that gradients leave; as in a run, while no gradient travels."""


def steps(transport: Transport, gate: Gate, num_steps: int) -> list[float]:
    """Compute and exchange gradients with the other node; return the seconds of each exchange."""
    gated = GatedTransport(transport, gate)
    exchange, peer, mine, never = Exchange(gated), 1 - transport.rank, bytes(GRADIENT_BYTES), threading.Event()
    found = []
    for step in range(num_steps):
        never.wait(COMPUTE_S)
        begin_s = time.monotonic()
        exchange.receive(peer, tag_of(Use.STEP, step), bytearray(GRADIENT_BYTES))
        exchange.send(peer, tag_of(Use.STEP, step), mine)
        exchange.wait()
        found.append(time.monotonic() - begin_s)
    return found


def node(number: int, addresses: list[str], case: str, link_bytes_per_s: float, num_steps: int) -> None:
    """Be one of the two nodes, and print what was found."""
    connections = TcpConnections(number, TOKEN)
    with Listener(addresses[number], PORT) as listener, tempfile.TemporaryDirectory() as where:
        connections.meet(listener, {each: (host, PORT) for each, host in enumerate(addresses)}, WAIT_S)
        transport = connections.begin(0, (0, 1))
        transport.limit_unsent(1 - number, int(UNSENT_S * link_bytes_per_s))
        base = [(torch.zeros(FLOATS), 0)] * SAMPLES if number == 0 else []
        data = ResidentDataset(base, 0, SAMPLES, SampleStore(Path(where)))
        mover, gradient_s = None, GRADIENT_BYTES / link_bytes_per_s
        gate = Gate(1.5 * gradient_s, UNSENT_S)
        ahead_bytes = int(UNSENT_S * link_bytes_per_s) - piece_bytes_on(link_bytes_per_s)
        pacers = {
            ALL_THE_TIME: Pacer(),
            AT_WHAT_IS_LEFT: Pacer(COMPUTE_S / (COMPUTE_S + gradient_s) * link_bytes_per_s),
            BETWEEN: Pacer(LINK_SHARE * link_bytes_per_s, ahead_bytes=ahead_bytes, gate=gate),
        }
        if case in pacers:
            moves = [SampleMove(source=0, target=1, spans=((0, SAMPLES),), epoch=1)]
            mover = Mover(transport, (0, 1), 0, moves, data, pacer=pacers[case], link_bytes_per_s=link_bytes_per_s)
        took_s = steps(transport, gate, num_steps)
        rate = mover.moved.received_bytes / mover.moved.seconds if mover else 0.0
        print(json.dumps({"took_s": took_s, "moved_bytes_per_s": rate}), flush=True)
        if mover is not None:
            mover.stop()
            mover.limit(None)
            mover.wait()
    connections.close()


def measure(networks: Networks, case: str, mbit: float, num_steps: int) -> dict[str, Any]:
    """Play one case on both nodes; return what the second one found, to which the samples come."""
    addresses = [networks.address_of(number) for number in range(2)]
    played = []
    for number in range(2):
        flags = ["--node", str(number), "--addresses", *addresses, "--case", case]
        command = [sys.executable, __file__, *flags, "--mbit", str(mbit), "--steps", str(num_steps)]
        inside = networks.inside(number, f"node{number}")
        played.append(subprocess.Popen([*inside, *command], stdout=subprocess.PIPE, text=True))
    told = [process.communicate(timeout=300)[0] for process in played]
    if any(process.returncode for process in played):
        sys.exit(f"{case}: a node failed")
    found = json.loads(told[1])
    return {
        "case": case,
        "mbit": mbit,
        "median_s": statistics.median(found["took_s"]),
        "p95_s": statistics.quantiles(found["took_s"], n=20)[-1],
        "moved_bytes_per_s": found["moved_bytes_per_s"],
    }


def main() -> None:
    """Measure every case on each link, print a table and write result.json."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--mbit", type=float, nargs="+", default=[5, 20])
    options.add_argument("--steps", type=int, default=40)
    options.add_argument("--only-print", action="store_true", help="write no result.json")
    options.add_argument("--node", type=int)
    options.add_argument("--addresses", nargs=2)
    options.add_argument("--case")
    given = options.parse_args()
    if given.node is not None:
        node(given.node, given.addresses, given.case, given.mbit[0] * 1e6 / 8, given.steps)
        return
    rows = []
    networks = Networks(2)
    try:
        for mbit in given.mbit:
            networks.limit(f"{mbit:g}mbit")
            for case in CASES:
                row = measure(networks, case, mbit, given.steps)
                rows.append(row)
                print(
                    f"{mbit:5g} Mbit/s  {case:42} an exchange takes {1e3 * row['median_s']:5.0f} ms, at most "
                    f"{1e3 * row['p95_s']:5.0f} in 95 %; {row['moved_bytes_per_s'] / 1e3:5.0f} KB/s move",
                    flush=True,
                )
    finally:
        networks.close()
    if not given.only_print:
        write({"gradient_bytes": GRADIENT_BYTES, "compute_s": COMPUTE_S, "rows": rows}, __file__)


if __name__ == "__main__":
    main()
