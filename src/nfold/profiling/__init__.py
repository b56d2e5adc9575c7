"""Programs and machines, measured: what a program costs here, and what this machine is."""

from nfold.profiling.node_measuring import this_node
from nfold.profiling.pace import bookkeeping_s, measure_pace
from nfold.profiling.program_profile import profile_program

__all__ = ["bookkeeping_s", "measure_pace", "profile_program", "this_node"]
