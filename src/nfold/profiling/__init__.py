"""Programs and machines, measured: what a program costs here, and what this machine is.

program_profile     program in, graph and Profile out
recall              what an earlier run measured of it, if it still holds
bench, measure      what is measured, and until it is known well enough
compute             times passes, operators and reading
updating            times an update
measured_memory, saved_bytes, tracer_memory    bytes: of the process, kept for backward, of torch's tracer
few_threads         whether capture is quicker with one thread
node_measuring      this machine as a Node
pace                how fast a rank computes while all compute
"""

from nfold.profiling.node_measuring import this_node
from nfold.profiling.pace import bit_s, bookkeeping_s, measure_pace
from nfold.profiling.program_profile import profile_program

__all__ = ["bit_s", "bookkeeping_s", "measure_pace", "profile_program", "this_node"]
