"""What a user may ask of a run, whether by flags or by arguments: the same names and the same checks."""

import numbers
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nfold.core.cluster import Cluster
from nfold.core.job import JobSettings
from nfold.core.options.best_model import read_keep
from nfold.core.options.host_range import HostRange, is_range, read_nodes, read_range
from nfold.core.options.run_options import DEVICES, OPTIONS, TRANSPORTS, JobOptions, RunOptions, kind_of, shared
from nfold.core.options.whole import whole
from nfold.core.residency import METHODS
from nfold.core.text.cluster_file import read_cluster
from nfold.core.text.durations import duration_s
from nfold.core.text.units import count
from nfold.errors import PlanError
from nfold.hosts.managers.hosts_file import ListedHost, read_hosts
from nfold.hosts.managers.mpi.mpi_start import among_mpi
from nfold.hosts.managers.slurm.slurm_allocation import nodes_of_allocation
from nfold.launch.emulation.attendance import check_attendance, founders, refuse_attendance
from nfold.launch.emulation.cgroups import as_emulated, at_own_speed
from nfold.launch.emulation.faults import Fault, parse_fault
from nfold.planning.asynchronous.asynchronous_strategies import check_staleness
from nfold.planning.choosing.strategies import Single
from nfold.planning.choosing.wishes import check_chunks, check_ranks
from nfold.program import checked_seed
from nfold.verbs.options.addresses import read_address
from nfold.verbs.options.range_checks import check_range, hold_s_of
from nfold.verbs.options.rank_nodes import nodes_of_ranks
from nfold.verbs.options.target import LAST_PORT, Target, read_target

