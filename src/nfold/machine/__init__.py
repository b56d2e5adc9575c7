"""This machine as the kernel tells of it: cores and memory that a process may use, and counters while it works."""
