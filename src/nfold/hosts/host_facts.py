"""What an agent tells of its host, so that the coordinator can plan with it and refuse what would not fit."""

import importlib.metadata
import math
import os
import platform
import shutil
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nfold.core.cluster import Device
from nfold.machine.limits import available_cores, available_memory
from nfold.machine.processes import age_s
from nfold.machine.user_folders import cache_folder
from nfold.version import __version__

MOST_CHARACTERS = 253
"""Of a host's name: DNS has none that is longer, and managers call hosts by their full names."""
_NVIDIA = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True, kw_only=True, slots=True)
class Versions:
    """Of what must be equal on all hosts: a rank that computes by other code computes something else."""

    nfold: str
    python: str
    torch: str
    """Empty: it is not installed."""

    @property
    def told(self) -> str:
        """As one reads them."""
        return f"nfold {self.nfold}, Python {self.python}, torch {self.torch or 'missing'}"


@dataclass(frozen=True, kw_only=True, slots=True)
class HostFacts:
    """One host, as its agent may use it."""

    host: str
    """Its own name, which nobody resolves."""
    pid: int
    """Of the agent."""
    cores: float
    """By affinity, control groups, and what Slurm granted: not every Slurm holds processes to it."""
    quota_period_s: float
    memory_bytes: int
    disk_bytes: int
    """Free where programs are kept."""
    devices: tuple[Device, ...]
    versions: Versions
    interpreter: str
    time_s: float
    """Its clock, seconds since 1970."""
    age_s: float = 0.0
    """For how long the agent has run there."""


def own_versions() -> Versions:
    """Return the versions of this interpreter; torch is not imported."""
    try:
        torch = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        torch = ""
    return Versions(nfold=__version__, python=platform.python_version(), torch=torch)


def facts_of_this_host(
    interpreter: str, most_cores: float = math.inf, most_memory_bytes: float = math.inf
) -> HostFacts:
    """Return what this process may use of its host.

    Args:
        interpreter: that runs it.
        most_cores: that were granted, where nothing on the host knows it.
        most_memory_bytes: as `most_cores`.
    """
    share, memory_bytes = available_cores(), available_memory()
    return HostFacts(
        host=socket.gethostname() or "localhost",
        pid=os.getpid(),
        cores=min(share.cores, _granted_cores(os.environ), most_cores),
        quota_period_s=share.period_s,
        memory_bytes=int(min(memory_bytes, most_memory_bytes)),
        disk_bytes=_free_bytes(cache_folder()),
        devices=_devices(),
        versions=own_versions(),
        interpreter=interpreter,
        time_s=time.time(),
        age_s=age_s(),
    )


def _free_bytes(folder: Path | None) -> int:
    """Of the disk on which a folder is, or would be made."""
    while folder is not None and not folder.is_dir():
        folder = folder.parent
    return shutil.disk_usage(folder).free if folder is not None else 0


def _granted_cores(environment: Mapping[str, str]) -> float:
    return float(environment.get("SLURM_CPUS_ON_NODE", "inf"))


def _devices() -> tuple[Device, ...]:
    """CUDA devices by what their driver tells, as far as CUDA_VISIBLE_DEVICES allows; torch would take seconds."""
    if not _NVIDIA.is_dir():
        return ()
    count = len(list(_NVIDIA.iterdir()))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        count = min(count, len([each for each in visible.split(",") if each.strip() not in ("", "-1")]))
    return (Device(kind="cuda", count=count, memory_bytes=0),) if count else ()


def why_no_name(name: object) -> str:
    """Return why a host cannot be called so, in messages and on terminals; empty: it can."""
    if not isinstance(name, str) or len(name) > MOST_CHARACTERS:
        return f"the name of a host is text of at most {MOST_CHARACTERS} characters"
    return "" if name.isprintable() else "the name of a host is one line of printable characters"
