"""Starts ranks, on this machine or on an emulated cluster, and leaves none behind."""
