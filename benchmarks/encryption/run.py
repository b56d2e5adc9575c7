"""Weighs what TLS costs between two processes of this machine: rate, latency, and processor time of both together."""

import argparse
import os
import statistics
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from nfold.transport.connecting.job_token import new_token
from nfold.transport.implementations.tcp import Listener, TcpConnections
from nfold.transport.probing.probe import ProbedPair, probe_pair

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from environment import write  # noqa: E402  a script's siblings are found only after this

TOKEN, TIMEOUT_S, BUDGET_S = "NFOLD_BENCHMARK_TOKEN", 30.0, 2.0


def answer(port: int) -> None:
    """Be the other process: member 1 answers what is measured."""
    connections = TcpConnections(1, os.environ[TOKEN])
    with Listener("127.0.0.1") as listener:
        connections.meet(listener, {0: ("127.0.0.1", port)}, TIMEOUT_S)
    probe_pair(connections.begin(0, (0, 1)), 0, "echo", base_tag=0)
    connections.close()


def measure(*, encrypted: bool) -> ProbedPair:
    """Measure the way to another process."""
    token = new_token(encrypted=encrypted)
    connections = TcpConnections(0, token)
    with Listener("127.0.0.1") as listener:
        command = [sys.executable, __file__, "--answer", str(listener.address[1])]
        other = subprocess.Popen(command, env={**os.environ, TOKEN: token})
        connections.meet(listener, {1: listener.address}, TIMEOUT_S)
    pair = probe_pair(connections.begin(0, (0, 1)), 1, "measure", base_tag=0, budget_s=BUDGET_S)
    connections.close()
    if pair is None or other.wait(TIMEOUT_S) != 0:
        raise SystemExit("the other process failed")
    return pair


def main() -> None:
    """Measure both ways in turn, print medians and write result.json."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--answer", type=int, metavar="PORT", help="be the other process")
    chosen = options.parse_args()
    if chosen.answer:
        answer(chosen.answer)
        return
    found: dict[str, list[dict[str, float]]] = {"plain": [], "encrypted": []}
    for _ in range(chosen.repeats):
        for name, pairs in found.items():
            pairs.append(asdict(measure(encrypted=name == "encrypted")))
    medians = {
        name: {of: statistics.median(pair[of] for pair in pairs) for of in pairs[0]} for name, pairs in found.items()
    }
    for name, median in medians.items():
        rate, message_s = median["there_bytes_per_s"] / 1e6, median["latency_s"] * 1e6
        print(f"{name}: {rate:.0f} MB/s, {message_s:.0f} us a message, {median['cpu_s_per_byte'] * 1e9:.2f} ns a byte")
    write({"medians": medians, "each": found}, __file__)


if __name__ == "__main__":
    main()
