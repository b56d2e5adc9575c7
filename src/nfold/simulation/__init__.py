"""A schedule in virtual time: event heap, shared cores, shared links.

simulate       schedule, seconds and cluster in, StepTrace out
player         one rank
messages       messages between ranks; links, who gets how much of a link
cores          a node's cores, shared and under quotas
unsteadiness   how much slower ranks compute for a while
coarse         a step bucket by bucket, for a thousand nodes
virtual_time   the event heap
"""

from nfold.simulation.simulate import simulate

__all__ = ["simulate"]
