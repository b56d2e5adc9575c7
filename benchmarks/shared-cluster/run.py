"""Ring against parameter server on a shared cluster, with and without a neighbour's job on one node's network card.

Hosts are made on this machine: nodes of a real Slurm and of a real YARN, each behind a card of its own that carries
100 Mbit/s. Beside them a plain loop over MPI's own all-reduce on the same hosts. Needs root, `ip` and `tc`.
"""

import argparse
import contextlib
import os
import shlex
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
for folder in (HERE.parent, ROOT / "tests" / "rigs"):
    sys.path.insert(0, str(folder))
from environment import known, stamp, write  # noqa: E402  a script's siblings are found only after this
from networks import Networks  # noqa: E402
from slurm_cluster import SlurmCluster  # noqa: E402
from yarn_cluster import YarnRig  # noqa: E402

from nfold.core.report import Report  # noqa: E402
from nfold.verbs.run_folder.folder import RunFolder  # noqa: E402

PROGRAM = HERE.parent / "programs" / "heavy.py"
RATE_MBIT, STEPS, NEIGHBOUR = 100, 14, 1
"""Of each card; of a run; number of the node that a neighbour shares."""
MOST_RANKS = {"slurm": (2, 4, 8), "yarn": (2, 4)}
TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Hosts:
    """A cluster that runs."""

    kind: str
    networks: Networks
    on: str
    environment: dict[str, str]
    begin_neighbour: Any
    """Takes a command, runs it on node NEIGHBOUR, and returns what ends it."""


@contextlib.contextmanager
def slurm(folder: Path, num_nodes: int) -> Iterator[Hosts]:
    """Start a Slurm; a neighbour is a job of its queue."""
    cluster = SlurmCluster(folder, num_nodes)

    def begin_neighbour(command: list[str]) -> Any:
        asked = ["--partition", "prod", "--nodelist", cluster.nodes[NEIGHBOUR], "--cpus-per-task", "1"]
        job = cluster.ask("sbatch", "--parsable", *asked, "--output=/dev/null", f"--wrap={shlex.join(command)}").strip()
        cluster.wait_until(lambda: cluster.ask("squeue", "-h", "-j", job, "-o", "%T").strip() == "RUNNING")
        return lambda: cluster.ask("scancel", job)

    try:
        yield Hosts("slurm", cluster.networks, "slurm:short", cluster.environment, begin_neighbour)
    finally:
        cluster.close()


@contextlib.contextmanager
def yarn(folder: Path, num_nodes: int) -> Iterator[Hosts]:
    """Start a YARN; a neighbour is a process on one of its nodes."""
    networks = Networks(num_nodes)
    try:
        with YarnRig(folder, num_nodes, networks) as cluster:

            def begin_neighbour(command: list[str]) -> Any:
                beside = subprocess.Popen([*networks.inside(NEIGHBOUR, f"node{NEIGHBOUR}"), *command])

                def end() -> None:
                    beside.kill()
                    beside.wait()

                return end

            yield Hosts("yarn", networks, f"yarn:{cluster.base}?memory=900", {}, begin_neighbour)
    finally:
        networks.close()


@contextlib.contextmanager
def neighbour(hosts: Hosts) -> Iterator[None]:
    """Let a job of somebody else send from one node to this machine as fast as it can."""
    with socket.create_server((hosts.networks.address, 0)) as sink:
        threading.Thread(target=drain, args=(sink,), daemon=True).start()
        address, port = sink.getsockname()
        end = hosts.begin_neighbour([sys.executable, str(HERE / "neighbour.py"), address, str(port)])
        try:
            yield
        finally:
            end()


def drain(sink: socket.socket) -> None:
    """Take what one connection brings until it ends."""
    connection, _ = sink.accept()
    with connection:
        while connection.recv(1 << 20):
            pass


