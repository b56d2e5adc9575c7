"""What a user may ask of a run, whether by flags or by arguments: the same names and the same checks."""

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from nfold.core.best_model import Keep, read_keep
from nfold.core.cluster import Cluster
from nfold.core.job import JobSettings
from nfold.core.text.cluster_file import read_cluster
from nfold.core.text.durations import duration_s
from nfold.core.text.units import count
from nfold.core.whole import whole
from nfold.errors import PlanError
from nfold.launch.emulation.cgroups import as_emulated, at_own_speed
from nfold.launch.emulation.faults import Fault, parse_fault
from nfold.planning.asynchronous.asynchronous_strategies import check_staleness
from nfold.planning.choosing.strategies import Single
from nfold.planning.choosing.wishes import check_chunks, check_ranks
from nfold.program import checked_seed

LAST_PORT = 65535
_LEAST: dict[str, int | None] = {
    **{
        "workers": 1,
        "servers": 0,
        "port": 0,
        "steps": 1,
        "chunks": 1,
        "loaders": 0,
        "checkpoint_every": 0,
        "default_chunks": 1,
    },
    "staleness": None,
}
"""Of the whole numbers among the options; None: whoever understands it says so."""


class CommonWishes(TypedDict, total=False):
    """Keyword arguments of every verb; fields of Options."""

    servers: int
    steps: int | None
    chunks: int | None
    loaders: int | None
    seed: int | None
    out: str | Path | None
    debug: bool
    device: str
    checkpoint_every: int | None
    evaluate: bool
    keep: str | None
    measure: bool
    measure_again: bool
    port: int
    default_chunks: int | None
    emulate: str | Path | Cluster | None
    fault: Sequence[str]
    first_step_within: float


class StrategyWishes(CommonWishes, total=False):
    """The same, and what only some strategies understand."""

    staleness: int | None
    staleness_aware: bool


