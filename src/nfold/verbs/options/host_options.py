"""What a user may ask of the hosts of a run, and what makes no sense with, or without, any."""

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from nfold.core.options.host_range import HostRange, is_range, read_nodes, read_range
from nfold.core.options.run_options import OPTIONS, TRANSPORTS, RunOptions
from nfold.core.text.durations import duration_s
from nfold.core.text.units import count
from nfold.errors import PlanError
from nfold.hosts.managers.hosts_file import ListedHost, read_hosts
from nfold.hosts.managers.mpi.mpi_start import among_mpi
from nfold.hosts.managers.slurm.slurm_allocation import nodes_of_allocation
from nfold.verbs.options.range_checks import hold_s_of
from nfold.verbs.options.target import Target, read_target

GIVES_MORE = ("local", "slurm", "yarn", "ray")
"""Kinds of managers that can be asked for hosts while a run trains."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostOptions(RunOptions):
    """What was asked of hosts that are not this machine, or whose number changes."""

    hosts: HostRange | None = None
    """How many may train, where they come and go; None: those that the run begins with."""

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
        hosts = self.hosts if self.target else None
        return hold_s_of(hosts, self.hold_for)

    @property
    def waits_s(self) -> float:
        """How long those that are left wait for others where fewer than MIN are left; 0: nobody can come."""
        if self.hosts is None or self.place is not None:
            return 0.0
        target = self.target
        if target is None:
            comes = any(fault.split()[:1] == ["join"] for fault in self.fault)
        else:
            comes = self.listen is not None or (target.kind in GIVES_MORE and not self.gang)
        return float(self.hosts_within) if comes else 0.0

    @property
    def returns_s(self) -> float:
        """How long they wait where nobody can come but a host that has lost its rank alone; 0: it cannot either."""
        comes = self.hosts is not None and self.place is None and self.target is not None
        return float(self.hosts_within) if comes and not self.waits_s else 0.0

    @property
    def num_nodes(self) -> int | None:
        """What `--nodes` says of how many hosts the run begins with; None: nothing."""
        assert not isinstance(self.nodes, str), "it was read when the options were made"
        return self.nodes

    @property
    def typed_hosts(self) -> str:
        """The flags that ask for the same hosts again; empty: none are asked for."""
        return self._typed(self.hosts or self.nodes, self.hold_for)

    @property
    def typed_hosts_that_stay(self) -> str:
        """The same for a command that says how many workers there are: none of its hosts come or go."""
        return self._typed(None) if self.hosts is not None else self.typed_hosts

    @property
    def typed_waits(self) -> str:
        """The flags that say what a lost host may cost, and how long all wait for one, where that is not as usual."""
        given = {name: getattr(self, name) for name in ("protect", "hosts_last", "hosts_within", "hold_for")}
        asked = {name: value for name, value in given.items() if value != OPTIONS[name].default}
        typed = {name.replace("_", "-"): str(value).removesuffix(".0") for name, value in asked.items()}
        return " ".join(f"--{flag} {shlex.quote(value)}" for flag, value in typed.items())

    def _typed(self, nodes: object, hold_for: object = None) -> str:
        given: dict[str, object] = {
            "--on": self.on,
            "--nodes": nodes,
            "--listen": self.listen,
            "--python": self.python,
        }
        given |= {"--hosts-for": self.hosts_for, "--hold-for": hold_for, "--cpus": self.cpus}
        given |= {"--env": self.env, "--transport": None if self.transport == "tcp" else self.transport}
        typed = [f"{flag} {shlex.quote(str(value))}" for flag, value in given.items() if value is not None]
        return " ".join([*typed, *(["--gang"] if self.gang else [])])

    def _take_hosts(self) -> None:
        """Raise for what makes no sense with, or without, hosts."""
        object.__setattr__(self, "hosts_within", duration_s(self.hosts_within, "--hosts-within"))
        target = self.target
        if target is None:
            is_emulated_range = self.emulate is not None and self.hosts is not None
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
