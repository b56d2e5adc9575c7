"""What a user may ask of a run, whether by flags or by arguments: the same names and the same checks."""

import numbers
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nfold.core.cluster import Cluster
from nfold.core.job import JobSettings
from nfold.core.options.best_model import read_keep
from nfold.core.options.run_options import DEVICES, OPTIONS, JobOptions, RunOptions, kind_of, shared
from nfold.core.options.whole import whole
from nfold.core.residency import METHODS
from nfold.core.text.cluster_file import read_cluster
from nfold.core.text.durations import duration_s
from nfold.errors import PlanError
from nfold.launch.emulation.attendance import check_attendance, founders, refuse_attendance
from nfold.launch.emulation.cgroups import as_emulated, at_own_speed
from nfold.launch.emulation.faults import Fault, parse_fault
from nfold.planning.asynchronous.asynchronous_strategies import check_staleness
from nfold.planning.choosing.strategies import Single
from nfold.planning.choosing.wishes import check_chunks, check_ranks
from nfold.program import checked_seed
from nfold.verbs.options.addresses import read_address
from nfold.verbs.options.exact_checks import check_exact
from nfold.verbs.options.host_options import HostOptions
from nfold.verbs.options.range_checks import check_protection, check_range, hold_s_of
from nfold.verbs.options.rank_nodes import nodes_of_ranks
from nfold.verbs.options.target import LAST_PORT

