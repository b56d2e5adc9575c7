"""The digits on two or four hosts by each way to them: result, bytes, and seconds from the command to the first step.

Hosts are made on this machine: servers of OpenSSH, nodes of a real Slurm, processes of Open MPI, and
nodes of YARN and of Ray where those are here. Beside them the same model under DistributedDataParallel, started by
torchrun, srun, mpirun and Ray Train on the same hosts.
"""

import argparse
import contextlib
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from nfold.verbs.run_folder.folder import RunFolder

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
for folder in (HERE.parent, ROOT / "tests" / "cli" / "hosts", ROOT / "tests" / "rigs"):
    sys.path.insert(0, str(folder))
from environment import known, write  # noqa: E402  a script's siblings are found only after this
from slurm_cluster import SlurmCluster  # noqa: E402
from sshd import servers  # noqa: E402
from yarn_cluster import YarnRig, missing  # noqa: E402

PROGRAM = HERE / "program.py"
DDP = HERE.parent / "start" / "ddp.py"
HERE_ALONE = {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
ROOT_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **HERE_ALONE}
POLL_S, TIMEOUT_S = 0.005, 180.0
Way = tuple[str, list[str], dict[str, str]]
"""Name, what begins the command or what it asks for, and its environment."""


@contextlib.contextmanager
def ways(folder: Path, hosts: int) -> Iterator[list[Way]]:
    """Make all hosts; return for each way what comes before `nfold train` and what behind."""
    with contextlib.ExitStack() as ending:
        for name in ("ssh", "slurm"):
            (folder / name).mkdir()
        shell = {"NFOLD_SSH": ending.enter_context(servers(folder / "ssh", hosts))}
        (folder / "hosts.txt").write_text("".join(f"host-{number}\n" for number in range(hosts)))
        cluster = SlurmCluster(folder / "slurm", hosts)
        ending.callback(cluster.close)
        first = cluster.address.rpartition(".")[0] + ".1"
        nodes = ["--nodes", str(hosts)]
        yield [
            ("this machine", ["-n", str(hosts)], {}),
            ("local", ["--on", "local", *nodes], {}),
            ("ssh", ["--on", f"ssh:{folder / 'hosts.txt'}", *nodes], shell),
            (
                "slurm",
                ["--on", "slurm:short", *nodes],
                {**cluster.environment, "MASTER_ADDR": first, "GLOO_SOCKET_IFNAME": "eth0"},
            ),
            ("mpi", ["--on", "mpi"], {**ROOT_MPI, "HOSTS": str(hosts)}),
            *ending.enter_context(yarn(folder / "yarn", hosts)),
            *ending.enter_context(ray(hosts)),
        ]


@contextlib.contextmanager
def yarn(folder: Path, hosts: int) -> Iterator[list[Way]]:
    """Nodes of YARN, where Java and its jars are here."""
    if why := missing():
        print(f"without YARN: {why}")
        yield []
        return
    folder.mkdir()
    with YarnRig(folder, hosts) as cluster:
        asked = ["--on", f"yarn:{cluster.base}?memory=900", "--cpus", "1", "--nodes", str(hosts)]
        yield [("yarn", asked, {})]


@contextlib.contextmanager
def ray(hosts: int) -> Iterator[list[Way]]:
    """Nodes of Ray, where it is installed."""
    if importlib.util.find_spec("ray") is None:
        print("without Ray: it is not installed")
        yield []
        return
    from ray.cluster_utils import Cluster

    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as sockets:  # paths of sockets must be short
        os.environ["RAY_TMPDIR"] = sockets
        os.environ["XDG_CACHE_HOME"] = f"{sockets}/cache"  # actors have the environment of their nodes
        nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
        try:
            for _ in range(hosts - 1):
                nodes.add_node(num_cpus=2)
            yield [("ray", ["--on", f"ray:{nodes.address}", "--nodes", str(hosts)], {})]
        finally:
            nodes.shutdown()