def train(hosts: Hosts, strategy: str, ranks: int, out: Path) -> Report:
    """Train for some steps, one rank a node, and return the report."""
    given = ["--strategy", strategy, "--nodes", str(ranks), "-n", str(ranks), "--cpus", "1", "--steps", str(STEPS)]
    given += ["--gang"] if hosts.kind == "slurm" else []  # jobs of one processor might else share a node
    command = [sys.executable, "-m", "nfold", "train", str(PROGRAM), "--on", hosts.on, *given, "--out", str(out)]
    private = {"XDG_STATE_HOME": str(out.parent / "state"), "XDG_CACHE_HOME": str(out.parent / f"cache-{out.name}")}
    done = subprocess.run(
        [*command, "--checkpoint-every", "0"],
        env={**os.environ, **hosts.environment, **private},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{shlex.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return RunFolder.open(out).report()


def mpi_step_s(hosts: Hosts, ranks: int, folder: Path) -> float:
    """Return the seconds of a step whose gradients MPI sums, a rank on each host."""
    agent = folder / "reach"
    numbers = {hosts.networks.address_of(number): number for number in range(ranks)}
    cases = "\n".join(
        f'{at}) exec {shlex.join(hosts.networks.inside(number, f"node{number}"))} sh -c "$*" ;;'
        for at, number in numbers.items()
    )
    agent.write_text(f"#!/bin/sh\nhost=$1; shift\ncase $host in\n{cases}\nesac\n")
    agent.chmod(agent.stat().st_mode | stat.S_IXUSR)
    subnet = f"{hosts.networks.address}/24"
    given = ["plm_rsh_agent", str(agent), "btl", "tcp,self", "btl_tcp_if_include", subnet, "oob_tcp_if_include", subnet]
    options = [word for pair in zip(given[::2], given[1::2], strict=True) for word in ("--mca", *pair)]
    names = ["-np", str(ranks), "--host", ",".join(numbers), "--bind-to", "none"]
    script = [sys.executable, str(HERE / "allreduce.py"), str(PROGRAM), str(STEPS)]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["mpirun", *options, *names, *script],
        env={**os.environ, **root},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"mpirun failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])


def rows_of(hosts: Hosts, sizes: tuple[int, ...], folder: Path) -> Iterator[dict[str, Any]]:
    """Measure each size with and without a neighbour."""
    for ranks in sizes:
        for shared in (False, True):
            with neighbour(hosts) if shared else contextlib.nullcontext():
                for strategy in ("ring", "ps"):
                    name = f"{hosts.kind}-{strategy}-{ranks}-{shared}"
                    yield row(hosts, strategy, ranks, shared, train(hosts, strategy, ranks, folder / name))
                if hosts.kind == "slurm":
                    step_s = mpi_step_s(hosts, ranks, folder)
                    yield {"cluster": hosts.kind, "way": "MPI", "ranks": ranks, "neighbour": shared, "step_s": step_s}


def row(hosts: Hosts, strategy: str, ranks: int, shared: bool, report: Report) -> dict[str, Any]:
    """Say what a run's report says."""
    verdict = report.verdict
    return {
        "cluster": hosts.kind,
        "way": strategy,
        "ranks": ranks,
        "neighbour": shared,
        "step_s": report.step_s.p50,
        "predicted_step_s": report.predicted.step_s,
        "sent_bytes_per_step": report.sent_bytes_per_step,
        "bytes_equal": report.sent_bytes_per_step == report.predicted.sent_bytes_per_step,
        "peak_memory_bytes": report.peak_rss_bytes,
        "bus_bytes_per_s": report.bus_bandwidth_bytes_per_s,
        "cpu_cores": report.cpu_cores,
        "verdict": verdict.kind,
        "place": verdict.place,
        "text": verdict.text,
        "names_neighbour": f"node{NEIGHBOUR} uplink" in verdict.place,
        **stamp(),
    }


def main() -> None:
    """Measure, print and write result.json, row by row."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", choices=MOST_RANKS, help="one cluster; the other's rows are kept")
    options.add_argument("--ranks", type=int, nargs="*", help="these sizes only")
    chosen = options.parse_args()
    kinds = [chosen.only] if chosen.only else list(MOST_RANKS)
    rows = [each for each in known(__file__).get("rows", []) if each["cluster"] not in kinds]
    for kind in kinds:
        sizes = tuple(chosen.ranks or MOST_RANKS[kind])
        begin = {"slurm": slurm, "yarn": yarn}[kind]
        with tempfile.TemporaryDirectory() as text, begin(Path(text), max(sizes)) as hosts:
            hosts.networks.limit(f"{RATE_MBIT}mbit")
            for found in rows_of(hosts, sizes, Path(text)):
                rows.append(found)
                print(found, flush=True)
                write({"rate_mbit_per_s": RATE_MBIT, "steps": STEPS, "rows": rows}, __file__)


if __name__ == "__main__":
    main()