Wishes = Mapping[str, Any]
"""Options that were given, by name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Options(HostOptions):
    """What was asked of one run, once it has been checked.

    Raises:
        PlanError: (also a ValueError) a number makes no sense.
    """

    cluster_file: str = ""
    """Where `emulate` was read from, for commands that are suggested; empty: it is written nowhere."""
    strangers: tuple[str, ...] = ()
    """Emulated nodes with samples that a run does not know which goes on: they may join while it trains."""
    holders: tuple[str, ...] = ()
    """Emulated nodes that hold what a run trains on which goes on: they come first where not all may begin."""

    def __post_init__(self) -> None:
        check_out(self.out)
        check_faults(self.fault)
        self._take_nodes()
        self._check_keep()
        self._take_numbers()
        self._take_stop_after()
        self._read_cluster()
        self._take_hosts()
        if self.workers is None:
            places = self._num_places() if self.strategy != Single.name else 1
            object.__setattr__(self, "workers", max(1, places - self.servers))
        self._check_transport()
        self._check_emulation()
        if self.port > LAST_PORT:
            raise PlanError(f"port is {self.port}: the last one is {LAST_PORT}. Use 0 for any free one.")
        self._take_watchers()
        check_ranks(self.strategy, self.workers, self.servers)
        self._check_place()
        hold_s_of(self.hosts if self.target else None, self.hold_for)
        check_exact(self)
        if self.hosts is not None:
            check_range(self.hosts, self, len(self.rank_nodes) or self.num_nodes or self.hosts.least)
        check_protection(self.hosts, self)
        object.__setattr__(self, "hosts_last", duration_s(self.hosts_last, "--hosts-last"))
        check_staleness(self.strategy, self.staleness, aware=self.staleness_aware)
        check_chunks(self.strategy, self.workers, self.chunks)
        if self.device not in DEVICES:
            raise PlanError(f"unknown device {self.device!r}. Use one of: {', '.join(DEVICES)}")

    @property
    def emulated(self) -> Cluster | None:
        """The cluster to emulate; None: ranks run on this machine as it is."""
        assert not isinstance(self.emulate, str | Path), "it was read when the options were made"
        return self.emulate

    @property
    def rank_nodes(self) -> tuple[str, ...]:
        """Emulated node of each rank, dedicated servers last; empty: nothing is emulated."""
        if self.emulated is None:
            return ()
        if self.hosts is not None:
            return founders(self._emulated_names, self.faults, self.hosts, self.strangers, self.holders)
        return nodes_of_ranks(self.emulated, self.workers + self.servers)

    @property
    def member_nodes(self) -> tuple[str, ...]:
        """Emulated node of each rank that the run begins with, and those that join later."""
        later = dict.fromkeys(fault.node for fault in self.faults if fault.verb == "join")
        return (*self.rank_nodes, *(name for name in later if name not in self.rank_nodes))

    @property
    def _emulated_names(self) -> tuple[str, ...]:
        return () if self.emulated is None else tuple(node.name for node in self.emulated.nodes)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The faults to inject: which rank or link fails, when, and how."""
        return tuple(parse_fault(text, self.emulated) for text in self.fault) if self.emulated else ()

    def _num_places(self) -> int:
        """Ranks that there are places for, where nobody said how many."""
        if self.emulated is not None:
            return len(self.rank_nodes if self.hosts is not None else self.emulated.nodes)
        listed = self.listed_hosts
        if self.hosts is not None:
            return self.hosts.least
        return sum(host.slots or 1 for host in listed) or self.num_nodes or 1

    def _take_watchers(self) -> None:
        """Raise for places where nobody can watch."""
        for flag, place in (("--prometheus", self.prometheus), ("--dashboard", self.dashboard)):
            if place is not None:
                read_address(place, flag)
        if self.tensorboard is not None:
            check_folder("tensorboard", self.tensorboard)
            object.__setattr__(self, "tensorboard", os.path.abspath(self.tensorboard))

    def _check_keep(self) -> None:
        if self.keep is None:
            return
        if not isinstance(self.keep, str):
            raise PlanError(f"keep is {self.keep!r}: it must be a text, as in 'best:accuracy'")
        read_keep(self.keep)

    def _take_numbers(self) -> None:
        """Raise for what is no number, or too small; whole ones become Python's own."""
        within = self.first_step_within
        if isinstance(within, bool) or not isinstance(within, numbers.Real) or not within > 0:
            raise PlanError(f"first_step_within is {within!r}: it must be a number of seconds, more than 0")
        given = whole_numbers(shared(RunOptions, self))
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
        """The time limit of the run, in seconds from its start; None: it has none."""
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
        if self.hosts is not None:
            check_attendance(self._emulated_names, self.faults, self.hosts, self.strangers, self.holders)
        else:
            refuse_attendance(self.faults, len(self.emulated.nodes))
        for fault in self.faults:
            if fault.node not in self.member_nodes:
                raise PlanError(
                    f"--fault {fault.text!r}: no rank lives on {fault.node}; ranks live on "
                    f"{', '.join(dict.fromkeys(self.member_nodes))}. Name one of those, or use a larger -n."
                )

    def _check_place(self) -> None:
        """Raise for ranks that could not train where data live."""
        if self.place is None:
            return
        if self.place not in METHODS:
            raise PlanError(f"unknown --place {self.place!r}. Use one of: {', '.join(METHODS)}")
        if self.servers:
            raise PlanError(
                "--place lets ranks train on what lives on their nodes, and dedicated servers would train on nothing. "
                f"Leave out --servers {self.servers}."
            )
        if self.emulated is not None:
            self._check_places(self.emulated)

    def _check_places(self, cluster: Cluster) -> None:
        """Raise for nodes whose samples nobody would train on."""
        without = [node.name for node in cluster.nodes if node.num_samples and node.name not in self.rank_nodes]
        if without and self.hosts is None:
            raise PlanError(
                f"--place {self.place}: {without[0]} holds samples and has no rank. Leave -n out: each then has one."
            )
        later = [name for name in without if name in self.member_nodes]
        if later and self.steps is not None:
            raise PlanError(
                f"--steps {self.steps}: {later[0]} holds samples and joins later, which makes epochs longer. Leave out "
                "--steps, or let it be there from the beginning."
            )

    def _room(self) -> dict[str, int]:
        """The chunks of a batch where nobody says how many: as many as hosts may ever train, or one where data live."""
        return {} if self.hosts is None or self.place is not None else {"default_chunks": self.hosts.most}

    def _cluster_at_first(self) -> Cluster | None:
        """The emulated nodes that the run begins with."""
        if self.emulated is None or self.hosts is None:
            return at_own_speed(self.emulated) if self.emulated else None
        here = tuple(map(self.emulated.node, self.rank_nodes))
        return at_own_speed(replace(self.emulated, nodes=here))

    def settings(self, *, lockstep: bool = False, plan_only: bool = False) -> JobSettings:
        """Return the settings that the coordinator needs."""
        return JobSettings(
            **shared(JobOptions, self) | self._room(),
            plan_only=plan_only,
            lockstep=lockstep,
            first_step_limit_s=self.first_step_within,
            stop_after_s=self.stop_after_s,
            cluster=self._cluster_at_first(),
            box=self.emulated,
            nodes=self.rank_nodes,
            hosts=self.hosts,
            waits_s=self.waits_s,
            returns_s=self.returns_s,
        )


def whole_numbers(wishes: Wishes) -> dict[str, int]:
    """Return the whole numbers among wishes as Python's own type; a seed has a check of its own.

    Raises:
        PlanError: one is something else, or too small.
    """
    found = {}
    for name, value in wishes.items():
        if value is None or name == "seed" or name not in OPTIONS or kind_of(name) is not int:
            continue
        number = whole(value)
        if number is None:
            raise PlanError(f"{name} is {value!r}: it must be a whole number")
        least = OPTIONS[name].metadata["least"]
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
    """Refuse a run's folder without a name.

    Raises:
        PlanError: it has none, or it is no path.
    """
    if out is not None:
        check_folder("out", out, " Leave out --out for a new one under runs/.")


def check_folder(name: str, folder: str | Path, advice: str = "") -> None:
    """Refuse a folder without a name: a variable that was not set would fill the current folder.

    Args:
        name: of the option.
        folder: that was given.
        advice: what to do where it has no name.

    Raises:
        PlanError: it has none, or it is no path.
    """
    if not isinstance(folder, str | Path):
        raise PlanError(f"{name} is {folder!r}: it must be the path of a folder")
    if folder == "":
        raise PlanError(f"--{name} '': a folder needs a name.{advice}")
