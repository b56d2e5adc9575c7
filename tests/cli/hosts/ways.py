"""All ways to hosts, made on this machine: what the suite of `test_conformance` is run against."""

import contextlib
import importlib.util
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sshd import servers

from nfold.hosts.manager import Manager
from nfold.hosts.managers.hosts_file import read_hosts
from nfold.hosts.managers.local_agents import LocalAgents
from nfold.hosts.managers.ray_agents import ray_agents
from nfold.hosts.managers.slurm.slurm import Slurm
from nfold.hosts.managers.ssh import SshManager
from nfold.hosts.managers.yarn.yarn_agents import yarn_agents
from nfold.launch.emulation.clearing import NAMESPACES
from nfold.launch.emulation.owners import STATE

CANNOT = {
    ("local", "time limit"): "nobody limits it",
    ("ssh", "time limit"): "nobody limits it",
    ("ray", "time limit"): "Ray limits no actor's time",
    ("hand", "time limit"): "who has joined stays",
    ("mpi", "time limit"): "MPI limits nothing; a job system that it runs under does, and is asked",
    ("hand", "release"): "nobody but the host's owner ends what was started by hand",
    ("mpi", "release"): "mpirun ends all processes with the first that ends early",
    ("mpi", "host"): "mpirun ends all processes with the first that is killed, and rank 0 with them",
    ("mpi", "ctrl-c"): "mpirun kills what has not ended a second after Ctrl-C",
    ("yarn", "killed"): "service and token of a command that is killed outright stay until somebody removes them",
    ("emulate", "time limit"): "the command has all the time of its machine",
    ("emulate", "release"): "there are no agents: ranks are children of the command",
    ("emulate", "host"): "there are no agents; `--fault` is tested by itself",
    ("emulate", "token"): "ranks reach the command by a socket in its own folder",
}
"""What a way cannot do, and why."""

SECONDS = 120
"""Managers grant minutes, and a start on a busy machine takes most of one."""

KILLED = r"was killed by signal 9 \(SIGKILL\)"


@dataclass(kw_only=True)
class Way:
    """A way to two hosts."""

    flags: tuple[str, ...]
    names: str
    """Pattern of the hosts' names; empty: they are not told apart."""
    title: str
    """As the first lines call it."""
    environment: dict[str, str] = field(default_factory=dict)
    begun_by: tuple[str, ...] = ()
    """The program that begins the command."""
    is_wrapped: bool = False
    """Nothing of the command's environment comes to its hosts: their Python brings it."""
    limit: tuple[str, ...] = ()
    """What asks for hosts for SECONDS."""
    limited: str = ""
    """What the manager says of hosts whose time is over."""
    manager: Callable[[], Manager] | None = None
    address: str = "127.0.0.1"
    """Of this machine, as hosts reach it."""
    killed: str = ""
    """Pattern of what the manager says of an agent that was killed outright; empty: it does not know."""
    left: Callable[[], list[Any]] = list
    """Returns what is still there of jobs, beside processes."""

    @property
    def at(self) -> str:
        """Pattern of what follows the name of a rank."""
        return f" on {self.names}" if self.names else ""


@contextlib.contextmanager
def local(folder: Path, request: pytest.FixtureRequest) -> Iterator[Way]:
    """Agents as children of the command."""
    del folder, request
    yield Way(
        flags=("--on", "local"), names=r"local-\d", title="agents on this machine", manager=LocalAgents, killed=KILLED
    )


@contextlib.contextmanager
def ssh(folder: Path, request: pytest.FixtureRequest) -> Iterator[Way]:
    """Two servers of OpenSSH on loopback, each at an address of its own."""
    del request
    with servers(folder) as program:
        hosts = folder / "hosts.txt"
        hosts.write_text("host-0\nhost-1 slots=1\n")
        yield Way(
            flags=("--on", f"ssh:{hosts}"),
            names=r"host-\d",
            title=f"ssh to the hosts of {hosts}",
            killed="exited with code 255",
            environment={"NFOLD_SSH": program},
            manager=lambda: SshManager(read_hosts(hosts), str(hosts)),
        )


