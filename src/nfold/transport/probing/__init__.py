"""Measures latency and rate of the way between two ranks."""
