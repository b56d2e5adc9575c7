"""Emulates a declared cluster on this machine: real processes and real TCP behind shaped links and limited cores.

emulated_cluster        builds a cluster, changes its links and cores, and removes it
namespaces, ip_and_tc   its network as commands, and what performs them
shaping                 how fast and how late bytes leave a device
cgroups, controllers    shares of cores and memory
faults                  what shall go wrong, and when
attendance              which nodes take part when, as faults let them
node_command            a command on one node
owners, clearing, watchdog    who owns which emulation, and what removes one whose owner is gone
"""

from nfold.launch.emulation.emulated_cluster import EmulatedCluster, emulated
from nfold.launch.emulation.faults import Fault, FaultClock, parse_fault

__all__ = ["EmulatedCluster", "Fault", "FaultClock", "emulated", "parse_fault"]