@contextlib.contextmanager
def slurm(folder: Path, request: pytest.FixtureRequest) -> Iterator[Way]:
    """A pool of jobs."""
    cluster = request.getfixturevalue("slurm")
    yield Way(
        flags=("--on", "slurm:short"),
        names=r"node\d",
        title="Slurm partition short",
        killed="ended as FAILED: exit code 137",
        environment=cluster.environment,
        limit=("--hosts-for", f"{SECONDS}"),
        limited="ended as TIMEOUT: its time limit is over.",
        manager=lambda: Slurm("", logs=folder),
        address=cluster.address,
        left=lambda: cluster.ask("squeue", "--noheader").splitlines(),
    )


@contextlib.contextmanager
def mpi(folder: Path, request: pytest.FixtureRequest) -> Iterator[Way]:
    """Two processes of Open MPI on this machine."""
    del folder, request
    if shutil.which("mpirun") is None or importlib.util.find_spec("mpi4py") is None:
        pytest.skip("there is no mpirun (Debian: openmpi-bin), or no mpi4py (pip: nfold[mpi])")
    yield Way(
        flags=("--on", "mpi"),
        names=r"\S+",
        title="MPI",
        environment={"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
        begun_by=("mpirun", "--oversubscribe", "--bind-to", "none", "-np", "2"),
    )


@contextlib.contextmanager
def yarn(folder: Path, request: pytest.FixtureRequest) -> Iterator[Way]:
    """A service of YARN's."""
    del folder
    cluster = request.getfixturevalue("yarn_nodes")
    where = f"{cluster.base}?memory=900"
    yield Way(
        flags=("--on", f"yarn:{where}", "--cpus", "1"),
        names=r"\S+",
        title="YARN queue default",
        killed=r"ended \(YARN says FAILED\)",
        is_wrapped=True,
        limit=("--hosts-for", f"{SECONDS}"),
        limited="was ended by YARN: Application is killed by ResourceManager as it has exceeded the lifetime period.",
        manager=lambda: yarn_agents(where, os.environ, print, cpus=1),
        left=lambda: [*cluster.containers(), *(each for each in cluster.services.rglob("*") if "nfold-" in each.name)],
    )


@contextlib.contextmanager
def ray(folder: Path, request: pytest.FixtureRequest) -> Iterator[Way]:
    """Actors of Ray."""
    del folder
    nodes = request.getfixturevalue("ray_nodes")
    yield Way(
        flags=("--on", f"ray:{nodes.address}"),
        names=r"\S+",
        title=f"Ray at {nodes.address}",
        killed=KILLED,
        is_wrapped=True,
        manager=lambda: ray_agents(nodes.address, 1),
        left=nodes.left,
    )


@contextlib.contextmanager
def hand(folder: Path, request: pytest.FixtureRequest) -> Iterator[Way]:
    """People who type what the command says."""
    del folder, request
    yield Way(flags=("--listen", "127.0.0.1:0"), names=r"\S+", title="hosts that join by hand")


@contextlib.contextmanager
def emulate(folder: Path, request: pytest.FixtureRequest) -> Iterator[Way]:
    """Namespaces and control groups of this machine."""
    request.getfixturevalue("emulation")
    (folder / "c.toml").write_text('[[node]]\nname = "n"\ncount = 2\ncores = 1\nuplink = "100 Mbit/s"\n')
    yield Way(flags=("--emulate", f"{folder / 'c.toml'}"), names="", title="", left=_unowned)


def _unowned() -> list[str]:
    """Namespaces of emulations that nobody owns; those of others come and go meanwhile."""
    found = [name for name in os.listdir(NAMESPACES) if re.match(r"nfold-\d+", name)]
    return [name for name in found if not (STATE / name.split("-")[1]).exists() and (NAMESPACES / name).exists()]


WAYS = {way.__name__: way for way in (local, ssh, slurm, mpi, yarn, ray, hand, emulate)}
