"""An urgent job takes two of a run's four nodes of Slurm: what it costs, and whether the run is whole again."""

import argparse
import itertools
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

HERE = Path(__file__).parent
TESTS = HERE.parents[2] / "tests"
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1]), str(TESTS / "rigs")]
from elastic_run import NfoldRun  # noqa: E402  a script's siblings are found only after this
from environment import write  # noqa: E402
from slurm_cluster import SlurmCluster  # noqa: E402

SCRIPT, DDP = HERE.parent / "soak" / "program.py", HERE / "ddp.py"
NODES = 4
WAIT_S = 180.0
BEFORE = 60
"""Steps before the urgent job comes."""


def urgent(cluster: SlurmCluster, seconds: int) -> str:
    """Submit a job that goes before others, for two whole nodes; return its number."""
    command = ("--partition=prod", "--nodes=2", "--exclusive", "--output=/dev/null", f"--wrap=sleep {seconds}")
    return cluster.ask("sbatch", "--parsable", *command).strip()


def nfold(cluster: SlurmCluster, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Play an elastic run through it."""
    flags = ("--on", "slurm:scavenge", "--nodes", f"1:{NODES}", "--steps", str(given.steps), "--strategy", "ring")
    environment = {**cluster.environment, "READ_S": str(given.read_s)}
    run = NfoldRun(SCRIPT, folder / "nfold", *flags, environment=environment)
    try:
        _until(run, "all nodes train", lambda: run.said.read_text().count("has joined") + 1 >= NODES)
        begun = run.last_step
        _until(run, f"{BEFORE} steps", lambda: run.last_step >= begun + BEFORE)
        urgent(cluster, given.urgent_s)
        _until(run, "two nodes have left", lambda: _gone(run) >= 2)
        _until(run, "two nodes are back", lambda: run.said.read_text().count("has joined") + 1 >= NODES + 2)
        if run.process.wait(given.steps):
            sys.exit(run.said.read_text()[-2000:])
    finally:
        run.close()
    events = run.events()
    gone = [event for event in events if event["kind"] in ("leave", "loss")]
    alone = NfoldRun(SCRIPT, folder / "alone", "-n", "1", "--strategy", "single", "--chunks", str(NODES),
                     "--steps", str(given.steps))  # fmt: skip
    alone.process.wait()
    theirs, own = (load_file(each.folder / "model.safetensors") for each in (run, alone))
    return {
        "events": [{name: event[name] for name in ("kind", "who", "ranks", "pause_s", "steps_again", "boot_s", "reason",
                                                   "samples_lost")} for event in events],
        "pause_s": max(event["pause_s"] for event in gone),
        "steps_again": max(event["steps_again"] for event in gone),
        "ranks_at_last": events[-1]["ranks"],
        "each_step_once": [line["step"] for line in run.steps()] == list(range(1, given.steps + 1)),
        "largest_difference": max(float((theirs[name] - own[name]).abs().max()) for name in own),
    }  # fmt: skip


def torchrun(cluster: SlurmCluster, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Play plain data parallelism through it: one job of four nodes that is queued again, and goes on from a file.

    torchrun ends with an error when a node is taken, so the job's script has to ask for another turn.
    """
    log = folder / "steps.jsonl"
    first = cluster.networks.address_of(0)  # a job of all nodes begins there
    torchrun = (
        f"{sys.executable} -m torch.distributed.run --nnodes={NODES} --nproc-per-node=1 --node-rank=$SLURM_NODEID"
    )
    wishes = f"--steps {given.steps} --every {given.every} --told {log} --kept {folder / 'kept.pt'}"
    (folder / "job.sh").write_text(f"""#!/bin/sh
export GLOO_SOCKET_IFNAME=$(ls /sys/class/net | grep -v lo | head -1) OMP_NUM_THREADS=1 READ_S={given.read_s}
srun --ntasks-per-node=1 --mpi=none sh -c 'exec {torchrun} --master-addr={first} --master-port=29555 {DDP} {wishes}' \\
  || scontrol requeue $SLURM_JOB_ID
""")
    job = cluster.ask("sbatch", "--parsable", "--partition=scavenge", f"--nodes={NODES}", "--exclusive", "--requeue",
                      f"--output={folder / 'ddp.out'}", str(folder / "job.sh")).strip()  # fmt: skip
    try:
        cluster.wait_until(lambda: len(_logged(log)) >= BEFORE, WAIT_S)
        urgent(cluster, given.urgent_s)
        cluster.wait_until(lambda: (logged := _logged(log)) and logged[-1]["step"] >= given.steps, 2 * WAIT_S)
    except AssertionError as late:
        sys.exit(f"{late}\n{(folder / 'ddp.out').read_text()[-3000:]}")
    cluster.ask("scancel", job)
    logged = _logged(log)
    gaps = [later["at"] - earlier["at"] for earlier, later in itertools.pairwise(logged)]
    steps = [line["step"] for line in logged]
    return {"pause_s": max(gaps) - statistics.median(gaps), "steps_again": len(steps) - len(set(steps))}


def _logged(log: Path) -> list[dict[str, Any]]:
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _gone(run: NfoldRun) -> int:
    said = run.said.read_text()
    return said.count(" has left:") + said.count(" is lost:")


def _until(run: NfoldRun, what: str, holds: Any) -> None:
    if not run.until(holds, WAIT_S):
        sys.exit(f"{what}: not within {WAIT_S:.0f} s: {run.said.read_text()[-3000:]}")


def main() -> None:
    """Play both, and write result.json."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=1000)
    options.add_argument("--read-s", type=float, default=0.004, help="that reading a sample takes")
    options.add_argument("--urgent-s", type=int, default=20, help="that the urgent job takes")
    options.add_argument("--every", type=int, default=25, help="steps between two files of torchrun's job")
    options.add_argument("--only", choices=("nfold", "torchrun"))
    given = options.parse_args()
    found: dict[str, Any] = {}
    for name, play in (("nfold", nfold), ("torchrun", torchrun)):
        if given.only in (None, name):
            with tempfile.TemporaryDirectory() as where:
                (Path(where) / "slurm").mkdir()
                cluster = SlurmCluster(Path(where) / "slurm", NODES)
                try:
                    found[name] = play(cluster, Path(where), given)
                finally:
                    cluster.close()
            print(name, json.dumps(found[name], indent=1), flush=True)
    if given.only is None:
        write(found, __file__)


if __name__ == "__main__":
    main()
