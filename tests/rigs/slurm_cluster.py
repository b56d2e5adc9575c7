"""A real Slurm of a few nodes on this machine: each slurmd in a network and with a host name of its own.

    slurmctld ── bridge ── slurmd of node0, node1 ..

Nothing is left behind: daemons end with the process that started them.
"""

import os
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

from networks import Networks

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "ip", "nsenter", "unshare", "setpriv")
CPUS = 2
"""Of a node, as Slurm believes."""
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_READY_S = 20.0

_CONFIGURATION = """
ClusterName=rig
SlurmctldHost=ctl({address})
SlurmctldPort={port}
SlurmdPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/ctl.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/ctl.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
KillWait=5
SchedulerParameters=sched_min_interval=100000,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{nodes}
PartitionName=short Nodes=ALL Default=YES MaxTime=10 DefaultTime=5 State=UP PriorityTier=5 PreemptMode=OFF
PartitionName=scavenge Nodes=ALL MaxTime=10 State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=30
PartitionName=prod Nodes=ALL State=UP PriorityTier=10 PreemptMode=OFF
"""


def why_not() -> str:
    """Return why no such cluster can be made here; empty: it can."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    if missing:
        return f"there is no {', '.join(missing)} (Debian: slurmctld, slurmd, slurm-client, iproute2, util-linux)"
    return "" if os.geteuid() == 0 else "networks of nodes need root"


class SlurmCluster:
    """Runs until closed."""

    def __init__(self, folder: Path, num_nodes: int) -> None:
        """Start it, and wait until all nodes are idle.

        Args:
            folder: for all its files.
            num_nodes: node0, node1 ..
        """
        self._folder = folder
        self.nodes = [f"node{number}" for number in range(num_nodes)]
        self.networks = Networks(num_nodes)
        self.address = self.networks.address
        self.configuration = folder / "slurm.conf"
        self._daemons: list[subprocess.Popen] = []
        try:
            self._configure()
            self._start()
        except BaseException:
            self.close()
            raise

    @property
    def environment(self) -> dict[str, str]:
        """What Slurm's programs need to find it."""
        return {"SLURM_CONF": str(self.configuration), "PATH": PATH}

    def ask(self, *command: str) -> str:
        """Run a program of Slurm and return what it prints."""
        done = subprocess.run(
            command, env=os.environ | self.environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def wait_until(self, holds, within_s: float = 30.0) -> None:
        """Ask again and again: Slurm tells nobody when something has come to pass."""
        deadline, looking = time.monotonic() + within_s, threading.Event()
        while not holds():
            assert time.monotonic() < deadline, self.ask("squeue", "--states=all") + self.ask("sinfo", "-N")
            looking.wait(0.1)

    def cancel_all(self) -> None:
        """Leave no job in the queue, and all nodes idle."""
        self.ask("scancel", "--signal=KILL", "--user=root")
        self.ask("scancel", "--user=root")
        self.wait_until(self._is_idle)

    def close(self) -> None:
        """End all of it."""
        for daemon in self._daemons:
            daemon.kill()
            daemon.wait()
        self.networks.close()

    def _is_idle(self) -> bool:
        """At first nobody answers at all."""
        command = ["sinfo", "-h", "-N", "-p", "short", "-o", "%T"]
        done = subprocess.run(
            command, env=os.environ | self.environment, capture_output=True, text=True, timeout=60, check=False
        )
        return done.stdout.split() == ["idle"] * len(self.nodes)

    def _configure(self) -> None:
        for name in ("state", *(f"spool-{node}" for node in self.nodes)):
            (self._folder / name).mkdir()
        addresses = [(node, self.networks.address_of(number)) for number, node in enumerate(self.nodes)]
        nodes = "\n".join(f"NodeName={node} NodeAddr={at} CPUs={CPUS} RealMemory=2000" for node, at in addresses)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.configuration.write_text(
            _CONFIGURATION.format(address=self.address, port=port, folder=self._folder, nodes=nodes)
        )

    def _start(self) -> None:
        named = ["setpriv", "--pdeathsig", "KILL", "unshare", "--uts", "sh", "-c", 'hostname ctl && exec "$@"', "sh"]
        self._daemon("ctl", named, ["slurmctld", "-D"])
        for number, node in enumerate(self.nodes):
            self._daemon(node, self.networks.inside(number, node), ["slurmd", "-D", "-N", node])
        self.wait_until(self._is_idle, _READY_S)

    def _daemon(self, host: str, begins: list[str], command: list[str]) -> None:
        with open(self._folder / f"{host}.out", "wb") as output:
            self._daemons.append(
                subprocess.Popen(
                    [*begins, *command],
                    env=os.environ | self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
            )