class Wishes(StrategyWishes, total=False):
    """Keyword arguments of the verbs that make one run."""

    workers: int
    strategy: str
    stop_after: float | str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Settings of one run.

    Raises:
        PlanError: (also a ValueError) a number makes no sense.
    """

    workers: int = None  # type: ignore[assignment]  # always a number once it is made
    """Worker ranks; None: one for each node that no server needs, which without a cluster is 1."""
    strategy: str = "auto"
    """One of nfold.planning.STRATEGY_NAMES."""
    servers: int = 0
    """Dedicated server ranks beside the workers."""
    staleness: int | None = None
    """With `ssp`: how many slices of a batch a worker may be ahead of the slowest; None: the planner's choice."""
    staleness_aware: bool = False
    """With `ps-async` and `ssp`: divide a gradient's learning rate by its age in steps."""
    steps: int | None = None
    """Optimizer steps in all; None: the program's epochs."""
    chunks: int | None = None
    """Equal cuts of a batch; None: the program's, or the planner's choice."""
    loaders: int | None = None
    """Processes beside each rank that read samples ahead; None: the program's. Ranks that are threads have none."""
    seed: int | None = None
    """None: the program's."""
    out: str | Path | None = None
    """Folder of the run; None: a new one under runs/."""
    debug: bool = False
    """Ranks are threads of this process."""
    device: str = "auto"
    """`cpu`, `cuda`, or `auto`: cuda where there is one."""
    checkpoint_every: int | None = None
    """Steps between checkpoints; None: at the end of each epoch; 0: none."""
    evaluate: bool = True
    """Whether to evaluate the test data after each epoch and at the end."""
    keep: str | None = None
    """`best:METRIC`: keep the model of the best evaluation too; `:max` or `:min` behind it says which values are
    better."""
    measure: bool = True
    """Whether to time every reduction and sample the system; the parts of a step are always measured."""
    measure_again: bool = False
    """Measure the program although an earlier run did so and nothing has changed."""
    port: int = 0
    """Where the coordinator listens; 0: any free port."""
    default_chunks: int | None = None
    """Cuts of a batch where neither the user nor the program says."""
    emulate: str | Path | Cluster | None = None
    """A cluster, or its file, to emulate on this machine: ranks live on its nodes in order, and round again."""
    cluster_file: str = ""
    """Where `emulate` was read from, for commands that are suggested; empty: it is written nowhere."""
    fault: Sequence[str] = ()
    """What shall go wrong in the emulated cluster: `kill n2@30s`, counted from the first step."""

    first_step_within: float = 300.0
    """Seconds; a plan whose step is predicted to take longer is refused."""
    stop_after: float | str | None = None
    """Stop in order, with a checkpoint, so long after the start: seconds, or a text as `90m` or `3h`."""

    def __post_init__(self) -> None:
        check_out(self.out)
        check_faults(self.fault)
        self._kept()
        self._take_numbers()
        self._take_stop_after()
        self._read_cluster()
        if self.workers is None:
            nodes = len(self.emulated.nodes) if self.emulated and self.strategy != Single.name else 1
            object.__setattr__(self, "workers", max(1, nodes - self.servers))
        self._check_emulation()
        if self.port > LAST_PORT:
            raise PlanError(f"port is {self.port}: the last one is {LAST_PORT}. Use 0 for any free one.")
        check_ranks(self.strategy, self.workers, self.servers)
        check_staleness(self.strategy, self.staleness, aware=self.staleness_aware)
        check_chunks(self.strategy, self.workers, self.chunks)
        if self.device not in ("auto", "cpu", "cuda"):
            raise PlanError(f"unknown device {self.device!r}. Use one of: auto, cpu, cuda")

    @property
    def emulated(self) -> Cluster | None:
        """The cluster to emulate."""
        assert not isinstance(self.emulate, str | Path), "it was read when the options were made"
        return self.emulate

    @property
    def nodes(self) -> tuple[str, ...]:
        """Node of each rank, dedicated servers last; empty: all on this machine."""
        if self.emulated is None:
            return ()
        return nodes_of_ranks(self.emulated, self.workers + self.servers)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """What shall go wrong."""
        return tuple(parse_fault(text, self.emulated) for text in self.fault) if self.emulated else ()

    def _kept(self) -> Keep | None:
        if self.keep is not None and not isinstance(self.keep, str):
            raise PlanError(f"keep is {self.keep!r}: it must be a text, as in 'best:accuracy'")
        return None if self.keep is None else read_keep(self.keep)

    def _take_numbers(self) -> None:
        """Raise for what is no number, or too small; whole ones become Python's own."""
        within = self.first_step_within
        if isinstance(within, bool) or not isinstance(within, numbers.Real) or not within > 0:
            raise PlanError(f"first_step_within is {within!r}: it must be a number of seconds, more than 0")
        given = whole_numbers({name: getattr(self, name) for name in _LEAST})
        for name in ("servers", "port"):
            if name not in given:
                raise PlanError(f"{name} is None: it must be a whole number")
        if self.seed is not None:
            given["seed"] = checked_seed(self.seed, f"--seed {self.seed}", PlanError)
        for name, number in given.items():
            object.__setattr__(self, name, number)

    def _take_stop_after(self) -> None:
        if self.stop_after is None:
            return
        object.__setattr__(self, "stop_after", duration_s(self.stop_after, "--stop-after"))
        if self.checkpoint_every == 0:
            raise PlanError("--stop-after ends a run that goes on from its checkpoint: leave out --checkpoint-every 0")

    @property
    def stop_after_s(self) -> float | None:
        """Seconds from the start after which to stop."""
        return None if self.stop_after is None else float(self.stop_after)

    def _read_cluster(self) -> None:
        """Read the cluster to emulate where its file was given."""
        if isinstance(self.emulate, str | Path):
            object.__setattr__(self, "cluster_file", str(self.emulate))
            object.__setattr__(self, "emulate", read_cluster(self.emulate))
        if isinstance(self.emulate, Cluster):
            object.__setattr__(self, "emulate", as_emulated(self.emulate))
        elif self.emulate is not None:
            raise PlanError(f"emulate is {self.emulate!r}: it must be a cluster, or the path of its file")

    def _check_emulation(self) -> None:
        """Raise for what makes no sense with, or without, an emulated cluster."""
        if self.emulated is None:
            if self.fault:
                raise PlanError(f"--fault {self.fault[0]!r} needs an emulated cluster. Add --emulate cluster.toml.")
            return
        if self.debug:
            raise PlanError("--emulate needs ranks that are processes. Leave out --debug.")
        if self.port:
            raise PlanError(f"--port {self.port}: emulated ranks reach the coordinator without a port. Leave it out.")
        for fault in self.faults:
            if fault.node not in self.nodes:
                raise PlanError(
                    f"--fault {fault.text!r}: no rank lives on {fault.node}; ranks live on "
                    f"{', '.join(dict.fromkeys(self.nodes))}. Name one of those, or use a larger -n."
                )

    def settings(self, *, lockstep: bool = False, plan_only: bool = False) -> JobSettings:
        """Return what the coordinator needs to know."""
        return JobSettings(
            workers=self.workers,
            servers=self.servers,
            strategy=self.strategy,
            staleness=self.staleness,
            staleness_aware=self.staleness_aware,
            steps=self.steps,
            chunks=self.chunks,
            loaders=self.loaders,
            default_chunks=self.default_chunks,
            seed=self.seed,
            device=self.device,
            checkpoint_every=self.checkpoint_every,
            evaluate=self.evaluate,
            keep=self._kept(),
            measure=self.measure,
            measure_again=self.measure_again,
            plan_only=plan_only,
            lockstep=lockstep,
            first_step_limit_s=self.first_step_within,
            stop_after_s=self.stop_after_s,
            cluster=at_own_speed(self.emulated) if self.emulated else None,
            nodes=self.nodes,
        )


