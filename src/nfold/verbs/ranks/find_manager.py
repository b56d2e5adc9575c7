"""Finds what brings the hosts that a run asks for: the managers of `hosts/managers`, by their name in `--on`.

The names are read in `verbs/options/target.py`. Managers start agents; what starts ranks is a launcher
(`launch/launcher.py`), and is chosen in `starting.py`.
"""

import os
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path

from nfold.errors import ClusterError
from nfold.hosts.manager import Manager
from nfold.hosts.managers.by_hand import ByHand
from nfold.hosts.managers.local_agents import LocalAgents
from nfold.hosts.managers.mpi.mpi_agents import Mpi
from nfold.hosts.managers.ray_agents import ray_agents
from nfold.hosts.managers.slurm.slurm import slurm_manager
from nfold.hosts.managers.ssh import SshManager
from nfold.hosts.managers.yarn.yarn_agents import yarn_agents
from nfold.machine.user_folders import cache_folder
from nfold.verbs.options.option_checks import Options
from nfold.verbs.options.target import BY_HAND


def find_manager(
    options: Options, token_file: Path, say: Callable[[str], None], *, there: Collection[str] = ()
) -> Manager:
    """Return what brings hosts.

    Args:
        options: that ask for some.
        token_file: where people who join by hand find the token.
        say: is given lines for the user.
        there: names of hosts that have agents already.

    Raises:
        ClusterError: it is not there.
    """
    target = options.target
    assert target is not None, "who asks for no hosts needs no manager"
    limit_s = None if options.hosts_for is None else float(options.hosts_for)
    match target.kind:
        case "ssh":
            return SshManager([host for host in options.listed_hosts if host.name not in there], target.where)
        case "local":
            return LocalAgents()
        case "slurm":
            return slurm_manager(
                target.where,
                logs=(cache_folder() or Path(tempfile.gettempdir(), "nfold")) / "slurm",
                gang=options.gang,
                limit_s=limit_s,
                cpus=options.cpus,
            )
        case "mpi":
            return Mpi()
        case "ray":
            return ray_agents(target.where, options.cpus)
        case "yarn":
            return yarn_agents(target.where, os.environ, say, cpus=options.cpus, time_s=limit_s)
        case kind if kind == BY_HAND:
            return ByHand(token_file, say)
    raise ClusterError(f"{target.told}: this version of nfold cannot start agents there yet. Use ssh or --listen.")
