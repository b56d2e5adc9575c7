"""compare: the same program under several strategies, numbers of workers and servers, and links, side by side."""

import contextlib
import math
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nfold.core.cluster import Cluster
from nfold.core.findings.comparison import Architecture, Comparison, LeftOut
from nfold.core.options.run_options import WATCHING, RunOptions
from nfold.core.options.whole import whole
from nfold.core.text.cluster_file import read_cluster
from nfold.core.text.units import link_rate
from nfold.errors import ClusterError, PlanError, RunError
from nfold.launch.emulation.faults import Fault, parse_fault
from nfold.planning.asynchronous.asynchronous_strategies import ASYNCHRONOUS, StaleSynchronous
from nfold.planning.choosing.strategies import SERVING, STRATEGY_NAMES
from nfold.runtime.measuring.probing_rounds import with_rate
from nfold.verbs.options.keywords import takes_options
from nfold.verbs.options.option_checks import Options, Wishes, check_faults, check_out
from nfold.verbs.options.rank_nodes import nodes_of_ranks
from nfold.verbs.ranks.starting import check_room, forking_all
from nfold.verbs.results.conclusion import ComparedRun, concluded
from nfold.verbs.results.pages import write_comparison
from nfold.verbs.run_folder.folder import RunFolder
from nfold.verbs.run_folder.run_place import clear_away, place
from nfold.verbs.running.observer import NullObserver, Observer
from nfold.verbs.running.run_job import Job
from nfold.verbs.train import Source, find_source, name_of, play_to_end

SINGLE = "single"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweep:
    """What a comparison varies: strategies, numbers of workers and servers, and links."""

    workers: Sequence[int] = (1, 2, 4)
    strategies: Sequence[str] = ("ring", "ps")
    servers: Sequence[int] = (0,)
    """Dedicated ones, for the strategies that can use them; no more than workers."""
    links_bytes_per_s: Sequence[float] = ()
    """Of every node of the emulated cluster, up and down; empty: as its file says."""

    def __post_init__(self) -> None:
        for name in ("workers", "strategies", "servers", "links_bytes_per_s"):
            object.__setattr__(self, name, _several(name, getattr(self, name)))
        object.__setattr__(self, "workers", _counts("-n", "workers", self.workers, 1))
        object.__setattr__(self, "servers", _counts("--servers", "servers", self.servers, 0))
        if not self.strategies:
            raise PlanError(f"--strategies names none. Use some of: {', '.join(STRATEGY_NAMES)}")
        for name in self.strategies:
            if name not in STRATEGY_NAMES:
                raise PlanError(f"unknown strategy {name!r}. Use some of: {', '.join(STRATEGY_NAMES)}")

    def cells(self) -> Iterator["SweepCell"]:
        """Yield the runs of the sweep: the plain single-device run first, whatever the strategies are."""
        yield SweepCell(architecture=Architecture(strategy=SINGLE), workers=1, link_bytes_per_s=None)
        for link in dict.fromkeys(self.links_bytes_per_s) or (None,):
            for architecture in dict.fromkeys(self._architectures()):
                for count in sorted(set(self.workers)):
                    if count > 1 and architecture.servers <= count:
                        yield SweepCell(architecture=architecture, workers=count, link_bytes_per_s=link)

    def left_out(self) -> Iterator[str]:
        """Yield a sentence for each combination of the sweep that is not run, with its reason."""
        for architecture in dict.fromkeys(self._architectures()):
            for count in sorted(set(self.workers)):
                if count > 1 and architecture.servers > count:
                    yield (
                        f"{architecture.strategy} with {architecture.servers} servers is left out for {count} workers: "
                        "more servers than workers cannot help"
                    )

    def _architectures(self) -> Iterator[Architecture]:
        for name in self.strategies:
            if name != SINGLE:
                servers = self.servers if name in SERVING else (0,)
                yield from (Architecture(strategy=name, servers=count) for count in servers)


