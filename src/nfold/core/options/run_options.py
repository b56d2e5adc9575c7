"""What a user may ask of a run, each option once: its type, default, least value, flag and help.

Flags, keywords in Python, the record of a run and what the coordinator is told are all made from these fields.
"""

from collections.abc import Sequence
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, get_args

from nfold.core.cluster import Cluster
from nfold.core.residency import METHODS

DEVICES = ("auto", "cpu", "cuda")
TRANSPORTS = ("tcp", "mpi")


def option(
    default: Any,
    told: str,
    metavar: str | None = None,
    *,
    flags: tuple[str, ...] | None = None,
    choices: tuple[str, ...] | None = None,
    least: int | None = None,
    bare: int | None = None,
) -> Any:
    """Return a field of options.

    Args:
        default: what holds where nobody asks for anything else.
        told: its help; for argparse a % is written twice.
        metavar: what its value is called there.
        flags: None: `--` and its name; empty: it can be asked for in Python only.
        choices: the only texts that are understood; None: any.
        least: of a whole number; None: whoever understands it says so.
        bare: what its flag means without a value; None: it has one.
    """
    metadata = {"told": told, "metavar": metavar, "flags": flags, "choices": choices, "least": least, "bare": bare}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True, slots=True)
class LastingOptions:
    """What is written down with a run, and what it goes on with unless other things are asked for."""

    workers: int = option(None, "worker ranks; 1 unless given", "N", flags=("-n", "--workers"), least=1)
    """None, only until it is known: one for each node that no server needs, which without a cluster is 1."""
    strategy: str = option(
        "auto", "single, ring, ps, weighted, pipeline, hybrid, hypergraph, ps-async, ssp or auto (unless given)", "S"
    )
    """One of nfold.planning.STRATEGY_NAMES."""
    servers: int = option(0, "dedicated server ranks beside the workers, at most N", "K", least=0)
    staleness: int | None = option(None, "with ssp: slices of a batch that a worker may be ahead of the slowest", "S")
    """None: the planner's choice."""
    staleness_aware: bool = option(False, "with ps-async and ssp: slower learning from older gradients")
    """Divide a gradient's learning rate by its age in steps."""
    steps: int | None = option(None, "optimizer steps in all, instead of the epochs", "K", least=1)
    seed: int | None = option(None, "instead of the program's", "S")
    device: str = option("auto", "where to compute", choices=DEVICES)
    """`auto`: cuda where there is one."""
    exact: bool = option(
        False,
        "the same bits as on one device with the same --chunks and --exact, whatever the plan is and whoever comes, "
        "leaves or dies",
    )
    """Gradients are summed as whole numbers, and ranks compute with one thread each."""
    tls: bool = option(False, "encrypt all that goes between processes (TLS 1.3), with a certificate made for the job")
    """Ranks that are threads send nothing."""
    checkpoint_every: int | None = option(
        None, "steps between checkpoints; an epoch unless given; 0: none", "K", least=0
    )
    keep: str | None = option(
        None,
        "keep the model of the best evaluation too, as in best:accuracy or best:test_loss:min",
        "best:METRIC",
    )
    """`:max` or `:min` behind it says which values are better."""
    on: str | None = option(
        None,
        "hosts to run on: ssh:HOSTS_FILE, slurm[:PARTITION], mpi, ray[:ADDRESS], yarn:URL, local (agents on this "
        "machine); here: this machine without agents, as unless given",
        "KIND[:WHERE]",
    )
    transport: str = option(
        "tcp",
        "what ranks talk through: tcp (unless given), or with --on mpi also mpi, for networks that speak MPI only",
        choices=TRANSPORTS,
    )
    env: str | None = option(
        None,
        "with --on or --listen: hosts make a virtual environment of this lock file, and run the program in it",
        "LOCKFILE",
    )
    """pip's format, all pinned, or pylock.toml."""
    place: str | None = option(
        None,
        "where data live on nodes, as nfold.local_data or the samples of --emulate say: what moves to whom, and who "
        "trains; auto, nothing (unless given), equal, greedy, ilp, lp, waterfill, overlap or joint",
        "METHOD",
        choices=METHODS,
    )
    """None: only data that live on nodes are trained on there, and none move."""
    evaluate: bool = option(True, "evaluate the test data after each epoch and at the end", flags=())


