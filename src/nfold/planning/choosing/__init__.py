"""Chooses a plan: asks every strategy, simulates what may win, says why the others lost and what to ask for instead.

search                 the question in, the plan out
strategies             the ways to spread a step; those of other rooms are listed there too
wishes                 refuses what no plan could give
portfolio              all proposals of a question, and which of them wins
candidates             what one proposal costs, estimated or simulated; proposals remembers it
comparing_candidates   why a candidate lost
advice                 what to ask for instead of what was refused
early_checks           refusals and notes before the first step; first_step and granted_time, those by its length
bottleneck             what limits the step of a plan
node_counts, scaling   more nodes than there are: how many are worth having, and how long a step takes then
"""