def _several(name: str, values: Any) -> tuple[Any, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        asked = {"servers": "server_counts"}.get(name, name)  # `servers` is what all runs have
        raise PlanError(f"{asked} is {values!r}: a comparison takes several, as in {asked}=[{values!r}]")
    return tuple(values)


def _counts(flag: str, what: str, values: Sequence[Any], least: int) -> tuple[int, ...]:
    counts = tuple(count for count in map(whole, values) if count is not None and count >= least)
    if not counts or len(counts) < len(values):
        told = ",".join(map(repr, values))
        raise PlanError(f"{flag} {told}: every number of {what} must be a whole one of at least {least}")
    return counts


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepCell:
    """One run of a sweep: one strategy with one number of workers and servers on one kind of link."""

    architecture: Architecture
    workers: int
    link_bytes_per_s: float | None

    @property
    def name(self) -> str:
        """The name of the run in the comparison."""
        link = f", {link_rate(self.link_bytes_per_s)}" if self.link_bytes_per_s else ""
        return self.architecture.sized(self.workers) + link

    @property
    def folder(self) -> str:
        """The name of the run's folder among those of the comparison."""
        strategy, servers = self.architecture.strategy, self.architecture.servers
        link = f"-{self.link_bytes_per_s * 8 / 1e6:g}Mbit" if self.link_bytes_per_s else ""
        return f"{strategy}-{self.workers}" + (f"+{servers}" if servers else "") + link


@dataclass(frozen=True, kw_only=True, slots=True)
class CompareOptions(RunOptions):
    """Keywords of `compare`."""

    workers: Sequence[int] = (1, 2, 4)  # type: ignore[assignment]  # several of them
    strategies: Sequence[str] = ("ring", "ps")
    server_counts: Sequence[int] | None = None
    links_bytes_per_s: Sequence[float] = ()
    target_loss: float | None = None
    observer: Observer | None = None


@takes_options(CompareOptions, without=("strategy", "place", "stop_after", *WATCHING))
def compare(program: Source, asked: CompareOptions, wishes: Wishes) -> Comparison:
    """Run every strategy with every number of workers and servers on all links, one after another.

    One worker is one run whatever the strategy, and always the first: the plain single-device run, batch uncut. The
    others cut a batch alike, unless `chunks` or the program says how, so that their losses can be compared.

    Args:
        program: as for `train`.
        workers: numbers of worker ranks.
        strategies: names of strategies.
        server_counts: numbers of dedicated servers; None: `servers`.
        links_bytes_per_s: speeds of every link of the emulated cluster; empty: as it is.
        target_loss: what `time_to_loss_s` is about; None: the lowest that all runs reached.
        observer: is shown what happens.
        out: the folder of all the runs.
        servers, steps, seed ..: other fields of RunOptions (`core/options/run_options.py`). What only some strategies
            understand goes to the runs of those, and a fault to the runs with a rank on its node.

    Returns:
        The comparison; compare.json and compare.html lie beside the runs.

    Raises:
        NfoldError: as `train` does, by the plain run or where no other one came to an end. Other runs that are refused
            or fail are left out, and the comparison says why.
    """
    check_faults(wishes.get("fault", ()))
    sweep = Sweep(
        workers=asked.workers,
        strategies=asked.strategies,
        servers=(asked.servers,) if asked.server_counts is None else asked.server_counts,
        links_bytes_per_s=asked.links_bytes_per_s,
    )
    cluster = _cluster(wishes, sweep)
    check_shares(wishes, sweep, cluster)
    source = find_source(program)
    tell, entries = asked.observer or NullObserver(), list[ComparedRun]()
    with contextlib.ExitStack() as stack:
        parent = stack.enter_context(_parent(wishes.get("out"), name_of(source)))
        for why in (*sweep.left_out(), *_faults_left_out(wishes, sweep, cluster)):
            tell.noted(why)
        runs = [(cell, options_of(cell, wishes, sweep, cluster, parent)) for cell in sweep.cells()]
        check_room(source, max((options for _, options in runs), key=lambda each: each.workers + each.servers))
        stack.enter_context(forking_all(source, runs[0][1]))
        left_out: list[LeftOut] = []
        for cell, options in runs:
            tell.noted(f"{cell.folder} ..")
            alone = entries[0].folder.report().samples_per_s if entries else None
            folder = RunFolder.create(options.out, cell.folder)
            job = Job(source, options, tell, folder=folder, alone_samples_per_s=alone)
            try:
                play_to_end(job)
            except (PlanError, ClusterError, RunError) as error:
                if not entries or (cell is runs[-1][0] and len(entries) == 1):
                    raise  # nothing is left to compare
                left_out.append(LeftOut(name=cell.name, why=str(error)))
                tell.noted(f"{cell.folder} is left out: {error}")
            except KeyboardInterrupt as stop:
                raise type(stop)(_tell_stopped(str(stop), entries)) from stop
            else:
                entries.append(ComparedRun(folder=folder, link_bytes_per_s=cell.link_bytes_per_s))
        return write_comparison(parent, replace(concluded(entries, asked.target_loss), left_out=tuple(left_out)))


def _tell_stopped(told: str, ended: Sequence[ComparedRun]) -> str:
    """Return what was told of the run that was stopped, and how those that had ended are compared."""
    if len(ended) < 2:
        return told
    folders = " ".join(shlex.quote(str(each.folder.path)) for each in ended)
    return f"{told}\nCompare those that had ended: nfold compare {folders}".lstrip()


def compare_runs(
    folders: Sequence[str | Path], *, target_loss: float | None = None, out: str | Path | None = None
) -> Comparison:
    """Put runs side by side that have ended, whatever they were.

    Args:
        folders: of the runs.
        target_loss: as for `compare`.
        out: a folder for compare.json and compare.html; None: they are not written.

    Raises:
        PlanError: a folder holds no run that has ended.
    """
    comparison = concluded([ComparedRun(folder=RunFolder.open(path)) for path in folders], target_loss)
    check_out(out)
    if out is None:
        return comparison
    try:
        Path(out).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PlanError(f"cannot make the folder {out}: {error.strerror}. Use another --out.") from error
    return write_comparison(Path(out), comparison)


def _cluster(wishes: Wishes, sweep: Sweep) -> Cluster | None:
    """Read the cluster once; links without one make no sense."""
    asked = wishes.get("emulate")
    if asked is None:
        if sweep.links_bytes_per_s:
            raise PlanError("--links changes the links of an emulated cluster. Add --emulate cluster.toml.")
        return None
    return asked if isinstance(asked, Cluster) else read_cluster(asked)


def check_shares(wishes: Wishes, sweep: Sweep, cluster: Cluster | None) -> None:
    """Refuse wishes that no run of a sweep could be given.

    Raises:
        PlanError: no strategy understands one, or a fault is for a node without a rank.
    """
    bound, among = wishes.get("staleness"), ",".join(sweep.strategies)
    if bound is not None and StaleSynchronous.name not in sweep.strategies:
        raise PlanError(
            f"--staleness {bound} is the bound of {StaleSynchronous.name}, which is not among --strategies {among}. "
            "Add it, or leave out --staleness."
        )
    if wishes.get("staleness_aware") and not set(ASYNCHRONOUS) & set(sweep.strategies):
        raise PlanError(
            f"--staleness-aware is for {' and '.join(ASYNCHRONOUS)}, and neither is among --strategies {among}. "
            "Add one, or leave out --staleness-aware."
        )
    for fault in _faults(wishes, cluster):
        if not any(_happens(fault, cell, cluster) for cell in sweep.cells()):
            raise PlanError(f"--fault {fault.text!r}: no run has a rank on {fault.node}. Use a larger -n.")


def _faults_left_out(wishes: Wishes, sweep: Sweep, cluster: Cluster | None) -> Iterator[str]:
    for cell in sweep.cells():
        for fault in _faults(wishes, cluster):
            if not _happens(fault, cell, cluster):
                yield f"{cell.folder} is run without --fault {fault.text!r}: no rank of it lives on {fault.node}"


def _faults(wishes: Wishes, cluster: Cluster | None) -> list[Fault]:
    return [] if cluster is None else [parse_fault(text, cluster) for text in wishes.get("fault", ())]


def _happens(fault: Fault, cell: SweepCell, cluster: Cluster | None) -> bool:
    num_ranks = cell.workers + cell.architecture.servers
    return cluster is not None and fault.node in nodes_of_ranks(cluster, num_ranks)


def options_of(cell: SweepCell, wishes: Wishes, sweep: Sweep, cluster: Cluster | None, parent: Path) -> Options:
    """Return the options of one run of a sweep.

    Args:
        cell: the run.
        wishes: for all runs; those that its strategy does not understand are left out.
        sweep: that it belongs to.
        cluster: to emulate, with the links of the run; None: nothing is emulated.
        parent: folder of the comparison.

    Raises:
        PlanError: they make no sense.
    """
    mine: dict[str, Any] = dict(wishes)
    if cell.architecture.strategy != StaleSynchronous.name:
        mine.pop("staleness", None)
    if cell.architecture.strategy not in ASYNCHRONOUS:
        mine.pop("staleness_aware", None)
    if cluster is not None:
        mine["fault"] = [fault.text for fault in _faults(wishes, cluster) if _happens(fault, cell, cluster)]
    if cluster is not None and cell.link_bytes_per_s:
        mine["emulate"] = with_rate(cluster, cell.link_bytes_per_s)
    elif cluster is not None:
        asked = wishes.get("emulate")
        mine |= {"emulate": cluster, "cluster_file": "" if isinstance(asked, Cluster) else str(asked)}
    mine.update(
        workers=cell.workers,
        strategy=cell.architecture.strategy,
        servers=cell.architecture.servers,
        out=parent / cell.folder,
        default_chunks=None if cell.architecture.strategy == SINGLE else _common_chunks(sweep.workers),
    )
    return Options(**mine)


def _common_chunks(workers: Sequence[int]) -> int:
    """The fewest chunks that every number of workers can share equally, if they are not too many."""
    least = math.lcm(*workers)
    return least if least <= 2 * max(workers) else max(workers)


@contextlib.contextmanager
def _parent(out: str | Path | None, name: str) -> Iterator[Path]:
    """The folder of all the runs; it goes again if none of them left anything."""
    check_out(out)
    parent, made = place(out, f"{name}-compare")
    try:
        yield parent
    finally:
        clear_away(made)
