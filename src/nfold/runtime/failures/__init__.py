"""Finds out who failed: ranks that fall silent, cuts of the network, and the first cause among many errors. Pure.

What follows from a loss is decided by `runtime/coordinator/membership.py`.
"""