Wishes = Mapping[str, Any]
"""Options that were given, by name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Options(RunOptions):
    """What was asked of one run, once it has been checked.

    Raises:
        PlanError: (also a ValueError) a number makes no sense.
    """

    cluster_file: str = ""
    """Where `emulate` was read from, for commands that are suggested; empty: it is written nowhere."""
    hosts: HostRange | None = None
    """How many may train, where they come and go; None: those that the run begins with."""

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
        hold_s_of(self.hosts, self.hold_for)
        if self.hosts is not None:
            check_range(self.hosts, self, len(self.rank_nodes) or self.num_nodes or self.hosts.least)
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
            return founders(self._emulated_names, self.faults, self.hosts)
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

    @property
    def target(self) -> Target | None:
        """What brings hosts that are not this machine; None: ranks run here."""
        return read_target(self.on, self.listen)

    @property
    def listed_hosts(self) -> tuple[ListedHost, ...]:
        """The hosts of a hosts file, as many as are asked for; empty: a manager chooses."""
        target = self.target
        if target is None or target.kind != "ssh":
            return ()
        return read_hosts(target.where)[: self.hosts.most if self.hosts else self.num_nodes]

    @property
    def num_hosts(self) -> int:
        """The number of hosts to ask for: at most one for each rank, unless more are asked for."""
        world_size = self.workers + self.servers
        return self.num_nodes or min(len(self.listed_hosts) or world_size, world_size)

    @property
    def num_asked(self) -> int:
        """The number of hosts to ask for at once: where more may come later, all of them."""
        if self.hosts is None:
            return self.num_hosts
        return min(self.hosts.most, len(self.listed_hosts) or self.hosts.most)

    @property
    def hold_s(self) -> float:
        """How long hosts wait for another coordinator when this command is gone, in seconds; 0: they end with it."""
        return hold_s_of(self.hosts, self.hold_for)

    @property
    def num_nodes(self) -> int | None:
        """What `--nodes` says of how many hosts the run begins with; None: nothing."""
        assert not isinstance(self.nodes, str), "it was read when the options were made"
        return self.nodes

    @property
    def typed_hosts(self) -> str:
        """The flags that ask for the same hosts again; empty: none are asked for."""
        given: dict[str, object] = {
            "--on": self.on,
            "--nodes": self.hosts or self.nodes,
            "--listen": self.listen,
            "--python": self.python,
        }
        given |= {"--hosts-for": self.hosts_for, "--hold-for": self.hold_for, "--cpus": self.cpus}
        given |= {"--env": self.env, "--transport": None if self.transport == "tcp" else self.transport}
        typed = [f"{flag} {shlex.quote(str(value))}" for flag, value in given.items() if value is not None]
        return " ".join([*typed, *(["--gang"] if self.gang else [])])

    def _take_hosts(self) -> None:
        """Raise for what makes no sense with, or without, hosts."""
        object.__setattr__(self, "hosts_within", duration_s(self.hosts_within, "--hosts-within"))
        target = self.target
        if target is None:
            is_emulated_range = self.emulated is not None and self.hosts is not None
            for flag, value in (("--nodes", self.hosts or self.nodes), ("--python", self.python), ("--env", self.env)):
                if value is not None and not (flag == "--nodes" and is_emulated_range):
                    raise PlanError(f"{flag} {value} is for hosts, and none are asked for. Add --on or --listen.")
        self._take_wishes_for_jobs(target)
        if target is None:
            return
        if self.env is not None:
            object.__setattr__(self, "env", str(Path(self.env).absolute()))
        if self.emulate is not None or self.debug:
            other = "--debug" if self.debug else "--emulate"
            raise PlanError(f"{other} keeps all ranks on this machine, and {target.told} brings hosts. Leave one out.")
        object.__setattr__(self, "nodes", self.nodes or self._known_hosts(target))
        listed = self.listed_hosts
        if listed and self.num_nodes is not None and self.num_nodes > len(listed):
            raise PlanError(
                f"--nodes {self.hosts or self.nodes}: {target.where} lists {count(len(listed), 'host')}. Ask for fewer."
            )
        if not listed and self.nodes is None and self.workers is None:
            raise PlanError(f"{target.told} needs to know how many hosts to ask for. Add --nodes N.")

    def _take_nodes(self) -> None:
        """Read `--nodes`; a range is kept beside the number that the run begins with.

        Raises:
            PlanError: it is neither a number nor a range.
        """
        if is_range(self.nodes):
            object.__setattr__(self, "hosts", read_range(str(self.nodes)))
            object.__setattr__(self, "nodes", read_range(str(self.nodes)).least)
        elif self.nodes is not None:
            object.__setattr__(self, "nodes", read_nodes(self.nodes))

    def _check_transport(self) -> None:
        """Raise for ranks that cannot talk through what they shall."""
        if self.transport not in TRANSPORTS:
            raise PlanError(f"unknown transport {self.transport!r}. Use one of: {', '.join(TRANSPORTS)}")
        if self.transport == "tcp":
            return
        target, world_size = self.target, self.workers + self.servers
        if target is None or target.kind != "mpi":
            raise PlanError(
                "--transport mpi needs ranks that MPI has started: "
                f"mpirun -np {world_size} nfold train FILE.py --on mpi --transport mpi"
            )
        if self.env is not None:
            raise PlanError("--env makes no environment for ranks that talk through MPI, which run before it is there.")
        if self.tls:
            raise PlanError("--tls does not encrypt what goes through MPI. Leave out --tls or --transport mpi.")
        if world_size != self.num_hosts:
            raise PlanError(
                f"--transport mpi makes each of the {self.num_hosts} processes that MPI has started one rank, and "
                f"{world_size} are asked for. Start as many (mpirun -np {world_size}), or change -n and --servers."
            )

    def _take_wishes_for_jobs(self, target: Target | None) -> None:
        """Raise for what only some managers understand."""
        for flag, value, kinds in (
            ("--hosts-for", self.hosts_for, ("Slurm", "YARN")),
            ("--gang", self.gang, ("Slurm",)),
            ("--cpus", self.cpus, ("Slurm", "YARN", "Ray")),
        ):
            if value and (target is None or target.kind not in [kind.lower() for kind in kinds]):
                raise PlanError(f"{flag} is for hosts of {' or '.join(kinds)}. Add --on, or leave {flag} out.")
        if self.hosts_for is not None:
            object.__setattr__(self, "hosts_for", duration_s(self.hosts_for, "--hosts-for"))

    def _known_hosts(self, target: Target) -> int | None:
        """How many hosts there are, where they are there already; None: as many as are asked for."""
        if target.kind == "mpi":
            return among_mpi(os.environ).size
        if target.kind == "slurm" and not target.where and self.workers is None:
            return nodes_of_allocation(os.environ)
        return None

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
            check_attendance(self._emulated_names, self.faults, self.hosts)
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
        if without:
            raise PlanError(
                f"--place {self.place}: {without[0]} holds samples and has no rank. Leave -n out: each then has one."
            )

    def _room(self) -> dict[str, int]:
        """The chunks of a batch where nobody says how many: as many as hosts may ever train."""
        return {} if self.hosts is None else {"default_chunks": self.hosts.most}

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
            nodes=self.rank_nodes,
            hosts=self.hosts,
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
