"""Finds out who failed: ranks that fall silent, cuts of the network, and the first cause among many errors. Pure.

A death is noticed in `runtime/control/control_server.py`, a silence in `silent_ranks.py`, a task that hangs in
`stalls.py`; what the user reads of them is made in `first_cause.py`. What follows from a loss is decided by
`runtime/coordinator/members/membership.py`.
"""
