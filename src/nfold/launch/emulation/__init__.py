"""Emulates a declared cluster on this machine: real processes and real TCP behind shaped links and limited cores."""

from nfold.launch.emulation.emulated_cluster import EmulatedCluster, emulated
from nfold.launch.emulation.faults import Fault, FaultClock, parse_fault

__all__ = ["EmulatedCluster", "Fault", "FaultClock", "emulated", "parse_fault"]