def main() -> None:
    """Measure, print and write result.json."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--hosts", type=int, default=2, help="2 or 4; rows of other numbers stay as they were")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        with ways(folder, chosen.hosts) as all_ways:
            alone = train(("alone", ["-n", "1"], {}), folder / "alone")
            rows = [measure(way, folder, alone, chosen) for way in all_ways]
            rows += [measure_ddp(name, all_ways, folder, chosen) for name in peers(all_ways, chosen.hosts)]
    others = [row for row in known(__file__)["rows"] if row.get("hosts", 2) != chosen.hosts]
    write({"rows": sorted(others + rows, key=lambda row: row["hosts"])}, __file__)


def measure(way: Way, folder: Path, alone: dict[str, Any], chosen: argparse.Namespace) -> dict[str, Any]:
    """Train some times; compare the first run with one device."""
    runs = [train(way, folder / f"{way[0].replace(' ', '-')}-{number}") for number in range(chosen.repeats)]
    first = runs[0]
    furthest = max(float((first["model"][name] - alone["model"][name]).abs().max()) for name in alone["model"])
    row = {
        "way": way[0],
        "hosts": chosen.hosts,
        "first_step_s": statistics.median(run["first_step_s"] for run in runs),
        "whole_s": statistics.median(run["whole_s"] for run in runs),
        "furthest_from_one_device": furthest,
        "sent_bytes_per_step": first["sent"],
        "bytes_equal": first["sent"] == first["predicted"],
    }
    print(row, flush=True)
    return row


def train(way: Way, out: Path) -> dict[str, Any]:
    """Train to the end, in a cache of its own; return what came of it."""
    name, asked, environment = way
    nfold = [
        sys.executable,
        "-m",
        "nfold",
        "train",
        str(PROGRAM),
        "--strategy",
        "ring" if asked[-1] != "1" else "single",
    ]
    begins = mpirun(int(environment["HOSTS"])) if name == "mpi" else []
    cache = {"XDG_CACHE_HOME": str(out.parent / f"cache-{out.name}"), "XDG_STATE_HOME": str(out.parent / "state")}
    command = [*begins, *nfold, *asked, "--out", str(out)]
    first_s, whole_s = timed(command, out / "history.jsonl", {**environment, **cache})
    report = RunFolder.open(out).report()
    return {
        "first_step_s": first_s,
        "whole_s": whole_s,
        "model": {key: value.to(torch.float64) for key, value in load_file(out / "model.safetensors").items()},
        "sent": report.sent_bytes_per_step,
        "predicted": report.predicted.sent_bytes_per_step,
    }


def mpirun(hosts: int) -> list[str]:
    """Start processes on this machine, each with all of its cores."""
    return ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(hosts)]


def peers(all_ways: list[Way], hosts: int) -> dict[str, list[str]]:
    """What starts the plain script, by name."""
    has_ray = any(name == "ray" for name, _, _ in all_ways) and importlib.util.find_spec("pandas") is not None
    torchrun = [sys.executable, "-m", "torch.distributed.run"]
    return {
        "torchrun": [*torchrun, "--nproc-per-node", str(hosts), "--master-port", "29513"],
        "srun python": ["srun", "-p", "short", "-N", str(hosts), "--ntasks-per-node=1", "bash", "-c"],
        "mpirun python": [*mpirun(hosts), "bash", "-c"],
        **({"Ray Train": [sys.executable, str(HERE / "ray_train.py")]} if has_ray else {}),
    }


def measure_ddp(name: str, all_ways: list[Way], folder: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """Start the plain script some times; it ends after its first step."""
    begins = peers(all_ways, chosen.hosts)[name]
    found = {way: environment for way, _, environment in all_ways}
    asked = {way: words for way, words, _ in all_ways}
    environment = {"srun python": found["slurm"], "mpirun python": found["mpi"]}.get(name, HERE_ALONE)
    seconds = []
    for number in range(chosen.repeats):
        begun = folder / f"{name.replace(' ', '-')}-{number}"
        script = [str(DDP), str(PROGRAM), str(begun)]
        if name == "Ray Train":
            command = [*begins, *script[1:], asked["ray"][1].removeprefix("ray:"), str(chosen.hosts)]
        else:
            command = [*begins, *script] if name == "torchrun" else [*begins, plain(script)]
        seconds.append(timed(command, begun, {**environment, "MASTER_PORT": "29514"})[0])
    row = {"way": name, "hosts": chosen.hosts, "first_step_s": statistics.median(seconds)}
    print(row, flush=True)
    return row


def plain(script: list[str]) -> str:
    """A line of shell that tells torch its rank as the job system tells it, and becomes the script."""
    rank = "export RANK=${SLURM_PROCID:-$OMPI_COMM_WORLD_RANK} WORLD_SIZE=${SLURM_NTASKS:-$OMPI_COMM_WORLD_SIZE}"
    return f"{rank}; exec {sys.executable} {' '.join(script)}"


def timed(command: list[str], begun: Path, environment: dict[str, str]) -> tuple[float, float]:
    """Run a command to its end; return the seconds until a file has something in it, and until its end."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    first_s = None
    while process.poll() is None:
        if first_s is None and begun.exists() and begun.stat().st_size:
            first_s = time.perf_counter() - began
        if time.perf_counter() - began > TIMEOUT_S:
            process.terminate()
        time.sleep(POLL_S)
    whole_s, told = time.perf_counter() - began, process.stderr.read() if process.stderr else ""
    if process.returncode or first_s is None:
        raise SystemExit(f"{' '.join(command)} failed:\n{told}")
    return first_s, whole_s


if __name__ == "__main__":
    main()
