"""Emulates a declared cluster on this machine: real processes and real TCP behind shaped links and limited cores."""

from nfold.launch.emulation.box import Box, emulated
from nfold.launch.emulation.faults import Fault, FaultClock, parse_fault

__all__ = ["Box", "Fault", "FaultClock", "emulated", "parse_fault"]
