"""An urgent job takes two of a run's four nodes: what it costs, and whether the run is whole again.

    nfold, torchrun    on Slurm, which takes the nodes away
    nfold on YARN      whose service is told to have two containers, and four again when the urgent job would be done

As root, on a machine at rest.
"""

import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

HERE = Path(__file__).parent
TESTS = HERE.parents[2] / "tests"
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1]), str(TESTS / "rigs")]
from elastic_run import TICK, NfoldRun, lines_of  # noqa: E402  a script's siblings are found only after this
from environment import known, stamp, write  # noqa: E402
from slurm_cluster import SlurmCluster  # noqa: E402
from yarn_cluster import YarnRig, missing  # noqa: E402

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
    """Play an elastic run on Slurm through it."""
    environment = {**cluster.environment, "READ_S": str(given.read_s)}
    flags = ("--on", "slurm:scavenge")
    return elastic(flags, environment, folder, given.steps, lambda _: urgent(cluster, given.urgent_s))


def nfold_on_yarn(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Play an elastic run on YARN through it: its service has two containers for as long as the urgent job takes."""
    python = folder / "python"
    known = {"READ_S": given.read_s, "OMP_NUM_THREADS": 1, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    exported = [f"export {name}='{value}'" for name, value in known.items()]  # containers have no environment of ours
    python.write_text("\n".join(("#!/bin/sh", *exported, f'exec {sys.executable} "$@"\n')))
    python.chmod(0o755)
    (folder / "yarn").mkdir()

    def flex(run: NfoldRun) -> None:
        _scale(run, NODES - 2)
        run.expect("two containers are given back", lambda: _gone(run) >= 2, WAIT_S)
        TICK.wait(given.urgent_s)
        _scale(run, NODES)

    with YarnRig(folder / "yarn", NODES) as cluster:
        flags = ("--on", f"yarn:{cluster.base}?memory=900", "--cpus", "1", "--python", str(python))
        return elastic(flags, {}, folder, given.steps, flex)


def _scale(run: NfoldRun, hosts: int) -> None:
    subprocess.run([sys.executable, "-m", "nfold.cli.main", "scale", str(run.folder), str(hosts)], check=True)


def elastic(
    flags: tuple[str, ...],
    environment: Mapping[str, str],
    folder: Path,
    steps: int,
    take: Callable[[NfoldRun], object],
) -> dict[str, Any]:
    """Play an elastic run of whose hosts `take` takes two away for a while."""
    flags += ("--nodes", f"1:{NODES}", "--steps", str(steps), "--strategy", "ring")
    run = NfoldRun(SCRIPT, folder / "nfold", *flags, environment=environment)
    try:
        run.expect("all nodes train", lambda: _there(run) == NODES, WAIT_S)
        run.expect_step(run.last_step + BEFORE, WAIT_S)
        take(run)
        run.expect("two nodes have left", lambda: _gone(run) >= 2, WAIT_S)
        run.expect("two nodes are back", lambda: _there(run) == NODES, WAIT_S)
        if run.process.wait(steps):
            sys.exit(run.said.read_text()[-2000:])
    finally:
        run.close()
    events = run.events()
    gone = [event for event in events if event["kind"] in ("leave", "loss")]
    alone = NfoldRun(SCRIPT, folder / "alone", "-n", "1", "--strategy", "single", "--chunks", str(NODES),
                     "--steps", str(steps))  # fmt: skip
    alone.process.wait()
    theirs, own = (load_file(each.folder / "model.safetensors") for each in (run, alone))
    return {
        "events": [{name: event[name] for name in ("kind", "who", "ranks", "pause_s", "steps_again", "boot_s", "reason",
                                                   "samples_lost")} for event in events],
        "pause_s": max(event["pause_s"] for event in gone),
        "steps_again": max(event["steps_again"] for event in gone),
        "ranks_at_last": events[-1]["ranks"],
        "each_step_once": [line["step"] for line in run.steps()] == list(range(1, steps + 1)),
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
        cluster.wait_until(lambda: len(lines_of(log)) >= BEFORE, WAIT_S)
        urgent(cluster, given.urgent_s)
        cluster.wait_until(lambda: (logged := lines_of(log)) and logged[-1]["step"] >= given.steps, 2 * WAIT_S)
    except AssertionError as late:
        sys.exit(f"{late}\n{(folder / 'ddp.out').read_text()[-3000:]}")
    cluster.ask("scancel", job)
    logged = lines_of(log)
    gaps = [later["at"] - earlier["at"] for earlier, later in itertools.pairwise(logged)]
    steps = [line["step"] for line in logged]
    return {"pause_s": max(gaps) - statistics.median(gaps), "steps_again": len(steps) - len(set(steps))}


def _there(run: NfoldRun) -> int:
    said = run.said.read_text()
    return len(re.findall(r"\([\d.]+ cores", said)) + said.count(" has joined:") - _gone(run)


def _gone(run: NfoldRun) -> int:
    said = run.said.read_text()
    return said.count(" has left:") + said.count(" is lost:")


def on_slurm(
    play: Callable[[SlurmCluster, Path, argparse.Namespace], dict[str, Any]], folder: Path, given: argparse.Namespace
) -> dict[str, Any]:
    """Play something on a Slurm of its own."""
    (folder / "slurm").mkdir()
    cluster = SlurmCluster(folder / "slurm", NODES)
    try:
        return play(cluster, folder, given)
    finally:
        cluster.close()


CONTENDERS: dict[str, Callable[[Path, argparse.Namespace], dict[str, Any]]] = {
    "nfold": partial(on_slurm, nfold),
    "torchrun": partial(on_slurm, torchrun),
    "nfold on YARN": nfold_on_yarn,
}


def main() -> None:
    """Play all, and write result.json."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--steps", type=int, default=1000)
    options.add_argument("--read-s", type=float, default=0.004, help="that reading a sample takes")
    options.add_argument("--urgent-s", type=int, default=20, help="that the urgent job takes")
    options.add_argument("--every", type=int, default=25, help="steps between two files of torchrun's job")
    options.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    given = options.parse_args()
    for name in given.only:
        if name == "nfold on YARN" and (why := missing()):
            print(f"without YARN: {why}")
            continue
        with tempfile.TemporaryDirectory() as where:
            found = {**CONTENDERS[name](Path(where), given), **stamp()}
        print(name, json.dumps(found, indent=1), flush=True)
        write({**known(__file__), name: found}, __file__)


if __name__ == "__main__":
    main()
