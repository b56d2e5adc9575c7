"""Strategy `hypergraph`: the cells of a step as a hypergraph whose partition says who computes what.

Operators that stay together are joined before that, in `planning/inputs/operator_groups.py`; `partition.py` divides.
"""