def whole_numbers(wishes: Mapping[str, Any]) -> dict[str, int]:
    """Return the whole numbers among wishes, those that were given, as Python's own.

    Raises:
        PlanError: one is something else, or too small.
    """
    found = {}
    for name, least in _LEAST.items():
        value = wishes.get(name)
        if value is None:
            continue
        number = whole(value)
        if number is None:
            raise PlanError(f"{name} is {value!r}: it must be a whole number")
        if least is not None and number < least:
            raise PlanError(f"{name} is {number}: it must be at least {least}")
        found[name] = number
    return found


def check_faults(faults: Sequence[str]) -> None:
    """Refuse a text where several are taken: its letters would be read as faults.

    Raises:
        PlanError: it is one.
    """
    if isinstance(faults, str):
        raise PlanError(f"fault is {faults!r}: it must be a list of such texts, as in fault=[{faults!r}]")


def check_out(out: str | Path | None) -> None:
    """Refuse a folder without a name: a variable that was not set would fill the current folder.

    Raises:
        PlanError: it has none, or it is no path.
    """
    if out is not None and not isinstance(out, str | Path):
        raise PlanError(f"out is {out!r}: it must be the path of a folder")
    if out == "":
        raise PlanError("--out '': a folder needs a name. Leave out --out for a new one under runs/.")


def tell_shared_servers(nodes: Sequence[str], workers: int) -> str:
    """Say which dedicated servers share a node, and so its link, with other ranks; empty: none does.

    Args:
        nodes: of each rank; dedicated servers come last.
        workers: how many ranks are none.
    """
    shared = {
        server: [rank for rank in range(len(nodes)) if rank != server and nodes[rank] == nodes[server]]
        for server in range(workers, len(nodes))
    }
    told = [
        f"rank {server} serves on {nodes[server]} beside rank{'s' if len(others) > 1 else ''} "
        f"{', '.join(map(str, others))}"
        for server, others in shared.items()
        if others
    ]
    if not told:
        return ""
    num_servers = len(nodes) - workers
    return (
        f"{len(set(nodes))} nodes are too few for {count(workers, 'worker')} and {count(num_servers, 'server')} on "
        f"nodes of their own: {'; '.join(told)}, and they share its cores and link. Use a smaller -n, fewer --servers, "
        "or more nodes."
    )


def nodes_of_ranks(cluster: Cluster, num_ranks: int) -> tuple[str, ...]:
    """Return the node of each rank: in order, and from the first again where there are more ranks than nodes."""
    return tuple(cluster.nodes[rank % len(cluster.nodes)].name for rank in range(num_ranks))