@dataclass(frozen=True, kw_only=True, slots=True)
class JobOptions(LastingOptions):
    """What the coordinator is told, as it was asked for."""

    chunks: int | None = option(None, "equal cuts of a batch", "C", least=1)
    """None: the program's, or the planner's choice."""
    default_chunks: int | None = option(
        None, "cuts of a batch where neither the user nor the program says", flags=(), least=1
    )
    loaders: int | None = option(
        None, "processes beside each rank that read samples ahead; they change no result", "K", least=0
    )
    """None: the program's. Ranks that are threads have none."""
    measure: bool = option(
        True, "do not time each reduction nor sample the system (costs under 2 %%)", flags=("--no-measure",)
    )
    """The parts of a step are always measured."""
    protect: str | int = option(
        "auto",
        "with --nodes MIN:MAX: the most steps that a lost host may cost; auto (unless given): as many as cost least; "
        "off: those since the last checkpoint",
        "K",
    )
    """Ranks keep snapshots in memory, and what only one of them has also on another host."""
    hosts_last: float | str = option(
        86400.0, "with --protect auto: how long a host lives on average: 30m, 3h, 7d; 1d unless given", "TIME"
    )
    measure_again: bool = option(False, "measure the program although an earlier run did so and nothing has changed")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions(JobOptions):
    """All that a user may ask of a run."""

    out: str | Path | None = option(None, "folder of the run; a new one under runs/ unless given", "RUN")
    port: int = option(0, "where the coordinator listens; any free port unless given", "P", least=0)
    nodes: int | str | None = option(
        None,
        "with --on or --listen: hosts to ask for; those of a hosts file, or one for each rank, unless given. MIN:MAX: "
        "begin with MIN, and take more in while training",
        "N",
    )
    listen: str | None = option(
        None,
        "where hosts reach the coordinator; without --on it waits for --nodes hosts that join by hand",
        "HOST:PORT",
    )
    hosts_within: float | str = option(
        600.0,
        "give up when the hosts are not there in time, or fewer than MIN are left for so long: 90 (seconds), 30m, 3h; "
        "10m unless given",
        "TIME",
    )
    hold_for: float | str | None = option(
        None,
        "with --nodes MIN:MAX: how long hosts wait for nfold resume RUN when this command dies; 10m unless given, "
        "0: they end with it",
        "TIME",
    )
    hosts_for: float | str | None = option(
        None, "with --on slurm or yarn: how long hosts are wanted; what partition or queue gives unless given", "TIME"
    )
    gang: bool = option(False, "with --on slurm: all hosts in one job, which come and go together")
    cpus: int | None = option(
        None,
        "with --on slurm, yarn or ray: processors of each host, which others may share; whole hosts of Slurm, 2 of "
        "YARN's and 1 of Ray's unless given",
        "C",
        least=1,
    )
    python: str | None = option(
        None, "path of the Python that has nfold, on the hosts; this one's unless given", "PATH"
    )
    debug: bool = option(
        False,
        "ranks are threads of this process, so that a debugger works; the program prints to the terminal "
        "instead of log.txt",
    )
    first_step_within: float = option(
        300.0, "refuse a plan whose step is predicted to take longer; 300 unless given", "SECONDS"
    )
    emulate: str | Path | Cluster | None = option(
        None, "emulate this cluster here (Linux, root); a worker per node unless -n", "FILE.toml"
    )
    """Ranks live on its nodes in order, and round again."""
    fault: Sequence[str] = option(
        (),
        "let something go wrong in the emulated cluster: 'kill n2@30s', 'slow n1 0.25@10s', "
        "'uplink n3 10Mbit@20s', 'partition n2@15s for 5s'; with --nodes MIN:MAX also 'leave n1@40s', 'join n4@50s'; "
        "may be repeated",
        "'VERB NODE ..@TIME'",
    )
    """Times count from the first step."""
    stop_after: float | str | None = option(
        None,
        "write a checkpoint and end with exit code 75 so long after the start: 90 (seconds), 30m, 3h, 1d",
        "TIME",
    )
    prometheus: int | str | None = option(
        None,
        "give figures of the run to Prometheus at this port (0: any free one), on this machine only unless HOST is "
        "another of its addresses",
        "[HOST:]PORT",
    )
    tensorboard: str | Path | None = option(
        None, "write the run's curves for TensorBoard, in a folder of the run's own in this one", "FOLDER"
    )
    dashboard: int | None = option(
        None,
        "show the run on a page of this machine while it goes on, at this port (any free one unless given); stands "
        "after FILE.py or RUN",
        "PORT",
        least=0,
        bare=0,
    )


WATCHING = ("prometheus", "tensorboard", "dashboard")
"""Options that let others look at a run while it goes on: for verbs that train one."""
OPTIONS: dict[str, Field[Any]] = {each.name: each for each in fields(RunOptions)}


def flags_of(name: str) -> tuple[str, ...]:
    """Return the flags that ask for an option by name; empty: there is none."""
    flags: tuple[str, ...] | None = OPTIONS[name].metadata["flags"]
    return (f"--{name.replace('_', '-')}",) if flags is None else flags


def kind_of(name: str) -> type:
    """Return the type that the value of an option is read as: `str` where it may be text, `tuple` for several texts."""
    kinds = get_args(OPTIONS[name].type) or (OPTIONS[name].type,)
    if OPTIONS[name].type == Sequence[str]:
        return tuple
    return str if str in kinds else kinds[0]


def shared(kind: type[LastingOptions], options: LastingOptions) -> dict[str, Any]:
    """Return the values of those options that `kind` declares too, by name, to build another set of options from."""
    return {each.name: getattr(options, each.name) for each in fields(kind)}
